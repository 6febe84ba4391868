"""How the kernel is compiled. Nothing in it allocates: all memory is in the arrays it is handed.

So reference counting is off (``_nrt``): counting every array of the tuples at every call costs thirty times the arithmetic.
``inner`` functions are called by compiled code only; ``entry`` functions also from Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit, types

from stages.schedule.cost.kernel.arrays import Ints
from stages.schedule.cost.kernel.cache import settle
from stages.schedule.cost.kernel.parts import PartCache, PartCompiler

Function = TypeVar("Function", bound=Callable[..., Any])

settle()
COMPILE: Any = njit
OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}


def _one_version(dispatcher: Any) -> Any:
    """Compile a function once for all integers, not again for each constant it is called with."""
    plain = dispatcher.get_call_template
    dispatcher.get_call_template = lambda args, kws: plain([types.unliteral(a) for a in args], kws)
    return dispatcher


def entry(function: Function) -> Function:
    return _one_version(COMPILE(**OPTIONS, cache=True)(function))  # type: ignore[no-any-return]


def inner(function: Function) -> Function:
    part = _one_version(COMPILE(**OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=PartCompiler)(function))
    part._cache = PartCache(part.py_func)
    return part  # type: ignore[no-any-return]


@inner
def copy(source: Ints, target: Ints, count: int, at: int = 0) -> None:
    """The first ``count`` numbers into ``target`` from ``at`` on (assigning a slice would allocate)."""
    for x in range(count):
        target[at + x] = source[x]
