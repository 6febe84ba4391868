"""A plan's layout must not change the mathematics: loss and gradient norm of one batch agree with the one-process run.

Real verl engines over gloo: Megatron-Core in bf16 as the plan lays it out, and FSDP2 in float32, which is also another
implementation (transformers' model) to hold Megatron's against.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from artifacts.catalog import models
from artifacts.plan import pipeline_layout
from stages.train.engines.verl.environment import environment
from stages.train.engines.verl.ranks import pieces
from stages.train.reward_model import build_toy_reward_model, with_head
from stages.train.toy_model import build_toy_model
from tests.stages.train.support import strategy

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[3]
MODEL, LAYERS, SEQUENCES = "tiny-qwen3", 4, 16
BF16 = 2e-3
"""Megatron in bf16: what rounding, and summing in another order, may change."""
FLOAT32 = 1e-4

MEGATRON: dict[str, dict[str, Any]] = {
    "dp2": {"shares": [8, 8]},
    "dp2, shares 11 and 5": {"shares": [11, 5]},
    "dp3, shares 9, 4 and 3, micro-batches that do not divide them": {"shares": [9, 4, 3], "micro": 2},
    "dp4, shares 7, 4, 3 and 2": {"shares": [7, 4, 3, 2]},
    "pp2": {"layers": [2, 2]},
    "pp2, layers 3 and 1": {"layers": [3, 1]},
    "pp2, layers 1 and 3": {"layers": [1, 3]},
    "pp3, layers 1, 2 and 1": {"layers": [1, 2, 1]},
    "pp4": {"layers": [1, 1, 1, 1]},
    "tp2": {"tp": 2},
    "tp2 and pp2, layers 3 and 1": {"tp": 2, "layers": [3, 1]},
    "tp2 and dp2, shares 10 and 6": {"tp": 2, "shares": [10, 6]},
    "pp2 and dp2, both uneven": {"layers": [1, 3], "shares": [12, 4]},
    "pp2 and dp2, both uneven, micro-batches that do not divide the shares": {"layers": [3, 1], "shares": [11, 5], "micro": 3},
    "tp2, pp2 and dp2, both uneven": {"tp": 2, "layers": [3, 1], "shares": [11, 5]},
}
# FSDP2 gathers weights for every micro-batch: all replicas must make equally many.
FSDP2: dict[str, dict[str, Any]] = {
    "dp2": {"shares": [8, 8], "micro": 4},
    "dp2, shares 12 and 4": {"shares": [12, 4], "micro": 3},
    "dp2, shares 11 and 5, one micro-batch": {"shares": [11, 5], "micro": 11},
    "dp3, shares 8, 6 and 2": {"shares": [8, 6, 2], "micro": 4},
    "dp4, shares 8, 4, 2 and 2": {"shares": [8, 4, 2, 2], "micro": 4},
    "dp4 sharded in twos, shares 6, 6, 2 and 2": {"shares": [6, 6, 2, 2], "micro": 3, "sharded_over": 2},
}

Figures = list[dict[str, float]]


class Ranks:
    """Runs one layout after another; the process that forks their ranks lives as long as this module's tests."""

    def __init__(self, workdir: Path, model: Path) -> None:
        self._settings = {"workdir": str(workdir), "model": str(model), "vocab": models()[MODEL].vocab}
        self._errors = workdir / "stderr.txt"
        with self._errors.open("w") as stderr:
            self._server = subprocess.Popen([sys.executable, "-m", "tests.stages.train.engine_ranks"], cwd=ROOT, text=True,
                                            env={**os.environ, **environment(workdir)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=stderr)

    def train(self, backend: str = "megatron", **layout: Any) -> Figures:
        (found,) = self.run("train", backend, **layout)
        return found  # type: ignore[no-any-return]

    def run(self, call: str, backend: str, *, tp: int = 1, layers: list[int] | None = None, shares: list[int] | None = None, micro: int = 8,
            sharded_over: int = -1, steps: int = 2, save: str = "", load: str = "", model: str = "",
            head: list[float] | None = None) -> list[Any]:
        """What the ranks that have something to say have found."""
        layers, shares = layers or [LAYERS], shares or [SEQUENCES]
        plan = strategy([f"d{i}" for i in range(len(shares) * len(layers) * tp)], dp=len(shares), pp=len(layers), tp=tp, layers=layers,
                        shares=shares, micro=micro)
        each = [-(-share // pieces(plan)) for share in shares]  # as the workers size them: equally many on all replicas
        layout = {"call": call, "backend": backend, "pp": len(layers), "tp": tp, "layout": pipeline_layout(layers), "shares": shares,
                  "micro": each, "sharded_over": sharded_over, "steps": steps, "save": save, "load": load, "head": head}
        layout |= {"model": model} if model else {}
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps({**self._settings, **layout}) + "\n")
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        assert line.startswith("FOUND "), line.replace("\\n", "\n") or self._errors.read_text()[-3000:]
        found: list[Any] = json.loads(line.removeprefix("FOUND "))
        return found

    def end(self) -> None:
        self._server.communicate(timeout=300)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_toy_model(models()[MODEL], ["3 + 4 = 7"], seed=0, max_positions=64, cache=tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def ranks(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path_factory.mktemp("ranks"), model)
    yield ranks
    ranks.end()


@pytest.fixture(scope="module")
def megatron_alone(ranks: Ranks) -> Figures:
    return ranks.train()


@pytest.fixture(scope="module")
def fsdp2_alone(ranks: Ranks) -> Figures:
    return ranks.train("fsdp2")


@pytest.mark.parametrize("name", MEGATRON)
def test_megatron_in_bf16(name: str, ranks: Ranks, megatron_alone: Figures) -> None:
    agree(ranks.train(**MEGATRON[name]), megatron_alone, BF16)


@pytest.mark.parametrize("name", FSDP2)
def test_fsdp2_in_float32(name: str, ranks: Ranks, fsdp2_alone: Figures) -> None:
    agree(ranks.train("fsdp2", **FSDP2[name]), fsdp2_alone, FLOAT32)


def test_the_two_engines_compute_the_same(megatron_alone: Figures, fsdp2_alone: Figures) -> None:
    agree(megatron_alone, fsdp2_alone, BF16)


SAVED = {"layers": [3, 1], "shares": [12, 4]}
RESUMED: dict[str, tuple[dict[str, Any], float]] = {
    "in its layout": (SAVED, 0.0),
    "on one device": ({}, BF16),
    "in other stages and shards": ({"tp": 2, "layers": [1, 3]}, BF16),
    "in four uneven replicas": ({"shares": [7, 4, 3, 2]}, BF16),
}


@pytest.fixture(scope="module")
def uninterrupted(ranks: Ranks) -> Figures:
    return ranks.train(**SAVED, steps=3)


@pytest.fixture(scope="module")
def checkpoint(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("checkpoint") / "actor")
    ranks.train(**SAVED, steps=1, save=folder)
    return folder


@pytest.mark.parametrize("name", RESUMED)
def test_training_goes_on_from_a_checkpoint(name: str, ranks: Ranks, uninterrupted: Figures, checkpoint: str) -> None:
    """A plan made for what is left of the cluster goes on where the last one stopped; the same plan to the last bit."""
    layout, tolerance = RESUMED[name]
    agree(ranks.train(**layout, steps=2, load=checkpoint), uninterrupted[1:], tolerance)


REWARD: dict[str, dict[str, Any]] = {
    "on one device": {},
    "in uneven stages, shards and shares": {"tp": 2, "layers": [3, 1], "shares": [11, 5], "micro": 3},
}


@pytest.fixture(scope="module")
def reward_model(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_toy_reward_model(models()[MODEL], model, seed=0, cache=tmp_path_factory.mktemp("reward"))


@pytest.fixture(scope="module")
def scored(ranks: Ranks, reward_model: Path) -> dict[str, float]:
    return scores_of(ranks.run("score alone", "transformers", model=str(reward_model)))


@pytest.mark.parametrize("name", REWARD)
def test_a_reward_model_scores_as_transformers_own(name: str, ranks: Ranks, reward_model: Path, scored: dict[str, float]) -> None:
    """In bf16 against float32, by another implementation of the model and of where its score is read."""
    folder = with_head(reward_model, cache=reward_model.parent)
    same_scores(scores_of(ranks.run("score", "megatron", model=str(folder), **REWARD[name])), scored)


TIED: dict[str, dict[str, Any]] = {
    "in stages of 3 and 1 layers": {"layers": [3, 1]},
    "in shards of uneven replicas": {"tp": 2, "shares": [11, 5]},
}


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def tied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose vocabulary's head is its embedding: a tensor that two stages hold, and both have gradients of."""
    folder = tmp_path_factory.mktemp(f"tied-{request.param}")
    spec = models()[MODEL].model_copy(update={"tied_embeddings": True})
    toy = build_toy_model(spec, ["3 + 4 = 7"], seed=0, max_positions=64, cache=folder)
    return toy if request.param == "qwen3" else llama_like(toy, folder / "llama")


def llama_like(toy: Path, folder: Path) -> Path:
    """A model of Llama's architecture with the tokenizer and the shape of ``toy``."""
    import torch
    from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

    shutil.copytree(toy, folder)
    shape = AutoConfig.from_pretrained(toy)
    config = LlamaConfig(architectures=["LlamaForCausalLM"], **{name: getattr(shape, name) for name in (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
        "max_position_embeddings", "tie_word_embeddings", "eos_token_id", "bos_token_id")})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).float().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tied_alone(ranks: Ranks, tied: Path) -> Figures:
    return ranks.train(model=str(tied))


def test_tied_embeddings_train_as_in_transformers(ranks: Ranks, tied: Path, tied_alone: Figures) -> None:
    agree(tied_alone, ranks.train("fsdp2", model=str(tied)), BF16)


@pytest.mark.parametrize("name", TIED)
def test_tied_embeddings_in_every_layout(name: str, ranks: Ranks, tied: Path, tied_alone: Figures) -> None:
    agree(ranks.train(model=str(tied), **TIED[name]), tied_alone, BF16)


@pytest.mark.parametrize("layout", [{}, {"tp": 2, "layers": [3, 1]}], ids=["on one device", "in stages and shards"])
def test_a_critic_of_a_model_with_tied_embeddings_has_its_weights_and_a_head_of_its_own(
        layout: dict[str, Any], ranks: Ranks, tied: Path) -> None:
    """Its files hold no head at all."""
    (found,) = ranks.run("score", "megatron", model=str(tied), **layout)
    same_scores(found["scores"], scores_of(ranks.run("score alone", "transformers", model=str(tied), head=found["head"])))


def test_the_batch_trains_the_model(megatron_alone: Figures) -> None:
    """Otherwise agreement means nothing."""
    first, second = megatron_alone
    assert first["grad_norm"] > 0.1 and abs(first["grad_norm"] - second["grad_norm"]) > 10 * BF16 * first["grad_norm"]
    assert abs(first["loss"] - second["loss"]) > 10 * BF16


def scores_of(parts: list[Any]) -> dict[str, float]:
    """Of all sequences, from what each rank has of them."""
    return {number: score for part in parts for number, score in part["scores"].items()}


def same_scores(found: dict[str, float], expected: dict[str, float]) -> None:
    assert found.keys() == expected.keys() and len(set(expected.values())) == SEQUENCES
    spread = max(expected.values()) - min(expected.values())
    for number, score in expected.items():
        assert found[number] == pytest.approx(score, abs=0.02 * spread), f"sequence {number} of scores over {spread:.3f}"


def agree(found: Figures, expected: Figures, tolerance: float) -> None:
    assert len(found) == len(expected) == 2
    for step, (here, there) in enumerate(zip(found, expected, strict=True)):
        assert here["loss"] == pytest.approx(there["loss"], rel=tolerance, abs=tolerance), f"loss of step {step}"
        assert here["grad_norm"] == pytest.approx(there["grad_norm"], rel=tolerance, abs=0.0), f"gradient norm of step {step}"
