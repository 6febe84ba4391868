"""What a solver proved about the plans it looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """No plan in ``scope`` is faster than ``bound_s``; ``optimal``: the plan found reaches it."""

    bound_s: float
    optimal: bool
    scope: str
    """In words for a person: all plans, or those a solver's inner method makes."""
