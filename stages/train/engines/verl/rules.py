"""A rule of the engine, and what is raised where a job or plan breaks it."""

from __future__ import annotations

from artifacts.errors import InputError

REPLAN = "plan again with `hetrl run --from schedule`; the scheduler reads the engine's limits"


def rule(holds: bool, text: str, *, fix: str = REPLAN) -> None:
    """Raise ``InputError`` with the rule unless it holds."""
    if not holds:
        raise InputError(f"the verl engine cannot run this: {text}", fix=fix)
