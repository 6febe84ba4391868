"""The lab's wide-area network: a process between the machines that holds every packet as long as its link takes.

A link sends one packet after the other at its rate, drops what would wait longer than its queue holds, and delivers a latency later.
Kernels without ``netem`` can do the rate but no delay, so both are done here. Run as ``python -m flows.lab.router CONFIG``.
"""

from __future__ import annotations

import gc
import heapq
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from artifacts.base import Strict, read_text
from flows.lab.tun import open_tun

MTU = 9000
QUEUE_S = 0.1
_PACKET_BYTES = 1 << 16
_BATCH = 32
"""Packets that are read from a machine before others get their turn."""
READY = "router is ready"


class RoutedMachine(Strict):
    """``pid``: any process in the machine's network namespace."""

    pid: int
    address: str


class RoutedLink(Strict):
    source: str
    target: str
    latency_s: float
    bytes_per_s: float


class RouterConfig(Strict):
    machines: dict[str, RoutedMachine]
    links: list[RoutedLink]


@dataclass
class Link:
    """One direction of a pair. ``free_s``: when its last packet has been sent."""

    latency_s: float
    bytes_per_s: float
    free_s: float = 0.0

    def arrival_s(self, size: int, *, now_s: float) -> float | None:
        """When a packet that comes now is there; None: the queue is full, and it is dropped."""
        sent_s = max(self.free_s, now_s) + size / self.bytes_per_s
        if sent_s - now_s > QUEUE_S + size / self.bytes_per_s:
            return None
        self.free_s = sent_s
        return sent_s + self.latency_s


@dataclass
class Router:
    """``links``: (descriptor of the source, address of the target) → link; ``ways``: address → descriptor."""

    links: Mapping[tuple[int, bytes], Link]
    ways: Mapping[bytes, int]
    read: Callable[[int, int], bytes] = os.read
    write: Callable[[int, bytes], int] = os.write
    _due: list[tuple[float, int, int, bytes]] = field(default_factory=list)
    _number: int = 0

    def take(self, source: int, *, now: Callable[[], float] = time.monotonic) -> None:
        """Put the packets that wait at ``source`` on their links."""
        for _ in range(_BATCH):
            try:
                packet = self.read(source, _PACKET_BYTES)
            except BlockingIOError:
                return
            target = packet[16:20]  # IPv4; what is not for a machine of the lab goes nowhere
            link = self.links.get((source, target))
            due_s = link.arrival_s(len(packet), now_s=now()) if link else None
            if due_s is not None:
                self._number += 1
                heapq.heappush(self._due, (due_s, self._number, self.ways[target], packet))

    def deliver(self, *, now: Callable[[], float] = time.monotonic) -> float | None:
        """Hand over what is due; seconds until the next packet is, None: there is none."""
        while self._due:
            wait_s = self._due[0][0] - now()
            if wait_s > 0:
                return wait_s
            _, _, target, packet = heapq.heappop(self._due)
            with suppress(OSError):  # a machine whose queue is full, or that is gone, loses the packet
                self.write(target, packet)
        return None


def serve(config: RouterConfig) -> None:
    """Open a device in every machine, say so, and route until SIGTERM."""
    descriptors = {name: open_tun(m.pid, address=m.address, mtu=MTU, peers=[o.address for n, o in config.machines.items() if n != name])
                   for name, m in config.machines.items()}
    address = {name: socket.inet_aton(m.address) for name, m in config.machines.items()}
    router = Router(links={(descriptors[k.source], address[k.target]): Link(k.latency_s, k.bytes_per_s) for k in config.links},
                    ways={address[name]: fd for name, fd in descriptors.items()})
    _run_first()
    poll = select.epoll()
    for fd in descriptors.values():
        poll.register(fd, select.EPOLLIN)
    print(READY, flush=True)
    while True:
        wait_s = router.deliver()
        for fd, _ in poll.poll(-1 if wait_s is None else wait_s):
            router.take(fd)


def _run_first() -> None:
    """Before everything else on this machine, where that is allowed: a packet that waits for a processor comes late."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    gc.disable()  # nothing here makes cycles


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    serve(RouterConfig.model_validate_json(read_text(sys.argv[1])))
