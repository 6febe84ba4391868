"""The tables of the page, an experiment each, in Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from artifacts.views.text import markdown
from flows.replay.cells import PROMPTS, RESPONSES, Cell, Workload
from flows.replay.compare import Found, Ratio, at_cpu, end_to_end, lost_in, speedup
from flows.replay.experiments import OTHER_BATCHES, SEARCHED, Replay, a100_alone
from flows.replay.fleets import ALL_GPUS, COMBINATIONS, SETTINGS, SMALL
from flows.replay.published import ALL_OVER_A100, BALANCING_GAIN, COMBINATIONS_OVER_VERL, REGIONS_OVER_A100, SHA_EA_GAP, Range
from flows.replay.results import Result

CPU_BUDGETS_S = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def seconds(value: float | None) -> str:
    return "none fits" if value is None else f"{value:,.1f}"


def span(values: Sequence[float]) -> str:
    """``1.20`` or ``1.20–1.80``."""
    if not values:
        return "–"
    return f"{values[0]:.2f}" if len(values) == 1 else f"{min(values):.2f}–{max(values):.2f}"


def end_to_end_table(replay: Replay, found: Found) -> str:
    ratios = end_to_end(replay, found)
    rows = []
    for r in ratios:
        where = "" if r.published is None or r.value is None else r.published.place(r.value)
        both = [seconds(r.ours.simulated_s), seconds(r.theirs.simulated_s), f"**{times(r.value)}**"]
        rows.append([r.setting, str(r.workload), r.baseline, *both, str(r.published or "–"), where, markdown(lost_in(r.ours, r.theirs))])
    titles = ["setting", "job", "baseline", "HetRL, s", "baseline, s", "ratio", "published", "", "the slower one loses most in"]
    return _summary(ratios) + "\n\n" + table(titles, rows)


def _summary(ratios: Sequence[Ratio]) -> str:
    groups: dict[tuple[str, str, str], list[Ratio]] = defaultdict(list)
    for r in ratios:
        groups[r.setting, r.workload.mode, r.baseline].append(r)
    rows = []
    for (setting, mode, baseline), group in groups.items():
        values = [r.value for r in group if r.value is not None]
        published = group[0].published
        inside = f"{sum(published.place(v) == 'inside' for v in values)} of {len(values)}" if published else ""
        rows.append([setting, f"{mode}, over {baseline}", span(values), str(published or "–"), inside])
    return table(["setting", "HetRL", "ratio here", "published", "inside"], rows)


def load_balancing_table(replay: Replay, found: Found) -> str:
    rows = []
    for setting, most in BALANCING_GAIN.items():
        for workload in (w for w in replay.workloads if w.mode == "sync"):
            balanced = replay.cell(setting, workload)
            even = next((c for c in found if not c.balanced and (c.fleet, c.workload) == (setting, workload)), None)
            if even is None or balanced not in found:
                continue
            gain = speedup(found[balanced], found[even])
            shown = "–" if gain is None else f"{gain - 1:+.0%}".replace("-", "−")
            both = [seconds(found[c].simulated_s) for c in (balanced, even)]
            rows.append([setting, str(workload), *both, shown, f"up to {most:.0%}"])
    return table(["setting", "job", "balanced, s", "equal shares, s", "gain", "published"], rows)


def search_table(replay: Replay, found: Found) -> str:
    rows = []
    for setting in dict.fromkeys(c.fleet for c in replay.search()):
        here = {c.solver: found[c] for c in replay.searched(setting) if c in found}
        most = max((r.cpu_s for r in here.values()), default=0.0)
        for budget in (b for b in CPU_BUDGETS_S if b <= most):
            rows.append([setting, f"{budget:g}", *(_after(here.get(s), budget) for s in SEARCHED)])
        if here:
            ends = [f"{r.predicted_s:,.1f} ({r.cpu_s:.1f} s)" if (r := here.get(s)) and r.predicted_s else "–" for s in SEARCHED]
            rows.append([setting, "end (after)", *ends])
    return table(["setting", "CPU seconds", *SEARCHED], rows)


def _after(result: Result | None, budget: float) -> str:
    if result is None:
        return "–"
    if budget > result.cpu_s * 1.25:
        return "ended"
    best = at_cpu(result, budget)
    return "none yet" if best is None else f"{best:,.1f}"


def exact_table(replay: Replay, found: Found) -> str:
    rows = []
    for fleet in SMALL:
        here = {c.solver: found[c] for c in found if c.fleet == fleet}
        proof = here.get("exact")
        if proof is None or proof.predicted_s is None:
            continue
        optimum = proof.predicted_s
        gaps = [_gap(here.get(s), optimum) for s in ("sha-ea", "auto")]
        said = proof.proof_scope if proof.solver_status == "optimal" else "no proof: best found"
        rows.append([fleet, f"{optimum:,.2f}", markdown(said), f"{proof.cpu_s:,.0f}", *gaps, f"within {SHA_EA_GAP:.0%}"])
    return table(["fleet", "exact, s", "optimal among", "CPU, s", "SHA-EA above it", "auto above it", "published, SHA-EA"], rows)


def _gap(result: Result | None, optimum: float) -> str:
    if result is None or result.predicted_s is None:
        return "–"
    return f"{result.predicted_s / optimum - 1:+.1%}".replace("-", "−")


def cost_model_table(replay: Replay, found: Found) -> str:
    rows = []
    for setting in (*SETTINGS, "all"):
        errors: dict[str, list[float]] = defaultdict(list)
        for cell, r in found.items():
            if cell.fleet in SETTINGS and setting in (cell.fleet, "all") and r.simulated_s and r.predicted_s:
                errors["HetRL" if cell.solver == "auto" else "baselines"].append(r.predicted_s / r.simulated_s - 1)
        if not errors:
            continue
        every = [e for some in errors.values() for e in some]
        rows.append([setting, str(len(every)), *(_median(some) for some in (every, errors["HetRL"], errors["baselines"])),
                     f"{max(every, key=abs):+.0%}".replace("-", "−")])
    return table(["setting", "plans", "median difference", "HetRL's plans", "the baselines' plans", "largest"], rows)


def _median(errors: Sequence[float]) -> str:
    return f"{median(map(abs, errors)):.1%}" if errors else "–"


def combinations_table(replay: Replay, found: Found) -> str:
    rows, across = [], []
    for workload in replay.workloads:
        alone = found.get(a100_alone(replay, workload))
        for fleet in (*COMBINATIONS, ALL_GPUS):
            ours, verl = found.get(replay.cell(fleet, workload)), found.get(replay.cell(fleet, workload, "verl"))
            if not ours or not verl or not alone:
                continue
            name = "all 64 (single-region)" if fleet == ALL_GPUS else fleet
            published = ALL_OVER_A100 if fleet == ALL_GPUS else None
            rows.append([str(workload), name, seconds(ours.simulated_s), *_against(speedup(ours, alone), published),
                         *_against(speedup(ours, verl), COMBINATIONS_OVER_VERL[workload.algorithm, workload.mode])])
        for setting in SETTINGS[1:]:
            ours = found.get(replay.cell(setting, workload))
            if ours and alone:
                across.append([str(workload), setting, seconds(ours.simulated_s), *_against(speedup(ours, alone), REGIONS_OVER_A100)])
    first = table(["job", "GPUs", "HetRL, s", "over 24 A100", "published", "over verl", "published"], rows)
    return first + "\n\nAll 64 GPUs over several regions against the 24 A100 in one:\n\n" + table(
        ["job", "setting", "HetRL, s", "over 24 A100", "published"], across)


def _against(value: float | None, published: Range | None) -> list[str]:
    return [times(value), f"{published} ({published.place(value)})" if published and value is not None else str(published or "–")]


def batch_table(replay: Replay, found: Found) -> str:
    rows = []
    for prompts in (PROMPTS, *OTHER_BATCHES):
        workload = Workload("8B", "grpo", "sync", prompts)
        ours, verl = (found.get(replay.cell("multi-country", workload, s)) for s in ("auto", "verl"))
        if ours and verl:
            rows.append([f"{prompts * RESPONSES:,}", seconds(ours.simulated_s), seconds(verl.simulated_s), times(speedup(ours, verl)),
                         markdown(lost_in(ours, verl))])
    return table(["sequences", "HetRL, s", "verl, s", "ratio", "the slower one loses most in"], rows)


def plans(found: Found) -> str:
    """Every plan that was played, so that a reader can see what was compared."""
    rows = []
    for c, r in found.items():
        groups = "<br>".join(markdown(line) for line in r.plan) or markdown(r.why)
        rows.append([markdown(str(c)), groups, str(r.idle), _both(c, r)])
    return table(["cell", "groups: devices, dp×pp×tp", "idle", "predicted → simulated, s"], rows)


def _both(cell: Cell, r: Result) -> str:
    return f"{seconds(r.predicted_s)} → {seconds(r.simulated_s)}" if cell.played else seconds(r.predicted_s)
