"""Searches on a real Ray cluster: no worse than here, the same again, stopped when told to; and no cluster is said in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import psutil
import pytest

from artifacts.errors import RunnerUnavailable, StageTimeout
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.solve import Enough, Solution, solve
from stages.schedule.workers import ray_search
from tests.stages.profile.ray_fleet import RayFleet, ray_fleet
from tests.stages.schedule.builders import A100, L40S, big_job, topology

pytestmark = pytest.mark.engine
WORK, FLEET = big_job("Qwen3-1.7B", algorithm="grpo"), topology([(A100, 4), (L40S, 4)])


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayFleet]:
    pytest.importorskip("ray")
    with ray_fleet("a", cpus=2) as fleet:
        yield fleet


def on_ray(cluster: RayFleet, *, solver: str = "auto", workers: int = 3, seconds: float | None = None, **more: object) -> Solution:
    parameters = ScheduleParameters(
        solver=solver, evaluations=1500, seconds=seconds, seed=2, workers="ray", ray_workers=workers, ray_address=cluster.address)  # type: ignore[arg-type]
    return solve(WORK, FLEET, parameters=parameters, **more)  # type: ignore[arg-type]


def test_more_searches_than_cpus_find_no_worse_a_plan_than_one_here_and_the_same_one_again(cluster: RayFleet) -> None:
    seen: list[float] = []
    found = on_ray(cluster, on_progress=lambda done, total, best: seen.append(done))
    here = solve(WORK, FLEET, parameters=ScheduleParameters(evaluations=1500, seed=2))
    assert found.prediction.iteration_time_s <= here.prediction.iteration_time_s * (1 + 1e-9)
    assert [a.name for a in found.search.arms] == [f"search {n + 1} of 3, seed {2 + n * ray_search.SEED_STEP}" for n in range(3)]
    assert min(a.best_s for a in found.search.arms if a.best_s) == pytest.approx(found.search.trajectory[-1].cost_s)
    assert found.search.evaluations >= 3 * 1400 and seen and found.search.status == "feasible"
    again = on_ray(cluster)
    assert again.plan == found.plan and again.search.identity() == found.search.identity()


def test_the_published_interface_is_the_same_and_a_budget_of_seconds_ends(cluster: RayFleet) -> None:
    found = on_ray(cluster, solver="sha-ea", workers=2, seconds=1.0)
    assert len(found.search.arms) == 2 and all(a.best_s for a in found.search.arms) and found.search.solver == "sha-ea"


def test_told_to_stop_the_best_plan_so_far_is_the_result_and_no_search_goes_on(cluster: RayFleet) -> None:
    def stop(done: float, total: float, best: float | None) -> None:
        if best is not None:
            raise Enough

    found = on_ray(cluster, workers=2, seconds=3600.0, on_progress=stop)
    assert found.search.status == "interrupted" and found.plan.groups
    left = [p for s in cluster._servers() if s.is_running() for p in s.children(recursive=True) if "search_alone" in " ".join(p.cmdline())]
    _, alive = psutil.wait_procs(left, timeout=60)
    assert alive == []


def test_no_ray_and_no_cluster_are_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_search, "ANSWER_S", 5.0)
    parameters = ScheduleParameters(workers="ray", ray_address="127.0.0.1:9")
    with pytest.raises((RunnerUnavailable, StageTimeout), match="127.0.0.1:9"):
        solve(WORK, FLEET, parameters=parameters)
    monkeypatch.setitem(sys.modules, "ray._private.services", None)
    with pytest.raises(RunnerUnavailable, match="Ray is not installed"):
        solve(WORK, FLEET, parameters=parameters)
