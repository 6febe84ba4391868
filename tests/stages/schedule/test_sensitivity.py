"""What matters most: against changing the topology itself and pricing the same plan again."""

from __future__ import annotations

import pytest

from artifacts.topology import Topology
from stages.schedule.documents import price_plan
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.problem import build_problem
from stages.schedule.solve import Solution, solve
from tests.stages.schedule.builders import A100, L40S, big_job, topology

WORK = big_job("Qwen3-1.7B", algorithm="grpo")
FLEET = topology([(A100, 4), (L40S, 4)], regions=["va", "oh"])


@pytest.fixture(scope="module")
def solution() -> Solution:
    return solve(WORK, FLEET, parameters=ScheduleParameters(evaluations=300))


def again(solution: Solution, fleet: Topology) -> float:
    price = price_plan(build_problem(WORK, fleet), solution.plan)
    assert price is not None
    return price.iteration_s / solution.prediction.iteration_time_s - 1


def changed(**fields: object) -> Topology:
    return Topology.model_validate(FLEET.model_dump() | {"fingerprint": ""} | fields)


def test_a_faster_device_class_gains_what_a_faster_topology_gains(solution: Solution) -> None:
    gains = []
    for name in ("A100", "L40S"):
        devices = [d.model_dump() for d in FLEET.devices]
        for d in devices:
            if d["device_class"] == name:
                d["achieved_flops_per_s"]["value"] *= 1.1
        gains.append(again(solution, changed(devices=devices)))
        assert solution.prediction.sensitivity.get(f"compute rate of {name}", 0.0) == pytest.approx(gains[-1], abs=1e-4)
    assert min(gains) < -0.01


def test_links_between_regions_too(solution: Solution) -> None:
    links = [k.model_dump() for k in FLEET.links]
    for k in links:
        if k["source"] != k["target"]:
            k["bandwidth_bytes_per_s"] *= 1.1
    expected = again(solution, changed(links=links))
    assert solution.prediction.sensitivity.get("bandwidth between machines of oh – va", 0.0) == pytest.approx(expected, abs=1e-4)


def test_the_strongest_come_first_and_longer_responses_never_help(solution: Solution) -> None:
    values = [abs(v) for v in solution.prediction.sensitivity.values()]
    assert values == sorted(values, reverse=True) and len(values) >= 3
    assert solution.prediction.sensitivity["length of responses"] > 0
