"""What a decoder-only transformer holds, computes and moves: facts about the model, not judgements about time."""

from __future__ import annotations

from pydantic import Field, model_validator

from artifacts.base import Name, Strict


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

    def stage_params(self, *, layers: int, first: bool, last: bool) -> int:
        """Parameters a pipeline stage holds; with tied embeddings a last stage that is not the first holds a copy."""
        held = layers * self.layer_params()
        if first:
            held += self.embedding_params()
        if last:
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

    def head_flops(self, tokens: float) -> float:
        """Forward FLOPs of the LM head: 2·h·V·tokens."""
        return 2.0 * self.hidden * self.vocab * tokens

    def kv_bytes_per_token_layer(self, bytes_per_element: int = 2) -> int:
        """KV cache of one token in one layer: 2·kv·e·w."""
        return 2 * self.kv_heads * self.head_dim * bytes_per_element
