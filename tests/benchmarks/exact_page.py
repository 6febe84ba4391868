"""The page about exact optima, from the lines of ``exact_proofs``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from tests.benchmarks.instances import Instance

SEARCHES = ("auto", "sha-ea")
TOLERANCE = 1e-6

Line = Mapping[str, Any]
Lines = Mapping[tuple[str, str], Line]

HEAD = """# Exact optima

Made by `python -m tests.benchmarks.exact_proofs` (it goes on where it was stopped; `--ilp 180` adds the integer programme alone, `--compare`
the searches), from `tests/benchmarks/exact_proofs.jsonl`: twenty generated planning problems (`tests/benchmarks/instances.py`) of at most 24
devices; PPO and GRPO, synchronous and asynchronous, 4B to 14B with roles of different sizes, one to four kinds of machines in one to three
regions. Rows without numbers were not run under the present cost model. The CPU seconds of a row that was run first after a change include
compilation.

How a proof goes (`stages/schedule/exact`): `auto` gives a cut-off, within its usual number of evaluations. Every set of tasks that may
share devices, on every vector of counts of device classes, with every degree, arrangement and micro-batch, is priced by the cost kernel, in
one order of its devices or all that make a difference; what cannot be in a plan below the cut-off, or is as good nowhere as another, is
dropped. Of these columns branch and bound finds the best choice: groups are added one by one while what is chosen, with the least that the
other tasks need on the devices left over, can end earlier than the best choice known. The integer programme (PuLP, HiGHS) is then the
judge: on the same columns it must find the same value. Both values are those the cost kernel gives the plan, or the solver stops with an
error.

**What a proof is about.** *All plans*: every grouping, choice of devices, order, degree and micro-batch of the search space; layers and
batches follow from these by load balancing and are not varied by themselves. *Machine order*: the same, but of a group whose devices have
more than 120 different orders only those are looked at that take machines one after the other, in every order of the machines.
"""


def page(problems: Sequence[Instance], lines: Lines) -> str:
    rows = [_row(i, lines) for i in problems]
    proved = [i for i in problems if lines.get((i.name, "exact"), {}).get("status") == "optimal"]
    said = [f"Proved: {len(proved)} of {len(problems)}."]
    cpu = [lines[i.name, "exact"]["cpu_s"] for i in proved]
    if cpu:
        said.append(f"CPU seconds of all threads for a proof: {mean(cpu):.0f} on average, {max(cpu):.0f} at most.")
    judged = [i for i in proved if _judged(lines[i.name, "exact"])]
    said.append(f"In {len(judged)} of them the integer programme came to its end in the time it has as judge, and agreed.")
    said += _alone(problems, lines) + _searches(proved, lines)
    table = [
        "| instance | optimum, s | bound, s | about | layouts priced | CPU, s | columns → nodes | programme agrees | auto | sha-ea |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    return HEAD + "\n" + "\n".join(said) + "\n\n" + "\n".join([*table, *rows]) + "\n"


def _row(instance: Instance, lines: Lines) -> str:
    line = lines.get((instance.name, "exact"))
    if line is None:
        return f"| {instance.name} | not run | | | | | | | | |"
    optimal, bound = line["status"] == "optimal", line["bound_s"]
    about = "" if bound is None else "all plans" if line["scope"].startswith("all plans") else "machine order"
    best = f"{line['iteration_s']:.4f}" if optimal else f"≤ {line['iteration_s']:.4f}"
    shown = "none" if bound is None else f"{bound:.4f}"
    branch = next((re.search(r"([\d,]+) nodes of ([\d,]+)", name) for name in line["methods"] if name.startswith("branch")), None)
    size = f"{branch[2]} → {branch[1]}" if branch else ""
    judged = "yes" if _judged(line) else "not ended"
    gaps = " | ".join(f"{gap:+.2%}" if (gap := _gap(instance, solver, lines)) is not None and optimal else "" for solver in SEARCHES)
    return f"| {instance.name} | {best} | {shown} | {about} | {line['layouts']:,} | {line['cpu_s']:.0f} | {size} | {judged} | {gaps} |"


def _gap(instance: Instance, solver: str, lines: Lines) -> float | None:
    """How far above the proved optimum a search's plan lies; below 0 where it is better than all plans the proof is about."""
    if (instance.name, solver) not in lines or (instance.name, "exact") not in lines:
        return None
    return float(lines[instance.name, solver]["iteration_s"] / lines[instance.name, "exact"]["iteration_s"] - 1)


def _judged(line: Line) -> bool:
    return any(name.startswith("integer") and "not finished" not in name for name in line["methods"])


def _alone(problems: Sequence[Instance], lines: Lines) -> list[str]:
    ran = [(i, lines[i.name, "ilp"]) for i in problems if (i.name, "ilp") in lines]
    if not ran:
        return []
    done = [(len(i.topology.devices), i.name) for i, line in ran if line["status"] == "optimal"]
    said = f"By the integer programme alone, given 180 s: {len(done)} of {len(ran)} proved"
    return [f"{said}; the largest: {max(done)[0]} devices ({max(done)[1]})." if done else f"{said}."]


def _searches(proved: Sequence[Instance], lines: Lines) -> list[str]:
    found = []
    for solver in SEARCHES:
        gaps = [gap for i in proved if (gap := _gap(i, solver, lines)) is not None]
        if gaps:
            said = f"`{solver}` at its default budget, against the optimum on {len(gaps)} instances: {mean(gaps):+.2%} on average, {max(gaps):+.2%} at most."
            better = sum(1 for gap in gaps if gap < -TOLERANCE)
            found.append(f"{said} In {better} it is better than the optimum in machine order, which it is free of." if better else said)
    return found
