"""``hetrl schedule`` and ``hetrl predict`` as a person types them: four documents from two files, no store, no cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from artifacts.plan import Plan
from artifacts.search import Search
from artifacts.topology import Topology

ROOT = Path(__file__).parents[3]
HETRL = Path(sys.executable).parent / "hetrl"
JOBS = ROOT / "infra/jobs"


def hetrl(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(HETRL), *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=540, check=False,
                          env={**os.environ, "COLUMNS": "200"})


def topology(folder: Path, machines: dict[str, tuple[str, int]], *, gbit: float = 100.0, cpus: dict[str, int] | None = None, **gpu: object) -> Path:
    """A profiled inventory of machines (name → GPU of the catalogue, how many), each with 64 CPUs where ``cpus`` says nothing else."""
    inventory = {"name": "case", "links": {"same_zone": {"latency_ms": 0.1, "bandwidth_gbit_per_s": gbit}},
                 "machines": [{"name": n, "gpus": [{"gpu": g, "count": c, **gpu}], "host_memory_gib": 512, "cpus": (cpus or {}).get(n, 64)}
                              for n, (g, c) in machines.items()]}
    (folder / "fleet.yaml").write_text(yaml.safe_dump(inventory))
    done = hetrl(folder, "profile", "--cluster", "fleet.yaml", "--out", "made")
    assert done.returncode == 0, done.stderr
    return folder / "made/topology.json"


def planned(folder: Path, *arguments: object) -> dict[str, object]:
    done = hetrl(folder, "schedule", *arguments, "--out", "made", "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def machines_of(plan: Plan, task: str) -> set[str]:
    return {r.rsplit(".", 1)[0] for r in plan.tasks[task].ranks}  # type: ignore[index]


SMALL = ("--set", "batch.prompts=32", "--set", "batch.mini_batch_prompts=32", "--evaluations", "400")
GRPO = (JOBS / "qwen3-4b-grpo.yaml", *SMALL)


def test_case_1_a_pool_that_a_node_cannot_hold_is_refused_and_unpinned_the_shards_stay_on_one_node(tmp_path: Path) -> None:
    """Two nodes with 4 and 2 GPUs of 24 GiB, generation in 4 shards. Pools of [3, 3] would pass a check of the sum."""
    fleet = topology(tmp_path, {"a": ("L4-24GB", 4), "b": ("L4-24GB", 2)})
    small = (GRPO[0], *SMALL, "--set", "models.actor=Qwen3-1.7B", "--topology", fleet)
    refused = hetrl(tmp_path, "schedule", *small, "--set", "constraints.pin.actor_training=[b]", "--set", "constraints.fix.actor_training.dp=3", "--json")
    assert refused.returncode == 3
    assert "it may use 2 (b has 2)" in refused.stderr
    said = json.loads(refused.stdout.splitlines()[-1])
    assert said["feasible"] is False and said["violations"][0]["constraint"] == "fix.actor_training"
    planned(tmp_path, *small, "--set", "constraints.fix.rollout.tp=4")
    rollout = Plan.read(tmp_path / "made/plan.json").tasks["rollout"]
    assert (rollout.tp, {r.rsplit(".", 1)[0] for r in rollout.ranks}) == (4, {"a"})


def test_case_1_a_node_with_fewer_cpus_than_its_ranks_ask_is_refused_by_name(tmp_path: Path) -> None:
    """Before anything is started: two ranks on a node of one CPU, while the other node's 64 would do for both."""
    fleet = topology(tmp_path, {"a": ("L4-24GB", 4), "b": ("L4-24GB", 2)}, cpus={"b": 1})
    small = (GRPO[0], *SMALL[:4], "--set", "models.actor=Qwen3-1.7B")
    planned(tmp_path, *small, "--topology", fleet, "--evaluations", "400", "--set", "constraints.pin.actor_training=[b]", "--set", "engine.offload=true")
    refused = hetrl(tmp_path, "deploy", "--job", *small, "--topology", fleet, "--plan", "made/plan.json", "--out", "made",
                    "--set", "constraints.pin.actor_training=[b]", "--set", "engine.offload=true")
    assert refused.returncode == 3 and "machine b has 1 CPUs, its 2 ranks ask 2 (1 each)" in refused.stderr


def test_case_4_replicas_divide_the_batch_on_three_equal_nodes_and_what_is_left_over_is_explained(tmp_path: Path) -> None:
    fleet = topology(tmp_path, {"a": ("A100-SXM4-80GB", 1), "b": ("A100-SXM4-80GB", 1), "c": ("A100-SXM4-80GB", 1)})
    planned(tmp_path, *GRPO, "--topology", fleet, "--set", "models.actor=Qwen3-1.7B")
    plan = Plan.read(tmp_path / "made/plan.json")
    assert all(32 * 8 % s.dp == 0 for name, s in plan.tasks.items() if name != "rollout")
    used = {d for g in plan.groups for d in g.devices}
    assert len(used) + len(plan.idle_devices) == 3 and all(plan.idle_devices.values())
    refused = hetrl(tmp_path, "schedule", JOBS / "qwen3-4b-ppo.yaml", "--topology", fleet, *SMALL, "--set", "batch.responses_per_prompt=1",
                    "--set", "batch.mini_batch_prompts=2", "--set", "batch.micro_batch_sequences=1", "--set", "constraints.fix.actor_training.dp=4")
    assert refused.returncode == 3 and "dp 4 leaves replicas without a sequence, the mini-batch has 2" in refused.stderr


def test_case_5_devices_without_bf16_stay_idle_and_say_why(tmp_path: Path) -> None:
    fleet = topology(tmp_path, {"a": ("A100-SXM4-80GB", 4), "v": ("V100-SXM2-32GB", 4)})
    planned(tmp_path, *GRPO, "--topology", fleet, "--set", "models.actor=Qwen2.5-7B")
    idle = Plan.read(tmp_path / "made/plan.json").idle_devices
    assert len([d for d in idle if d.startswith("v.")]) == 4
    assert all("has no bf16" in reason for d, reason in idle.items() if d.startswith("v."))


def test_case_5_nothing_communicates_over_a_link_whose_probe_failed(tmp_path: Path) -> None:
    fleet = topology(tmp_path, {"a": ("A100-SXM4-80GB", 2), "b": ("A100-SXM4-80GB", 2)})
    links = Topology.read(fleet).links
    failed = [k.model_copy(update={"probe": "failed"}) if k.source != k.target else k for k in links]
    fleet.write_text(Topology.read(fleet).model_copy(update={"links": failed, "fingerprint": ""}).to_json())
    work = (*GRPO, "--topology", fleet, "--set", "models.actor=Qwen3-1.7B")
    planned(tmp_path, *work)
    plan = Plan.read(tmp_path / "made/plan.json")
    assert all(len(machines_of(plan, t)) == 1 for t in plan.tasks)
    assert machines_of(plan, "rollout") == machines_of(plan, "actor_training"), "weights have no way from one to the other"
    found = planned(tmp_path, *work, "--set", "constraints.pin={rollout: [a], reference_inference: [a]}")
    plan = Plan.read(tmp_path / "made/plan.json")
    assert {m for t in plan.tasks for m in machines_of(plan, t)} == {"a"}
    assert len(found["idle_devices"]) == 2  # type: ignore[arg-type]
    assert all("no usable link joins" in why for why in found["idle_devices"].values())  # type: ignore[attr-defined]


def test_case_7_one_node_is_a_legal_plan_chosen_and_explained(tmp_path: Path) -> None:
    """A second node behind 10 Gbit/s Ethernet would make the job slower."""
    fleet = topology(tmp_path, {"a": ("A100-SXM4-80GB", 8), "b": ("L4-24GB", 2)}, gbit=1)
    planned(tmp_path, *GRPO, "--topology", fleet)
    plan = Plan.read(tmp_path / "made/plan.json")
    assert {machines_of(plan, t) == {"a"} for t in plan.tasks} == {True}
    assert all("slower with the 2 devices of b" in reason and "against" in reason for reason in plan.idle_devices.values()) and len(plan.idle_devices) == 2


def test_fewer_devices_as_a_constraint_and_a_person_reads_what_the_others_would_gain(tmp_path: Path) -> None:
    fleet = topology(tmp_path, {"a": ("A100-SXM4-80GB", 4), "b": ("L40S-48GB", 2)})
    few = (*GRPO, "--set", "models.actor=Qwen3-0.6B", "--set", "constraints.max_devices=2", "--topology", fleet)
    done = hetrl(tmp_path, "schedule", *few, "--out", "made")
    assert done.returncode == 0, done.stderr
    plan = Plan.read(tmp_path / "made/plan.json")
    assert sum(len(g.devices) for g in plan.groups) == 2 and "4 devices idle" in done.stderr
    assert re.search(r"idle  .*: constraints.max_devices allows 2 devices; faster with the 2 devices of a: [\d.]+ s an iteration against [\d.]+ s", done.stderr)
    done = hetrl(tmp_path, "schedule", *few, "--set", "constraints.fix.rollout.tp=4", "--out", "made")
    assert done.returncode == 3 and "rollout: fixed degrees need 4 devices, constraints.max_devices allows 2" in done.stderr


def test_the_result_as_json_and_as_documents(tmp_path: Path) -> None:
    fleet = topology(tmp_path, {"a": ("L40S-48GB", 2)})
    found = planned(tmp_path, *GRPO, "--topology", fleet, "--set", "models.actor=Qwen3-0.6B", "--solver", "exact", "--explain", "--seed", 3)
    assert {"feasible", "iteration_time_s", "throughput_samples_per_s", "bound_s", "gap", "violations", "solver", "status", "evaluations", "seconds", "plan"} <= set(found)
    assert (found["solver"], found["status"], found["violations"]) == ("exact", "optimal", [])
    assert found["proved_bound_s"] == pytest.approx(found["iteration_time_s"], rel=1e-6) and str(found["proof_scope"]).startswith("all plans")
    assert all(found[name] == f"made/{name}.json" for name in ("plan", "prediction", "search"))
    search = Search.read(tmp_path / "made/search.json")
    assert all(level.exact and int(level.count) > 0 for level in search.space) and len(search.space) == 7
    html = (tmp_path / "made/report.html").read_text()
    for part in ("placement", "timeline", "memory", "search"):
        assert "<svg" in html.split(f'<h2 id="{part}"')[1].split("<h2")[0], part
    assert [level.name for level in search.space][:2] == ["groupings of the tasks, any", "groupings the engine runs"]
    assert {p.name for p in (tmp_path / "made").iterdir()} >= {"plan.json", "prediction.json", "search.json", "report.html"}


def test_a_person_sees_the_plan_and_the_size_of_the_search_space(tmp_path: Path) -> None:
    fleet = topology(tmp_path, {"a": ("L40S-48GB", 2)})
    done = hetrl(tmp_path, "schedule", "--job", *GRPO, "--topology", fleet, "--set", "models.actor=Qwen3-0.6B", "--explain", "--out", "made")
    assert done.returncode == 0, done.stderr
    assert "predicted iteration" in done.stderr and "groupings the engine runs" in done.stderr and "report: made/report.html" in done.stderr


def test_ctrl_c_gives_the_best_plan_so_far(tmp_path: Path) -> None:
    fleet = topology(tmp_path, {"a": ("A100-SXM4-80GB", 4), "b": ("L40S-48GB", 4)})
    command = [str(HETRL), "schedule", *map(str, GRPO[:5]), "--topology", str(fleet), "--seconds", "3600", "--out", "made", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as search:
        assert search.stderr is not None
        for line in search.stderr:
            if "best so far" in line:
                search.send_signal(signal.SIGINT)
                break
        out, said = search.communicate(timeout=300)
    assert search.returncode == 0, said
    assert "the best plan so far is the result" in said
    assert json.loads(out.splitlines()[-1])["status"] == "interrupted"
    assert Search.read(tmp_path / "made/search.json").status == "interrupted" and Plan.read(tmp_path / "made/plan.json").groups


def test_planned_again_near_the_plan_in_force(tmp_path: Path) -> None:
    """On the same fleet nothing moves; on one that lost a machine it says how much does, on the command line and in the report."""
    fleet = topology(tmp_path, {"a": ("A100-SXM4-80GB", 2), "b": ("L40S-48GB", 2)}, gbit=10)
    arguments = (*GRPO, "--set", "models.actor=Qwen3-0.6B")
    planned(tmp_path, *arguments, "--topology", fleet)
    before = tmp_path / "before.json"
    before.write_text((tmp_path / "made/plan.json").read_text())
    same = planned(tmp_path, *arguments, "--topology", fleet, "--warm", before, "--prefer-stable", "--horizon", 1, "--seed", 5)
    assert same["moves"]["moved"] == same["moves"]["fetch_bytes"] == 0 and same["moves"]["horizon_iterations"] == 1  # type: ignore[index]
    assert Plan.read(tmp_path / "made/plan.json").identity() == Plan.read(before).identity()
    smaller = topology(tmp_path, {"a": ("A100-SXM4-80GB", 2)})
    done = hetrl(tmp_path, "schedule", *arguments, "--topology", smaller, "--warm", before, "--out", "made")
    assert done.returncode == 0, done.stderr
    moves = Search.read(tmp_path / "made/search.json").moves
    assert moves is not None and moves.horizon_iterations is None and 0 <= moves.moved <= moves.tasklets
    assert "Against the plan in force" in done.stderr and f"{moves.tasklets} tasklets" in done.stderr
    assert f"{moves.moved:,} of {moves.tasklets} tasklets" in (tmp_path / "made/report.html").read_text()


def test_what_if_a_given_plan_ran_another_job(tmp_path: Path) -> None:
    fleet = topology(tmp_path, {"a": ("A100-SXM4-80GB", 4)})
    made = planned(tmp_path, *GRPO, "--topology", fleet)

    def predicted(*arguments: object) -> tuple[int, dict[str, object]]:
        done = hetrl(tmp_path, "predict", GRPO[0], "--topology", fleet, "--plan", tmp_path / "made/plan.json", *SMALL[:4], "--json", *arguments)
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    status, same = predicted()
    assert status == 0 and same["iteration_time_s"] == pytest.approx(made["iteration_time_s"], rel=1e-9)
    _, longer = predicted("--set", "response_tokens={mean: 2048, max: 2048}")
    assert longer["iteration_time_s"] > 1.3 * same["iteration_time_s"]  # type: ignore[operator]
    _, paper = predicted("--fidelity", "paper")
    assert paper["fidelity"] == "paper" and paper["iteration_time_s"] != same["iteration_time_s"]
    status, broken = predicted("--set", "batch.prompts=64")
    assert status == 3 and broken["feasible"] is False and {v["rule"] for v in broken["violations"]} >= {"batch"}  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return topology(tmp_path_factory.mktemp("four"), {"a": ("L40S-48GB", 4)})


@pytest.mark.parametrize(("arguments", "says"), [
    ((), "name one job file"),
    ((GRPO[0], "--job", GRPO[0]), "name one job file"),
    ((GRPO[0], "--seconds", "5", "--evaluations", "5"), "--seconds and --evaluations each set the search's budget"),
    ((GRPO[0], "--solver", "oracle"), "solver"),
    ((GRPO[0], "--prefer-stable"), "--prefer-stable needs the plan to stay near"),
    ((GRPO[0], "--workers", "moon"), "there are no workers 'moon'"),
    ((GRPO[0], "--set", "objective=cost"), "needs a price of every device; without price_per_hour: NVIDIA L40S"),
])
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path: Path, four: Path, arguments: tuple[object, ...], says: str) -> None:
    done = hetrl(tmp_path, "schedule", *arguments, "--topology", four)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


def test_the_cheapest_samples_are_not_the_fastest(tmp_path: Path) -> None:
    """Priced alike an hour, the slow GPUs are never worth their price; the plan pays for what it uses."""
    fleet = topology(tmp_path, {"a": ("A100-SXM4-80GB", 4), "b": ("L40S-48GB", 4)}, price_per_hour=2.0)
    arguments = (*GRPO, "--topology", fleet, "--set", "models.actor=Qwen3-1.7B")
    cheap = planned(tmp_path, *arguments, "--set", "objective=cost")
    search = Search.read(tmp_path / "made/search.json")
    page = (tmp_path / "made/report.html").read_text()
    fast = planned(tmp_path, *arguments)
    assert cheap["iteration_time_s"] >= fast["iteration_time_s"]  # type: ignore[operator]
    assert ('aria-label="throughput against cost"' in page) == (len(search.front) > 1) and "Cost of a sample" in page
    chosen = next(p for p in search.front if p.chosen)
    assert chosen.cost_per_sample == min(p.cost_per_sample for p in search.front) == cheap["cost_per_sample"]
    assert [p.throughput_samples_per_s for p in search.front] == sorted((p.throughput_samples_per_s for p in search.front), reverse=True)
    assert chosen.cost_per_sample == pytest.approx(sum(chosen.devices.values()) * 2.0 / 3600 * chosen.iteration_time_s / 256)
