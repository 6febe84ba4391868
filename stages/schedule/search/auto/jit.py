"""How the compiled search is compiled: as one function around the cost kernel.

A compiled function takes in the code of all it calls, so every function that calls the kernel costs a compilation of the kernel. Those are
``inlined`` into one entry; what does not call it is ``inner`` as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from stages.schedule.cost.kernel.jit import COMPILE, OPTIONS

Function = TypeVar("Function", bound=Callable[..., Any])


def inlined(function: Function) -> Function:
    return COMPILE(**OPTIONS, inline="always", no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)  # type: ignore[no-any-return]
