"""One planning problem: the job's tasks, the fleet they may use, the engine's rules, and what calibration learned."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from artifacts.calibration import Calibration
from artifacts.catalog.engines import EngineCapability, resolve_engine
from artifacts.job import ROLE_OF_TASK, TRAINING_TASKS, Job, TaskName
from artifacts.model_spec import ModelSpec
from artifacts.topology import Topology
from stages.schedule.draft import Cut
from stages.schedule.fleet import Fleet, build_fleet

Floats = NDArray[np.float64]

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
ACTOR_LOG_PROB = "actor_log_prob"
WEIGHT_UPDATE = "weight_update"


@dataclass(frozen=True)
class Task:
    """What the cost of a task depends on, beside its layout."""

    name: TaskName
    model: ModelSpec
    training: bool
    value_head: bool
    """One output a token instead of the vocabulary (critic, reward model)."""


@dataclass(frozen=True)
class Workload:
    """Sizes of one iteration. ``prompt_*`` and ``response_*`` are tokens, as computed (padded where the engine pads)."""

    sequences: int
    mini_batch_sequences: int
    micro_batch_sequences: int
    optimizer_steps: int
    epochs: int
    prompt_mean: float
    prompt_max: int
    response_mean: float
    response_max: int
    sequence_tokens: float
    """Tokens of one sequence in training and inference."""
    sequence_max: int

    @property
    def mini_batches(self) -> int:
        """Mini-batches in one pass over the batch."""
        return self.sequences // self.mini_batch_sequences


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a cost is a function of, beside the plan. ``allowed`` is ``[D]`` per task: where it may run."""

    job: Job
    topology: Topology
    fleet: Fleet
    engine: EngineCapability
    calibration: Calibration | None
    tasks: tuple[Task, ...]
    work: Workload
    element_bytes: int
    allowed: dict[str, NDArray[np.bool_]]
    excluded: dict[str, str]
    """Device id → why no task may use it."""
    cuts_memo: dict[tuple[object, ...], tuple[Cut, ...]] = field(default_factory=dict)
    compiled: dict[str, object] = field(default_factory=dict)
    """The kernel's tables and scratch memory, made when first asked for (see ``cost.tables.compiled``)."""
    _factors: dict[str, Floats] = field(default_factory=dict)

    def task(self, name: str) -> Task:
        return next(t for t in self.tasks if t.name == name)

    def factors(self, task: str) -> Floats:
        """Calibration factor of every device for a task, ``[D]``: measured over predicted time; 1 where nothing was learned."""
        found = self._factors.get(task)
        if found is None:
            found = self._factors[task] = self.class_factors(task)[self.fleet.device_class]
        return found

    def class_factors(self, task: str) -> Floats:
        """The same of every device class, ``[C]``; of one that was not seen, what the fleet's others of its vendor showed."""
        if self.calibration is None:
            return np.ones(len(self.fleet.classes))
        alike = self.topology.classes_alike
        return np.array([self.calibration.factor(task=task, device_class=c, alike=alike(c)) for c in self.fleet.classes])

    @property
    def overhead_s(self) -> float:
        """Seconds of an iteration beside its tasks; 0 where nothing was learned."""
        return self.calibration.overhead(tasks=len(self.tasks)) if self.calibration else 0.0

    def legal_dp(self, dp: int) -> bool:
        """Whether the engine runs this many replicas of a training or inference task."""
        return dp >= 1 and all(getattr(self.work, what) % dp == 0 for what in self.engine.dp_divides)

    def largest_dp(self, most: int) -> int:
        """The largest legal number of replicas up to ``most``; at least 1."""
        return next((dp for dp in range(min(most, self.work.mini_batch_sequences), 0, -1) if self.legal_dp(dp)), 1)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Devices that some task may use, ``[D]``."""
        return np.logical_or.reduce([self.allowed[t.name] for t in self.tasks])  # type: ignore[no-any-return]

    @property
    def most_devices(self) -> int:
        """Devices a plan may use at most."""
        limit = self.job.constraints.max_devices
        return self.fleet.size if limit is None else min(limit, self.fleet.size)

    @property
    def usable_bytes(self) -> Floats:
        """Plannable memory of every device, ``[D]``."""
        return self.fleet.memory_bytes * (1.0 - self.engine.memory.reserve)


def build_problem(job: Job, topology: Topology, calibration: Calibration | None = None) -> Problem:
    """The problem of planning ``job`` on ``topology``.

    Raises:
        InputError: the job's engine does not run on these devices at all.
    """
    engine = resolve_engine(job.engine, (d.vendor for d in topology.devices))
    fleet = build_fleet(topology)
    tasks = tuple(
        Task(
            name=name,
            model=job.model(ROLE_OF_TASK[name]),
            training=name in TRAINING_TASKS,
            value_head=ROLE_OF_TASK[name] in ("critic", "reward"),
        )
        for name in job.tasks()
    )
    excluded = _excluded(job, topology)
    everywhere = np.array([d.id not in excluded for d in fleet.devices])
    allowed: dict[str, NDArray[np.bool_]] = {t.name: everywhere & _pinned(job, fleet, t.name) for t in tasks}
    return Problem(
        job=job,
        topology=topology,
        fleet=fleet,
        engine=engine,
        calibration=calibration,
        tasks=tasks,
        work=_workload(job, engine),
        element_bytes=BYTES[job.precision],
        allowed=allowed,
        excluded=excluded,
    )


def _workload(job: Job, engine: EngineCapability) -> Workload:
    padded = not engine.removes_padding
    prompt_mean = float(job.prompt_tokens.max) if padded else job.prompt_tokens.mean
    return Workload(
        sequences=job.batch.sequences,
        mini_batch_sequences=job.batch.mini_batch_sequences,
        micro_batch_sequences=job.batch.micro_batch_sequences,
        optimizer_steps=job.batch.optimizer_steps,
        epochs=job.batch.epochs,
        prompt_mean=prompt_mean,
        prompt_max=job.prompt_tokens.max,
        response_mean=job.response_tokens.mean,
        response_max=job.response_tokens.max,
        sequence_tokens=float(job.sequence_tokens_max) if padded else job.sequence_tokens_mean,
        sequence_max=job.sequence_tokens_max,
    )


def _excluded(job: Job, topology: Topology) -> dict[str, str]:
    regions, constraints = {m.name: m.region for m in topology.machines}, job.constraints
    found = {}
    for device in topology.devices:
        region = regions[device.machine]
        if job.precision not in device.dtypes:
            found[device.id] = f"{device.name} has no {job.precision}"
        elif region in constraints.forbid_regions:
            found[device.id] = f"region {region} is forbidden by constraints.forbid_regions"
        elif constraints.keep_data_in and region not in constraints.keep_data_in:
            found[device.id] = f"data may not leave {', '.join(constraints.keep_data_in)} (constraints.keep_data_in)"
        elif device.id in constraints.forbid_devices or device.machine in constraints.forbid_devices:
            found[device.id] = f"device {device.id} is forbidden by constraints.forbid_devices"
    return found


def _pinned(job: Job, fleet: Fleet, task: TaskName) -> NDArray[np.bool_]:
    pins = job.constraints.pin.get(task)
    if pins is None:
        return np.ones(fleet.size, dtype=bool)
    return np.array([d.machine in pins for d in fleet.devices])
