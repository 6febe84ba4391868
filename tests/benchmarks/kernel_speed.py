"""How fast the cost kernel is: ``python -m tests.benchmarks.kernel_speed`` writes ``infra/docs/kernel-speed.md``.

On one core, PPO with Qwen3-8B, machines of eight A100, L40S or L4 over up to eight regions. Whole plans: random legal plans one after the other.
One move: two devices of a task, or of a group, change places, and only what that touches is priced again.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from artifacts.catalog import models
from artifacts.job import Batch, Engine, Job, Lengths
from artifacts.topology import Topology
from stages.profile.basis import anchored
from stages.profile.inventory import read_inventory
from stages.schedule.cost.kernel.arrays import Flat, Ints, Ledger, Records, Tables
from stages.schedule.cost.kernel.jit import entry
from stages.schedule.cost.kernel.price import compose, price_plan, reprice_group
from stages.schedule.cost.tables import build_ledger, compiled, flat_plan
from stages.schedule.documents import price_plan as price_plan_document
from tests.benchmarks.random_plans import random_plans

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "infra" / "docs" / "kernel-speed.md"
SIZES = (8, 64, 256, 1024)
PLANS = 24
GPUS = ("A100-SXM4-80GB", "L40S-48GB", "L4-24GB")
REGIONS = ("virginia", "ohio", "paris", "stockholm", "london", "ireland", "frankfurt", "milan")


@entry
def whole_plans(tb: Tables, row: Records, ranks: Ints, split: Ints, local: Ints, micro: Ints, lg: Ledger, rounds: int) -> float:
    """Price every plan ``rounds`` times; arrays have a leading axis of plans."""
    total = 0.0
    for _ in range(rounds):
        for k in range(len(row)):
            fp = Flat(row[k], ranks[k], split[k], local[k], micro[k])
            groups = 0
            for t in range(len(fp.row)):
                groups = max(groups, fp.row[t].group + 1)
            total += price_plan(tb, fp, lg, groups)
    return total


@entry
def moves(tb: Tables, fp: Flat, lg: Ledger, groups: int, tasks: Ints, first: Ints, second: Ints, whole_group: bool) -> float:
    """Swap two ranks of a task (or of all tasks of its group that have the same ranks) and price what that touches."""
    total = 0.0
    for m in range(len(tasks)):
        task = tasks[m]
        for t in range(len(fp.row)):
            alike = t == task or (whole_group and fp.row[t].group == fp.row[task].group)
            size = fp.row[t].dp * fp.row[t].pp * fp.row[t].tp
            if alike and first[m] < size and second[m] < size:
                kept = fp.ranks[t, first[m]]
                fp.ranks[t, first[m]] = fp.ranks[t, second[m]]
                fp.ranks[t, second[m]] = kept
        reprice_group(tb, fp, lg, fp.row[task].group, -1 if whole_group else task)
        total += compose(tb, fp, lg, groups)
    return total


def fleet(devices: int) -> Topology:
    """Machines of eight, a kind after the other, over as many regions as there are machines, at most eight."""
    machines, regions = devices // 8, min(8, devices // 8)
    lines = ["name: speed", "machines:"]
    for m in range(machines):
        gpu, region = GPUS[m % 3], REGIONS[m * regions // machines]
        lines.append(f"  - {{name: m{m}, count: 1, region: {region}, gpus: [{{gpu: {gpu}, count: 8}}], host_memory_gib: 1024, cpus: 96}}")
    lines += ["links:", "  same_zone: {latency_ms: 0.05, bandwidth_gbit_per_s: 100}", "  between_regions: {latency_ms: 20, bandwidth_gbit_per_s: 5}"]
    return anchored(read_inventory("\n".join(lines), where="speed"), [])


def job() -> Job:
    return Job(
        name="speed",
        algorithm="ppo",
        models={"actor": models()["Qwen3-8B"]},
        batch=Batch(prompts=384, responses_per_prompt=8, micro_batch_sequences=8),
        prompt_tokens=Lengths(mean=512, max=1024),
        response_tokens=Lengths(mean=512, max=1024),
        engine=Engine(recompute="full"),
    )


def rates(devices: int, seconds: float) -> tuple[float, float, float]:
    """(whole plans, moves of a task, moves of a group) a second."""
    work, topology = job(), fleet(devices)
    flats, counts = [], []
    for problem, plan in itertools.islice(random_plans(work, topology, seed=0), PLANS):
        price = price_plan_document(problem, plan)
        assert price is not None
        flats.append(flat_plan(problem, [g.layouts for g in price.groups]))
        counts.append(len(price.groups))
    stack = [np.stack([np.asarray(getattr(f, name)) for f in flats]) for name in Flat._fields]
    tables = compiled(problem).tables
    ledger = build_ledger(tables)
    whole = _pace(lambda n: (whole_plans(tables, *stack, ledger, n), n * PLANS)[1], seconds)
    rng = np.random.default_rng(0)
    paces = []
    for whole_group in (False, True):
        done = spent = 0.0
        for flat, count in zip(flats, counts, strict=True):
            price_plan(tables, flat, ledger, count)
            n = max(8, int(seconds / PLANS * whole))
            tasks = rng.integers(0, len(flat.row), n)
            sizes = np.array([int(r["dp"] * r["pp"] * r["tp"]) for r in flat.row])
            pair = [rng.integers(0, sizes[tasks]) for _ in range(2)]
            moves(tables, flat, ledger, count, tasks[:1], pair[0][:1], pair[1][:1], whole_group)
            started = time.thread_time()
            moves(tables, flat, ledger, count, tasks, *pair, whole_group)
            spent += time.thread_time() - started
            done += n
        paces.append(done / spent)
    return whole, paces[0], paces[1]


def _pace(run: object, seconds: float) -> float:
    run(1)  # type: ignore[operator]
    rounds = 1
    while True:
        started = time.thread_time()
        done = run(rounds)  # type: ignore[operator]
        spent = time.thread_time() - started
        if spent > seconds:
            return float(done / spent)
        rounds = max(rounds + 1, int(rounds * min(10.0, 1.2 * seconds / max(spent, 1e-6))))


def starting() -> tuple[float, float]:
    """Seconds from an empty process to the first priced plan: nothing compiled; everything compiled."""
    code = "import stages.schedule.warm as w; w.first_price()"
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            started = time.monotonic()
            subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env=os.environ | {"NUMBA_CACHE_DIR": folder})
            found.append(time.monotonic() - started)
    return found[0], found[1]


def page(table: list[tuple[int, float, float, float]], start: tuple[float, float]) -> str:
    lines = [
        "# Speed of the cost kernel",
        "",
        "Made by `python -m tests.benchmarks.kernel_speed`: seconds of one core (CPU time of the thread); PPO, Qwen3-8B, calibrated fidelity.",
        "",
        "| devices | whole plans / s | moves of one task / s | moves of a whole group / s |",
        "|---|---|---|---|",
        *(f"| {n:,} | {a:,.0f} | {b:,.0f} | {c:,.0f} |" for n, a, b, c in table),
        "",
        "A move swaps two devices, and what it touches is priced again: one task (and the rollout beside it, where its room changes), or all tasks",
        "of a group. A whole plan is priced from nothing: six tasks, memory of every device, weight update.",
        "",
        f"From an empty process to the first price: {start[0]:.1f} s with nothing compiled, {start[1]:.1f} s from the cache"
        f" (Python {platform.python_version()}). The schedule image ships the cache.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    options.add_argument("--print", action="store_true", help="show the page, write nothing")
    given = options.parse_args()
    table = []
    for size in SIZES:
        table.append((size, *rates(size, given.seconds)))
        print(*table[-1], file=sys.stderr)
    text = page(table, starting())
    if given.print:
        print(text)
        return
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
