"""verl's custom reward function: reasoning-gym's own scorer for generated prompts, verl's own rules for everything else.

verl loads this file by path in the process that scores.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

PREFIX = "reasoning_gym/"


@cache
def _scorer(task: str) -> Any:
    from reasoning_gym import get_score_answer_fn

    return get_score_answer_fn(task)


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict | None = None, **_: Any) -> float:
    """Reward of one response in [0, 1]. ``ground_truth`` is the dataset's entry as JSON where reasoning-gym made the prompt."""
    if not data_source.startswith(PREFIX):
        from verl.utils.reward_score import default_compute_score

        return float(default_compute_score(data_source, solution_str, ground_truth, extra_info))
    entry = json.loads(ground_truth)
    return float(_scorer(data_source.removeprefix(PREFIX))(answer=solution_str.strip(), entry=entry))
