"""Plans of the scheduler for the published testbed of 64 GPUs become configurations that verl's own code accepts. Nothing of it runs here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from artifacts.catalog import models
from artifacts.plan import Strategy, pipeline_layout
from stages.profile.basis import anchored
from stages.profile.inventory import build
from stages.profile.scenarios import SCENARIOS, scenario_inventory
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.solve import solve
from stages.train.engines.verl import config as verl_config
from stages.train.engines.verl.config import Paths
from stages.train.engines.verl.environment import environment
from stages.train.engines.verl.platforms import GPU
from stages.train.toy_model import build_toy_model
from tests.stages.train.support import job

pytest.importorskip("verl")
pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """verl reads the model's configuration while it validates; any model's will do."""
    folder = tmp_path_factory.mktemp("run")
    model = build_toy_model(models()["tiny-qwen3"], ["1 2 3"], seed=0, max_positions=96, cache=folder)
    return Paths(model, folder / "train.parquet", folder / "validation.parquet", folder / "router.yaml", folder / "checkpoints")


@pytest.fixture(autouse=True)
def as_in_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)


def check_layout(megatron: Any, strategy: Strategy) -> None:
    assert (megatron.tensor_model_parallel_size, megatron.pipeline_model_parallel_size) == (strategy.tp, strategy.pp)
    layout = megatron.override_transformer_config.get("pipeline_model_parallel_layout")
    assert layout == (pipeline_layout(strategy.layers) if strategy.pp > 1 else None) and sum(strategy.layers) == 36


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_verl_accepts_the_plan(scenario: str, mode: str, paths: Paths) -> None:
    from verl.utils.config import omega_conf_to_dataclass

    large = job("qwen3-8b-ppo", f"mode={mode}")
    topology = anchored(build(scenario_inventory(scenario), where=scenario), [])
    plan = solve(large, topology, parameters=ScheduleParameters(evaluations=100)).plan
    config = verl_config.validate(verl_config.compose(verl_config.overrides(large, plan, paths, server="vllm", platform=GPU)), plan)
    actor = config.actor_rollout_ref.actor
    check_layout(actor.megatron, plan.tasks["actor_training"])
    check_layout(config.actor_rollout_ref.ref.megatron, plan.tasks["reference_inference"])
    check_layout(config.critic.megatron, plan.tasks["critic_training"])
    assert actor.megatron.override_transformer_config.recompute_granularity == "full" and config.trainer.device == "cuda"
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)  # verl's own checks of it
    assert (rollout.tensor_model_parallel_size, rollout.dtype, rollout.enforce_eager) == (plan.tasks["rollout"].tp, "bfloat16", False)
    if mode == "sync":
        assert config.trainer.v1.trainer_mode == "sync"
        return
    # What verl's asynchronous trainer asserts when it is made (trainer_separate_async.py).
    assert config.trainer.v1.trainer_mode == "separate_async" and rollout.checkpoint_engine.backend == "nccl"
    assert config.data.train_batch_size == config.trainer.v1.separate_async.parameter_sync_step * actor.ppo_mini_batch_size
    assert rollout.nnodes * rollout.n_gpus_per_node == len(plan.tasks["rollout"].ranks)
