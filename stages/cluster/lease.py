"""Holding the cluster while a stage uses it: taken, renewed in the background, given back; it runs out by itself if the stage dies."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from artifacts.errors import ClusterBusy, StoreError
from artifacts.store import Lease, Store
from stages.contract import StageContext, Stopped

TTL_S = 60.0
"""How long the cluster stays held after its holder died. Renewed three times in that time."""

WAIT_S = TTL_S + 15
"""How long to wait for a holder before failing: long enough for the lease of a stage that was killed to run out."""


@contextmanager
def hold_cluster(context: StageContext, cluster: str, *, ttl_s: float = TTL_S, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold ``cluster`` for the body's length.

    Raises:
        ClusterBusy: somebody else holds it for longer than ``wait_s``, or took it because this process was stopped for too long.
    """
    holder = f"{context.request.stage} on {socket.gethostname()}"
    lease = _acquire(context.store, cluster, holder=holder, run_id=context.request.run_id or "none", ttl_s=ttl_s, wait_s=wait_s,
                     tell=context.log)
    keeper = _Keeper(lease, ttl_s)
    with lease:
        keeper.start()
        try:
            yield
        except (Stopped, KeyboardInterrupt):  # Ray turns SIGTERM into the latter
            if keeper.lost is not None:
                raise keeper.lost from None
            raise
        finally:
            keeper.stop()


def _acquire(store: Store, cluster: str, *, holder: str, run_id: str, ttl_s: float, wait_s: float, tell: Callable[[str], None]) -> Lease:
    deadline = time.monotonic() + wait_s
    told = False
    while True:
        try:
            return store.acquire_lease(cluster, holder=holder, run_id=run_id, ttl_s=ttl_s)
        except ClusterBusy as busy:
            if time.monotonic() >= deadline:
                raise
            if not told:
                tell(f"{busy.message}; waiting up to {wait_s:.0f} s")
                told = True
            time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))


class _Keeper(threading.Thread):
    """Renews a lease. When somebody else has taken the cluster, the stage must not go on: it is stopped as by SIGTERM."""

    def __init__(self, lease: Lease, ttl_s: float) -> None:
        super().__init__(name="lease-keeper", daemon=True)
        self._lease = lease
        self._ttl_s = ttl_s
        self._done = threading.Event()
        self.lost: ClusterBusy | None = None

    def run(self) -> None:
        while not self._done.wait(self._ttl_s / 3):
            try:
                self._lease.renew(self._ttl_s)
            except ClusterBusy as busy:
                self.lost = busy
                os.kill(os.getpid(), signal.SIGTERM)
                return
            except StoreError:
                continue  # the store may be back before the lease runs out; if not, the next renewal finds whether it was taken

    def stop(self) -> None:
        self._done.set()
        self.join()
