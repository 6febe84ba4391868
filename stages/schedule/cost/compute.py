"""How fast a device computes a layer: the efficiency curve, and the FLOPs of a pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from artifacts.model_spec import ModelSpec

FORWARD, TRAINING, TRAINING_FULL_RECOMPUTE = 1.0, 3.0, 4.0
"""FLOPs relative to a forward pass: forward; forward and backward; the same with every layer computed twice."""


@dataclass(frozen=True)
class Curve:
    """Achieved FLOP/s by matrix size. ``widths`` ascending; for each, ascending token counts and their rates.

    ``flat`` is the one rate that holds everywhere when nothing was measured by size.
    """

    widths: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    rates: tuple[tuple[float, ...], ...]
    flat: float

    @classmethod
    def of(cls, points: dict[tuple[int, int], float], *, flat: float) -> Curve:
        """From (width, tokens) → FLOP/s; the points need not form a grid."""
        widths = tuple(sorted({w for w, _ in points}))
        tokens = tuple(tuple(sorted(t for w2, t in points if w2 == w)) for w in widths)
        rates = tuple(tuple(points[w, t] for t in ts) for w, ts in zip(widths, tokens, strict=True))
        return cls(widths=widths, tokens=tokens, rates=rates, flat=flat)

    def rate(self, *, tokens: float, width: float) -> float:
        """FLOP/s at a size: linear in the logarithms inside the measured range, the nearest measured value outside."""
        if not self.widths:
            return self.flat
        by_width = [
            float(np.exp(np.interp(np.log(max(tokens, 1.0)), np.log(t), np.log(r)))) for t, r in zip(self.tokens, self.rates, strict=True)
        ]
        return float(np.exp(np.interp(np.log(max(width, 1.0)), np.log(self.widths), np.log(by_width))))

    def covers(self, *, tokens: float, width: float) -> bool:
        """Whether the size lies inside what was measured; outside, :meth:`rate` is an assumption."""
        if not self.widths:
            return True
        inside = all(t[0] <= tokens <= t[-1] for t in self.tokens)
        return inside and self.widths[0] <= width <= self.widths[-1]

    @property
    def best(self) -> float:
        """The highest rate anywhere on the curve: what no computation exceeds."""
        return max((r for rates in self.rates for r in rates), default=self.flat)


def equivalent_width(*, hidden: int, tp: int) -> float:
    """Side of the square matrix that costs what one shard's h × h/tp matrix does: h/√tp."""
    return hidden / tp**0.5


def layer_forward_flops(model: ModelSpec, *, sequences: float, tokens_each: float, tp: int) -> float:
    """One shard's forward FLOPs of one layer: projections, MLP, causal attention."""
    return (model.layer_matmul_flops(sequences * tokens_each) + sequences * model.layer_attention_flops(tokens_each)) / tp


def head_forward_flops(model: ModelSpec, *, sequences: float, tokens_each: float, tp: int, value_head: bool) -> float:
    """One shard's forward FLOPs of the output head: h × V, or h × 1 for a critic or reward model."""
    tokens = sequences * tokens_each
    return 2.0 * model.hidden * tokens if value_head else model.head_flops(tokens) / tp


def training_multiplier(recompute: str) -> float:
    """FLOPs of a training step over those of a forward pass. Selective recomputation repeats attention only: priced as none."""
    return TRAINING_FULL_RECOMPUTE if recompute == "full" else TRAINING
