"""What the compiled search reads and writes beside the cost kernel's arrays: few arrays, because each costs in every call.

Symbols: B bundles (tasks that must share a group), a mask is a set of bundles as bits, G = B groups at most, D devices, T tasks, K orders.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.schedule.cost.kernel.arrays import Flat, Floats, Ints, Ledger

Flags = NDArray[np.bool_]
Words = NDArray[np.uint64]

DP, PP, TP, MICRO, COLUMN, SHARDS, SIZE, HOLDER = range(8)
"""Columns of a group in ``State.meta``: its cut (``SHARDS`` is a rollout replica's tensor-parallel degree, 0 where no rollout runs), its
number of devices; ``HOLDER`` of row b is the group of bundle b."""
LEGAL, ROLLOUTS, LAYERS, FIXED_DP, FIXED_PP, DEGREES, FIRST = range(7)
"""Columns of ``Rules.masks``: whether a group may run these bundles; whether rollout is one; layers of the shallowest model that is trained
or inferred (0: only rollout); replicas and stages the user fixed (0: none); how many tensor-parallel degrees follow."""
FIXED_ROLLOUT, MOST_MICRO, MINI_BATCH, WIDE, BUNDLES = range(5)
"""Places in ``Rules.misc``: rollout replicas the user fixed, largest micro-batch, sequences of a mini-batch, whether kinds and
regions of devices are moved at once (on more than ``SMALL`` devices); then each task's bundle."""
HOME, KIND, REGION, ORDERS = range(4)
"""Rows of ``Rules.devices``: a machine (or single devices that are alike), a class in a region, a region; then orders of all devices."""
PRESENT, BEST, MADE, PRICED, TOUR, COUNTS = range(6)
"""Places in ``Bench.sums``: cost of the present plan and of the best, moves made, evaluations, how far the tour of large moves
is; then how often each kind of move was priced, how often it improved the plan."""


class Rules(NamedTuple):
    """What the engine, the models and the user's constraints allow, and orders worth dealing devices in."""

    masks: Ints
    """[2^B + 1, FIRST + degrees]; the last row lists the tensor-parallel degrees of a rollout replica"""
    admits: Flags
    """[2^B, D] devices that all tasks of a mask may use"""
    dps: Flags
    """[D + 1] numbers of replicas the engine runs"""
    devices: Ints
    """[ORDERS + K, D]"""
    misc: Ints
    """[BUNDLES + T]"""


class State(NamedTuple):
    """A plan as the search varies it. Group G holds the idle devices."""

    order: Ints
    """[G + 1, D] devices of a group in the order ranks are dealt"""
    meta: Ints
    """[G + 1, 8]"""


class Bench(NamedTuple):
    """One thread's plan, its price, the best so far, and room to take a move back."""

    flat: Flat
    ledger: Ledger
    state: State
    saved: State
    best: State
    saved_flat: Flat
    saved_prices: Floats
    """[T + 2, D or more] offloaded bytes by task, peaks of devices, prices of groups"""
    scratch: Ints
    """[6, D or more]"""
    random: Words
    """[1] state of the generator"""
    sums: Floats
    history: Floats
    """[H] costs of earlier plans, compared against in turn"""
