"""How the kernel is compiled. Nothing in it allocates: all memory is in the arrays it is handed.

So reference counting is off (``_nrt``): counting every array of the tuples at every call costs thirty times the arithmetic. ``inner`` functions are called
by compiled code only; ``entry`` functions also from Python.
"""

from __future__ import annotations

from numba import njit

from stages.schedule.cost.kernel.arrays import Ints

entry = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
inner = njit(cache=True, nogil=True, error_model="numpy", _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@inner
def copy(source: Ints, target: Ints, count: int, at: int = 0) -> None:
    """The first ``count`` numbers into ``target`` from ``at`` on (assigning a slice would allocate)."""
    for x in range(count):
        target[at + x] = source[x]
