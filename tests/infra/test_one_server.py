"""One server as ``infra/README.md`` has a person set it up: its commands are run here, on a real engine, and a fleet that changes is planned again.

Postgres's own image is in a registry: a stand-in is made of Debian's package (``postgres_image.py``).
"""

from __future__ import annotations

import configparser
import os
import shutil
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import docker
import pytest
import yaml

from artifacts.errors import RunnerUnavailable
from artifacts.plan_diff import PlanDiff
from artifacts.store import Store, open_store
from artifacts.store.settings import StoreSettings
from artifacts.throughput import Throughput
from flows.graph import ORDER
from flows.launch.engine import connect
from tests.flows.orchestration.browser import browser, look, pictures
from tests.flows.orchestration.services import Server, free_port
from tests.infra import postgres_image
from tests.infra.one_server import BUILT, COMPOSE, PREFIX, ROOT, TAG, OneServer, documented
from tests.infra.signed_in import signed_in

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
SECTION, CHANGES = documented("One server"), documented("When the fleet changes")
UP = next(n for n, command in enumerate(SECTION) if command.endswith(" up -d"))
DOWN = next(command.partition("#")[0].strip() + " -v" for command in SECTION if " down" in command)
REPLAN = "hetrl: plan again when the topology changed"
POSTGRES = "hetrl-test/stand-in-postgres:15"


@pytest.fixture(scope="module")
def engine() -> docker.DockerClient:
    if not shutil.which(COMPOSE):
        pytest.skip(f"{COMPOSE} is not installed: apt-get install {COMPOSE}")
    if os.geteuid() != 0:
        pytest.skip("its folder is given to another user, which only root can do")
    if missing := postgres_image.missing():
        pytest.skip(missing)
    try:
        return connect()
    except RunnerUnavailable as error:
        pytest.skip(error.line)


@pytest.fixture(scope="module")
def server(engine: docker.DockerClient) -> Iterator[OneServer]:
    """Set up as the first block says: secrets, images, folder, services. Taken down by the last test, or here."""
    one = OneServer(Path(tempfile.mkdtemp(prefix="hetrl-one-")), f"hetrl-test-{os.getpid()}", free_port(), free_port(), POSTGRES)
    one.folder.chmod(0o755)
    try:
        postgres_image.build(engine, POSTGRES)
        one.copy()
        try:
            one.run(*SECTION[: UP + 1])
            yield one
        finally:
            one.run(*exports(SECTION[:UP]), DOWN)
    finally:
        shutil.rmtree(one.folder)
        for name in (POSTGRES, *(f"{PREFIX}{image}:{TAG}" for image in BUILT)):
            if engine.images.list(name=name):
                engine.images.remove(name, force=True)


def exports(commands: list[str]) -> list[str]:
    return [c for c in commands if c.startswith("export ")]


def typed(server: OneServer, section: list[str], start: str, *, more: str = "") -> str:
    """Run the documented command that starts so, after all that the first section exports; what it prints."""
    [command] = [c for c in section if c.startswith(start)]
    return server.run(*exports(SECTION), command.partition("  #")[0].strip() + more)


@pytest.fixture
def api(server: OneServer) -> Server:
    return Server(server.prefect_port, (server.checkout / "infra/secrets/prefect_auth").read_text())


@pytest.fixture
def store(server: OneServer) -> Store:
    keys = configparser.ConfigParser()
    keys.read(server.checkout / "infra/secrets/aws_credentials")
    env = {name.upper(): value for name, value in keys["default"].items()} | {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.s3_port}"}
    return open_store("s3://hetrl/store", settings=StoreSettings.from_env(env))


def test_every_service_becomes_healthy_and_the_deployments_are_there(server: OneServer, engine: docker.DockerClient, api: Server) -> None:
    server.until(engine, {"postgres": "healthy", "prefect": "healthy", "s3": "healthy", "worker": "healthy", "deploy": "exited (0)"})
    listed = typed(server, SECTION, "docker compose -p hetrl -f infra/compose.yaml ps")
    assert all(service in listed for service in server.states(engine))
    assert {d["name"] for d in api.api("/deployments/filter", {})} == {d["name"] for d in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]}
    with pytest.raises(AssertionError, match="401"):
        Server(server.prefect_port).api("/deployments/filter", {})
    with urllib.request.urlopen(f"http://127.0.0.1:{server.prefect_port}/", timeout=60) as page:
        assert b"<html" in page.read().lower(), "its pages are served, too"


def test_a_run_has_its_stages_in_containers_and_its_versions_in_the_bucket(server: OneServer, engine: docker.DockerClient, api: Server,
                                                                           store: Store) -> None:
    typed(server, SECTION, "prefect deployment run hetrl/train --param", more=" --param until_stage=schedule --param budget=3s")
    [run] = api.api("/flow_runs/filter", {})
    assert run["state"]["name"] == "Completed" and set(api.tasks(run["id"])) == {"profile", "schedule"}
    assert "qwen3-8b-grpo" in api.shown(run["id"], "hetrl-plan")
    for stage in ("profile", "schedule"):
        made = store.latest(stage)
        assert made is not None
        by = store.manifest(made).producer
        assert (by.runner, by.image_digest) == ("docker", engine.images.get(f"{PREFIX}{stage}:{TAG}").id)
    assert server.stages(engine) == []
    listed = typed(server, SECTION, "hetrl artifacts ls")
    assert all(stage in listed for stage in ("job", "profile", "schedule"))
    assert '"topology_fingerprint"' in typed(server, SECTION, "hetrl artifacts show schedule")
    assert ", 0 faults" in typed(server, SECTION, "hetrl artifacts verify")


def test_a_device_that_is_taken_out_has_the_plan_made_again(server: OneServer, engine: docker.DockerClient, api: Server, store: Store) -> None:
    in_force, began = store.latest("schedule"), datetime.now(UTC)
    assert "0 3 * * *" in typed(server, CHANGES, "prefect deployment schedule ls")
    typed(server, CHANGES, "sed -i ")
    typed(server, CHANGES, "prefect deployment run hetrl/profile")
    run = api.started_by(REPLAN, after=began)
    assert "is gone from machine old" in run["parameters"]["reason"]
    api.paused(run["id"])
    assert "is gone from machine old" in api.shown(run["id"], "hetrl-plan-diff")
    api.answer(run["id"], decision="adopt", note="seen")
    assert api.finish(run["id"])["name"] == "Completed"
    kept = store.latest("replan")
    assert kept is not None and kept.version[:10] in typed(server, CHANGES, "hetrl artifacts ls replan")
    assert "is gone from machine old" in server.run(*exports(SECTION), "hetrl artifacts show replan --file plan_diff.md")
    diff = store.read(kept, PlanDiff)
    assert (diff.before, diff.after) == (str(in_force), str(store.latest("schedule"))) and len(diff.gone) == 1
    assert store.verify() == [] and server.stages(engine) == []


def test_it_trains_with_all_stages_in_containers(server: OneServer, engine: docker.DockerClient, api: Server, store: Store) -> None:
    """The small job that ships, on this server's own processors."""
    began = datetime.now(UTC)
    said = typed(server, SECTION, "prefect deployment run hetrl/train --watch")
    whole = [r for r in api.api("/flow_runs/filter", {}) if set(api.tasks(r["id"])) == set(ORDER)]
    assert [r["state"]["name"] for r in whole] == ["Completed"], said[-2000:]
    for stage in ORDER:
        made = store.latest(stage)
        assert made is not None
        manifest = store.manifest(made)
        assert manifest.producer.finished_at > began
        assert (manifest.producer.runner, manifest.producer.image_digest) == ("docker", engine.images.get(f"{PREFIX}{stage}:{TAG}").id)
    trained = store.latest("train")
    assert trained is not None
    log = Throughput.from_jsonl(store.read_bytes(trained, "throughput.jsonl"), where="log")
    rewards = [i.reward_mean or 0.0 for i in log.iterations]
    assert len(rewards) == 8 and max(rewards) > rewards[0]
    assert server.stages(engine) == [] and store.verify() == []


def test_the_largest_planning_image_is_small_as_it_is_pulled(server: OneServer, engine: docker.DockerClient) -> None:
    """Layers travel compressed. Its base is larger where python:3.11-slim can be had, by some 20 MB packed."""
    image, packer = engine.images.get(f"{PREFIX}schedule:{TAG}"), zlib.compressobj(1, wbits=31)
    packed = sum(len(packer.compress(part)) for part in image.save()) + len(packer.flush())
    assert packed < 250e6 and image.attrs["Size"] < 560e6, (packed, image.attrs["Size"])


@pytest.mark.skipif(browser() is None or not os.environ.get("HETRL_SCREENSHOTS"), reason="pictures are taken where HETRL_SCREENSHOTS names a folder")
def test_the_run_is_a_page_in_a_real_browser(api: Server, tmp_path: Path) -> None:
    run = next(r for r in api.api("/flow_runs/filter", {}) if set(api.tasks(r["id"])) == {"profile", "schedule"})
    picture = pictures() / "one-server-run.png"
    with signed_in(api.port, api.auth) as address:
        page = look(f"{address}/runs/flow-run/{run['id']}", picture, tmp_path / "profile")
    assert run["name"] in page and "Completed" in page
    assert picture.read_bytes()[:4] == b"\x89PNG"


def long_stage(server: OneServer, engine: docker.DockerClient, api: Server) -> str:
    """Have a search of ten minutes started; the container it runs in."""
    run = api.start("schedule", force=True, budget="600s")
    deadline = time.monotonic() + 300
    while not (found := server.stages(engine)):
        assert time.monotonic() < deadline, api.api(f"/flow_runs/{run}")["state"]
        time.sleep(0.5)
    return found[0]


def test_a_new_worker_ends_the_stages_of_one_that_was_killed(server: OneServer, engine: docker.DockerClient, api: Server) -> None:
    stage = long_stage(server, engine, api)
    server.containers(engine)["worker"].kill()
    assert server.stages(engine) == [stage], "nobody is left to end it"
    server.run(*exports(SECTION[:UP]), SECTION[UP] + " --no-deps --force-recreate worker")
    deadline = time.monotonic() + 300
    while server.stages(engine):
        assert time.monotonic() < deadline, server.logs(engine)
        time.sleep(0.5)


def test_down_ends_a_running_stage_too_and_leaves_nothing(server: OneServer, engine: docker.DockerClient, api: Server) -> None:
    long_stage(server, engine, api)
    server.run(*exports(SECTION[:UP]), DOWN)
    assert server.left(engine) == {"containers": [], "stages": [], "networks": [], "volumes": []}
