"""verl's side of a vLLM server in a worker: hands over weights. This process never runs vLLM, so it does not import it either."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stages.train.engines.verl.names import SEATS


def _stand_in_for_vllm() -> None:
    """verl's adapter imports vLLM, six seconds of a core, for a constant: how deep a server may sleep."""
    name = "verl.third_party.vllm"
    if name not in sys.modules:
        module = types.ModuleType(name)
        module.VLLM_SLEEP_LEVEL = 2  # type: ignore[attr-defined]
        sys.modules[name] = module


_stand_in_for_vllm()

from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter  # noqa: E402


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class VllmAdapter(ServerAdapter):
    """verl's adapter, with its seat from the plan: verl reads it off the rank, and the shards of a replica off the machine's ranks."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        rank = int(os.environ["RANK"])
        seat = config.custom[SEATS][rank] if replica_rank == -1 else rank
        with _environment(RANK=str(seat), RAY_LOCAL_WORLD_SIZE=str(config.tensor_model_parallel_size)):
            super().__init__(config=config, model_config=model_config, device_mesh=device_mesh, replica_rank=replica_rank)
