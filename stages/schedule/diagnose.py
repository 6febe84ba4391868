"""The search found nothing that fits: say what the nearest plan lacks, and which single change would mend it (each one is tried)."""

from __future__ import annotations

from dataclasses import replace

from artifacts.job import Job
from stages.schedule.legality import memory_violations
from stages.schedule.problem import build_problem
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.nested_halving import sha_ea
from stages.schedule.violations import HARDWARE, SETTING, Violation

TRIAL_EVALUATIONS = 400


def why_nothing_fits(evaluator: Evaluator) -> list[Violation]:
    """Violations of the plan nearest to fitting; where a change of a setting was found to help, that is their mend."""
    problem, nearest = evaluator.problem, evaluator.nearest
    if nearest is None:
        fixed = ", ".join(f"constraints.fix.{t}" for t in problem.job.constraints.fix) or ", ".join(
            f"constraints.pin.{t}" for t in problem.job.constraints.pin
        )
        mend = f"loosen {fixed}" if fixed else "add devices, or use a model whose heads and vocabulary divide further"
        return [Violation("no_layout", "cluster", "no legal way to cut the devices exists for this job", mend, SETTING, fixed)]
    if nearest.overflow <= 0:
        return [
            Violation(
                "link", "cluster", "every plan communicates over machines that no usable link joins", "probe the links again", HARDWARE
            )
        ]
    found = memory_violations(problem, nearest)
    mend = _mend_that_works(evaluator)
    return [
        replace(v, mend=mend, mend_cost=SETTING)
        if mend
        else replace(v, mend="use devices with more memory, more devices, or a smaller model", mend_cost=HARDWARE)
        for v in found
    ]


def _mend_that_works(evaluator: Evaluator) -> str:
    """The first change of one or two settings with which a short search finds a plan that fits."""
    job = evaluator.problem.job
    trials: list[tuple[str, Job]] = []

    def engine(job: Job, **changes: object) -> Job:
        return job.model_copy(update={"engine": job.engine.model_copy(update=changes)})

    if job.engine.recompute != "full":
        trials.append(("set engine.recompute to 'full'", engine(job, recompute="full")))
    gpus = not evaluator.problem.fleet.memory_is_host.any()
    if gpus and not job.engine.offload:
        trials.append(("set engine.offload to true", engine(job, offload=True)))
        if job.engine.recompute != "full":
            trials.append(("set engine.recompute to 'full' and engine.offload to true", engine(job, recompute="full", offload=True)))
    for text, changed in trials:
        problem = build_problem(changed, evaluator.problem.topology, evaluator.problem.calibration)
        trial = Evaluator(problem, Budget(evaluations=TRIAL_EVALUATIONS))
        sha_ea(trial, seed=0)
        if trial.best is not None:
            return text
    return ""
