"""Memory formulas as functions of plain numbers, for what asks outside a plan. The kernel's own, where it has them.

Training activations: Korthikanti et al., arXiv 2205.05198, equations 2 and 4, figure 1.
"""

from __future__ import annotations

from stages.schedule.cost.kernel.arrays import FULL, NONE, SELECTIVE
from stages.schedule.cost.kernel.footprint import kept_by_layer

RECOMPUTE = {"none": NONE, "selective": SELECTIVE, "full": FULL}


def training_state_bytes_per_param(*, element_bytes: int, gradient_bytes: int, optimizer_shards: int) -> float:
    """Weights, gradients and Adam's state: w + gradient + (master copy and two moments)/shards.

    16-bit weights keep a 32-bit master copy (12 bytes with the moments); 32-bit weights are their own (8 bytes).
    """
    optimizer = 12 if element_bytes < 4 else 8
    return element_bytes + gradient_bytes + optimizer / optimizer_shards


def activation_bytes(
    *,
    layers: int,
    in_flight: int,
    tokens: float,
    micro: int,
    hidden: int,
    heads: int,
    tp: int,
    recompute: str,
    element_bytes: int = 2,
    flash_attention: bool = False,
    interleave: int = 1,
    stages: int = 1,
) -> float:
    """Training activations of a stage: ``in_flight`` micro-batches of its layers, and with full recomputation one layer's worth more.

    An interleaved schedule of v chunks keeps 1 + (p−1)/(p·v) times as much.
    """

    def of_layer(kind: int) -> float:
        return float(kept_by_layer(kind, int(flash_attention), float(tokens), micro, float(hidden), heads, tp, float(element_bytes)))

    kept = layers * in_flight * of_layer(RECOMPUTE[recompute])
    if interleave > 1:
        kept *= 1 + (stages - 1) / (stages * interleave)
    return kept + of_layer(NONE) if recompute == "full" else kept
