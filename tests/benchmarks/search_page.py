"""infra/docs/search.md from the lines of ``search_quality.jsonl``: what was measured goes below its heading, the rest stays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from tests.benchmarks.search_runs import LARGE, PARTS, Case, Result, known, settings

PAGE = Path(__file__).resolve().parents[2] / "infra" / "docs" / "search.md"
HEADING = "## Measured"
COLUMNS = ("auto", "sha-ea", "sha-ea-published", "deap", "random", "verl", "streamrl")
PLANNED = ("auto", "sha-ea", "sha-ea-published")
LONG = 100.0
"""Processor seconds of a search whose best plan others are measured against."""
OFF = ("halving", "local-search", "balancing", "seeds")
HEAD = """Made by `python -m tests.benchmarks.search_ablations` and `python -m tests.benchmarks.search_quality` (both go on where they were stopped)
from `tests/benchmarks/search_quality.jsonl`: PPO of Qwen3-8B, synchronous, 384 × 8 sequences of 1,024 + 1,024 tokens, on the published settings
of 64 GPUs (reconstructed). Budgets are processor time of all threads, so that what else the machine does meets no solver more than another:
10 s of two cores are 20 s of processor time. Compilation is not counted. Rows without numbers were not run. A processor second still does
less on a busy machine, whose caches are shared: runs made at different times are compared with that in mind.
"""

Lines = Mapping[Case, Result]


def write_page() -> None:
    kept = PAGE.read_text(encoding="utf-8").split(HEADING)[0]
    PAGE.write_text(kept + measured(known()), encoding="utf-8")


def measured(lines: Lines) -> str:
    parts = [f"{HEADING}\n", HEAD, *_bars(lines), "", *_within(lines), "", *_large(lines), "", *_ablations(lines), "", *_balancing(lines), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def best_known(lines: Lines, fleet: str) -> float | None:
    return min((r.cost_s for c, r in lines.items() if c.fleet == fleet and r.cost_s is not None), default=None)


def _mean(values: Sequence[float | None]) -> float | None:
    given = [v for v in values if v is not None]
    return mean(given) if given and len(given) == len(values) else None


def _plain(lines: Lines, fleet: str, solver: str) -> dict[float, list[Result]]:
    """By budget, a result a seed."""
    found: dict[float, list[Result]] = {}
    for case, result in sorted(lines.items(), key=lambda item: (item[0].seconds, item[0].seed)):
        if (case.fleet, case.solver, case.without) == (fleet, solver, ()):
            found.setdefault(case.seconds, []).append(result)
    return found


def _cell(lines: Lines, fleet: str, solver: str, seconds: float) -> tuple[float | None, str]:
    """Seconds of an iteration after a budget (mean of the seeds), and as text."""
    runs = _plain(lines, fleet, solver)
    if solver in PLANNED:
        results = runs.get(seconds, [])
        costs = [r.cost_s for r in results]
    else:
        results = next((r for budget, r in reversed(runs.items()) if budget >= seconds or r[0].cpu_s < budget), [])
        costs = [r.at(seconds) for r in results]
    value = _mean(costs)
    return value, "" if not results else "none fits" if value is None else f"{value:.1f}"


def _bars(lines: Lines) -> list[str]:
    budgets = sorted({c.seconds for c in lines if c.fleet in settings() and c.solver == "auto" and not c.without})
    rows = [
        "Seconds of an iteration of the best plan. `sha-ea` keeps what an offspring is and polishes its best plans with free sizes;"
        " `sha-ea-published` does as the text says: Baldwinian, with a locality search, no polish.",
        "",
        f"| setting | processor time | {' | '.join(COLUMNS)} | auto : sha-ea | auto : published |",
        "|---|---|" + "---|" * (len(COLUMNS) + 2),
    ]
    for fleet in settings():
        for seconds in budgets:
            cells = {s: _cell(lines, fleet, s, seconds) for s in COLUMNS}
            ratios = [_ratio(cells["auto"][0], cells[s][0]) for s in ("sha-ea", "sha-ea-published")]
            rows.append(f"| {fleet} | {seconds:g} s | {' | '.join(text for _, text in cells.values())} | {' | '.join(ratios)} |")
    return [*rows, *_verdict(lines, budgets)]


def _ratio(mine: float | None, other: float | None) -> str:
    return f"{mine / other:.3f}" if mine is not None and other is not None else ""


def _verdict(lines: Lines, budgets: Sequence[float]) -> list[str]:
    """The bars in words: never worse, 10 % better after 10 s, deap and random never better."""
    said = [""]
    for other, bar in (("sha-ea", "at 10 s 10 % better"), ("sha-ea-published", "at 10 s 10 % better"), ("deap", ""), ("random", ""), ("streamrl", ""), ("verl", "")):
        pairs = []
        for f in settings():
            for s in budgets:
                mine, theirs = _cell(lines, f, "auto", s)[0], _cell(lines, f, other, s)
                if mine is not None and theirs[1]:
                    pairs.append((f, s, mine / theirs[0] if theirs[0] is not None else 0.0))
        if not pairs:
            continue
        worse = [f"{f} at {s:g} s ({r - 1:.1%})" for f, s, r in pairs if r > 1]
        line = f"- `auto` against `{other}`: worse in {len(worse)} of {len(pairs)}{': ' + ', '.join(worse) if worse else ''}"
        at_ten = [(f, r) for f, s, r in pairs if s == 20.0]
        if bar and at_ten:
            line += "; after 10 s of two cores better by " + ", ".join(f"{1 - r:.1%} ({f})" for f, r in at_ten)
        said.append(line + ".")
    return said


def _within(lines: Lines) -> list[str]:
    if not any(c.seconds >= LONG and c.fleet != LARGE for c in lines):
        return ["How soon `auto` is near the best plan of a long search was not measured: no run here is long enough to say what is best."]
    rows = [
        "How far each run of `auto` ended above the best plan known of the setting (of all runs here, the longest included), when it first was"
        " within 1 % of it, and the best plan known over the roofline (the only bound there is at 64 devices: nothing communicated).",
        "",
        "| setting | best known, s | over the roofline | budget: end above best (within 1 % after; within 1/3 % after) |",
        "|---|---|---|---|",
    ]
    for fleet in settings():
        best = best_known(lines, fleet)
        runs = _plain(lines, fleet, "auto")
        if best is None or not runs:
            continue
        words = []
        for seconds, results in runs.items():
            for r in results:
                if r.cost_s is not None:
                    when = [next((f"{t:.1f} s" for t, cost in r.points if cost <= best * (1 + share)), "not") for share in (0.01, 1 / 300)]
                    words.append(f"{seconds:g} s: {r.cost_s / best - 1:.2%} ({when[0]}; {when[1]})")
        bound = next(iter(runs.values()))[0].bound_s
        rows.append(f"| {fleet} | {best:.1f} | {best / bound - 1:.0%} | {', '.join(words)} |")
    return rows


def _large(lines: Lines) -> list[str]:
    runs, best = _plain(lines, LARGE, "auto"), best_known(lines, LARGE)
    if not runs or best is None:
        return []
    rows = ["1,024 GPUs of three types in eight regions, the same job:", ""]
    for seconds, results in runs.items():
        for r in results:
            first = f"first plan that fits after {r.points[0][0]:.1f} s" if r.points else "no plan that fits"
            end = "" if r.cost_s is None else f", {r.cost_s:.1f} s an iteration at the end, {r.cost_s / best - 1:.1%} above the best known"
            rows.append(f"- {seconds:g} s of processor time: {first}{end}; {r.memory_gib:.2f} GiB of memory.")
    return rows


def _ablations(lines: Lines) -> list[str]:
    budgets = sorted({c.seconds for c in lines if c.without})
    rows = ["### What each part is worth", ""]
    for seconds in budgets:
        seeds = 1 + max(c.seed for c in lines if c.without and c.seconds == seconds)
        rows += [
            f"Each with {seconds:g} s of processor time, {seeds} seed{'s' if seeds > 1 else ''}: seconds of an iteration as it is, and how much longer"
            " it is without the part (negative: shorter).",
            "",
            f"| setting | solver | all | {' | '.join(f'without {part}' for part in OFF)} |",
            "|---|---|---|" + "---|" * len(OFF),
        ]
        for fleet in settings():
            for solver in ("auto", "sha-ea"):
                whole = _mean([r.cost_s for r in _plain(lines, fleet, solver).get(seconds, [])])
                cells = []
                for part in OFF:
                    costs = [r.cost_s for c, r in lines.items() if (c.fleet, c.solver, c.seconds, c.without) == (fleet, solver, seconds, (part,))]
                    value = _mean(costs)
                    cells.append("" if not costs or whole is None else "none fits" if value is None else f"{value / whole - 1:+.1%}")
                if whole is not None:
                    rows.append(f"| {fleet} | {solver} | {whole:.1f} | {' | '.join(cells)} |")
        rows.append("")
    rows.append(
        "From one seed and a budget this short a few per cent say little, and of halving nothing: where a run without a part ends before"
        " the whole search, the difference is the luck of the starts."
    )
    return rows if budgets else []


def _balancing(lines: Lines) -> list[str]:
    rows = [
        "Load balancing gives each pipeline stage its layers, each training and inference replica its share of the batch and its micro-batch,"
        " and each rollout replica its sequences, by what each takes for them; it moves no sample afterwards. Above it is off during the whole"
        " search, which then finds what suits equal shares. Here the best plan of `auto` found with it keeps its groups,"
        " devices and degrees, and is priced without: how much longer an iteration is. The published text reports up to 12 % (one region) and"
        " 18 % (several regions), related work 19 to 22 %.",
        "",
        "| setting | equal layers | equal batches | both |",
        "|---|---|---|---|",
    ]
    for fleet in settings():
        done = [(r.cost_s, r.unbalanced) for c, r in lines.items() if (c.fleet, c.solver, c.without) == (fleet, "auto", ()) and r.unbalanced]
        if done:
            whole, plain = min((d for d in done if d[0] is not None), key=lambda d: d[0] or 0.0)
            assert whole is not None and plain is not None
            cells = [_longer(plain[name], whole) for name in PARTS]
            rows.append(f"| {fleet} | {' | '.join(cells)} |")
    return rows


def _longer(value: float | None, whole: float) -> str:
    return "cannot be laid out, or does not fit" if value is None else f"{value / whole - 1:+.1%}"
