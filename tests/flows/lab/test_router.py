"""What a link does to packets, on a clock of the test's own."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

import pytest

from flows.lab.router import QUEUE_S, Link, Router

HERE, THERE = 3, 4
ADDRESS = socket.inet_aton("10.0.0.4")


def packet(size: int, target: bytes = ADDRESS) -> bytes:
    return b"\x45".ljust(16, b"\0") + target + bytes(size - 20)


@dataclass
class Wire:
    """Packets that wait at a descriptor, and those delivered, with the time."""

    waiting: list[bytes]
    now_s: float = 0.0
    delivered: list[tuple[float, int]] = field(default_factory=list)

    def router(self, link: Link) -> Router:
        return Router(links={(HERE, ADDRESS): link}, ways={ADDRESS: THERE}, read=self._read, write=self._write)

    def run(self, router: Router) -> None:
        for _ in range(len(self.waiting) // 32 + 1):
            router.take(HERE, now=lambda: self.now_s)
        while (wait_s := router.deliver(now=lambda: self.now_s)) is not None:
            self.now_s += wait_s

    def _read(self, _: int, size: int) -> bytes:
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.pop(0)

    def _write(self, _: int, data: bytes) -> int:
        self.delivered.append((self.now_s, len(data)))
        return len(data)


def test_packets_follow_each_other_at_the_rate_and_come_a_latency_later() -> None:
    wire = Wire([packet(1000) for _ in range(40)])
    wire.run(wire.router(Link(latency_s=0.02, bytes_per_s=1e6)))
    assert [t for t, _ in wire.delivered] == pytest.approx([0.02 + 0.001 * n for n in range(1, 41)])


def test_what_the_queue_does_not_hold_is_dropped() -> None:
    wire = Wire([packet(1000) for _ in range(500)])
    wire.run(wire.router(Link(latency_s=0, bytes_per_s=1e6)))
    assert len(wire.delivered) == pytest.approx(QUEUE_S * 1e6 / 1000 + 1, abs=1)


def test_a_packet_larger_than_the_queue_passes_an_idle_link() -> None:
    wire = Wire([packet(9000)])
    wire.run(wire.router(Link(latency_s=0, bytes_per_s=9000)))
    assert wire.delivered == [(pytest.approx(1.0), 9000)]


def test_a_packet_for_nobody_goes_nowhere() -> None:
    wire = Wire([packet(100, socket.inet_aton("8.8.8.8"))])
    wire.run(wire.router(Link(latency_s=0, bytes_per_s=1e6)))
    assert wire.delivered == []
