"""What a rank holds all the time, what it needs while a task runs, and what waits in the machine's memory. Bytes.

Training activations: Korthikanti et al., arXiv 2205.05198, equations 2 and 4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from artifacts.job import ROLE_OF_TASK
from stages.schedule.draft import Layout
from stages.schedule.problem import Problem, Task
from tests.stages.schedule.reference.fleet import Fleet

ByDevice = dict[int, float]


@dataclass
class GroupMemory:
    """By ``task.term``: bytes held all the time; by task: bytes while it runs, and bytes its machine holds for the device between phases."""

    resident: dict[str, ByDevice] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    working: dict[str, ByDevice] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    offloaded: dict[str, ByDevice] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))

    def held(self, device: int) -> float:
        return sum(by_device.get(device, 0.0) for by_device in self.resident.values())

    def peak(self, device: int) -> float:
        """Σ resident + max working."""
        return self.held(device) + max(by_device.get(device, 0.0) for by_device in self.working.values())


def stage_params(task: Task, layers: int, *, first: bool, last: bool) -> int:
    return task.model.stage_params(layers=layers, first=first, last=last, value_head=task.value_head)


def kept_by_layer(problem: Problem, task: Task, *, micro: int, tp: int, recompute: str) -> float:
    """Activations a layer keeps for the backward pass: published for 2-byte elements, here for w bytes.

    none: s·b·h·(10 + 24/t + 5·a·s/(h·t)), without the last term where the attention matrix is never stored; selective: 34·s·b·h/t;
    full: the layer's input, w·s·b·h.
    """
    s, h, a, w = problem.work.sequence_tokens, task.model.hidden, task.model.heads, problem.element_bytes
    if recompute == "full":
        return w * s * micro * h
    if recompute == "selective":
        return 34 * s * micro * h / tp * w / 2
    matrix = 0.0 if problem.engine.flash_attention else 5 * a * s / (h * tp)
    return s * micro * h * (10 + 24 / tp + matrix) * w / 2


def working_bytes(problem: Problem, task: Task, layout: Layout, *, replica: int, stage: int) -> float:
    """Activations and logits of a rank while its training or inference runs."""
    model, tp, micro, w = task.model, layout.tp, layout.micro[replica], problem.element_bytes
    tokens = micro * problem.work.sequence_tokens
    logits = 0.0
    if stage == layout.pp - 1 and not task.value_head:
        padded = -(-model.vocab // (128 * tp)) * 128 * tp
        logits = tokens * padded / tp * 4 * (2 if task.training else 1)
    if problem.engine.fully_sharded:  # the layer in use and the next, gathered
        logits += 2 * model.layer_params() / tp * w
    if not task.training:
        q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
        return tokens * w * (2 * model.hidden + (q + 2 * kv + 3 * model.intermediate) / tp) + logits
    recompute = problem.job.engine.recompute
    in_flight = min(layout.pp - stage, layout.micro_batches)
    kept = layout.layers[stage] * in_flight * kept_by_layer(problem, task, micro=micro, tp=tp, recompute=recompute)
    if recompute == "full":
        kept += kept_by_layer(problem, task, micro=micro, tp=tp, recompute="none")
    return kept + logits


def borrows_weights(name: str, group: Iterable[str]) -> bool:
    """Inference of a role that its group also trains uses the trained weights."""
    trained = {ROLE_OF_TASK[t] for t in group if t.endswith("_training")}  # type: ignore[index]
    return name.endswith("_inference") and ROLE_OF_TASK[name] in trained  # type: ignore[index]


def weights_moved(problem: Problem, fleet: Fleet, task: Task, layout: Layout) -> ByDevice:
    """Weights of each rank that wait in the machine's memory; nothing without offload."""
    found: ByDevice = {}
    for replica in layout.ranks.tolist():
        for j, shards in enumerate(replica):
            params = stage_params(task, layout.layers[j], first=j == 0, last=j == layout.pp - 1) / layout.tp
            for device in shards:
                if problem.job.engine.offload and not fleet.on_host[device]:
                    found[device] = params * problem.element_bytes / (layout.dp if problem.engine.fully_sharded else 1)
    return found


def group_memory(problem: Problem, fleet: Fleet, layouts: Mapping[str, Layout]) -> GroupMemory:
    """Everything but the KV cache."""
    found = GroupMemory()
    for name, layout in layouts.items():
        task, w = problem.task(name), problem.element_bytes
        each: dict[str, float] = {}
        sharing = layout.dp if problem.engine.fully_sharded and name != "rollout" else 1
        if borrows_weights(name, layouts):
            for device, bytes_ in weights_moved(problem, fleet, task, layout).items():
                found.working[name][device] += bytes_
        else:
            each["weights"] = w / sharing
        if task.training:
            each["gradients"] = problem.engine.gradient_bytes / sharing
            each["optimizer"] = (12 if w < 4 else 8) / (layout.dp if problem.engine.optimizer_sharded else 1)
        for i, replica in enumerate(layout.ranks.tolist()):
            for j, shards in enumerate(replica):
                params = stage_params(task, layout.layers[j], first=j == 0, last=j == layout.pp - 1) / layout.tp
                for device in shards:
                    process = "rollout.process" if name == "rollout" else "model.process"
                    found.resident[process][device] = problem.engine.memory.per_rank_bytes
                    if name == "rollout":
                        found.working[name][device] += problem.engine.memory.generation_bytes
                    else:
                        found.working[name][device] += working_bytes(problem, task, layout, replica=i, stage=j)
                    for term, bytes_ in each.items():
                        if problem.job.engine.offload and not fleet.on_host[device]:
                            found.offloaded[name][device] += params * bytes_
                            found.working[name][device] += params * bytes_
                        else:
                            found.resident[f"{name}.{term}"][device] += params * bytes_
    return found
