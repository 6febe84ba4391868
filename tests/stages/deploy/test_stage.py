"""``python -m stages.deploy`` as a flow starts it, on a real store and a real Ray cluster of three uneven machines."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from artifacts.deployment import Deployment
from artifacts.errors import ClusterChanged
from artifacts.invocation import Progress
from artifacts.job import Job
from artifacts.manifest import VersionRef
from artifacts.plan import Group
from artifacts.store import Store, is_held, open_store
from artifacts.topology import Topology
from stages.cluster import Found
from stages.deploy.placement import prove
from tests.stages.cluster.fleets import fleet, ray_processes
from tests.stages.deploy.plans import finish, put, request, start, tiny_job, uneven_plan

pytestmark = pytest.mark.engine
UNEVEN = {"a": 3, "b": 1, "c": 2}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store((tmp_path / "store").as_uri(), pipeline="hetrl")


def inputs_of(store: Store, job: Job, planned_for: Topology, topology: Topology | None = None) -> dict[str, VersionRef]:
    """Job, topology and plan in the store; the plan made for ``planned_for``, deployed on ``topology`` (default: the same)."""
    made_for = put(store, "profile", planned_for, version="old")
    now = put(store, "profile", topology, version="new") if topology else made_for
    plan = put(store, "schedule", uneven_plan(job, planned_for), inputs={"topology": made_for})
    return {"job": put(store, "job", job), "topology": now, "plan": plan}


def below(pid: int) -> list[psutil.Process]:
    return [psutil.Process(p) for p in ray_processes(pid)]


def wait_for(what: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    until = time.monotonic() + 300
    while not (found := what()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_deploys_an_uneven_plan_and_proves_it(tmp_path: Path, store: Store) -> None:
    job, topology = tiny_job(algorithm="ppo"), fleet(UNEVEN)
    inputs = inputs_of(store, job, topology)
    process = start(request(tmp_path, store, inputs))
    seen: dict[int, psutil.Process] = {}
    lines = []
    assert process.stdout is not None
    for line in process.stdout:  # while it works: what of Ray is below it, and who holds the cluster
        lines.append(line)
        seen |= {p.pid: p for p in below(process.pid)}
        if "asking" in line:
            lease = store.lease("bench")
            assert lease is not None and lease.run_id == "run-d1" and is_held(lease, datetime.now(UTC))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert len(seen) > 6 and alive(list(seen.values())) == []
    lease = store.lease("bench")
    assert lease is not None and lease.state == "released"

    deployment = store.read(VersionRef(stage="deploy", version="d1"), Deployment)
    plan = uneven_plan(job, topology)
    assert (deployment.plan, deployment.topology_fingerprint, deployment.address) == (plan.identity(), topology.fingerprint, "")
    nodes = {n.machine: n.node_id for n in deployment.nodes}
    assert set(nodes) == {"a", "b", "c"} and len(set(nodes.values())) == 3
    found = {(r.task, r.rank): r for r in deployment.ranks}
    wanted = {(task, rank): device for task, s in plan.tasks.items() for rank, device in enumerate(s.ranks)}
    assert {key: r.device for key, r in found.items()} == wanted
    for r in found.values():
        assert (r.machine, r.device_uuid, r.ray_node_id) == (r.device[0], f"uuid-{r.device}", nodes[r.device[0]]) and r.pid > 0
    assert deployment.engine["actor_training.layers"] == "Et*3|tL" and deployment.engine["actor_training.machines"] == "c, a, b, a"
    assert deployment.versions["ray"] == "2.60.0" and deployment.versions["python"].startswith("3.")
    assert deployment.checks and all(c.ok for c in deployment.checks)
    assert set(deployment.seconds) == {"preflight", "lease", "cluster", "placement", "teardown"}

    manifest = store.manifest(VersionRef(stage="deploy", version="d1"))
    assert (manifest.summary["ranks"], manifest.summary["devices"], manifest.summary["nodes"]) == (16, 6, 3)
    messages = [e for e in lines if '"progress"' in e]
    assert "checking plan" in messages[0] and "deployed" in messages[-1]
    assert not list(Path(manifest_workdir(tmp_path)).glob("ray-logs"))


def manifest_workdir(tmp_path: Path) -> Path:
    return tmp_path / "work-d1"


def test_refused_on_a_changed_cluster_before_ray_is_touched(tmp_path: Path, store: Store) -> None:
    job = tiny_job(algorithm="ppo")
    inputs = inputs_of(store, job, fleet(UNEVEN), fleet({"a": 2, "b": 1, "c": 2}))
    code, events, outcome, _ = finish(start(request(tmp_path, store, inputs)))
    assert (code, outcome.kind) == (ClusterChanged.exit_status, "ClusterChanged")
    assert "device a-2 (device, uuid-a-2) of machine a is gone" in outcome.message and outcome.fix == "run schedule again"
    assert store.find("deploy", "d1") is None and store.lease("bench") is None
    assert [e.message for e in events if isinstance(e, Progress)] == ["checking plan, job, topology and this machine"]


def test_all_faults_of_documents_and_host_in_one_message(tmp_path: Path, store: Store) -> None:
    """A larger machine than this, a disk that is never large enough, and a job whose model is not here."""
    missing = tiny_job().models["actor"].model_copy(update={"hf_id": str(tmp_path / "nowhere")})
    job, topology = tiny_job(algorithm="ppo", models={"actor": missing}), fleet(UNEVEN, cpus=(os.cpu_count() or 1) + 1, dtypes=("fp32",))
    code, _, outcome, _ = finish(start(request(tmp_path, store, inputs_of(store, job, topology), min_disk_bytes=2**60)))
    assert (code, outcome.kind) == (4, "ClusterChanged")
    for part in ("bf16 cannot be computed on a-0", "machine a has", "the topology says", "GiB needed", f"cannot read {tmp_path / 'nowhere'}"):
        assert part in outcome.message
    assert {f["kind"] for f in outcome.details["faults"]} == {"ClusterChanged", "InfeasiblePlan", "InputError", "RunnerUnavailable"}


def test_a_second_holder_is_told_who_has_the_cluster(tmp_path: Path, store: Store) -> None:
    inputs = inputs_of(store, tiny_job(algorithm="ppo"), fleet(UNEVEN))
    with store.acquire_lease("bench", holder="training of somebody", run_id="run-other", ttl_s=60):
        code, _, outcome, _ = finish(start(request(tmp_path, store, inputs, lease_wait_s=1)))
    assert (code, outcome.kind) == (5, "ClusterBusy")
    assert "held by training of somebody (run run-other) until 20" in outcome.message
    assert store.find("deploy", "d1") is None


def test_sigterm_while_ray_starts_leaves_no_ray_and_no_lease(tmp_path: Path, store: Store) -> None:
    inputs = inputs_of(store, tiny_job(algorithm="ppo"), fleet({"a": 3, "b": 1, "c": 2}))
    process = start(request(tmp_path, store, inputs))
    assert process.stdout is not None
    for line in process.stdout:
        if "starting 3 Ray nodes" in line:
            break
    keeper = wait_for(lambda: [p for p in psutil.Process(process.pid).children() if below(p.pid)])
    ours = [*keeper, *below(process.pid)]
    assert len(ours) > 1
    process.send_signal(signal.SIGTERM)
    code, _, outcome, err = finish(process)
    assert (code, outcome.kind) == (143, "StageCrashed"), err
    assert alive(ours) == []
    lease = store.lease("bench")
    assert lease is not None and not is_held(lease, lease.taken_at)
    assert store.find("deploy", "d1") is None


def test_an_inventory_is_deployed_on_paper(tmp_path: Path, store: Store) -> None:
    """No node is started and no rank is placed; a cluster address beside it is a contradiction."""
    inputs = inputs_of(store, tiny_job(algorithm="ppo"), fleet(UNEVEN, kind="inventory", cpus=4))
    code, events, outcome, _ = finish(start(request(tmp_path, store, inputs)))
    assert code == 0 and outcome.summary == {"simulated": True, "devices": 6}
    assert any(isinstance(e, Progress) and "to be simulated" in e.message for e in events)
    deployment = store.read(VersionRef(stage="deploy", version="d1"), Deployment)
    assert deployment.ranks == [] and deployment.nodes == [] and deployment.engine["simulated"] is True and store.lease("bench") is None
    code, _, outcome, _ = finish(start(request(tmp_path, store, inputs, version="d2", address="127.0.0.1:6379")))
    assert code == 2 and "described, not at hand" in outcome.message


def test_a_typing_error(tmp_path: Path, store: Store) -> None:
    inputs = inputs_of(store, tiny_job(algorithm="ppo"), fleet(UNEVEN))
    code, _, outcome, _ = finish(start(request(tmp_path, store, inputs, start_deadline=5)))
    assert code == 2 and "start_deadline: unknown key" in outcome.message and "start_deadline_s" in outcome.message


def test_a_rank_elsewhere_stops_the_deployment() -> None:
    topology = fleet({"a": 2, "b": 1})
    group = Group(name="g", tasks=["rollout"], devices=["a-0", "b-0"])
    found = [Found(rank=0, machine="a", node_id="n1", device="a-0", device_uuid="uuid-a-0", pid=1),
             Found(rank=1, machine="a", node_id="n1", device="a-1", device_uuid="uuid-a-1", pid=2)]
    with pytest.raises(ClusterChanged) as caught:
        prove(topology, group, found)
    assert caught.value.message == ("ranks are not where the plan puts them: rank 1 of group g is on a/a-1 (uuid-a-1), "
                                    "planned on b/b-0 (uuid-b-0)")
    other = [found[0], Found(rank=1, machine="b", node_id="n2", device="b-0", device_uuid="uuid-changed", pid=2)]
    with pytest.raises(ClusterChanged, match="uuid-changed"):
        prove(topology, group, other)
