"""Reward by a model: verl's worker of a critic that only infers, laid out by the plan as any other role.

verl 0.9.1 itself serves a reward model by vLLM's or SGLang's classification server, one stage deep and found over HTTP. The plan may
give it stages, shards and unequal shares, so it runs as its other models do; verl's trainer asks for scores where it has its own hook
for a reward model that scores whole batches (``_compute_reward_colocate``).
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict


def at_the_end(values: torch.Tensor, responses: torch.Tensor) -> TensorDict:
    """A reward for each token of each response: the head's value at the sequence's last token there, else none.

    ``values``: of every token of every sequence, jagged [B, tokens]; ``responses``: lengths, [B].
    """
    scores = values.values()[values.offsets()[1:] - 1].float()  # type: ignore[attr-defined,operator]
    rows = [torch.cat([score.new_zeros(int(length) - 1), score[None]]) for score, length in zip(scores, responses, strict=True)]
    return TensorDict({"rm_scores": torch.nested.as_nested_tensor(rows, layout=torch.jagged)}, batch_size=len(rows))


def start_workers(config: Any, keys: dict[str, Any], pool: Any) -> Any:
    """The reward model's worker group on ``pool``. ``keys`` replace those of the section for a critic in verl's ``config``."""
    import ray
    from omegaconf import OmegaConf
    from verl.single_controller.ray import RayClassWithInitArgs, RayWorkerGroup
    from verl.utils.config import omega_conf_to_dataclass
    from verl.utils.device import get_device_name
    from verl.workers.engine_workers import TrainingWorkerConfig

    from stages.train.engines.verl.workers import PlannedRewardWorker

    section: Any = OmegaConf.create(OmegaConf.to_container(config.critic, resolve=True))
    for key, value in keys.items():
        OmegaConf.update(section, key.removeprefix("+").removeprefix("critic."), value, force_add=True)
    model: Any = omega_conf_to_dataclass(section)
    model.engine.forward_only = True
    model.engine.infer_max_token_len_per_gpu = model.engine.max_token_len_per_gpu = model.ppo_infer_max_token_len_per_gpu
    worker = TrainingWorkerConfig(model_type="value_model", model_config=model.model, engine_config=model.engine,
                                  optimizer_config=model.optim, checkpoint_config=model.checkpoint)
    made = RayClassWithInitArgs(cls=ray.remote(PlannedRewardWorker), config=worker)
    group: Any = RayWorkerGroup(resource_pool=pool, ray_cls_with_init=made, bin_pack=False, name_prefix="reward", use_gpu=True,
                                device_name=get_device_name())
    group.reset()
    return group
