"""What a rank holds all the time, and what it needs while a task runs. Bytes; all formulas for one shard of one stage.

Training activations: Korthikanti et al., arXiv 2205.05198, equations 2 and 4, figure 1.
"""

from __future__ import annotations

from artifacts.model_spec import ModelSpec


def held_params(model: ModelSpec, *, layers: int, first: bool, last: bool, value_head: bool) -> int:
    """Parameters of a pipeline stage; a critic or reward model has one output a token in place of the LM head."""
    if not value_head:
        return model.stage_params(layers=layers, first=first, last=last)
    held = layers * model.layer_params() + (model.embedding_params() if first else 0)
    return held + (2 * model.hidden if last else 0)


def training_state_bytes_per_param(*, element_bytes: int, gradient_bytes: int, optimizer_shards: int) -> float:
    """Weights, gradients and Adam's state: w + gradient + (master copy and two moments)/shards.

    16-bit weights keep a 32-bit master copy (12 bytes with the moments); 32-bit weights are their own (8 bytes).
    """
    optimizer = 12 if element_bytes < 4 else 8
    return element_bytes + gradient_bytes + optimizer / optimizer_shards


def activation_bytes_per_layer(
    *, tokens: float, micro: float, hidden: int, heads: int, tp: int, recompute: str, element_bytes: int = 2, flash_attention: bool = False
) -> float:
    """Activations one layer keeps for the backward pass of one micro-batch (``micro`` sequences of ``tokens``).

    none: s·b·h·(10 + 24/t + 5·a·s/(h·t)), without the last term where the attention matrix is never stored; selective (with sequence
    parallelism): 34·s·b·h/t; full: the layer's input, 2·s·b·h. The published formulas are for 2-byte elements and scale with the element.
    """
    unit = tokens * micro * hidden * element_bytes / 2
    if recompute == "full":
        return 2 * unit
    if recompute == "selective":
        return 34 * unit / tp
    matrix = 0.0 if flash_attention else 5 * heads * tokens / (hidden * tp)
    return unit * (10 + 24 / tp + matrix)


def activation_bytes(
    *,
    layers: int,
    in_flight: int,
    tokens: float,
    micro: float,
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
    per_layer = activation_bytes_per_layer(
        tokens=tokens,
        micro=micro,
        hidden=hidden,
        heads=heads,
        tp=tp,
        recompute=recompute,
        element_bytes=element_bytes,
        flash_attention=flash_attention,
    )
    kept = layers * in_flight * per_layer
    if interleave > 1:
        kept *= 1 + (stages - 1) / (stages * interleave)
    if recompute == "full":
        kept += activation_bytes_per_layer(
            tokens=tokens,
            micro=micro,
            hidden=hidden,
            heads=heads,
            tp=tp,
            recompute="none",
            element_bytes=element_bytes,
            flash_attention=flash_attention,
        )
    return kept


def in_flight_micro_batches(*, stage: int, stages: int, micro_batches: int) -> int:
    """1F1B: stage j of p holds p − j micro-batches, never more than there are."""
    return min(stages - stage, micro_batches)


def padded_vocab(vocab: int, tp: int) -> int:
    """Megatron pads the vocabulary to a multiple of 128·tp."""
    multiple = 128 * tp
    return -(-vocab // multiple) * multiple


def logits_bytes(*, vocab: int, tokens: float, tp: int, training: bool) -> float:
    """Logits of one micro-batch in 32 bits, and their gradient in training."""
    return tokens * padded_vocab(vocab, tp) / tp * 4 * (2 if training else 1)


def forward_bytes(model: ModelSpec, *, tokens: float, tp: int, element_bytes: int) -> float:
    """Working set of a forward pass without gradients: one layer's input, output, projections and MLP, for ``tokens`` of a micro-batch."""
    q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    return tokens * element_bytes * (2 * model.hidden + (q + 2 * kv + 3 * model.intermediate) / tp)


def kv_bytes_per_sequence(model: ModelSpec, *, tokens: float, tp: int, element_bytes: int) -> float:
    """KV cache of one sequence at a length, on one of ``tp`` shards (one stage holds all layers)."""
    return model.layers * model.kv_bytes_per_token_layer(element_bytes) * tokens / tp
