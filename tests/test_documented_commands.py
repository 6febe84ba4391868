"""Every command of the documentation is run by the test named here, or is in the list of infra/docs/README.md of those that are not.

A page that gains a command fails here until it has a test, or a reason.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from functools import cache

import pytest
import yaml

from tests.documented import ROOT, everywhere
from tests.flows.commands import parses

ONE, DOCS, PREFECT = "tests/infra/test_one_server.py", "tests/infra/docs", "tests/flows/orchestration/test_runs.py"
PLANNING, RUNS, SERVICES = f"{DOCS}/test_planning.py", f"{DOCS}/test_runs.py", "tests/flows/orchestration/conftest.py"
REPLAY, END, IMAGES = "tests/flows/replay/test_replay.py", "tests/test_end_to_end.py", "tests/containers/test_build.py"

RUN: list[tuple[str, str, tuple[str, ...]]] = [
    # A command (… stands for anything), the test that runs it, and what of it stands in that test, where it is not there as a whole.
    ("hetrl run", f"{END}::test_five_stages_as_processes_then_hits_then_a_flipped_byte", ('"run"', "hetrl(tmp_path, *options)")),
    ("hetrl run --runner docker", f"{END}::test_five_stages_in_containers_on_s3", ('"run"', '"--runner", "docker"')),
    ("hetrl run --job …tiny-ppo.yaml", f"{RUNS}::test_other_jobs_and_fields", ()),
    ("hetrl run --set …", f"{RUNS}::test_other_jobs_and_fields", ()),
    ("hetrl run --job …qwen3-8b-ppo.yaml --cluster infra/clusters/testbed-64.yaml …", f"{RUNS}::store", ()),
    ("hetrl run…--dry-run", f"{RUNS}::test_what_would_run_and_what_runs_again", ()),
    ("hetrl run --from …", f"{RUNS}::test_what_would_run_and_what_runs_again", ()),
    ("hetrl run --only …", f"{RUNS}::test_what_would_run_and_what_runs_again", ()),
    ("hetrl artifacts ls replan", f"{ONE}::test_a_device_that_is_taken_out_has_the_plan_made_again", ()),
    ("hetrl artifacts show replan --file plan_diff.md", f"{ONE}::test_a_device_that_is_taken_out_has_the_plan_made_again", ()),
    ("hetrl artifacts diff …", f"{RUNS}::test_two_plans_side_by_side", ()),
    ("hetrl artifacts …", f"{RUNS}::test_reading_the_store", ()),
    ("hetrl report", f"{RUNS}::test_where_to_look", ()),
    ("hetrl report --out report.html", f"{RUNS}::test_where_to_look", ()),
    ("hetrl status", f"{RUNS}::test_where_to_look", ()),
    ("hetrl doctor", f"{RUNS}::test_where_to_look", ()),
    ("hetrl doctor --gpu", "tests/flows/test_operator.py::test_a_gpu_that_is_asked_for_and_not_there_fails", ('"doctor", "--gpu"',)),
    ("hetrl --…-completion", f"{RUNS}::test_completion_for_the_shell_it_is_typed_in", ()),
    ("hetrl up", f"{SERVICES}::services", ()),
    ("hetrl down", f"{SERVICES}::services", ()),
    ("hetrl profile --cluster local --out out/", f"{PLANNING}::test_this_machine", ()),
    ("hetrl profile --cluster seen-on-monday/ …", f"{PLANNING}::test_a_fleet_of_what_tools_print", ()),
    ("hetrl … my-job.yaml …", f"{PLANNING}::test_your_own_fleet", ()),
    ("hetrl profile --cluster my-fleet.yaml …", f"{PLANNING}::test_your_own_fleet", ()),
    ("cp …", f"{PLANNING}::test_your_own_fleet", ()),
    ("hetrl … infra/jobs/qwen3-4b-grpo.yaml …", f"{PLANNING}::test_the_quick_start_and_what_to_try_on_gpus", ()),
    ("hetrl profile --cluster infra/clusters/workstation-pair.yaml …", f"{PLANNING}::test_the_quick_start_and_what_to_try_on_gpus", ()),
    ("hetrl simulate --topology T.json …", f"{PLANNING}::test_a_plan_of_ones_own_is_played", ()),
    ("hetrl schedule infra/jobs/qwen3-8b-ppo.yaml --topology out/topology.json --warm …", f"{PLANNING}::test_planning_alone_and_planning_again", ()),
    ("hetrl schedule … --seconds 10", f"{PLANNING}::test_planning_alone_and_planning_again", ()),
    ("hetrl predict infra/jobs/qwen3-8b-ppo.yaml …", f"{PLANNING}::test_planning_alone_and_planning_again", ()),
    ("hetrl simulate --job infra/jobs/qwen3-8b-ppo.yaml …", f"{PLANNING}::test_planning_alone_and_planning_again", ()),
    ("hetrl profile --cluster infra/clusters/testbed-64.yaml …", f"{PLANNING}::test_planning_alone_and_planning_again", ()),
    ("hetrl scenario …", f"{PLANNING}::test_planning_alone_and_planning_again", ()),
    ("hetrl replay…", f"{REPLAY}::test_commands_on_results_that_are_kept", ()),
    ("hetrl lab up …", "tests/flows/lab/test_lab.py::test_up_after_an_up_that_was_killed", ('"lab", "up"',)),
    ("hetrl lab down", "tests/flows/lab/test_lab.py::test_without_its_router_machines_are_unreachable_and_up_makes_it_anew", ('"lab", "down"',)),
    ("hetrl lab status", "tests/flows/lab/test_lab.py::test_the_lab_is_a_cluster_and_its_status_is_seen", ('"lab", "status"',)),
    ("prefect deployment run hetrl/train --watch", f"{PREFECT}::test_the_readmes_run_and_where_to_look_at_it", ()),
    ("prefect deployment run hetrl/train --param cluster=infra/…", f"{ONE}::test_a_run_has_its_stages_in_containers_and_its_versions_in_the_bucket",
     ("prefect deployment run hetrl/train",)),
    ("prefect deployment run hetrl/profile …", f"{ONE}::test_a_device_that_is_taken_out_has_the_plan_made_again", ("prefect deployment run hetrl/profile",)),
    ("prefect deployment schedule ls hetrl/profile", f"{PREFECT}::test_a_schedule_is_switched_on_and_off", ()),
    ("prefect deployment schedule resume hetrl/profile <id>", f"{PREFECT}::test_a_schedule_is_switched_on_and_off", ()),
    ("prefect work-pool create hetrl --type process", f"{PREFECT}::test_deployments_are_those_of_the_file_and_deploying_again_adds_none",
     ("prefect.deploy(",)),
    ("prefect work-pool create hetrl --type kubernetes …", f"{PREFECT}::test_a_work_pool_for_kubernetes_takes_the_template_that_ships", ()),
    ("prefect --no-prompt deploy --all", f"{PREFECT}::test_deployments_are_those_of_the_file_and_deploying_again_adds_none", ("prefect.deploy(",)),
    ("sh infra/make-secrets.sh", f"{ONE}::server", ("*SECTION[: UP + 1]",)),
    ("install -d …", f"{ONE}::server", ("*SECTION[: UP + 1]",)),
    ("export DOCKER_GID=…", f"{ONE}::server", ("*SECTION[: UP + 1]",)),
    ("docker compose … up -d", f"{ONE}::server", ("*SECTION[: UP + 1]",)),
    ("python containers/build.py flow profile validate schedule deploy train", f"{ONE}::server", ("*SECTION[: UP + 1]",)),
    ("docker compose … down", f"{ONE}::test_down_ends_a_running_stage_too_and_leaves_nothing", ("DOWN",)),
    ("docker compose … ps", f"{ONE}::test_every_service_becomes_healthy_and_the_deployments_are_there", ()),
    ("export …", f"{ONE}::typed", ("*exports(SECTION)",)),
    ("sed -i …", f"{ONE}::test_a_device_that_is_taken_out_has_the_plan_made_again", ("sed -i ",)),
    ("python containers/build.py", f"{END}::test_five_stages_in_containers_on_s3", ("containers/build.py",)),
    ("python -m stages.<name> --request request.json", "tests/flows/launch/test_launch_process.py::test_the_stage_finds_its_request_in_its_work_folder",
     ("runner.run(", "request.json")),
    ("python infra/dependencies.py > …", "tests/test_dependencies.py::test_the_script_writes_the_page", ("infra/dependencies.py",)),
    ("python -m tests.benchmarks.published", "tests/benchmarks/test_published.py::test_the_page_is_what_the_command_writes", ("render()",)),
    ("python -m pytest …", f"{DOCS}/test_tools.py::test_extending", ()),
    (". .venv/bin/activate", f"{DOCS}/test_tools.py::test_the_environment", ()),
]


def not_run() -> dict[str, str]:
    """Command (… stands for anything) → because. The documentation's own list."""
    text = (ROOT / "infra/docs/README.md").read_text(encoding="utf-8").partition("## Not run by a test")[2]
    rows = re.findall(r"^\| (`.+`) \| (.+) \|$", text, re.MULTILINE)
    return {command: because for cell, because in rows for command in re.findall(r"`([^`]+)`", cell)}


def fits(pattern: str, command: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("…")), command) is not None


@cache
def source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def parts(path: str) -> dict[str, str]:
    """Function → its text with its decorators; "": what stands beside functions and classes."""
    text = source(path)
    lines, found, taken = text.splitlines(), {}, set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[node.name] = "\n".join(lines[first - 1:node.end_lineno])
            taken |= set(range(first - 1, node.end_lineno or first))
    return found | {"": "\n".join(line for n, line in enumerate(lines) if n not in taken)}


@pytest.mark.parametrize("command", everywhere())
def test_every_command_is_run_or_said_not_to_be(command: str) -> None:
    run = next((row for row in RUN if fits(row[0], command)), None)
    left_out = [because for pattern, because in not_run().items() if fits(pattern, command)]
    where = ", ".join(everywhere()[command])
    if run is None:
        assert left_out, f"{where}: no test runs {command!r}: add a row to RUN, or to infra/docs/README.md why it is not run"
        return
    assert not left_out or run[0] == command, f"{command!r} is run by {run[1]}: infra/docs/README.md says it is not"
    path, _, name = run[1].partition("::")
    assert (ROOT / path).is_file() and name in parts(path), f"{run[1]}, said to run {command!r}, is not there"
    missing = [words for words in run[2] or (command,) if words not in parts(path)[name]]
    assert missing == [], f"{run[1]} does not run {command!r}"
    if not name.startswith("test_"):
        asked = [path] if not path.endswith("conftest.py") else [str(p.relative_to(ROOT)) for p in (ROOT / path).parent.glob("test_*.py")]
        tests = [text for p in asked for other, text in parts(p).items() if other.startswith("test_")]
        assert any(re.search(rf"\b{name}\b", text) for text in tests), f"no test asks for {run[1]}"


def test_no_row_is_about_nothing() -> None:
    commands = list(everywhere())
    first = {next((row for row in RUN if fits(row[0], command)), None) for command in commands}
    assert [row for row in RUN if row not in first] == []
    assert [pattern for pattern in not_run() if not any(fits(pattern, command) for command in commands)] == []


def test_what_is_not_run_is_a_command_that_could_be() -> None:
    left_out = [command for command in everywhere() if not any(fits(row[0], command) for row in RUN)]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for program, *words in map(shlex.split, left_out):
        if program == "hetrl":
            assert parses(words) == "", words
        elif program == "make":
            assert all(word in targets or "=" in word for word in words), words
        elif program == "python" and words[0] == "-m":
            assert importlib.util.find_spec(words[1]) is not None, words


def test_deployments_that_commands_run_exist() -> None:
    known = {f"hetrl/{d['name']}" for d in yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]}
    named = {word for command in everywhere() if command.startswith("prefect deployment") for word in command.split() if word.startswith("hetrl/")}
    assert named and named <= known


def test_files_that_commands_name_are_there() -> None:
    made = {"infra/secrets/prefect_auth", "infra/secrets/aws_credentials"}
    named = {(command, path) for command in everywhere() for path in re.findall(r"(?<![\w/.])(?:infra|containers|tests)/[\w./-]*\w", command)}
    assert len(named) > 30
    assert [(command, path) for command, path in sorted(named) if path not in made and not (ROOT / path).exists()] == []


def test_both_lists_can_fail() -> None:
    assert not any(fits(row[0], "hetrl rune") for row in RUN) and not any(fits(pattern, "hetrl rune") for pattern in not_run())
    assert len(not_run()) > 5 and all(len(because) > 10 for because in not_run().values())
    assert fits("hetrl … my-job.yaml …", "hetrl predict my-job.yaml --out x") and not fits("hetrl run", "hetrl run --force")
