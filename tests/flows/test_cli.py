"""``hetrl`` as a person types it: results, one-line refusals, exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HETRL = Path(sys.executable).parent / "hetrl"
PAIR = ROOT / "infra/clusters/workstation-pair.yaml"
JOB = ROOT / "infra/jobs/qwen3-4b-grpo.yaml"
TINY = ROOT / "infra/jobs/tiny-grpo.yaml"


def hetrl(folder: Path, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HETRL_"))}
    return subprocess.run([str(HETRL), *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=300, check=False,
                          env=clean | {"COLUMNS": "200"} | env)


def last_json(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


COMMANDS = ["run", "report", "up", "down", "status", "doctor", "profile", "schedule", "deploy", "train", "validate", "artifacts"]


def test_help_of_every_command_shows_an_example(tmp_path: Path) -> None:
    shown = hetrl(tmp_path, "--help").stdout
    assert all(f"  {command} " in shown for command in COMMANDS)
    for command in COMMANDS[:-1]:
        done = hetrl(tmp_path, command, "--help")
        assert done.returncode == 0
        assert f"Example: hetrl {command}" in " ".join(done.stdout.split())


def test_stages_alone_on_files(tmp_path: Path) -> None:
    topology = last_json(hetrl(tmp_path, "profile", "--cluster", PAIR, "--out", "out", "--json"))
    assert topology["topology"] == "out/topology.json"
    planned = last_json(hetrl(tmp_path, "schedule", "--topology", "out/topology.json", "--job", JOB, "--out", "out", "--budget", "300", "--json"))
    assert planned["feasible"] is True
    assert {"iteration_time_s", "throughput_samples_per_s", "bound_s", "gap", "solver", "status", "evaluations", "seconds", "plan"} <= set(planned)
    assert planned["iteration_time_s"] >= planned["bound_s"] > 0  # type: ignore[operator]
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"topology.json", "plan.json", "prediction.json", "search.json", "report.html"}


def test_run_until_schedule_and_again(tmp_path: Path) -> None:
    options = ("run", "--job", JOB, "--cluster", PAIR, "--until", "schedule", "--budget", "300", "--json")
    first, second = last_json(hetrl(tmp_path, *options)), hetrl(tmp_path, *options)
    again = last_json(second)
    assert [first[s]["hit"] for s in ("profile", "schedule")] == [False, False]  # type: ignore[index]
    assert [again[s]["hit"] for s in ("profile", "schedule")] == [True, True]  # type: ignore[index]
    assert second.stderr.count("nothing it depends on has changed") == 2
    assert (tmp_path / ".hetrl/store/hetrl/schedule").is_dir(), "the default store is below .hetrl"
    dry = hetrl(tmp_path, *options, "--dry-run", "--force")
    assert last_json(dry)["dry_run"] is True
    assert "forced" in dry.stderr
    assert hetrl(tmp_path, "artifacts", "verify").returncode == 0


@pytest.mark.parametrize(("arguments", "status", "says"), [
    (("run", "--job", "nowhere.yaml"), 2, "cannot read nowhere.yaml"),
    (("run", "--job", TINY, "--set", "bath=1"), 2, "bath: unknown key; known here:"),
    (("run", "--job", TINY, "--set", "batch.mini_batch_prompts=3"), 2, "mini_batch_prompts 3 does not divide"),
    (("run", "--job", TINY, "--cluster", "nowhere"), 2, "there is no cluster 'nowhere'"),
    (("run", "--job", TINY, "--from", "sleep"), 2, "there is no stage 'sleep'"),
    (("run", "--job", TINY, "--from", "train"), 2, "no version of deploy"),
    (("run", "--job", TINY, "--store", "gopher://x"), 2, "gopher"),
    (("run", "--job", JOB, "--cluster", PAIR, "--until", "schedule", "--set", "constraints.forbid_regions=[here]", "--budget", "lots"), 2, "budget 'lots'"),
    (("report",), 2, "no validated run"),
    (("lab", "up", "nowhere.yaml"), 2, "cannot read nowhere.yaml"),
    (("profile", "--cluster", "lab", "--out", "out"), 2, "no lab is up here"),
])
def test_bad_input_is_one_line_and_its_own_exit_status(tmp_path: Path, arguments: tuple[object, ...], status: int, says: str) -> None:
    done = hetrl(tmp_path, *arguments)
    assert done.returncode == status, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("hetrl: InputError: ")
    assert says in lines[0]


def test_a_store_that_refuses(tmp_path: Path) -> None:
    refused = hetrl(tmp_path, "run", "--job", JOB, "--cluster", PAIR, "--store", "s3://bucket/prefix", AWS_ENDPOINT_URL_S3="http://127.0.0.1:9",
                    AWS_ACCESS_KEY_ID="somebody", AWS_SECRET_ACCESS_KEY="planted-secret")
    assert refused.returncode == 6
    assert refused.stderr.startswith("hetrl: StoreError: ")
    assert "Traceback" not in refused.stderr
    assert "planted-secret" not in refused.stderr + refused.stdout


def test_a_job_that_fits_nowhere_says_all_and_exits_3(tmp_path: Path) -> None:
    done = hetrl(tmp_path, "run", "--job", JOB, "--cluster", PAIR, "--until", "schedule", "--set", "models.actor=Qwen3-32B",
                 "--set", "batch.micro_batch_sequences=96", "--set", "response_tokens.max=200000")
    assert done.returncode == 3, done.stderr
    assert "InfeasiblePlan: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_that_is_only_described_is_planned_for_and_played_by_the_simulator(tmp_path: Path) -> None:
    done = hetrl(tmp_path, "run", "--job", JOB, "--cluster", PAIR, "--set", "iterations=2", "--budget", "300")
    assert done.returncode == 0, done.stderr
    store = tmp_path / ".hetrl" / "store" / "hetrl"
    (log,) = store.glob("train/*/throughput.jsonl")
    header = json.loads(log.read_text().splitlines()[0])
    assert (header["engine"], header["simulated"]) == ("simulator", True)
    assert json.loads((log.parent / "trace.json").read_text())["traceEvents"]
    (page,) = store.glob("validate/*/report.html")
    assert "come from the simulator" in page.read_text()
    assert not list(store.glob("validate/*/calibration.json")), "what was played teaches the cost model nothing"


def test_docker_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = hetrl(tmp_path, "run", "--job", TINY, "--runner", "docker", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert done.returncode == 8
    assert done.stderr.startswith("hetrl: RunnerUnavailable: ")
    assert len(done.stderr.strip().splitlines()) == 1
