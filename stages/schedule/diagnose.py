"""The search found nothing that fits: say what the nearest plan lacks, and which single change would mend it (each one is tried)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from artifacts.job import Job
from stages.schedule.legality import memory_violations
from stages.schedule.preconditions import EXCLUDING
from stages.schedule.problem import Problem, build_problem
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.nested_halving import sha_ea
from stages.schedule.violations import CONSTRAINT, HARDWARE, SETTING, Violation

TRIAL_EVALUATIONS = 400


def why_nothing_fits(evaluator: Evaluator) -> list[Violation]:
    """Violations of the plan nearest to fitting; where a change of a setting was found to help, that is their mend."""
    problem, nearest = evaluator.problem, evaluator.nearest
    if nearest is None:
        constraints = problem.job.constraints
        keys = [f"fix.{t}" for t in constraints.fix] or [f"pin.{t}" for t in constraints.pin]
        keys += ["max_devices"] if constraints.max_devices else []
        named = ", ".join(f"constraints.{k}" for k in keys)
        loosen = f"loosen {named}" if keys else "add devices, or use a model whose heads and vocabulary divide further"
        said = "no legal way to cut the devices exists for this job"
        return [Violation("no_layout", "cluster", said, loosen, CONSTRAINT if keys else SETTING, keys[0] if keys else "")]
    if nearest.overflow <= 0:
        return [
            Violation(
                "link", "cluster", "every plan communicates over machines that no usable link joins", "probe the links again", HARDWARE
            )
        ]
    found = memory_violations(problem, nearest)
    mend = _mend_that_works(problem)
    if mend is None:
        return [replace(v, mend="use devices with more memory, more devices, or a smaller model", mend_cost=HARDWARE) for v in found]
    return [replace(v, mend=mend.text, mend_cost=mend.cost, constraint=mend.constraint) for v in found]


@dataclass(frozen=True)
class Mend:
    """A changed job, what was changed, what the change costs, and the user's constraint that it drops."""

    text: str
    job: Job
    cost: int = SETTING
    constraint: str = ""


def _mend_that_works(problem: Problem) -> Mend | None:
    """The first change of one or two settings, or of one constraint, with which a short search finds a plan that fits."""
    for mend in [*_settings(problem), *_loosened(problem)]:
        changed = build_problem(mend.job, problem.topology, problem.calibration)
        trial = Evaluator(changed, Budget(evaluations=TRIAL_EVALUATIONS))
        sha_ea(trial, seed=0)
        if trial.best is not None:
            return mend
    return None


def _settings(problem: Problem) -> Iterator[Mend]:
    job = problem.job

    def engine(**changes: object) -> Job:
        return job.model_copy(update={"engine": job.engine.model_copy(update=changes)})

    if job.engine.recompute != "full":
        yield Mend("set engine.recompute to 'full'", engine(recompute="full"))
    if not problem.fleet.memory_is_host.any() and not job.engine.offload:
        yield Mend("set engine.offload to true", engine(offload=True))
        if job.engine.recompute != "full":
            yield Mend("set engine.recompute to 'full' and engine.offload to true", engine(recompute="full", offload=True))


def _loosened(problem: Problem) -> Iterator[Mend]:
    """The job without one of its constraints."""
    constraints = problem.job.constraints
    for field in ("pin", "fix"):
        for task in getattr(constraints, field):
            rest = {t: v for t, v in getattr(constraints, field).items() if t != task}
            yield _without_constraint(problem.job, f"{field}.{task}", {field: rest})
    for field in EXCLUDING:
        if getattr(constraints, field):
            yield _without_constraint(problem.job, field, {field: []})
    if constraints.max_devices:
        yield _without_constraint(problem.job, "max_devices", {"max_devices": None})


def _without_constraint(job: Job, key: str, changes: dict[str, object]) -> Mend:
    loosened = job.model_copy(update={"constraints": job.constraints.model_copy(update=changes)})
    return Mend(f"drop or loosen constraints.{key}", loosened, CONSTRAINT, key)
