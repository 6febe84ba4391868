"""Python runs this before anything else where this folder is on PYTHONPATH: a machine of a test's fleet that does something wrong.

``HETRL_TEST_FAULT`` says what. The probes themselves know nothing of it, and run as they always do.
"""

from __future__ import annotations

import os
import sys
import time

_FAULT = os.environ.get("HETRL_TEST_FAULT", "")
_STARTED = sys.orig_argv


def _contribute_wrongly() -> None:
    """One element of what this machine puts into every all-reduce is off by one, as with a broken transport or library."""
    from torch.distributed import ProcessGroupGloo

    right = ProcessGroupGloo.allreduce

    def allreduce(group: object, tensors: list[object]) -> object:
        tensors[0][0] += 1  # type: ignore[index]
        return right(group, tensors)

    ProcessGroupGloo.allreduce = allreduce


def _hangs() -> bool:
    if _FAULT == "hang":
        return "stages.profile.probes.network" in _STARTED and "--serve" not in _STARTED
    return _FAULT == "device hangs" and "stages.profile.probes.device" in _STARTED


if _hangs():
    time.sleep(3600)
elif _FAULT == "wrong sum" and "stages.profile.probes.collective" in _STARTED:
    _contribute_wrongly()
