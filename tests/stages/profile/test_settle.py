"""A change of rates is believed when it is seen again."""

from __future__ import annotations

from collections.abc import Callable

from stages.profile.basis import anchored
from stages.profile.draft import Draft
from stages.profile.settle import ATTEMPTS, settle
from tests.stages.profile.fleets import live_draft, without_device


def _one_after_another(*drafts: Draft) -> Callable[[], Draft]:
    rest = list(drafts)
    return lambda: rest.pop(0)


def test_a_busy_moment_is_measured_again() -> None:
    first = anchored(live_draft(), [])
    said: list[str] = []
    draft, topology = settle(_one_after_another(live_draft(flops=0.5e14), live_draft(flops=1.9e14)), [first], say=said.append)
    assert topology.fingerprint == first.fingerprint
    assert draft.devices[0].achieved_flops_per_s.value == 1.9e14
    assert said == ["rates differ from earlier profiles: measuring again (2 of 3)"]


def test_a_lasting_change_is_believed_after_the_last_attempt() -> None:
    first = anchored(live_draft(), [])
    draft, topology = settle(_one_after_another(*[live_draft(flops=1e14 + i) for i in range(ATTEMPTS)]), [first])
    assert topology.fingerprint != first.fingerprint
    assert draft.devices[0].achieved_flops_per_s.value == 1e14 + ATTEMPTS - 1
    _, again = settle(_one_after_another(live_draft(flops=1.1e14)), [topology, first])
    assert again.fingerprint == topology.fingerprint, "once believed it needs no second look"


def test_who_is_there_is_believed_at_once() -> None:
    first = anchored(live_draft(), [])
    _, topology = settle(_one_after_another(without_device(live_draft(), "m0.gpu-0")), [first])
    assert topology.fingerprint != first.fingerprint
    _, unknown = settle(_one_after_another(live_draft()), [])
    assert unknown.fingerprint == first.fingerprint
