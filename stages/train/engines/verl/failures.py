"""What Ray and verl raise when a process of a run dies or fails, as one line for a person."""

from __future__ import annotations

import re

from artifacts.errors import StageCrashed
from stages.train.disk import disk_is_full, tells_of_full_disk

_WHERE = "the traceback is in the stage's log, Ray's own logs in ray-logs in its scratch folder"


def crashed(error: BaseException) -> StageCrashed:
    """``error`` is a Ray error; the process's name and the root cause are kept, its traceback is for the log."""
    from ray.exceptions import ActorDiedError, RayTaskError

    if tells_of_full_disk(str(error)):
        return disk_is_full("a machine of the training")
    if isinstance(error, ActorDiedError):
        reason = next((line.strip() for line in str(error).splitlines() if "reason" in line.lower() or "died because" in line.lower()), "")
        return StageCrashed(f"a process of the training died. {reason}".strip(),
                            fix=f"often it ran out of memory: use fewer ranks a machine or a smaller batch; {_WHERE}")
    cause: BaseException = error
    if isinstance(error, RayTaskError):
        while isinstance(cause, RayTaskError) and isinstance(cause.cause, BaseException):
            cause = cause.cause
        first = next((line for line in str(cause).splitlines() if line.strip()), "")
        return StageCrashed(f"verl failed in {_function(error)}: {type(cause).__name__}: {first}", fix=_WHERE)
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return StageCrashed(f"the training lost its cluster: {type(error).__name__}: {first}", fix=_WHERE)


def _function(error: BaseException) -> str:
    """The remote function that failed. An error that Ray also makes one of the cause's class names it only in its text."""
    named = vars(error).get("function_name") or next(iter(re.findall(r"ray::([\w.]+)", str(error))), "")
    return str(named) or "a remote function"
