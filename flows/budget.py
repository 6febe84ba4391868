"""The search's budget as typed: seconds (``10s``, ``2m``) or a number of plan evaluations (``5000``)."""

from __future__ import annotations

import re
from typing import Any

from artifacts.errors import InputError


def typed(budget: str | float) -> str:
    """As text: Prefect's command line hands ``--param budget=300`` on as a number."""
    return f"{budget:.0f}" if isinstance(budget, float) and budget.is_integer() else str(budget)


def schedule_parameters(*, solver: str = "", budget: str = "", seed: int | None = None) -> dict[str, Any]:
    """Parameters of the schedule stage; what was not typed is left to the stage's defaults."""
    parameters: dict[str, Any] = {}
    if solver:
        parameters["solver"] = solver
    if seed is not None:
        parameters["seed"] = seed
    if budget:
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([sm]?)", budget.strip())
        if not match:
            raise InputError(f"budget {budget[:40]!r} is neither seconds nor a number of evaluations", fix="for example 10s, 2m or 5000")
        number, unit = match.groups()
        if unit:
            parameters["seconds"] = float(number) * (60 if unit == "m" else 1)
        elif "." in number:
            raise InputError(f"budget {budget!r}: evaluations are whole", fix=f"write {number}s for seconds")
        else:
            parameters["evaluations"] = int(number)
    return parameters
