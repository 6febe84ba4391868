"""What models hold, against totals computed elsewhere."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from artifacts.catalog import model_by_name, models
from artifacts.errors import InputError
from artifacts.model_spec import ModelSpec

# Totals with and without embeddings, from the architecture numbers of the models' published Hugging Face configurations
# (copies in NVIDIA aiconfigurator's model_configs, cross-checked with THUDM/slime's scripts/models). A tied head counts once.
PUBLISHED = {
    "Qwen3-0.6B": (596_049_920, 440_467_456),
    "Qwen3-1.7B": (1_720_574_976, 1_409_410_048),
    "Qwen3-4B": (4_022_468_096, 3_633_511_936),
    "Qwen3-8B": (8_190_735_360, 6_946_075_648),
    "Qwen3-14B": (14_768_307_200, 13_212_482_560),
    "Qwen3-32B": (32_762_123_264, 31_206_298_624),
    "Qwen2.5-7B": (7_615_616_512, 6_525_621_760),
    "Llama-3.1-8B": (8_030_261_248, 6_979_588_096),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_totals_are_the_published_ones(name: str) -> None:
    model = models()[name]
    total, without_embeddings = PUBLISHED[name]
    assert model.params() == total
    assert model.params() - model.embedding_params() * (1 if model.tied_embeddings else 2) == without_embeddings


def test_every_catalog_model_but_the_tiny_ones_is_checked() -> None:
    assert {n for n, m in models().items() if m.hf_id} == set(PUBLISHED)


@pytest.mark.parametrize("name", ["Qwen3-4B", "Qwen3-8B"])
def test_stages_hold_the_whole_model(name: str) -> None:
    """With tied embeddings the last stage keeps a copy of the table: one table more than the model has."""
    model = models()[name]
    held = (model.stage_params(layers=10, first=True, last=False) + model.stage_params(layers=model.layers - 12, first=False, last=False)
            + model.stage_params(layers=2, first=False, last=True))
    assert held == model.params() + (model.embedding_params() if model.tied_embeddings else 0)
    assert model.stage_params(layers=model.layers, first=True, last=True) == model.params()


def test_work_of_a_layer_by_hand() -> None:
    """h 8, a 2, kv 1, e 4, f 16: 8·8 + 2·8·4 + 8·8 + 3·8·16 = 576 weights; 2·576 FLOPs a token; attention 2·2·4·S²; head 2·8·V."""
    model = ModelSpec(name="m", layers=3, hidden=8, heads=2, kv_heads=1, head_dim=4, intermediate=16, vocab=100)
    assert model.layer_matmul_flops(5) == 2 * 576 * 5
    assert model.layer_attention_flops(10) == 2 * 2 * 4 * 100
    assert model.head_flops(3) == 2 * 8 * 100 * 3
    assert model.kv_bytes_per_token_layer() == 2 * 1 * 4 * 2
    assert model.layer_params() == 576 + 2 * 8


def test_a_mixture_of_experts_is_refused_and_says_so() -> None:
    dense = models()["Qwen3-8B"].model_dump()
    with pytest.raises(ValidationError, match="num_experts says mixture of experts, which is not modelled"):
        ModelSpec.model_validate(dense | {"num_experts": 128})
    with pytest.raises(InputError, match="mixture of experts") as refused:
        model_by_name("Qwen3-30B-A3B", where="models.actor")
    assert "Qwen3-8B" in (refused.value.fix or "")
