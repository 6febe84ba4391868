"""The review window of a re-plan: the run pauses with the plan diff in its form, and goes on by itself when nobody answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Literal

import httpx
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run
from pydantic import Field

Answer = Literal["adopt", "keep"]
POLL_S = 2
_LATE_S = 600
"""Prefect fails a run that nobody resumes: that deadline is later than ours, at which the run resumes itself."""


class Review(RunInput):
    """What a person fills in to resume the run."""

    decision: Answer = Field(default="adopt", description="adopt: the new plan holds. keep: the old one goes on holding, and this run ends")
    note: str = Field(default="", max_length=500, description="why; goes into the log and the event")


def ask(markdown: str, *, window_s: float, on_silence: Answer) -> Review:
    """Pause until somebody answers, at most for the window; then ``on_silence`` counts."""
    with _answered_after(window_s, on_silence):
        form = Review.with_initial_data(description=markdown)
        answer: Review = pause_flow_run(wait_for_input=form, timeout=round(window_s) + _LATE_S, poll_interval=POLL_S)
    return answer


@contextmanager
def _answered_after(window_s: float, on_silence: Answer) -> Iterator[None]:
    run_id, answered = flow_run.id, threading.Event()
    silence = {"decision": on_silence, "note": f"nobody answered within {window_s / 60:g} minutes"}

    def answer() -> None:
        """The server refuses while the run is not paused yet, has not stored its form yet, or is answered already: so until it goes on."""
        answered.wait(window_s)
        with get_client(sync_client=True) as client:
            while not answered.wait(POLL_S):
                with suppress(PrefectHTTPStatusError, httpx.TransportError):
                    client.resume_flow_run(run_id, run_input=silence)

    threading.Thread(target=copy_context().run, args=(answer,), name="review window", daemon=True).start()
    try:
        yield
    finally:
        answered.set()
