"""A plan's layout must not change the mathematics: loss and gradient norm of one batch agree with the one-process run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.catalog import models
from artifacts.plan import pipeline_layout
from stages.train.engines.verl.environment import environment
from stages.train.toy_model import build_toy_model

pytestmark = pytest.mark.engine

RANK = Path(__file__).parent / "engine_rank.py"
TOLERANCE = 2e-3
"""bf16: what summing in another order may change."""

LAYOUTS = {
    "dp2, shares 11 and 5": {"shares": [11, 5]},
    "pp2, layers 3 and 1": {"pp": 2, "layers": [3, 1]},
    "tp2": {"tp": 2},
    "pp2 and dp2, both uneven": {"pp": 2, "layers": [1, 3], "shares": [12, 4]},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_toy_model(models()["tiny-qwen3"], ["3 + 4 = 7"], seed=0, max_positions=64, cache=tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def alone(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    return run_layout(model, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("name", LAYOUTS)
def test_loss_and_gradient_norm_agree(name: str, model: Path, alone: list[dict[str, float]], tmp_path: Path) -> None:
    found = run_layout(model, tmp_path, **LAYOUTS[name])
    assert len(found) == len(alone) == 2
    for step, (here, there) in enumerate(zip(found, alone, strict=True)):
        assert here["loss"] == pytest.approx(there["loss"], rel=TOLERANCE, abs=TOLERANCE), f"loss of step {step}"
        assert here["grad_norm"] == pytest.approx(there["grad_norm"], rel=TOLERANCE), f"gradient norm of step {step}"
    assert alone[0]["grad_norm"] > 0.1 and alone[0]["grad_norm"] != alone[1]["grad_norm"], "the batch trains nothing"


def run_layout(model: Path, workdir: Path, *, pp: int = 1, tp: int = 1, layers: list[int] | None = None, shares: list[int] | None = None,
               micro: int = 4) -> list[dict[str, float]]:
    """Start one process a rank and return what the rank with the outputs printed."""
    shares = shares or [16]
    world = len(shares) * pp * tp
    settings = workdir / "settings.json"
    settings.write_text(json.dumps({"model": str(model), "pp": pp, "tp": tp, "layout": pipeline_layout(layers or [4]), "shares": shares,
                                    "micro": micro, "vocab": 512}), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, **environment(workdir), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    ranks = [subprocess.Popen([sys.executable, str(RANK), str(settings)], env={**common, "RANK": str(rank)}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(world)]
    try:
        outputs = [rank.communicate(timeout=240) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert all(rank.returncode == 0 for rank in ranks), "\n".join(err[-2000:] for _, err in outputs)
    lines = [line for out, _ in outputs for line in out.splitlines() if line.startswith("FOUND ")]
    assert len(lines) == 1
    return json.loads(lines[0].removeprefix("FOUND "))
