"""How many fingerprints repeated profiles of an unchanged cluster have, how far apart their rates lie, and whether a device gone shows.

    python -m tests.benchmarks.fingerprints local               # this machine
    python -m tests.benchmarks.fingerprints fleet               # three Ray nodes on this machine, one is killed at the end
    python -m tests.benchmarks.fingerprints lab --seconds 3     # the lab that is up here; nothing is taken from it

Every profile has the earlier ones for its history, as in the pipeline. Prints a row for ``infra/docs/profile.md`` and, below it, the rates.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from artifacts.topology import Topology
from flows.lab.state import lab_cluster
from stages.profile.basis import raw_basis
from stages.profile.draft import Draft
from stages.profile.fleet import RaySource, draft_ray
from stages.profile.host import this_host
from stages.profile.local import profile_local
from stages.profile.settle import settle
from tests.stages.profile.ray_fleet import ray_fleet


@dataclass(frozen=True)
class Source:
    """``measure``: the cluster once; ``smaller``: the same when something of it is gone, where that can be had."""

    name: str
    measure: Callable[[], Draft]
    smaller: Callable[[], Draft] | None = None


@dataclass
class Repeated:
    """``measured``: how often the cluster was measured in all, second looks with it; ``rates``: by their name in the basis, of every look."""

    profiles: list[Topology] = field(default_factory=list)
    measured: int = 0
    loads: list[float] = field(default_factory=list)
    rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def fingerprints(self) -> int:
        return len({p.fingerprint for p in self.profiles})

    def widest(self, kind: str) -> float:
        """The largest rate over the smallest of the same name, the widest of a kind (compute, memory, …); 1 where there is none."""
        return max((max(v) / min(v) for name, v in self.rates.items() if name.startswith(f"{kind}:")), default=1.0)


def repeat(source: Source, repetitions: int, *, say: Callable[[str], None]) -> Repeated:
    found = Repeated()

    def look() -> Draft:
        draft = source.measure()
        found.measured += 1
        for name, value in raw_basis(draft).items():
            found.rates[name].append(value)
        return draft

    for number in range(repetitions):
        began = time.monotonic()
        _, topology = settle(look, found.profiles)
        found.profiles.insert(0, topology)
        found.loads.append(os.getloadavg()[0])
        say(f"{number + 1}: {topology.fingerprint[:12]}, {time.monotonic() - began:.0f} s, load {found.loads[-1]:.1f}")
    return found


@contextmanager
def _local(seconds: float) -> Iterator[Source]:
    def measure(devices: int) -> Draft:
        return profile_local(devices=devices, seconds=seconds, machine="", strict=False, report=lambda *_: None)

    cores = this_host().cores
    yield Source(f"this machine, {cores} cores", lambda: measure(cores), lambda: measure(cores + 1 if cores == 1 else cores - 1))


@contextmanager
def _fleet(seconds: float) -> Iterator[Source]:
    with ray_fleet("a", "b", "c", devices=1) as fleet:
        def measure() -> Draft:
            return draft_ray(RaySource(fleet.address, name="bench", seconds=seconds))

        def smaller() -> Draft:
            fleet.kill("c")
            return measure()

        yield Source("three Ray nodes on this machine", measure, smaller)


@contextmanager
def _lab(seconds: float) -> Iterator[Source]:
    lab = lab_cluster()
    source = RaySource(lab["address"], name=lab["name"], kind="lab", seconds=seconds)
    yield Source(f"lab {lab['name']}", lambda: draft_ray(source))


SOURCES = {"local": _local, "fleet": _fleet, "lab": _lab}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=SOURCES)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0, help="of measuring a device")
    arguments = parser.parse_args()
    with SOURCES[arguments.source](arguments.seconds) as source:
        found = repeat(source, arguments.repetitions, say=print)
        gone = "not tried"
        if source.smaller is not None:
            _, less = settle(source.smaller, found.profiles)
            gone = "the same" if less.fingerprint in {p.fingerprint for p in found.profiles} else "another"
    wide = [f"{found.widest(kind):.2f}" for kind in ("compute", "memory", "bandwidth", "latency")]
    print(f"\n| {source.name} | {arguments.repetitions} | {found.fingerprints} | {found.measured} | {' | '.join(wide)} | {gone} "
          f"| {min(found.loads):.0f} to {max(found.loads):.0f} |\n")
    for name, values in sorted(found.rates.items()):
        print(f"{name}: {min(values):.3g} … {max(values):.3g}, × {max(values) / min(values):.2f}")


if __name__ == "__main__":
    main()
