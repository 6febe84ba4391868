"""The lease on a cluster: one holder at a time, whatever races with whatever."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from artifacts.errors import ClusterBusy, InputError
from artifacts.store import Lease, Store, is_held
from tests.artifacts.store.store_places import Place


def take(store: Store, run_id: str, ttl_s: float = 60.0) -> Lease | ClusterBusy:
    try:
        return store.acquire_lease("lab", holder=f"host of {run_id}", run_id=run_id, ttl_s=ttl_s)
    except ClusterBusy as busy:
        return busy


def wait_until_expired(lease: Lease) -> None:
    while lease.record.expires_at > datetime.now(UTC):
        time.sleep(0.01)


def test_a_held_cluster_names_its_holder_and_until_when(store: Store) -> None:
    assert store.lease("lab") is None
    lease = store.acquire_lease("lab", holder="anna@n1", run_id="run-7", ttl_s=60)
    assert store.lease("lab") == lease.record
    with pytest.raises(ClusterBusy, match=r"cluster lab is held by anna@n1 \(run run-7\) until 20") as caught:
        store.acquire_lease("lab", holder="ben@n2", run_id="run-8", ttl_s=60)
    assert caught.value.details["run_id"] == "run-7"
    assert store.acquire_lease("another", holder="ben@n2", run_id="run-8", ttl_s=1).record.cluster == "another"


def test_release_lets_the_next_one_in(store: Store) -> None:
    with store.acquire_lease("lab", holder="anna", run_id="r1", ttl_s=60):
        assert isinstance(take(store, "r2"), ClusterBusy)
    record = store.lease("lab")
    assert record is not None and record.state == "released" and not is_held(record, datetime.now(UTC))
    second = take(store, "r2")
    assert isinstance(second, Lease) and second.record.epoch == record.epoch + 1


def test_an_error_inside_releases_too_and_is_not_swallowed(store: Store) -> None:
    with pytest.raises(RuntimeError, match="boom"), store.acquire_lease("lab", holder="anna", run_id="r1", ttl_s=60):
        raise RuntimeError("boom")
    assert isinstance(take(store, "r2"), Lease)


def test_an_expired_lease_may_be_taken_and_its_holder_learns_it(store: Store) -> None:
    first = store.acquire_lease("lab", holder="anna", run_id="r1", ttl_s=60)
    assert isinstance(take(store, "r2"), ClusterBusy)
    first.renew(0.2)
    wait_until_expired(first)
    second = take(store, "r2")
    assert isinstance(second, Lease)
    with pytest.raises(ClusterBusy, match="held by host of r2"):
        first.renew(60)
    assert first.release() is False
    assert store.lease("lab") == second.record


def test_renewing_holds_it_beyond_the_first_term(store: Store) -> None:
    lease = store.acquire_lease("lab", holder="anna", run_id="r1", ttl_s=0.5)
    before = lease.record
    after = lease.renew(60)
    assert after.expires_at > before.expires_at and after.taken_at == before.taken_at and after.state == "renewed"
    wait_until_expired(Lease(lease._log, before))
    assert isinstance(take(store, "r2"), ClusterBusy)
    assert lease.release() and lease.release()
    with pytest.raises(InputError, match="has been released"):
        lease.renew(1)


def test_of_many_takers_exactly_one_gets_it(place: Place) -> None:
    stores = [place.open() for _ in range(12)]
    for round_number in range(5):
        with ThreadPoolExecutor(len(stores)) as pool:
            results = list(pool.map(lambda pair: take(pair[1], f"r{pair[0]}"), enumerate(stores)))
        winners = [result for result in results if isinstance(result, Lease)]
        assert len(winners) == 1, f"round {round_number}: {len(winners)} hold it"
        losers = [result for result in results if isinstance(result, ClusterBusy)]
        assert {busy.details["run_id"] for busy in losers} == {winners[0].record.run_id}
        winners[0].release()


def test_a_late_renewal_and_a_taker_never_both_succeed(place: Place) -> None:
    holder, taker = place.open(), place.open()
    for _ in range(12):
        lease = holder.acquire_lease("lab", holder="anna", run_id="old", ttl_s=0.03)
        wait_until_expired(lease)

        def renewed(held: Lease = lease) -> bool:
            try:
                held.renew(5)
            except ClusterBusy:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            kept, taken = pool.submit(renewed), pool.submit(take, taker, "new")
        won = taken.result()
        assert kept.result() != isinstance(won, Lease)
        (won if isinstance(won, Lease) else lease).release()


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_senseless_term_is_refused(store: Store, ttl_s: float) -> None:
    with pytest.raises(InputError, match="a lease of"):
        store.acquire_lease("lab", holder="anna", run_id="r1", ttl_s=ttl_s)
    assert store.lease("lab") is None
