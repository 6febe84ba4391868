"""A full disk as one line for a person, wherever it was met."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from artifacts.errors import StageCrashed

_NUMBERS = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def full_disk(workdir: Path) -> Iterator[None]:
    """Raise :class:`StageCrashed` where the body meets a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NUMBERS:
            raise
        raise disk_is_full(str(error.filename or workdir)) from None


def disk_is_full(where: str) -> StageCrashed:
    return StageCrashed(f"the disk of {where} is full", fix="free some space and run again: training goes on from its last checkpoint")


def tells_of_full_disk(text: str) -> bool:
    """Whether an error that only came as text, from another process, is of a full disk."""
    return any(os.strerror(number) in text for number in _NUMBERS)
