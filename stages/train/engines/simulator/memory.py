"""What is left on a rollout replica's devices for the KV cache, beside what its group's tasks keep there."""

from __future__ import annotations

from artifacts.job import ROLE_OF_TASK, TRAINING_TASKS
from artifacts.model_spec import adam_state_bytes_per_param
from stages.train.engines.simulator.setting import Setting, TaskSetting


def kv_tokens(setting: Setting, replica: int) -> int:
    """Tokens whose keys and values fit on the scarcest shard of a rollout replica."""
    rollout, memory = setting.tasks["rollout"], setting.engine.memory
    [unit] = rollout.units[replica]
    weights = rollout.model.params() * setting.element_bytes / len(unit)
    a_token = rollout.model.layers * rollout.model.kv_bytes_per_token_layer(setting.element_bytes) / len(unit)
    free = []
    for d in unit:
        usable = setting.topology.devices[d].memory_bytes * (1 - memory.reserve)
        beside = sum(_kept(setting, setting.tasks[t], d) for t in setting.group_tasks("rollout") if t != "rollout")
        processes = memory.per_rank_bytes * (2 if len(setting.group_tasks("rollout")) > 1 else 1)
        free.append(usable - beside - processes - memory.generation_bytes - weights)
    return max(0, int(min(free) / a_token))


def state_bytes(setting: Setting, task: TaskSetting, stage: int) -> float:
    """Weights, and in training gradients and optimizer, of one rank. Inference of a role its group also trains uses the trained weights."""
    trained = {ROLE_OF_TASK[t] for t in setting.group_tasks(task.name) if t in TRAINING_TASKS}
    w, engine = setting.element_bytes, setting.engine
    if task.name in TRAINING_TASKS:
        each = w + engine.gradient_bytes + adam_state_bytes_per_param(w) / (task.strategy.dp if engine.optimizer_sharded else 1)
        return task.params(stage) * each
    return 0.0 if ROLE_OF_TASK[task.name] in trained else task.params(stage) * w  # type: ignore[index]


def _kept(setting: Setting, task: TaskSetting, device: int) -> float:
    """Bytes a task keeps on a device while others run; nothing where roles are offloaded."""
    if setting.job.engine.offload and setting.topology.devices[device].vendor != "cpu":
        return 0.0
    for stages in task.units:
        for j, unit in enumerate(stages):
            if device in unit:
                return state_bytes(setting, task, j)
    return 0.0
