"""One holder of a cluster at a time, and a dead holder does not keep it for long."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from artifacts.errors import ClusterBusy
from artifacts.invocation import StageRequest
from artifacts.store import Store, open_store
from stages import contract
from stages.cluster.lease import hold_cluster


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store((tmp_path / "store").as_uri())


def context(store: Store, run_id: str = "r1") -> contract.StageContext:
    request = StageRequest(stage="train", store=store.url, pipeline="hetrl", version="v", run_id=run_id)
    return contract.StageContext(request, store=store, out=io.StringIO())


def test_it_is_held_for_longer_than_one_ttl_and_given_back(store: Store) -> None:
    with hold_cluster(context(store), "c", ttl_s=6, wait_s=0):
        taken = store.lease("c")
        while (now := store.lease("c")) == taken:
            time.sleep(0.05)
        assert taken is not None and now is not None and now.expires_at > taken.expires_at and now.taken_at == taken.taken_at
        with pytest.raises(ClusterBusy, match=r"held by train on .* \(run r1\) until 20"), hold_cluster(context(store, "r2"), "c", wait_s=0):
            pytest.fail("two holders")
    with hold_cluster(context(store, "r2"), "c", wait_s=0):
        record = store.lease("c")
        assert record is not None and record.run_id == "r2"


def _hold_for_ever(url: str) -> None:
    with hold_cluster(context(open_store(url)), "c", ttl_s=5, wait_s=0):
        time.sleep(600)


def test_the_next_run_waits_for_the_lease_of_one_that_was_killed(store: Store) -> None:
    holder = multiprocessing.get_context("fork").Process(target=_hold_for_ever, args=(store.url,))
    holder.start()
    while store.lease("c") is None:
        time.sleep(0.05)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    second = context(store, "r2")
    with hold_cluster(second, "c", wait_s=100):
        record = store.lease("c")
        assert record is not None and record.run_id == "r2"
    assert "waiting up to 100 s" in second._out.getvalue()  # type: ignore[attr-defined]


def test_a_holder_that_lost_the_cluster_stops(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGTERM, contract._stop)
    try:
        with pytest.raises(ClusterBusy, match="somebody else"), hold_cluster(context(store), "c", ttl_s=3, wait_s=0):
            _take_as_if_expired(store, monkeypatch)
            time.sleep(300)
            pytest.fail("it went on")
    finally:
        signal.signal(signal.SIGTERM, before)


def _take_as_if_expired(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a pause of the holder longer than its lease: another run found the record expired and took the next epoch."""
    with monkeypatch.context() as patch:
        patch.setattr("artifacts.store.leases.is_held", lambda record, now: False)
        store.acquire_lease("c", holder="somebody else", run_id="r9", ttl_s=60)
