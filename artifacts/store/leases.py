"""The lease on a cluster: a chain of epochs, each a new record. Taking, renewing and releasing all write the *next* epoch,
so they compete for one key and exactly one succeeds; a holder that was too slow learns it from the store, not from a clock.

Expiry compares ``expires_at`` with the taker's clock: the machines' clocks must agree to much better than a lease lasts.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import TracebackType

from artifacts.errors import ClusterBusy, InputError
from artifacts.manifest import LeaseRecord
from artifacts.store.log import NumberedLog


class Lease:
    """A held lease. As a context manager it is released at the end, also after an error."""

    def __init__(self, log: NumberedLog[LeaseRecord], record: LeaseRecord) -> None:
        self._log = log
        self.record = record

    def renew(self, ttl_s: float) -> LeaseRecord:
        """Hold it for ``ttl_s`` seconds from now. Raises ``ClusterBusy`` when it ran out and somebody else has taken the cluster."""
        self._write_next("renewed", ttl_s)
        return self.record

    def release(self) -> bool:
        """Give it back; a second call does nothing. False: it had run out and somebody else has the cluster by now."""
        if self.record.state == "released":
            return True
        try:
            self._write_next("released", 0.0)
        except ClusterBusy:
            return False
        return True

    def _write_next(self, state: str, ttl_s: float) -> None:
        if self.record.state == "released":
            raise InputError(f"the lease on {self.record.cluster} has been released", fix="acquire it again")
        now = datetime.now(UTC)
        epoch = self.record.epoch + 1
        record = self.record.model_copy(update={"epoch": epoch, "state": state, "expires_at": _later(now, ttl_s, zero_ok=True)})
        if not self._log.append(epoch, record):
            raise _busy(self._log.read(epoch), now)
        self.record = record

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def acquire(log: NumberedLog[LeaseRecord], cluster: str, *, holder: str, run_id: str, ttl_s: float) -> Lease:
    """Take the cluster, or raise ``ClusterBusy`` naming who has it and until when."""
    while True:
        epoch, current = log.last()
        now = datetime.now(UTC)
        if current is not None and is_held(current, now):
            raise _busy(current, now)
        record = LeaseRecord(
            cluster=cluster, epoch=epoch + 1, holder=holder, run_id=run_id, taken_at=now, expires_at=_later(now, ttl_s), state="held"
        )
        if log.append(record.epoch, record):
            return Lease(log, record)


def is_held(record: LeaseRecord, now: datetime) -> bool:
    """Whether ``record``, the last of its cluster, still keeps others out."""
    return record.state != "released" and record.expires_at > now


def _later(now: datetime, ttl_s: float, *, zero_ok: bool = False) -> datetime:
    if not (0 < ttl_s <= 30 * 86400 or (zero_ok and ttl_s == 0)):
        raise InputError(f"a lease of {ttl_s} s cannot be given", fix="ask for more than 0 s and at most 30 days")
    return now + timedelta(seconds=ttl_s)


def _busy(record: LeaseRecord, now: datetime) -> ClusterBusy:
    until = record.expires_at.astimezone(UTC).isoformat(timespec="seconds")
    left = max(0.0, (record.expires_at - now).total_seconds())
    return ClusterBusy(
        f"cluster {record.cluster} is held by {record.holder} (run {record.run_id}) until {until}, {left:.0f} s from now",
        fix="wait, stop that run, or choose another cluster",
        details={"cluster": record.cluster, "holder": record.holder, "run_id": record.run_id, "expires_at": until},
    )
