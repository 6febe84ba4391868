"""Plans become configurations that verl composes and accepts with its own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from artifacts.plan import Plan
from stages.train.engines.verl import config as verl_config
from stages.train.engines.verl.config import Paths
from stages.train.engines.verl.environment import environment
from tests.stages.train.support import grpo_plan, job, ppo_plan, topology

pytest.importorskip("verl")
pytestmark = pytest.mark.engine

RANKS = ["m0-d0", "m1-d0"]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Real files where verl's validation looks at them: the model's."""
    from artifacts.catalog import models
    from stages.train.toy_model import build_toy_model

    folder = tmp_path_factory.mktemp("run")
    model = build_toy_model(models()["tiny-qwen3"], ["1 2 3"], seed=0, max_positions=96, cache=folder)
    return Paths(model, folder / "train.parquet", folder / "it's a file.parquet", folder / "router.yaml", folder / "checkpoints")


@pytest.fixture(autouse=True)
def as_in_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)


def composed(tiny: Any, plan: Plan, paths: Paths) -> Any:
    return verl_config.validate(verl_config.compose(verl_config.overrides(tiny, plan, paths)), plan)


@pytest.mark.parametrize(("layout", "tp", "pp", "layers"), [
    ({"pp": 2, "layers": [3, 1]}, 1, 2, "Et*3|tL"),
    ({"tp": 2}, 2, 1, None),
    ({"dp": 2, "shares": [88, 40], "micro": 11}, 1, 1, None),
])
def test_a_layout_is_what_verl_is_told(layout: dict[str, Any], tp: int, pp: int, layers: str | None, paths: Paths) -> None:
    tiny, fleet = job(), topology(1, 1)
    plan = grpo_plan(tiny, fleet, RANKS, **layout)
    config = composed(tiny, plan, paths)
    actor = config.actor_rollout_ref.actor
    assert (actor.megatron.tensor_model_parallel_size, actor.megatron.pipeline_model_parallel_size) == (tp, pp)
    assert actor.megatron.override_transformer_config.get("pipeline_model_parallel_layout") == layers
    reference = config.actor_rollout_ref.ref.megatron
    assert (reference.tensor_model_parallel_size, reference.pipeline_model_parallel_size) == (tp, pp)
    assert reference.override_transformer_config.get("pipeline_model_parallel_layout") == layers
    assert actor.ppo_micro_batch_size_per_gpu == plan.tasks["actor_training"].micro_batch_sequences
    assert config.trainer.n_gpus_per_node * config.trainer.nnodes == 2
    assert config.transfer_queue.backend.SimpleStorage.required_node_resource == "CPU", "a head node may have none"


def test_the_job_is_what_verl_is_told(paths: Paths) -> None:
    tiny, fleet = job("tiny-grpo", "seed=7", "kl.coefficient=0.25", "batch.epochs=2"), topology(1, 1)
    config = composed(tiny, grpo_plan(tiny, fleet, RANKS, pp=2), paths)
    assert config.data.train_batch_size == tiny.batch.prompts
    assert config.actor_rollout_ref.rollout.n == tiny.batch.responses_per_prompt
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size == tiny.batch.mini_batch_prompts
    assert config.actor_rollout_ref.actor.ppo_epochs == 2
    assert config.actor_rollout_ref.actor.kl_loss_coef == 0.25
    assert config.actor_rollout_ref.actor.optim.lr == tiny.optimizer.learning_rate
    assert {config.data.seed, config.actor_rollout_ref.rollout.seed, config.actor_rollout_ref.actor.megatron.seed} == {7}
    assert config.data.val_files.endswith("it's a file.parquet")
    assert config.trainer.total_training_steps == tiny.iterations


def test_the_critic_has_a_layout_of_its_own(paths: Paths) -> None:
    tiny, fleet = job("tiny-ppo"), topology(1, 2)
    plan = ppo_plan(tiny, fleet, ["m0-d0"], ["m1-d0", "m1-d1"], critic={"pp": 2, "layers": [1, 3]})
    config = composed(tiny, plan, paths)
    assert config.algorithm.adv_estimator == "gae"
    assert config.critic.enable is True
    assert config.critic.megatron.pipeline_model_parallel_size == 2
    assert config.critic.megatron.override_transformer_config.pipeline_model_parallel_layout == "Et|t*3L"
    assert config.actor_rollout_ref.actor.megatron.pipeline_model_parallel_size == 1


def test_a_misspelt_key_is_refused_by_verl(paths: Paths) -> None:
    tiny, fleet = job(), topology(1, 1)
    keys = verl_config.overrides(tiny, grpo_plan(tiny, fleet, RANKS, pp=2), paths)
    from hydra.errors import ConfigCompositionException

    with pytest.raises(ConfigCompositionException, match="learnign_rate"):
        verl_config.compose({**keys, "actor_rollout_ref.actor.optim.learnign_rate": 1.0})
