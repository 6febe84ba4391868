"""The process of a vLLM server, as others see it.

Ray loads an actor's class in every process that is handed the actor: the router, the agent loop, each rank of the actor. This class
imports neither vLLM nor verl, and makes the server proper (:mod:`vllm_server`) in its own process.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import isawaitable
from typing import Any

FORWARDED = (
    "launch_server", "get_master_address", "get_server_address", "get_rollout_config", "generate", "collective_rpc", "set_global_steps",
    "sleep", "wake_up", "clear_kv_cache", "release_kv_cache", "resume_kv_cache", "wait_for_requests_to_drain", "abort_request",
    "abort_all_requests", "resume_engine_generation", "open_submission_gate", "resume_generation", "start_profile", "stop_profile",
    "take_work", "hold",
)
"""Methods of the server that verl and the trainer call."""


class VllmServerHost:
    """A Ray actor; every method of :data:`FORWARDED` is the server's."""

    def __init__(self, **arguments: Any) -> None:
        from stages.train.engines.verl.vllm_server import MeteredVllmServer

        self._server = MeteredVllmServer(**arguments)


def _forward(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def call(self: VllmServerHost, *args: Any, **kwargs: Any) -> Any:
        found = getattr(self._server, name)(*args, **kwargs)
        return await found if isawaitable(found) else found

    call.__name__ = call.__qualname__ = name
    return call


for _name in FORWARDED:
    setattr(VllmServerHost, _name, _forward(_name))
