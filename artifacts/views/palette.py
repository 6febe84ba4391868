"""Colours that people with colour-vision deficiencies can tell apart (Okabe and Ito, 2008); always beside a letter or a label."""

from __future__ import annotations

from dataclasses import dataclass

from artifacts.plan import Plan

INK, MUTED, FAINT, GRID, PAPER = "#1f2933", "#52606d", "#9aa5b1", "#e4e7eb", "#ffffff"
PREDICTED, MEASURED, WARNING = "#0072b2", "#d55e00", "#b3261e"
_FILLS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
_DARK_TEXT = {"#e69f00", "#cc79a7", "#56b4e9", "#f0e442", "#999999"}


@dataclass(frozen=True)
class GroupStyle:
    """How one group looks everywhere in a report: a letter and a colour."""

    name: str
    letter: str
    fill: str
    text: str


def group_styles(plan: Plan) -> dict[str, GroupStyle]:
    """Group name → style, in the plan's order. A plan has at most as many groups as tasks, so letters and colours do not run out."""
    styles = {}
    for index, group in enumerate(plan.groups):
        fill = _FILLS[index % len(_FILLS)]
        styles[group.name] = GroupStyle(group.name, chr(ord("A") + index % 26), fill, INK if fill in _DARK_TEXT else PAPER)
    return styles
