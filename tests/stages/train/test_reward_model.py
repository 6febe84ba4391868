"""A reward model's folder as Megatron reads it, and what is refused. That its scores are right is test_agreement's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artifacts.catalog import models
from artifacts.errors import InputError
from stages.train.reward_model import build_toy_reward_model, check_tokenizer, with_head
from stages.train.toy_model import build_toy_model

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
SPEC = models()["tiny-qwen3"]


@pytest.fixture(scope="module")
def actor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_toy_model(SPEC, ["3 + 4 = 7"], seed=0, max_positions=64, cache=tmp_path_factory.mktemp("actor"))


def test_the_head_is_found_where_mbridge_looks_for_it(actor: Path, tmp_path: Path) -> None:
    reward = build_toy_reward_model(SPEC, actor, seed=0, cache=tmp_path)
    assert build_toy_reward_model(SPEC, actor, seed=0, cache=tmp_path) == reward
    check_tokenizer(reward, actor)
    folder = with_head(reward, cache=tmp_path)
    where = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(where) - set(safetensors.load_file(reward / "model.safetensors")) == {"lm_head.weight"}
    held = {name: safetensors.load_file(folder / file)[name] for name, file in where.items()}
    assert held["lm_head.weight"].equal(held["score.weight"]) and held["lm_head.weight"].shape == (1, SPEC.hidden)
    own = safetensors.load_file(actor / "model.safetensors")
    assert not held["model.embed_tokens.weight"].equal(own["model.embed_tokens.weight"]), "not the actor's own weights"


@pytest.mark.parametrize(("tensors", "message"), [
    ({"lm_head.weight": torch.zeros(512, 64)}, "holds no reward model: there is no score.weight"),
    ({"score.weight": torch.zeros(2, 64)}, "gives 2 numbers a sequence"),
])
def test_other_models_are_refused(tensors: dict[str, object], message: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    safetensors.save_file(tensors, tmp_path / "model" / "model.safetensors")
    with pytest.raises(InputError, match=message):
        with_head(tmp_path / "model", cache=tmp_path)


def test_another_tokenizer_is_refused(actor: Path, tmp_path: Path) -> None:
    other = build_toy_model(SPEC, ["quick brown foxes jump"], seed=0, max_positions=64, cache=tmp_path)
    with pytest.raises(InputError, match="has another tokenizer than the actor"):
        check_tokenizer(other, actor)
