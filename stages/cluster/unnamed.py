"""GPUs that Ray does not tell apart by name: hold all that are free on the machines, ask each for its UUID, keep the planned ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from artifacts.errors import ClusterChanged, StageTimeout

Reserve = Callable[[str, int], list[Any]]
Identify = Callable[[Sequence[Any]], list[str]]


def sort_out(wanted: Sequence[tuple[str, str]], *, reserve: Reserve, identify: Identify, free: Callable[[str], int],
             remove: Callable[[Sequence[Any]], None], deadline_s: float) -> list[Any]:
    """A placement group for each wanted (machine, device), in order.

    Ray reserves some GPU of a machine for a bundle, and keeps it for that bundle; which one is only seen from inside. So every
    free GPU of the machines is reserved for a moment, and what was not wanted is given back.

    Raises:
        ClusterChanged: a device is not among those found; the message names it and what was found.
    """
    until = time.monotonic() + deadline_s
    held: list[Any] = []
    try:
        for machine in dict.fromkeys(m for m, _ in wanted):
            asked = sum(m == machine for m, _ in wanted)
            held += reserve(machine, max(asked, free(machine)))
            if time.monotonic() > until:
                raise StageTimeout(f"reserving the GPUs of {machine} took longer than {deadline_s:g} s",
                                   fix="give a longer placement deadline")
        found = dict(zip(identify(held), held, strict=True))
        missing = [f"{device} of {machine}" for machine, device in wanted if device not in found]
        if missing:
            there = ", ".join(sorted(d for d in found if d)) or "none whose UUID could be read"
            raise ClusterChanged(f"devices are not among the free GPUs: {', '.join(missing)}; found {there}",
                                 fix="free them, or run profile and schedule again for what is there", details={"missing": missing})
    except BaseException:
        remove(held)
        raise
    chosen = [found[device] for _, device in wanted]
    remove([group for group in held if all(group is not c for c in chosen)])
    return chosen
