"""What a decoder-only transformer holds, computes and moves: facts about the model, not judgements about time."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from artifacts.base import Name, Strict

ADAM_TRAFFIC_BYTES_PER_PARAM = 30
"""What Adam's update moves in 16-bit training: reads gradient, master copy, two moments (16), writes the last three and the weight (14)."""

SOFTMAX_FORWARD_BYTES = 30
SOFTMAX_BACKWARD_BYTES = 14
"""Memory traffic of one logit: to 32 bits (2 + 4), maximum (4), minus it (8), exponential (8), sum (4); gradient (8), to 16 bits (6)."""


def adam_state_bytes_per_param(element_bytes: int) -> int:
    """Two moments in 32 bits, and a 32-bit master copy where the weights are shorter."""
    return 12 if element_bytes < 4 else 8


EXPERT_FIELDS = frozenset(
    {"experts", "num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size", "num_experts_per_tok"}
)


class ModelSpec(Strict):
    """Architecture numbers of a dense decoder-only transformer with gated MLP (Qwen, Llama families).

    Symbols in formulas: L layers, h hidden, a heads, kv KV heads, e head size, f intermediate, V vocabulary.
    """

    name: Name
    layers: int = Field(ge=1, le=10_000)
    hidden: int = Field(ge=1, le=1_000_000)
    heads: int = Field(ge=1, le=10_000)
    kv_heads: int = Field(ge=1, le=10_000)
    head_dim: int = Field(ge=1, le=10_000)
    intermediate: int = Field(ge=1, le=10_000_000)
    vocab: int = Field(ge=1, le=10_000_000)
    tied_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    hf_id: str = Field(default="", description="Hugging Face id or folder; empty: built from these numbers")
    source: str = ""

    @model_validator(mode="before")
    @classmethod
    def _dense(cls, data: Any) -> Any:
        experts = sorted(set(data) & EXPERT_FIELDS) if isinstance(data, dict) else []
        if experts:
            raise ValueError(f"{experts[0]} says mixture of experts, which is not modelled: use a dense model")
        return data

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelSpec:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        return self

    def attention_params(self) -> int:
        """Weights of one layer's attention: h·a·e + 2·h·kv·e + a·e·h (+ biases, + per-head norms)."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        bias = q + 2 * kv if self.qkv_bias else 0
        norms = 2 * self.head_dim if self.qk_norm else 0
        return self.hidden * q + 2 * self.hidden * kv + q * self.hidden + bias + norms

    def mlp_params(self) -> int:
        """Weights of one layer's gated MLP: 3·h·f."""
        return 3 * self.hidden * self.intermediate

    def layer_params(self) -> int:
        """One layer, with its two RMSNorms."""
        return self.attention_params() + self.mlp_params() + 2 * self.hidden

    def embedding_params(self) -> int:
        return self.vocab * self.hidden

    def params(self) -> int:
        """All parameters; a tied head is counted once."""
        ends = self.embedding_params() * (1 if self.tied_embeddings else 2)
        return self.layers * self.layer_params() + ends + self.hidden

    def weight_tensors(self) -> int:
        """Tensors a trainer holds: of a layer two norms and fused projections (bias, per-head norms); embedding, last norm, head."""
        layer = 6 + (2 if self.qk_norm else 0) + (1 if self.qkv_bias else 0)
        return self.layers * layer + (2 if self.tied_embeddings else 3)

    def stage_params(self, *, layers: int, first: bool, last: bool, value_head: bool = False) -> int:
        """Parameters a pipeline stage holds; with tied embeddings a last stage that is not the first holds a copy.

        ``value_head``: a critic or reward model, one output a token in place of the LM head.
        """
        held = layers * self.layer_params()
        if first:
            held += self.embedding_params()
        if last and value_head:
            held += 2 * self.hidden
        elif last:
            held += self.hidden + (0 if first and self.tied_embeddings else self.embedding_params())
        return held

    def layer_matmul_flops(self, tokens: float) -> float:
        """Forward FLOPs of one layer's projections and MLP: 2 × weights × tokens."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        weights = self.hidden * (2 * q + 2 * kv) + self.mlp_params()
        return 2.0 * weights * tokens

    def layer_attention_flops(self, sequence_tokens: float) -> float:
        """Forward FLOPs of one layer's causal attention over one sequence: 2·a·e·S²."""
        return 2.0 * self.heads * self.head_dim * sequence_tokens**2

    def pointwise_elements(self, *, fused: bool) -> tuple[float, float]:
        """Elements that a layer's operations beside its matrix multiplications read and write for one token, forward: (whole on every
        tensor-parallel shard, divided over the shards). Counted from the operations.

        Whole: two norms (read, write) and two residual additions (read twice, write), 10·h. Divided: the MLP's activation function with its
        gate, 3·f, and attention's input and output, 2·q + 2·kv. Not fused, each operation runs by itself, as in a Hugging Face model:
        a norm goes to 32 bits and back, 42·h; the gate is a pass of its own, 5·f; rotary embeddings are a negation, a concatenation, two
        products and a sum, 12·q + 12·kv with the rest.
        """
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        if fused:
            return 10.0 * self.hidden, 3.0 * self.intermediate + 2.0 * (q + kv)
        return 42.0 * self.hidden, 5.0 * self.intermediate + 12.0 * (q + kv)

    def score_elements(self, sequence_tokens: float) -> float:
        """Elements of attention scores that are moved for one token where attention is not fused, divided over the shards: written, scaled
        and masked, made a softmax, dropped out and read again, 6.5·a·S.
        """
        return 6.5 * self.heads * sequence_tokens

    def decode_attention_flops(self, context_tokens: float) -> float:
        """FLOPs of one layer's attention for new tokens that see so many tokens together: 4·a·e a token seen."""
        return 4.0 * self.heads * self.head_dim * context_tokens

    def head_flops(self, tokens: float, *, value_head: bool = False) -> float:
        """Forward FLOPs of the LM head, 2·h·V·tokens, or of a value head, 2·h·tokens."""
        return 2.0 * self.hidden * (1 if value_head else self.vocab) * tokens

    def kv_bytes_per_token_layer(self, bytes_per_element: int = 2) -> int:
        """KV cache of one token in one layer: 2·kv·e·w."""
        return 2 * self.kv_heads * self.head_dim * bytes_per_element
