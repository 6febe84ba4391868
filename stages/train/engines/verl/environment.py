"""Environment of every process of a run: the driver, and through Ray all workers."""

from __future__ import annotations

import os
from pathlib import Path

import stages
from stages.train.engines.verl.platforms import CPU, Platform


def environment(workdir: Path, platform: Platform = CPU) -> dict[str, str]:
    """Variables verl, Ray and torch read when they are imported. Caches go below ``workdir``: a container's root is read-only."""
    home = workdir / "home"
    home.mkdir(parents=True, exist_ok=True)
    source = str(Path(stages.__file__).parent.parent)
    paths = [source, *[p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != source]]
    return {
        "PYTHONPATH": os.pathsep.join(paths),
        "HOME": str(home),
        "USER": os.environ.get("USER", "hetrl"),
        "HF_HOME": str(home / "huggingface"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "TQ_NUM_THREADS": "1",
        "TQ_LOGGING_LEVEL": "ERROR",
        "TRANSFER_QUEUE_ENABLE": "1",
        "VERL_USE_EXTERNAL_MODULES": platform.plugin,
        "VERL_USE_EXTERNAL_PLUGINS": "none",
        "VERL_LOGGING_LEVEL": "WARNING",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        **platform.variables,
    }
