"""Every command of the documentation is run here, parsed by the command line's own parser, or of a kind whose parts are checked to exist."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from artifacts.errors import ERRORS
from tests.flows.commands import parses

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "infra/README.md", *(ROOT / "infra/docs").glob("*.md")])
BIN = Path(sys.executable).parent


def commands(page: Path) -> list[str]:
    """The commands in the page's shell blocks: continued lines joined, comments and what only stands before a command taken off."""
    found = []
    for block in re.findall(r"^```(?:sh|bash)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"(^|\s)#.*$", "", line).strip()
            for part in re.split(r"\s*(?:&&|;)\s+", line):
                part = re.sub(r"^(?:sudo (?:-E )?)?(?:env )?((?!export)[A-Z_0-9]+=(?:\"[^\"]*\"|\S*)\s+)*", "", part).strip()
                if part:
                    found.append(part)
    return found


def exists(path: str) -> bool:
    return (ROOT / path).exists()


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


# What a command is, and what is checked of it. A new kind is added here with the test that runs such commands, or with what can be checked.
KINDS: list[tuple[str, Callable[[list[str]], bool]]] = [
    (r"make ", lambda words: all(word in targets() or "=" in word for word in words[1:])),
    (r"python -m pytest ", lambda words: all(exists(word) for word in words[3:] if "/" in word)),
    (r"python -m (tests|stages|flows)", lambda words: importlib.util.find_spec(words[2]) is not None),
    (r"(python|sh|bash) [a-z]\S+\.(py|sh)", lambda words: exists(words[1])),
    (r"containers/engine\.sh ", lambda words: words[1] in ("start", "stop", "status")),
    (r"\. \.venv/bin/activate$", lambda words: True),
    (r"cp ", lambda words: exists(words[1])),
    (r"sed -i ", lambda words: exists(words[-1])),
    (r"pip install |pip-audit |sudo apt-get |apt-get ", lambda words: all(exists(word) for word in words if word.startswith(("infra/", "containers/")))),
    (r"export [A-Z_0-9]+=", lambda words: True),
    (r"install -d |mkdir |cd |ls ", lambda words: True),
    # Run by tests/flows/orchestration, where it is of this project's deployments; names of deployments are checked below.
    (r"prefect ", lambda words: words[1] in ("deployment", "work-pool", "--no-prompt", "flow-run", "server", "worker", "automation", "config")),
    # Those of compose are run by tests/infra/test_one_server.py; Kubernetes' files are validated against the published schemas.
    (r"docker compose |docker ", lambda words: all(exists(word) for word in words if word.startswith("infra/"))),
    (r"kubectl ", lambda words: all(exists(word) for word in words if word.startswith("infra/"))),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_is_one(page: Path) -> None:
    for command in commands(page):
        words = shlex.split(command)
        if words[0] == "hetrl":
            if words[1:] in (["--install-completion"], ["--show-completion"]):
                continue  # of typer: it looks at the shell that runs it (test_operator completes a command)
            assert parses(words[1:]) == "", f"{page.name}: {command}"
            missing = [word for word in words if word.startswith(("infra/jobs", "infra/clusters", "infra/lab")) and not exists(word)]
            assert missing == [], f"{page.name}: {command}"
            continue
        kinds = [check for pattern, check in KINDS if re.match(pattern, command)]
        assert kinds, f"{page.name}: nobody checks {command!r}: add its kind to KINDS, with the test that runs it"
        assert kinds[0](words), f"{page.name}: {command!r} names something that is not there"


def test_deployments_that_pages_run_exist() -> None:
    import yaml

    known = {f"hetrl/{d['name']}" for d in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]}
    named = {word for page in PAGES for command in commands(page) if command.startswith("prefect deployment") for word in command.split()
             if word.startswith("hetrl/")}
    assert named and named <= known


def test_the_commands_of_the_quick_start_that_plan_do(tmp_path: Path) -> None:
    """The second block, as it stands, in a folder with the examples."""
    block = [c for c in commands(ROOT / "infra/docs/quick-start.md") if re.match(r"hetrl (profile|schedule|predict) ", c)]
    assert [command.split()[1] for command in block] == ["profile", "schedule", "predict"]
    shutil.copytree(ROOT / "infra/jobs", tmp_path / "infra/jobs")
    shutil.copytree(ROOT / "infra/clusters", tmp_path / "infra/clusters")
    for command in block:
        done = subprocess.run([str(BIN / "hetrl"), *shlex.split(command)[1:], "--json"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["feasible"] is True


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "infra/docs/README.md").read_text()
    assert [page.name for page in (ROOT / "infra/docs").glob("*.md") if page.name != "README.md" and f"({page.name})" not in index] == []


def test_troubleshooting_has_every_kind_of_error_with_its_exit_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (yes|no) \|", (ROOT / "infra/docs/troubleshooting.md").read_text(), re.MULTILINE)
    assert {(kind, int(status), again == "yes") for kind, status, again in rows} == {(k, c.exit_status, c.retryable) for k, c in ERRORS.items()}


def functions_in(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_fault_is_injected_by_a_test_that_is_there() -> None:
    rows = re.findall(r"^\| (\d+) \| .* \| `([\w/.]+)::(\w+)` \|$", (ROOT / "infra/docs/faults.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 15
    assert len(rows) == len(re.findall(r"^\| \d+ \|", (ROOT / "infra/docs/faults.md").read_text(), re.MULTILINE))
    assert [f"{path}::{name}" for _, path, name in rows if not exists(path) or name not in functions_in(ROOT / path)] == []
