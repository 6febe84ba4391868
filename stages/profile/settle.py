"""Measuring again before a change of rates is believed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from artifacts.topology import Topology
from stages.profile.basis import anchored
from stages.profile.draft import Draft

ATTEMPTS = 3


def settle(measure: Callable[[], Draft], earlier: Sequence[Topology], *,
           say: Callable[[str], None] = lambda _: None) -> tuple[Draft, Topology]:
    """The draft that ``measure`` gives, and its topology anchored in ``earlier`` ones of the same cluster (newest first).

    Who is there is believed at once. A rate that differs from all earlier profiles is measured again, up to ``ATTEMPTS`` times in all:
    a busy second must not look like a changed cluster, and a cluster that really changed still shows it the last time.
    """
    draft = measure()
    topology = anchored(draft, earlier)
    for attempt in range(2, ATTEMPTS + 1):
        if not only_rates_differ(draft, topology, earlier):
            break
        say(f"rates differ from earlier profiles: measuring again ({attempt} of {ATTEMPTS})")
        draft = measure()
        topology = anchored(draft, earlier)
    return draft, topology


def only_rates_differ(draft: Draft, topology: Topology, earlier: Sequence[Topology]) -> bool:
    """Whether an earlier topology has the same machines and devices, but none has the same rates."""
    known = {t.fingerprint for t in earlier}
    return topology.fingerprint not in known and any(draft.topology(t.basis).fingerprint == t.fingerprint for t in earlier)
