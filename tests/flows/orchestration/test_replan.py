"""The whole story of a re-plan on a real server with a real worker: the fleet changes, profile sees it, an automation has it planned again,
a person is shown what moves and says yes or no, or nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.events.clients import get_events_client
from prefect.events.schemas.events import Event, Resource
from prefect.settings import PREFECT_API_URL, temporary_settings

from artifacts.manifest import VersionRef
from artifacts.plan import Plan
from artifacts.plan_diff import PlanDiff, working_devices
from artifacts.store import Store, open_store
from artifacts.store.settings import StoreSettings
from flows.automations import zombie_automation
from flows.services import prefect
from flows.services.state import store_url
from tests.flows.orchestration.browser import browser, look, pictures
from tests.flows.orchestration.services import ROOT, Services

JOB = str(ROOT / "infra/jobs/qwen3-4b-grpo.yaml")
CHANGED, REFITTED = "hetrl: plan again when the topology changed", "hetrl: plan again when the calibration was refitted"


@pytest.fixture(scope="module")
def quick(services: Services) -> Iterator[None]:
    """The deployment as it is deployed, but for a search of seconds and a window of seconds."""
    [replan] = services.api("/deployments/filter", {"deployments": {"name": {"any_": ["replan"]}}})
    services.api(f"/deployments/{replan['id']}", {"parameters": replan["parameters"] | {"budget": "300", "review_minutes": 30}}, method="PATCH")
    yield
    services.api(f"/deployments/{replan['id']}", {"parameters": replan["parameters"]}, method="PATCH")


@pytest.fixture
def store(services: Services) -> Store:
    return open_store(store_url(), settings=StoreSettings.from_env(services.s3.environment()))


class Fleet:
    """An inventory that somebody edits."""

    def __init__(self, services: Services, path: Path) -> None:
        self.services, self.path = services, path
        self.whole: dict[str, Any] = yaml.safe_load((ROOT / "infra/clusters/workstation-pair.yaml").read_text()) | {"name": "story"}

    def is_now(self, **changes: object) -> datetime:
        """Change it, and have it profiled as the nightly run does; when that began."""
        self.path.write_text(yaml.safe_dump(self.whole | changes))
        began = datetime.now(UTC)
        state = self.services.finish(self.services.start("profile", cluster=str(self.path)))
        assert state["type"] == "COMPLETED", state
        return began


def diff_of(store: Store) -> PlanDiff:
    latest = store.latest("replan")
    assert latest is not None
    return store.read(latest, PlanDiff)


def test_a_machine_leaves_and_comes_back_and_a_link_slows_down(services: Services, quick: None, store: Store, tmp_path: Path) -> None:
    fleet = Fleet(services, tmp_path / "fleet.yaml")
    fleet.path.write_text(yaml.safe_dump(fleet.whole))
    first = services.finish(services.start("train", job=JOB, cluster=str(fleet.path), until_stage="schedule", budget="300"))
    assert first["type"] == "COMPLETED", first
    in_force = store.latest("schedule")
    assert in_force is not None
    old_devices = {d for d in working_devices(store.read(in_force, Plan)) if d.startswith("old.")}
    assert old_devices, "the story is about a machine the plan uses"

    # A machine is taken away: the old plan cannot stay, and the new one is adopted by a person.
    began = fleet.is_now(machines=[m for m in fleet.whole["machines"] if m["name"] != "old"])
    run = services.started_by(CHANGED, after=began)
    services.paused(run["id"])
    shown = services.shown(run["id"], "hetrl-plan-diff")
    assert "machine old is gone, with 4 devices" in shown and "A new plan is needed" in shown
    services.answer(run["id"], decision="adopt", note="seen")
    assert services.finish(run["id"])["name"] == "Completed"
    away = diff_of(store)
    assert (away.before, set(away.gone), away.stays_s) == (str(in_force), old_devices, None)
    assert all("is not in the topology" in reason for reason in away.cannot_stay) and away.cannot_stay
    assert away.moves and away.load_bytes > 0 and "machine old is gone, with 4 devices" in away.causes[0]
    adopted = store.latest("schedule")
    assert adopted is not None and str(adopted) == away.after
    assert store.manifest(adopted).context["plan"] == [in_force], "the search started from the plan in force"

    # It comes back: the plan made for the whole fleet is there already. A person keeps what runs.
    began = fleet.is_now()
    run = services.started_by(CHANGED, after=began)
    services.paused(run["id"])
    assert services.tasks(run["id"]) == {"schedule": "Cached"}
    services.answer(run["id"], decision="keep")
    assert services.finish(run["id"])["name"] == "Kept"
    back = diff_of(store)
    assert (back.before, back.after) == (str(adopted), str(in_force))
    assert set(back.taken_up) >= old_devices and back.stays_s is not None, "the plan for one machine can stay on two"
    assert store.latest("schedule") == adopted

    # A link slows down, and nobody answers.
    [replan] = services.api("/deployments/filter", {"deployments": {"name": {"any_": ["replan"]}}})
    services.api(f"/deployments/{replan['id']}", {"parameters": replan["parameters"] | {"review_minutes": 0.05}}, method="PATCH")
    began = fleet.is_now(links={"same_zone": {"latency_ms": 20, "bandwidth_gbit_per_s": 0.05}})
    run = services.started_by(CHANGED, after=began)
    assert services.finish(run["id"])["name"] == "Completed"
    slow = diff_of(store)
    assert slow.before == str(adopted) and any("bandwidth" in cause and "worse" in cause for cause in slow.causes)
    assert store.latest("schedule") == VersionRef(stage="schedule", version=slow.after.partition("@")[2])
    assert slow.stays_s is not None and slow.stays_s >= slow.after_s * (1 - 1e-9), "the search started from the old plan: it cannot be worse"


def emit(services: Services, event: str, **labels: str) -> datetime:
    began = datetime.now(UTC)
    resource = Resource({"prefect.resource.id": "hetrl.cluster.story", **labels})
    with temporary_settings({PREFECT_API_URL: prefect.api_url(services.port)}):
        _send(Event(event=event, resource=resource, payload={"reason": "the prediction was off by +80%"}))
    return began


def _send(event: Event) -> None:
    import asyncio

    async def send() -> None:
        async with get_events_client() as client:
            await client.emit(event)

    asyncio.run(send())


def test_a_prediction_that_was_off_has_the_plan_made_again_where_it_was_refitted(services: Services, quick: None) -> None:
    began = emit(services, "hetrl.prediction.off", **{"hetrl.refitted": "no"})
    emit(services, "hetrl.prediction.off", **{"hetrl.refitted": "yes"})
    run = services.started_by(REFITTED, after=began)
    assert services.finish(run["id"])["type"] in ("COMPLETED", "FAILED")
    assert run["parameters"]["reason"] == "the prediction was off by +80%" and run["parameters"]["warm_start"] is True
    started = [r for r in services.api("/flow_runs/filter", {}) if (r.get("created_by") or {}).get("display_value") == REFITTED]
    assert len(started) == 1, "a simulated run teaches nothing: it has nothing planned again"


def test_a_run_without_heartbeat_is_marked_as_crashed(services: Services) -> None:
    """The automation as it is deployed, with a window of seconds; the run is one nobody executes."""
    [train] = services.api("/deployments/filter", {"deployments": {"name": {"any_": ["profile"]}}})
    run = services.api("/flow_runs/", {"flow_id": train["flow_id"], "state": {"type": "RUNNING", "name": "Running"}})["id"]
    related = [{"prefect.resource.id": f"prefect.flow.{train['flow_id']}", "prefect.resource.role": "flow", "prefect.resource.name": "hetrl"}]
    with temporary_settings({PREFECT_API_URL: prefect.api_url(services.port)}), get_client(sync_client=True) as client:
        made = client.create_automation(zombie_automation(after_s=10, name="hetrl: test of zombies"))
        _send(Event(event="prefect.flow-run.heartbeat", resource=Resource({"prefect.resource.id": f"prefect.flow-run.{run}"}),
                    related=related, occurred=datetime.now(UTC)))
        state = services.finish(run)
        client.delete_automation(made)
    assert (state["type"], state["message"]) == ("CRASHED", "no heartbeat for 10 s: its process is gone")


@pytest.mark.skipif(browser() is None or not os.environ.get("HETRL_SCREENSHOTS"), reason="pictures are taken where HETRL_SCREENSHOTS names a folder")
def test_the_plan_diff_is_a_page_in_a_real_browser(services: Services, tmp_path: Path) -> None:
    """After the story above: the artifact's page, as a person sees it."""
    [latest, *_] = services.api("/artifacts/filter", {"artifacts": {"key": {"any_": ["hetrl-plan-diff"]}}, "sort": "CREATED_DESC"})
    picture = pictures() / "plan-diff.png"
    page = look(f"http://127.0.0.1:{services.port}/artifacts/artifact/{latest['id']}", picture, tmp_path / "profile")
    assert "What moves" in page and "What it costs" in page
    assert picture.read_bytes()[:4] == b"\x89PNG"
