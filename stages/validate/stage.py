"""The validate stage: reads what was predicted and what was measured, writes validation, calibration and the report."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from artifacts.base import Strict
from artifacts.calibration import Calibration
from artifacts.deployment import Deployment
from artifacts.errors import InputError
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.search import Search
from artifacts.throughput import Throughput
from artifacts.topology import Topology
from artifacts.validation import TrendPoint, Validation
from artifacts.views import render_run_report
from stages.contract import StageContext
from stages.validate.calibrate import Fit, fit
from stages.validate.errors import compare, validation
from stages.validate.measured import measure

THROUGHPUT_FILE = "throughput.jsonl"
REPORT_FILE = "report.html"


class Parameters(Strict):
    bound: float = Field(default=0.35, gt=0, le=100, description="largest |error| of the iteration's time at which the verdict is ok")
    skip_iterations: int = Field(default=1, ge=0, le=1000, description="warm-up iterations left out at the start of the run")
    # Fixed costs, which the cost model does not have, dominate toy models on a CPU: factors of thousands are real there.
    max_factor: float = Field(default=10_000.0, gt=1, le=1e6, description="calibration factors stay within 1/max_factor … max_factor")


def run(context: StageContext) -> dict[str, Any]:
    """Compare, judge, calibrate, draw. Raises ``InputError`` when the documents do not belong together or nothing was measured."""
    parameters = context.parameters(Parameters)
    job, topology, plan = context.read(Job), context.read(Topology), context.read(Plan)
    prediction, deployment = context.read(Prediction), context.read(Deployment)
    search, used = context.read_optional(Search), context.read_optional(Calibration)
    throughput = _throughput(context)
    _belong_together(topology, plan, prediction, deployment, throughput)

    measured = measure(throughput, skip=parameters.skip_iterations, where=f"{THROUGHPUT_FILE} of {context.input_ref('throughput')}")
    context.progress(1, 3, f"{measured.whole.count} iterations counted, {measured.warm_up} left out as warm-up")
    comparison = compare(topology, plan, prediction, measured)
    if throughput.header.simulated:
        fitted = Fit(calibration=None, notes=["played by the simulator, not measured: nothing is learned from it"])
    else:
        fitted = fit(
            comparison, prediction, used, topology=topology, used_names=_names(context), max_factor=parameters.max_factor
        )
    result = validation(
        comparison,
        plan,
        bound=parameters.bound,
        trend=_trend(context),
        simulated=throughput.header.simulated,
        notes=[*_in_sample(context), *fitted.notes,
               *_count_notes(measured.whole.count, len(throughput.iterations), parameters.skip_iterations)],
    )
    context.write(result)
    if fitted.calibration:
        context.write(fitted.calibration)
    context.progress(2, 3, "drawing the report")
    lineage = {name: str(ref) for name, ref in sorted(context.request.inputs.items())}
    page = render_run_report(job, topology, plan, prediction, search, deployment, throughput, result, lineage=lineage)
    context.write_bytes(REPORT_FILE, page.encode())
    context.progress(3, 3, f"prediction {result.verdict}: iteration error {result.iteration.error:+.1%}")
    return _summary(result, fitted)


def _throughput(context: StageContext) -> Throughput:
    ref = context.input_ref("throughput")
    return Throughput.from_jsonl(context.store.read_bytes(ref, THROUGHPUT_FILE), where=f"{THROUGHPUT_FILE} of {ref}")


def _belong_together(topology: Topology, plan: Plan, prediction: Prediction, deployment: Deployment, throughput: Throughput) -> None:
    identity = plan.identity()
    strangers = [
        name
        for name, of in (("prediction", prediction.plan), ("deployment", deployment.plan), ("throughput", throughput.header.plan))
        if of != identity
    ]
    if plan.topology_fingerprint != topology.fingerprint:
        strangers.append("topology")
    if strangers:
        raise InputError(f"{', '.join(strangers)}: not of plan {identity[:12]}", fix="validate a run with the documents of its own plan")


def _names(context: StageContext) -> tuple[str, ...]:
    ref = context.request.inputs.get("calibration")
    return (ref.version, str(ref)) if ref else ()


def _in_sample(context: StageContext) -> list[str]:
    """Says so when the prediction was calibrated on the very run it is compared with: such agreement is no test."""
    ref = context.request.inputs.get("calibration")
    if ref is None or context.store.manifest(ref).inputs.get("throughput") != context.input_ref("throughput"):
        return []
    return ["no test of the prediction: its calibration was fitted on this very run; "
            "train again to test it (hetrl run --from train --force)"]


def _trend(context: StageContext) -> list[TrendPoint]:
    """Earlier runs, oldest first."""
    return [
        TrendPoint(version=ref.version, iteration_error=v.iteration.error, median_abs_error=v.median_abs_error)
        for ref, v in reversed(context.read_context(Validation))
    ]


def _count_notes(counted: int, finished: int, skip: int) -> list[str]:
    if finished <= skip:
        return [f"only {finished} iteration(s) finished, {skip} of warm-up asked for: the last one is counted, warm-up and all"]
    return [f"one iteration counted of {finished}: its time has no spread"] if counted == 1 else []


def _summary(result: Validation, fitted: Fit) -> dict[str, Any]:
    return {
        "verdict": result.verdict,
        "iteration_error": round(result.iteration.error, 4),
        "median_abs_error": round(result.median_abs_error, 4),
        "errors": {r.task: round(r.error, 4) for r in result.rows},
        "suspect": result.suspect,
        "predicted_s": result.iteration.predicted_s,
        "measured_s": result.iteration.measured_s,
        "calibrated": fitted.calibration is not None,
    }
