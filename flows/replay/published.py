"""What the HetRL paper states of its experiments: ratios and bounds, as printed in its section on evaluation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Smallest and largest value the paper gives for a comparison."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.2f}–{self.high:.2f}"

    def place(self, value: float) -> str:
        """``inside``, ``below`` or ``above``."""
        return "below" if value < self.low else "above" if value > self.high else "inside"


END_TO_END: dict[tuple[str, str, str], Range] = {
    ("single-region", "sync", "verl"): Range(1.51, 2.05),
    ("multi-region-hybrid", "sync", "verl"): Range(3.01, 4.99),
    ("multi-country", "sync", "verl"): Range(1.40, 3.07),
    ("multi-continent", "sync", "verl"): Range(2.24, 5.46),
    ("single-region", "async", "streamrl"): Range(1.10, 1.31),
    ("multi-region-hybrid", "async", "streamrl"): Range(1.11, 1.27),
    ("multi-country", "async", "streamrl"): Range(1.19, 1.50),
    ("multi-continent", "async", "streamrl"): Range(2.25, 3.72),
    ("multi-region-hybrid", "async", "verl"): Range(4.07, 9.17),
    ("multi-country", "async", "verl"): Range(1.71, 4.00),
    ("multi-continent", "async", "verl"): Range(4.38, 10.76),
}
"""(setting, mode, baseline) → throughput of HetRL over the baseline's. Asynchronous in a single region the paper has one range, 1.10 to
1.31, for StreamRL and verl together."""

BALANCING_GAIN = {"single-region": 0.12, "multi-country": 0.18}
"""Throughput gained by load balancing, "up to"; the second is what the paper calls cross-region."""

SHA_EA_GAP = 0.01
"""SHA-EA is within this of the optimum at no more than 24 GPUs."""

ALL_OVER_A100 = Range(1.57, 2.00)
"""HetRL on all 64 GPUs over HetRL on the 24 A100, single region."""

REGIONS_OVER_A100 = Range(1.09, 1.77)
"""HetRL on all GPUs over several regions, over HetRL on 24 A100 in one."""

COMBINATIONS_OVER_VERL = {
    ("ppo", "sync"): Range(1.72, 4.33),
    ("grpo", "sync"): Range(1.77, 3.42),
    ("ppo", "async"): Range(1.57, 3.33),
    ("grpo", "async"): Range(1.57, 3.03),
}
"""HetRL over verl, over all combinations of GPUs, single region."""
