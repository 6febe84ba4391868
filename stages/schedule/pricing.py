"""What a given plan would do: its price under the cost model, or all the rules it breaks."""

from __future__ import annotations

from artifacts.calibration import Calibration
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.topology import Topology
from stages.schedule.documents import price_plan
from stages.schedule.legality import broken_rules
from stages.schedule.prediction import Fidelity, prediction_document
from stages.schedule.problem import build_problem
from stages.schedule.violations import SETTING, Violation, infeasible


def price_given(
    job: Job,
    topology: Topology,
    plan: Plan,
    calibration: Calibration | None = None,
    *,
    fidelity: Fidelity = "calibrated",
    calibration_version: str = "",
) -> Prediction:
    """The prediction of a plan as it stands.

    Raises:
        InfeasiblePlan: the plan cannot run; every rule it breaks.
    """
    problem = build_problem(job, topology, calibration)
    broken = broken_rules(problem, plan)
    price = None if broken else price_plan(problem, plan)
    if price is None:
        raise infeasible(broken or [Violation("strategy", "plan", "a strategy of the plan cannot be laid out", "schedule again", SETTING)])
    return prediction_document(problem, plan, price, fidelity=fidelity, calibration=calibration_version)
