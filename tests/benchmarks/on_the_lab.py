"""``hetrl`` on the lab that is up, as the measurements of real runs call it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from flows.lab.machines import LabEngine
from flows.lab.state import lab_identity, read_state


def hetrl(*words: str) -> dict[str, Any]:
    """What ``hetrl … --json`` says in its last line. While an engine starts, and in its first iteration, the machines have no quotas: with
    them a start takes ten minutes."""
    run = subprocess.Popen([sys.executable, "-m", "flows.cli.main", *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None and run.stderr is not None
    try:
        for line in run.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            if "train: 0/" in line:
                limit(lifted=True)
            elif "train: 1/" in line:
                limit(lifted=False)
        said = run.stdout.read()
    finally:
        limit(lifted=False)
    if run.wait() != 0:
        raise SystemExit(run.returncode)
    return dict(json.loads(said.splitlines()[-1]))


def limit(*, lifted: bool) -> None:
    """Take the machines' quotas off, or set them again."""
    state, engine = read_state(), LabEngine(lab_identity())
    try:
        if state is not None:
            engine.limit({m.name: engine.cores if lifted else m.cpus for m in state.spec.machines})
    finally:
        engine.close()
