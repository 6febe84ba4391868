"""What the engine leans on in verl, mbridge, Megatron-Core and Ray that they do not promise. When one moves, this says which."""

from __future__ import annotations

import importlib
import inspect
import os
from typing import Any

import pytest

from artifacts.errors import RunnerUnavailable
from stages.train.engines.verl import versions

pytest.importorskip("verl")
pytestmark = pytest.mark.engine

PIECES = {
    "verl.plugin.platform.platform_manager": ["PlatformRegistry.register", "get_platform"],
    "verl.utils.distributed": ["initialize_global_process_group_ray"],
    "verl.workers.rollout.base": ["_ROLLOUT_REGISTRY", "BaseRollout.update_weights"],
    "verl.workers.rollout.replica": ["RolloutReplicaRegistry.register", "RolloutReplica.launch_servers", "TokenOutput.model_fields"],
    "verl.workers.rollout.router": ["_create_plugin_extension", "GlobalRequestLoadBalancer.acquire_server"],
    "verl.workers.engine.base": ["EngineRegistry.register"],
    "verl.workers.engine.megatron.transformer_impl": ["prepare_micro_batches", "MegatronEngineWithLMHead", "MegatronEngineWithValueHead"],
    "verl.workers.engine_workers": [
        "TrainingWorker._postprocess_output", "TrainingWorker.train_mini_batch", "TrainingWorker.infer_batch",
        "ActorRolloutRefWorker.actor_worker_cls", "ActorRolloutRefWorker.ref_worker_cls", "ActorRolloutRefWorker.update_actor",
        "ActorRolloutRefWorker.compute_log_prob", "ActorRolloutRefWorker.compute_ref_log_prob",
    ],
    "verl.single_controller.ray.base": [
        "SubRayResourcePool", "ResourcePoolManager.create_resource_pool", "RayWorkerGroup._init_with_subresource_pool",
    ],
    "verl.single_controller.base.decorator": ["collect_lazy_compute_data_proto", "dispatch_nd_compute", "register"],
    "verl.utils.transferqueue_utils": ["kv_batch_meta2batch_meta"],
    "verl.utils.metric": ["Metric.aggregate", "Metric.aggregate_dp"],
    "verl.trainer.ppo.v1.trainer_sync": ["PPOTrainerSync"],
    "verl.trainer.ppo.v1.trainer_base": [
        "PPOTrainer._build_replay_buffer", "PPOTrainer._init_resource_pool_mgr", "PPOTrainer._setup", "PPOTrainer._balance_batch",
        "PPOTrainer._compute_old_log_prob", "PPOTrainer._compute_ref_log_prob", "PPOTrainer._compute_values", "PPOTrainer._update_actor",
        "PPOTrainer._update_critic", "PPOTrainer._compute_metrics", "PPOTrainer._save_checkpoint", "PPOTrainer._load_checkpoint",
        "PPOTrainer._compute_reward_colocate",
    ],
    "verl.trainer.ppo.v1.agent_loop_tq": ["AgentLoopWorkerTQ.__ray_actor_class__", "AgentLoopManagerTQ._init_agent_loop_workers"],
    "verl.experimental.reward_loop.reward_loop": ["RewardLoopWorker.compute_score"],
    "mbridge.core.bridge": ["Bridge.load_weights", "Bridge._get_safetensor_io", "Bridge._DIRECT_MAPPING"],
    "mbridge.core.safetensor_io": ["SafeTensorIO.load_hf_weight_names", "SafeTensorIO.load_some_hf_weight"],
    "mbridge.core.llm_bridge": ["get_gpt_decoder_block_spec", "LLMBridge._get_gptmodel_args", "LLMBridge._build_base_config"],
    "mbridge.models.qwen2": [
        "Qwen2Bridge._OTHER_MAPPING", "Qwen2Bridge._MLP_MAPPING", "Qwen2Bridge._adjust_mapping_for_shared_weights",
    ],
    "mbridge.models.llama": ["LLaMABridge._DIRECT_MAPPING", "LLaMABridge._MLP_MAPPING"],
    "megatron.core.transformer.dot_product_attention": ["DotProductAttention.forward"],
    "megatron.core.tensor_parallel.random": ["_lazy_call"],
}


@pytest.mark.parametrize(("module", "name"), [(m, n) for m, names in PIECES.items() for n in names])
def test_the_piece_is_there(module: str, name: str) -> None:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        assert hasattr(found, part), f"{module}.{name} is gone: the verl engine leans on it"
        found = getattr(found, part)


def test_signatures_we_override_or_wrap() -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.workers.engine.megatron.transformer_impl import prepare_micro_batches

    parameters = inspect.signature(PPOTrainer._compute_metrics).parameters
    assert list(parameters) == ["self", "batch", "metrics", "timing_raw", "global_steps", "epoch"]
    for step in ("_compute_old_log_prob", "_compute_ref_log_prob", "_compute_values", "_update_actor", "_update_critic"):
        assert list(inspect.signature(getattr(PPOTrainer, step)).parameters) == ["self", "batch", "metrics"]
    assert next(iter(inspect.signature(prepare_micro_batches).parameters)) == "data"


def test_verls_timers_are_those_we_map() -> None:
    """The names of the timers of a step stand in verl's source, nowhere else."""
    from verl.trainer.ppo.v1 import trainer_base, trainer_sync

    from stages.train.engines.verl.metrics import TASK_OF_TIMER

    source = inspect.getsource(trainer_base) + inspect.getsource(trainer_sync)
    for timer in (*TASK_OF_TIMER, "step"):
        assert f'marked_timer("{timer}"' in source, f"verl has no timer {timer!r} any more"


def test_a_single_bundle_pool_keeps_the_ranks_in_our_order() -> None:
    """verl sorts groups by address in one way of making a worker group and takes them as they come in the other; ours is the latter."""
    from verl.single_controller.ray.base import RayWorkerGroup

    assert "sort_placement_group_by_node_ip" not in inspect.getsource(RayWorkerGroup._init_with_subresource_pool)
    assert "curr_rank // local_world_size" in inspect.getsource(RayWorkerGroup._init_with_subresource_pool)


def test_the_shim_made_this_process_no_gpu() -> None:
    import torch

    assert not torch.cuda.is_available()
    assert os.environ.get("VERL_PLATFORM", "cpu") == "cpu"


def test_other_releases_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    versions.check()
    monkeypatch.setitem(versions.PINNED, "verl", "0.9.2")
    monkeypatch.setitem(versions.PINNED, "no-such-package", "1")
    with pytest.raises(RunnerUnavailable, match=r"verl 0\.9\.1 is installed, 0\.9\.2 is needed; no-such-package 1 is not installed"):
        versions.check()
