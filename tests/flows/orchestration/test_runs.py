"""The flow on a real Prefect server with a real worker, on the embedded S3 server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import yaml
from prefect.settings import PREFECT_API_URL, temporary_settings

from artifacts.store import open_store
from artifacts.store.settings import StoreSettings
from flows.automations import ZOMBIES
from flows.graph import ORDER
from flows.services import prefect
from flows.services.state import store_url
from flows.slots import cluster_slot
from tests.flows.orchestration.services import ROOT, Services, wait_for_stage
from tests.infra.docs.terminal import DOCUMENTED

JOB = str(ROOT / "infra/jobs/qwen3-4b-grpo.yaml")
PAIR = str(ROOT / "infra/clusters/workstation-pair.yaml")


def test_deployments_are_those_of_the_file_and_deploying_again_adds_none(services: Services) -> None:
    wanted = {d["name"] for d in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]}
    assert {d["name"] for d in services.api("/deployments/filter", {})} == wanted
    before = automations(services)
    prefect.deploy(ROOT, services.port)
    assert {d["name"] for d in services.api("/deployments/filter", {})} == wanted
    assert automations(services) == before
    assert set(before) == {ZOMBIES, "hetrl: plan again when the topology changed", "hetrl: plan again when the calibration was refitted"}


def automations(services: Services) -> list[str]:
    return sorted(a["name"] for a in services.api("/automations/filter", {}))


def test_schedules_have_a_name_and_a_time_zone_and_are_off(services: Services) -> None:
    found = {d["name"]: d for d in services.api("/deployments/filter", {})}
    schedules = {name: [(s["slug"], s["active"], s["schedule"]["cron"], s["schedule"]["timezone"]) for s in d["schedules"]] for name, d in found.items()}
    assert schedules == {"train": [], "profile": [("nightly", False, "0 3 * * *", "UTC")], "schedule": [],
                         "validate": [("weekly", False, "0 4 * * 0", "UTC")], "replan": []}
    assert {name: (d["global_concurrency_limit"] or {}).get("limit") for name, d in found.items()} == {
        "train": 1, "profile": 1, "schedule": None, "validate": None, "replan": 1}
    assert all(d["description"] and "hetrl" in d["tags"] and d["work_pool_name"] == "hetrl" for d in found.values())
    assert {key: found["replan"]["parameters"][key] for key in ("from_stage", "warm_start", "review_minutes")} == {
        "from_stage": "schedule", "warm_start": True, "review_minutes": 60}


def test_a_value_the_form_does_not_offer_is_refused(services: Services) -> None:
    [train] = services.api("/deployments/filter", {"deployments": {"name": {"any_": ["train"]}}})
    for wrong in ({"until_stage": "bogus"}, {"review_minutes": -1}, {"on_silence": "shrug"}):
        with pytest.raises(AssertionError, match="422|409|400"):
            services.api(f"/deployments/{train['id']}/create_flow_run", {"parameters": train["parameters"] | wrong})


def test_the_form_has_a_typed_field_for_every_parameter(services: Services) -> None:
    [train] = services.api("/deployments/filter", {"deployments": {"name": {"any_": ["train"]}}})
    fields = train["parameter_openapi_schema"]["properties"]
    assert set(fields) == {"job", "cluster", "from_stage", "until_stage", "only", "force", "dry_run", "runner", "engine", "store",
                           "budget", "topology", "warm_start", "prefer_stable", "review_minutes", "on_silence", "reason"}
    assert fields["runner"]["enum"] == ["", "process", "docker"] and fields["on_silence"]["enum"] == ["adopt", "keep"]
    assert all(fields[name]["enum"] == list(ORDER) for name in ("from_stage", "until_stage"))
    assert (fields["review_minutes"]["minimum"], fields["review_minutes"]["maximum"]) == (0, 7 * 24 * 60)
    kinds = {name: field.get("type") for name, field in fields.items()}
    assert [kind["type"] for kind in fields["budget"]["anyOf"]] == ["string", "number"]
    assert {name for name, kind in kinds.items() if kind == "boolean"} == {"force", "dry_run", "warm_start", "prefer_stable"}
    assert all(field.get("description") for field in fields.values())


def test_a_run_makes_versions_in_s3_and_the_next_one_is_cached(services: Services) -> None:
    store = open_store(store_url(), settings=StoreSettings.from_env(services.s3.environment()))
    before = store.versions("schedule")
    options = {"job": JOB, "cluster": PAIR, "until_stage": "schedule"}
    first = services.start("train", **options)
    assert services.finish(first)["type"] == "COMPLETED", services.finish(first)
    assert services.tasks(first) == {"profile": "Completed", "schedule": "Completed"}
    plans = store.versions("schedule")
    assert len(plans) == len(before) + 1
    second = services.start("train", **options)
    assert services.finish(second)["type"] == "COMPLETED"
    assert services.tasks(second) == {"profile": "Cached", "schedule": "Cached"}
    assert store.versions("schedule") == plans
    keys = {a["key"] for a in services.api("/artifacts/filter", {})}
    assert {"hetrl-plan", "hetrl-plan-report"} <= keys


def test_a_second_training_on_the_cluster_has_to_wait(services: Services) -> None:
    """The slot as a run takes it, with the topology of the runs above; another client asks for one more."""
    store = open_store(store_url(), settings=StoreSettings.from_env(services.s3.environment()))
    run = SimpleNamespace(store=store, known={"topology": store.latest("profile")})
    asked = {"names": ["hetrl-cluster-workstation-pair"], "slots": 1, "mode": "concurrency"}
    ours = temporary_settings({PREFECT_API_URL: prefect.api_url(services.port)})
    with ours, cluster_slot(run), pytest.raises(AssertionError, match="423"):  # type: ignore[arg-type]
        services.api("/v2/concurrency_limits/increment", asked)
    assert [limit["limit"] for limit in services.api("/v2/concurrency_limits/increment", asked)] == [1]
    services.api("/v2/concurrency_limits/decrement", asked)


def test_bad_input_fails_the_run_with_one_line(services: Services) -> None:
    state = services.finish(services.start("train", job="nowhere.yaml", cluster=PAIR))
    assert state["type"] == "FAILED"
    assert state["message"].startswith("InputError: cannot read nowhere.yaml")
    assert "Traceback" not in state["message"]


def typing(services: Services, command: str, more: str = "") -> str:
    """Run a documented command in a process of its own, in the checkout, with this server's address exported."""
    assert command in DOCUMENTED, f"no page says {command!r}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", f"{command} {more}"], cwd=ROOT, env=prefect.environment(services.port) | {"PATH": path, "COLUMNS": "200"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{command} {more}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def test_the_readmes_run_and_where_to_look_at_it(services: Services, tmp_path: Path) -> None:
    """On a described pair, which the simulator plays. The budget comes as a number: so Prefect's command line takes 300 to be."""
    described = "--param job=infra/jobs/qwen3-4b-grpo.yaml --param cluster=infra/clusters/workstation-pair.yaml --param budget=300"
    typing(services, "prefect deployment run hetrl/train --watch", described)
    [run, *_] = services.api("/flow_runs/filter", {"sort": "START_TIME_DESC"})
    assert run["state"]["name"] == "Completed" and run["parameters"]["budget"] == 300 and set(services.tasks(run["id"])) == set(ORDER)
    store = open_store(store_url(), settings=StoreSettings.from_env(services.s3.environment()))
    planned = store.latest("schedule")
    assert planned is not None and store.manifest(planned).parameters["evaluations"] == 300
    said = typing(services, "hetrl status")
    assert f"schedule@{planned.version[:10]}" in said and services.s3.endpoint in said
    assert "predicted" in typing(services, "hetrl report --out report.html", f"--out {tmp_path}/report.html") and (tmp_path / "report.html").is_file()


def test_a_schedule_is_switched_on_and_off(services: Services) -> None:
    def nightly() -> dict[str, object]:
        [found] = services.api("/deployments/filter", {"deployments": {"name": {"any_": ["profile"]}}})
        return dict(found["schedules"][0])

    assert str(nightly()["id"]) in typing(services, "prefect deployment schedule ls hetrl/profile")
    resume = "prefect deployment schedule resume hetrl/profile <id>"
    assert resume in DOCUMENTED
    for word, active in (("resume", True), ("pause", False)):
        ran = ["prefect", *resume.replace("resume", word).replace("<id>", str(nightly()["id"])).split()[1:]]
        subprocess.run([sys.executable, "-m", *ran], env=prefect.environment(services.port), check=True, capture_output=True, timeout=300)
        assert nightly()["active"] is active


def test_a_work_pool_for_kubernetes_takes_the_template_that_ships(services: Services) -> None:
    """Under another name: this server has its pool."""
    command = "prefect work-pool create hetrl --type kubernetes --base-job-template infra/kubernetes/job-template.json"
    assert command in DOCUMENTED
    ran = command.replace(" hetrl ", " kubernetes-test ").split()
    subprocess.run([sys.executable, "-m", *ran], cwd=ROOT, env=prefect.environment(services.port), check=True, capture_output=True, timeout=300)
    pool = services.api("/work_pools/kubernetes-test")
    template = json.loads((ROOT / "infra/kubernetes/job-template.json").read_text())
    assert pool["type"] == "kubernetes" and pool["base_job_template"]["job_configuration"] == template["job_configuration"]
    services.api("/work_pools/kubernetes-test", method="DELETE")


def test_a_cancelled_run_leaves_no_stage_behind(services: Services) -> None:
    run = services.start("train", cluster="local", until_stage="profile", force=True)
    stage = wait_for_stage("stages.profile")
    command = [sys.executable, "-m", "prefect", "flow-run", "cancel", run]
    subprocess.run(command, env=prefect.environment(services.port), cwd=ROOT, check=True, capture_output=True, timeout=300)
    assert services.finish(run)["type"] == "CANCELLED"
    assert _gone(stage)


def test_a_killed_flow_leaves_no_stage_behind(services: Services) -> None:
    run = services.start("train", cluster="local", until_stage="profile", force=True)
    stage = wait_for_stage("stages.profile")
    flow = stage.parent()
    assert flow is not None
    flow.send_signal(signal.SIGKILL)
    assert services.finish(run)["type"] == "CRASHED"
    assert _gone(stage)


def _gone(process: psutil.Process, within_s: float = 120) -> bool:
    deadline = time.monotonic() + within_s
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True
