"""What a new plan changes, as Markdown: why, what moves, what it costs, what it gains."""

from __future__ import annotations

from artifacts.plan_diff import Layout, PlanDiff, TaskMove
from artifacts.units import show_bytes, show_seconds
from artifacts.views.markdown import table_lines
from artifacts.views.tables import Table
from artifacts.views.text import listing, markdown, percent, plural, shares, task_title

_LISTED = 8


def plan_diff_markdown(diff: PlanDiff) -> str:
    """For a person who has to say yes or no to it."""
    parts = [f"# {headline(diff)}", "", f"In force: {markdown(diff.before)}. Proposed: {markdown(diff.after)}.", ""]
    if diff.causes:
        parts += ["## Why", "", *(f"- {markdown(cause)}" for cause in diff.causes), ""]
    parts += ["## What it gains", "", *table_lines(_times(diff)), ""]
    parts += [f"- The old plan cannot stay: {markdown(reason)}" for reason in diff.cannot_stay[:_LISTED]]
    parts += ["", "## What it costs", "", *(f"- {markdown(line)}" for line in cost_lines(diff)), ""]
    parts += ["## What moves", ""]
    if diff.moves:
        columns = ("Task", "Layout", "Taken up by", "Given up by", "Tasklets moved", "To load")
        parts += [*table_lines(Table(columns, [_moved(m) for m in diff.moves]))]
    else:
        parts += ["Other tasks share devices than before." if diff.regrouped else "Nothing: every rank stays where it is."]
    for title, devices in (("Not there any more", diff.gone), ("Works now", diff.taken_up), ("Idle now", diff.released)):
        if devices:
            parts += ["", f"{title}: {markdown(listing(devices, limit=_LISTED))}."]
    return "\n".join(parts) + "\n"


def headline(diff: PlanDiff) -> str:
    """One line: is it worth it."""
    if not diff.changes_anything:
        return "The plan stands: nothing moves"
    if diff.gain is None:
        return f"A new plan is needed: {show_seconds(diff.after_s)} an iteration, {show_seconds(diff.before_s)} before"
    if diff.gain > 0:
        return f"A new plan is {percent(diff.gain)} faster than the old one would be now"
    return "A new plan, no faster than the old one would be now"


def cost_lines(diff: PlanDiff) -> list[str]:
    if not diff.changes_anything:
        return ["Nothing."]
    of = f" ({diff.tasklets_moved:,} of {plural(diff.tasklets, 'tasklet')} moved)" if diff.tasklets else ""
    lines = [f"{plural(len(diff.moves), 'task')} on other devices or cut otherwise{of}; {show_bytes(diff.load_bytes)} of weights and "
             "optimizer state to load where they are not yet."]
    if diff.restart_s is None:
        lines.append("A restart from the last checkpoint; how long one takes has not been measured yet on this cluster.")
    else:
        lines.append(f"A restart from the last checkpoint: about {show_seconds(diff.restart_s)}, as last measured.")
    if diff.pays_after_iterations is not None:
        lines.append(f"It has paid for itself after {plural(diff.pays_after_iterations, 'iteration')}.")
    elif diff.stays_s is not None and diff.after_s >= diff.stays_s:
        lines.append("It never pays for itself: the old plan would be as fast.")
    return lines


def _times(diff: PlanDiff) -> Table:
    stays = "cannot run" if diff.stays_s is None else show_seconds(diff.stays_s)
    rows = [("old plan, when it was made", show_seconds(diff.before_s)), ("old plan, on the cluster as it is now", stays),
            ("new plan", show_seconds(diff.after_s))]
    return Table(("An iteration (predicted)", "takes"), rows)


def _moved(move: TaskMove) -> tuple[str, ...]:
    cut = _cut(move.before) if _cut(move.before) == _cut(move.after) else f"{_cut(move.before)} → {_cut(move.after)}"
    ranks = move.after.dp * move.after.pp * move.after.tp
    joined = listing(move.joined) + (f"; {len(move.reranked)} stay as another rank" if move.reranked else "")
    return (task_title(move.task), cut, joined.removeprefix("; ") or "–", listing(move.left) or "–",
            f"{move.tasklets_moved:,} of {ranks:,}", show_bytes(move.load_bytes))


def _cut(layout: Layout) -> str:
    text = f"{layout.dp}×{layout.pp}×{layout.tp}"
    if len(set(layout.layers)) > 1:
        text += f", layers {shares(layout.layers)}"
    return text + f", sequences {shares(layout.local_batch_sequences)}"
