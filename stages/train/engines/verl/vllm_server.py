"""verl's own vLLM server, with a meter. Importing this imports vLLM."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any

from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

from stages.train.engines.verl.platforms import on_cpu

EXTENSION = "stages.train.engines.verl.vllm_extension.CpuWorkerExtension"


class MeteredVllmServer(vLLMHttpServer):
    """Counts what it generates, and ends the run when it cannot generate any more."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._work = {"sequences": 0, "tokens": 0, "seconds": 0.0}
        self._running = 0
        self._since = 0.0
        self._failure: asyncio.Future[None] | None = None

    def _get_worker_extension_cls(self) -> str:
        return EXTENSION if on_cpu() else super()._get_worker_extension_cls()

    async def run_server(self, args: Any) -> None:
        await super().run_server(args)
        pause = self.engine.pause_generation
        if "mode" not in inspect.signature(pause).parameters:
            return

        async def pause_generation(*, wait_for_inflight_requests: bool = False, clear_cache: bool = True) -> None:
            await pause(mode="wait" if wait_for_inflight_requests else "abort", clear_cache=clear_cache)

        engine: Any = self.engine
        engine.pause_generation = pause_generation  # vLLM 0.32 has renamed what verl 0.9.1 asks for

    async def generate(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        # While weights change, requests wait at the door; that is not work.
        while self._submission_paused and not self._rejecting:
            await self._resume_event.wait()
        self._count(+1)
        try:
            output = await super().generate(prompt_ids, *args, **kwargs)
        except Exception as error:
            # verl tries a failed prompt again for ever; a server that fails ends the run instead.
            if not self._failed.done():
                self._failed.set_exception(error)
            raise
        finally:
            self._count(-1)
        if output.stop_reason != "aborted":
            self._work["sequences"] += 1
        self._work["tokens"] += len(output.token_ids) + (len(prompt_ids) if output.stop_reason != "aborted" else 0)
        return output

    def _count(self, change: int) -> None:
        """Seconds are those in which any request is being answered."""
        now = time.monotonic()
        if self._running:
            self._work["seconds"] += now - self._since
        self._since = now
        self._running += change

    async def take_work(self) -> dict[str, float]:
        """Sequences, tokens (prompt and response) and seconds since the last call."""
        self._count(0)
        work, self._work = self._work, {"sequences": 0, "tokens": 0, "seconds": 0.0}
        return work

    @property
    def _failed(self) -> asyncio.Future[None]:
        if self._failure is None:
            self._failure = asyncio.get_running_loop().create_future()
        return self._failure

    async def hold(self) -> None:
        """Answers only by failing: a call that ends tells the caller that this server died or cannot generate."""
        await self._failed
