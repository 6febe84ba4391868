"""One simulated run: the documents as numbers, ready for every part of the simulator."""

from __future__ import annotations

from dataclasses import dataclass

from artifacts.catalog.engines import EngineCapability, resolve_engine
from artifacts.errors import InfeasiblePlan
from artifacts.job import ROLE_OF_TASK, Job, TaskName
from artifacts.model_spec import ModelSpec
from artifacts.plan import Plan, Strategy
from artifacts.topology import Topology
from stages.train.engines.simulator.devices import Devices
from stages.train.engines.simulator.network import Network

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
ACTOR_LOG_PROB = "actor_log_prob"
WEIGHT_UPDATE = "weight_update"
Unit = tuple[int, ...]
"""The shards of one stage of one replica: devices that compute a layer together."""


@dataclass(frozen=True, eq=False)
class TaskSetting:
    """A task with its model and the devices of its ranks: ``units[replica][stage]``."""

    name: str
    model: ModelSpec
    value_head: bool
    strategy: Strategy
    units: list[list[Unit]]

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(sorted({d for stages in self.units for unit in stages for d in unit}))

    def params(self, stage: int) -> float:
        """Parameters one shard of a stage holds."""
        layers, last = self.strategy.layers, self.strategy.pp - 1
        held = self.model.stage_params(layers=layers[stage], first=stage == 0, last=stage == last, value_head=self.value_head)
        return held / self.strategy.tp


@dataclass(frozen=True, eq=False)
class Setting:
    """What a simulated run is a function of, with the seed in the job."""

    job: Job
    plan: Plan
    topology: Topology
    engine: EngineCapability
    devices: Devices
    network: Network
    tasks: dict[str, TaskSetting]

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.job.precision]

    @property
    def mini_batches(self) -> int:
        """Mini-batches in one pass over the batch."""
        return self.job.batch.sequences // self.job.batch.mini_batch_sequences

    def group_tasks(self, task: str) -> list[TaskName]:
        return self.plan.group_of(task).tasks


def setting_of(job: Job, topology: Topology, plan: Plan, *, trunk_streams: int = 0) -> Setting:
    """Raises ``InputError`` where the job's engine does not run on the plan's devices, ``InfeasiblePlan`` where the plan is none of it."""
    devices = Devices.of(topology)
    used = {d for g in plan.groups for d in g.devices}
    unknown = sorted(used - devices.index.keys())
    _require(not unknown, f"the topology has no device {', '.join(unknown)}")
    wanted, planned = set(job.tasks()), set(plan.tasks)
    _require(wanted == planned, f"the plan has the tasks {', '.join(sorted(planned))}, the job {', '.join(sorted(wanted))}")
    engine = resolve_engine(job.engine, {d.vendor for d in topology.devices if d.id in used})
    tasks: dict[str, TaskSetting] = {name: _task(name, job, strategy, devices) for name, strategy in plan.tasks.items()}
    found = Setting(job, plan, topology, engine, devices, Network(topology, trunk_streams=trunk_streams), tasks)
    for task in tasks.values():
        _check(found, task)
    return found


def _task(name: TaskName, job: Job, strategy: Strategy, devices: Devices) -> TaskSetting:
    role = ROLE_OF_TASK[name]
    units = [
        [tuple(devices.index[strategy.rank(i, j, k)] for k in range(strategy.tp)) for j in range(strategy.pp)] for i in range(strategy.dp)
    ]
    return TaskSetting(name=name, model=job.model(role), value_head=role in ("critic", "reward"), strategy=strategy, units=units)


def _check(setting: Setting, task: TaskSetting) -> None:
    s, sequences = task.strategy, setting.job.batch.sequences
    _require(sum(s.layers) == task.model.layers,
             f"{task.name}: stages of {sum(s.layers)} layers, {task.model.name} has {task.model.layers}")
    _require(sum(s.local_batch_sequences) == sequences, f"{task.name}: shares of {sum(s.local_batch_sequences)} sequences, "
             f"the batch has {sequences}")
    if task.name.endswith("_training"):
        _require(all(n % setting.mini_batches == 0 and n for n in s.local_batch_sequences),
                 f"{task.name}: shares {s.local_batch_sequences} do not divide into {setting.mini_batches} mini-batches")
    if task.name == "rollout":
        _require(s.pp == 1, f"rollout: {s.pp} pipeline stages, a generation engine has one")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InfeasiblePlan(f"the simulator cannot play this plan: {what}", fix="schedule again", details={"violations": [what]})
