"""How fast a device multiplies, streams its memory, and takes data from the host and gives it back.

On a CPU share of one thread the clock is that thread's own CPU time: what other programs take of the machine meanwhile is not the
share's speed. A quota of the container is (it stays), so the rates are scaled by the part of the wall time that was granted whenever
the kernel counted throttling; what the container's other processes (Ray's own) took of the quota meanwhile was granted too. Shares of
several threads are timed by the wall clock, and by their quicker repetitions: waiting for a processor that other programs use only ever
adds time.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass

from stages.profile.cgroup import cpu_used_s, throttled_count
from stages.profile.probes.child import run, say, wait_for_go
from stages.profile.probes.engines import Engine, Work, open_engine
from stages.profile.probes.timing import MIN_SAMPLES, Timing, repeat

COMPUTE_PART = 0.7
SATURATED_SAMPLES = 15
"""Of the largest size, by which devices are compared; a share with a small quota would else come to three."""


@dataclass(frozen=True)
class RateAnswer:
    """A rate (FLOP/s or B/s), its relative half-range, and how many samples it rests on."""

    rate: float
    spread: float
    samples: int
    size: int


def measure(engine: Engine, *, seconds: float, memory_bytes: int, sharing: int = 1) -> dict[str, object]:
    """Rates by size, each size with the same part of ``seconds`` (wall time).

    ``granted``: part of the CPU time that the group's quota allowed, of which ``sharing`` probes have equal parts. ``waited``: part of the
    wall time that other programs took.
    """
    began, cpu_began, throttled_began, group_began = time.monotonic(), engine.clock(), throttled_count(), cpu_used_s()
    points = [(tokens, width) for width in engine.widths for tokens in engine.tokens]
    each = seconds * COMPUTE_PART / len(points)
    curve = []
    for tokens, width in points:
        largest = (tokens, width) == points[-1]
        timing = repeat(engine.matmul(tokens, width), engine.clock, budget_s=each, least=SATURATED_SAMPLES if largest else MIN_SAMPLES)
        curve.append({"tokens": tokens, "width": width, "flops_per_s": 2 * tokens * width * width / _seconds(engine, timing),
                      "spread": timing.spread, "samples": timing.samples})
    condition = engine.condition()  # right after the work: at rest the clocks say nothing
    size = min(engine.buffer_bytes, max(memory_bytes // 32, 1 << 20))
    works = {"stream": engine.stream(size), "copy": engine.copy(size), "back": engine.copy_back(size)}
    each = seconds * (1 - COMPUTE_PART) / sum(work is not None for work in works.values())
    moved = {what: asdict(_rate(engine, work, size, each)) if work is not None else None for what, work in works.items()}
    wall, group_ended = time.monotonic() - began, cpu_used_s()
    obtained = min(1.0, (engine.clock() - cpu_began) / wall)
    known = group_began is not None and group_ended is not None
    of_group = (group_ended - group_began) / wall / sharing if known else 0.0  # type: ignore[operator]
    granted = min(1.0, max(obtained, of_group))
    throttled = engine.counts_cpu_time and throttled_count() > throttled_began
    return {"engine": engine.name, "dtype": engine.dtype, "clock": engine.clock_name, "granted": granted if throttled else 1.0,
            "waited": 1 - obtained if engine.counts_cpu_time and not throttled else 0.0, "curve": curve, "condition": condition,
            **moved}


def _rate(engine: Engine, work: Work, size: int, budget_s: float) -> RateAnswer:
    timing = repeat(work, engine.clock, budget_s=budget_s)
    return RateAnswer(rate=size / _seconds(engine, timing), spread=timing.spread, samples=timing.samples, size=size)


def _seconds(engine: Engine, timing: Timing) -> float:
    return timing.quick_s if engine.interruptible else timing.seconds


def main(arguments: argparse.Namespace) -> None:
    engine = open_engine(arguments.device, threads=arguments.threads)
    say({"ready": engine.name})
    wait_for_go()
    say(measure(engine, seconds=arguments.seconds, memory_bytes=arguments.memory_bytes, sharing=arguments.sharing))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--sharing", type=int, default=1, help="probes that measure shares of this machine's CPU at the same time")
    run(main, parser)
