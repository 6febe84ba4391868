"""A terminal for the commands of the documentation: each as it stands, with words added at its end where as it stands it would take long."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from flows.cli.main import app
from tests.documented import ROOT, everywhere

DOCUMENTED = everywhere()
SMALL = "--set batch.prompts=32 --set batch.mini_batch_prompts=32"
"""For jobs of hundreds of prompts: what is played by the simulator takes seconds then."""


def with_examples(folder: Path) -> Path:
    """``folder`` with the jobs and inventories that ship, as in a checkout."""
    for name in ("jobs", "clusters"):
        shutil.copytree(ROOT / "infra" / name, folder / "infra" / name)
    return folder


def typed(command: str, more: str = "") -> str:
    """Run a documented command in the current folder, ``hetrl`` in this process; what it printed. ``more``: words that make it small."""
    assert command in DOCUMENTED, f"no page says {command!r}"
    program, *words = [*shlex.split(command), *shlex.split(more)]
    if program == "hetrl":
        done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        said, ended = done.output, done.exit_code
    else:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ran = subprocess.run([program, *words], env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
        said, ended = ran.stdout + ran.stderr, ran.returncode
    assert ended == 0, f"{command} {more}\n{said[-3000:]}"
    return said
