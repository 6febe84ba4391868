"""The event loop: activities with dependencies, and flows that share the bandwidth of what they pass over.

An activity is so many equal rounds; a round is ``busy`` seconds of work, then a bundle of flows in parallel (a collective's edges, a hop),
over when the last flow is. A flow first waits its latency, then moves its bytes. Flows under way share every resource max-min fairly: the
most contended resource is divided equally, what its flows cannot use elsewhere is left to others. Rates change only when a flow begins or
ends, and only for flows connected with it by shared resources.

Compiled, because a simulated iteration has up to some million events.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import numpy as np
from numba import njit

BUSY, ARRIVED, MOVED = 0, 1, 2
DONE_BYTES = 1e-6
"""A flow with less than a millionth of a byte left has ended: rounding."""


def _compiled(function: Any) -> Any:
    """Compiled once a machine; where nothing can be kept on disk, once a process."""
    try:
        return njit(cache=True)(function)
    except RuntimeError:
        return njit(function)


@_compiled
def _unlink(f: int, route: Any, head: Any, after: Any, before: Any) -> None:
    for k in range(route.shape[1]):
        r = route[f, k]
        if r < 0:
            break
        nxt, prv = after[f, k], before[f, k]
        if prv >= 0:
            after[prv // route.shape[1], prv % route.shape[1]] = nxt
        else:
            head[r] = nxt
        if nxt >= 0:
            before[nxt // route.shape[1], nxt % route.shape[1]] = prv


@_compiled
def _link(f: int, route: Any, head: Any, after: Any, before: Any) -> None:
    for k in range(route.shape[1]):
        r = route[f, k]
        if r < 0:
            break
        me = f * route.shape[1] + k
        after[f, k], before[f, k] = head[r], -1
        if head[r] >= 0:
            before[head[r] // route.shape[1], head[r] % route.shape[1]] = me
        head[r] = me


@_compiled
def _connected(
    f: int, route: Any, head: Any, after: Any, seen: Any, seen_flow: Any, mark: int, resources: Any, flows: Any
) -> tuple[int, int]:
    """Resources and flows under way that share, directly or over others, a resource with ``f``; how many of each."""
    width = route.shape[1]
    n_res = n_flow = done = 0
    for k in range(width):
        r = route[f, k]
        if r < 0:
            break
        if seen[r] != mark:
            seen[r] = mark
            resources[n_res] = r
            n_res += 1
    while done < n_res:
        at = head[resources[done]]
        done += 1
        while at >= 0:
            g = at // width
            at = after[g, at % width]
            if seen_flow[g] == mark:
                continue
            seen_flow[g] = mark
            flows[n_flow] = g
            n_flow += 1
            for k in range(width):
                r = route[g, k]
                if r < 0:
                    break
                if seen[r] != mark:
                    seen[r] = mark
                    resources[n_res] = r
                    n_res += 1
    return n_res, n_flow


@_compiled
def _share(resources: Any, n_res: int, flows: Any, n_flow: int, route: Any, capacity: Any, left: Any, users: Any, fair: Any) -> None:
    """Max-min fair rates of the connected flows, into ``fair``."""
    width = route.shape[1]
    for i in range(n_res):
        left[resources[i]], users[resources[i]] = capacity[resources[i]], 0
    for i in range(n_flow):
        fair[flows[i]] = -1.0
        for k in range(width):
            r = route[flows[i], k]
            if r < 0:
                break
            users[r] += 1
    open_ = n_flow
    while open_ > 0:
        tightest, share = -1, np.inf
        for i in range(n_res):
            r = resources[i]
            if users[r] > 0 and left[r] / users[r] < share:
                tightest, share = r, left[r] / users[r]
        for i in range(n_flow):
            g = flows[i]
            if fair[g] >= 0.0:
                continue
            through = False
            for k in range(width):
                if route[g, k] == tightest:
                    through = True
            if not through:
                continue
            fair[g] = share
            open_ -= 1
            for k in range(width):
                r = route[g, k]
                if r < 0:
                    break
                left[r] = max(0.0, left[r] - share)
                users[r] -= 1


@_compiled
def play(
    rounds: Any,
    busy_s: Any,
    first_flow: Any,
    latency_s: Any,
    bytes_: Any,
    route: Any,
    capacity: Any,
    waits_for: Any,
    first_next: Any,
    next_: Any,
    record: bool,
) -> tuple[Any, Any, int, Any]:
    """Play all activities; returns start and end of each, the number of events, and the log of rates.

    Args:
        rounds, busy_s: ``[A]``. first_flow: ``[A+1]``, an activity's bundle is a slice of the flows.
        latency_s, bytes_: ``[F]``, of one round. route: ``[F, K]`` resources a flow passes over, −1 where there are fewer.
        capacity: ``[R]`` bytes/s.
        waits_for: ``[A]`` number of activities before it (is used up). first_next ``[A+1]``, next_: those after it.
        record: keep (time, flow, rate) of every change of a rate.

    An activity that can never start keeps a start of −1.
    """
    n, n_flows, n_res, width = rounds.shape[0], bytes_.shape[0], capacity.shape[0], route.shape[1]
    start, end = np.full(n, -1.0), np.full(n, -1.0)
    left, under_way = rounds.copy(), np.zeros(n, np.int64)
    owner = np.empty(n_flows, np.int64)
    for i in range(n):
        for f in range(first_flow[i], first_flow[i + 1]):
            owner[f] = i
    rate, rest, since, version = np.zeros(n_flows), np.zeros(n_flows), np.zeros(n_flows), np.zeros(n_flows, np.int64)
    head = np.full(n_res, -1, np.int64)
    after, before = np.full((n_flows, width), -1, np.int64), np.full((n_flows, width), -1, np.int64)
    seen, seen_flow, mark = np.zeros(n_res, np.int64), np.zeros(n_flows, np.int64), 0
    resources, flows = np.empty(n_res, np.int64), np.empty(n_flows, np.int64)
    spare, users, fair = np.empty(n_res), np.empty(n_res, np.int64), np.empty(n_flows)
    log = [(0.0, 0, 0.0)]
    log.pop()
    heap = [(0.0, 0, 0, 0, 0)]
    heap.pop()
    order = events = 0
    ready = [0]
    ready.pop()
    begin = [0]
    begin.pop()
    changed = [0]
    changed.pop()
    for i in range(n):
        if waits_for[i] == 0:
            ready.append(i)
    now = 0.0
    while True:
        # What can happen at this instant without time passing: activities start, rounds begin and end, others become ready.
        while len(ready) > 0 or len(begin) > 0:
            if len(ready) > 0:
                i = ready.pop(0)
                start[i] = now
            else:
                i = begin.pop(0)
            stay = True
            while stay:
                stay = False
                if left[i] == 0:
                    end[i] = now
                    for s in range(first_next[i], first_next[i + 1]):
                        waits_for[next_[s]] -= 1
                        if waits_for[next_[s]] == 0:
                            ready.append(next_[s])
                elif under_way[i] == 0 and busy_s[i] > 0.0:
                    order += 1
                    heappush(heap, (now + busy_s[i], order, BUSY, i, 0))
                    under_way[i] = -1
                else:
                    count = first_flow[i + 1] - first_flow[i]
                    under_way[i] = count
                    if count == 0:
                        left[i] -= 1
                        stay = True
                    for f in range(first_flow[i], first_flow[i + 1]):
                        order += 1
                        heappush(heap, (now + latency_s[f], order, ARRIVED, f, 0))
        # New rates for everyone connected with what began or ended.
        while len(changed) > 0:
            f = changed.pop(0)
            mark += 1
            n_r, n_f = _connected(f, route, head, after, seen, seen_flow, mark, resources, flows)
            _share(resources, n_r, flows, n_f, route, capacity, spare, users, fair)
            for j in range(n_f):
                g = flows[j]
                if abs(fair[g] - rate[g]) <= 1e-12 * fair[g]:
                    continue
                rest[g] = max(0.0, rest[g] - rate[g] * (now - since[g]))
                rate[g], since[g] = fair[g], now
                version[g] += 1
                order += 1
                heappush(heap, (now + rest[g] / rate[g], order, MOVED, g, version[g]))
                if record:
                    log.append((now, g, rate[g]))
        if len(heap) == 0:
            break
        now, _, kind, what, stamp = heappop(heap)
        events += 1
        if kind == BUSY:
            under_way[what] = 0
            count = first_flow[what + 1] - first_flow[what]
            if count == 0:
                left[what] -= 1
                begin.append(what)
            else:
                under_way[what] = count
                for f in range(first_flow[what], first_flow[what + 1]):
                    order += 1
                    heappush(heap, (now + latency_s[f], order, ARRIVED, f, 0))
            continue
        if kind == ARRIVED and bytes_[what] > DONE_BYTES:
            rest[what], since[what], rate[what] = bytes_[what], now, 0.0
            _link(what, route, head, after, before)
            changed.append(what)
            continue
        if kind == MOVED:
            if stamp != version[what] or rate[what] == 0.0:
                continue
            rate[what] = 0.0
            version[what] += 1
            _unlink(what, route, head, after, before)
            changed.append(what)
            if record:
                log.append((now, what, 0.0))
        i = owner[what]
        under_way[i] -= 1
        if under_way[i] == 0:
            left[i] -= 1
            begin.append(i)
    return start, end, events, log
