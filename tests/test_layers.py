"""The two layer rules of the house, and the folders it has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_layer_rules_hold() -> None:
    done = subprocess.run([str(Path(sys.executable).parent / "lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kept, 0 broken" in done.stdout


def test_importing_the_planning_part_needs_no_engine() -> None:
    code = ("import sys, artifacts.registry, artifacts.store, stages.schedule.stage, stages.validate.stage, flows.pipeline; "
            "print(sorted({'torch', 'ray', 'verl', 'vllm'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_committed_points_outside_the_repository() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py", "*.yaml", "*.toml", "Makefile", "*.sh"], cwd=ROOT, capture_output=True, text=True, check=True)
    offending = [name for name in listed.stdout.split() if name != "tests/test_layers.py" and "../shared" in (ROOT / name).read_text()]
    assert offending == []
