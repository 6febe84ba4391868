"""Latency and bandwidth of one direction between two processes, over a real TCP connection.

``--serve`` opens a port and says which; ``--connect`` sends messages of several sizes and waits for a one-byte answer to each.
A message of n bytes thus takes a round trip plus n over the bandwidth: half the round trip of the smallest is the latency. Waiting for a
processor that other programs use only ever adds time, so times are lower quartiles. How the bandwidth follows, see :func:`bandwidth`.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from stages.profile.probes.child import run, say, wait_for_go
from stages.profile.probes.timing import Timing

SIZES = (64, 4 << 10, 64 << 10, 1 << 20, 8 << 20)
MIN_SAMPLES, WANTED_SAMPLES, MAX_SAMPLES = 5, 30, 2000
PATIENCE = 4
"""A size may take this many times its share of the budget to come to the samples that are wanted, on a busy machine or a long way;
a size of which one message would take that long is not sent at all."""
SLOW_S = 0.05
"""A largest message that takes this long went over a link, not through a processor: an interruption hardly counts in it."""


@dataclass(frozen=True)
class MessagePoint:
    """Seconds from sending ``size_bytes`` to the answer: the median, the lower quartile, the shortest."""

    size_bytes: int
    seconds: float
    quick_s: float
    floor_s: float
    spread: float
    samples: int


def bandwidth(points: Sequence[MessagePoint]) -> float:
    """B/s from the two largest sizes of ``points``.

    Slow links: their difference in bytes over their difference in time, in which neither the round trip counts, nor what a shaper lets
    through at once, nor TCP getting going. Quick ones: the better of the two less the round trip, as the smaller fits between two
    interruptions. It is one connection's: a network of many gigabits, or one with RDMA, carries more with several.
    """
    small, large = points[-2:]
    if large.quick_s > SLOW_S and large.quick_s > small.quick_s:
        return (large.size_bytes - small.size_bytes) / (large.quick_s - small.quick_s)
    return max(p.size_bytes / max(p.quick_s - points[0].quick_s, 1e-9) for p in (small, large))


def serve(arguments: argparse.Namespace) -> None:
    """One connection, or with ``--all`` every one, each in a thread, until standard input is closed."""
    with socket.create_server((arguments.host, 0), backlog=64) as server:
        server.settimeout(arguments.deadline)
        say({"port": server.getsockname()[1]})
        if not arguments.all:
            connection, _ = server.accept()
            say({"messages": _answer(connection, deadline_s=arguments.deadline)})
            return
        while True:
            ready, _, _ = select.select([server, sys.stdin], [], [])
            if sys.stdin in ready and not os.read(sys.stdin.fileno(), 1):
                return
            if server in ready:
                connection, _ = server.accept()
                threading.Thread(target=_answer_quietly, args=(connection, arguments.deadline), daemon=True).start()


def _answer_quietly(connection: socket.socket, deadline_s: float) -> None:
    """The other side of a connection that breaks says so itself."""
    try:
        _answer(connection, deadline_s=deadline_s)
    except OSError:
        return


def _answer(connection: socket.socket, *, deadline_s: float) -> int:
    """A byte for each message, until the other side closes; the number of messages."""
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(deadline_s)
        buffer = bytearray(1 << 20)
        messages = 0
        while header := _exactly(connection, 8):
            left = struct.unpack("!Q", header)[0]
            while left:
                got = connection.recv_into(buffer, min(left, len(buffer)))
                if not got:
                    raise ConnectionError("the other side left in the middle of a message")
                left -= got
            connection.sendall(b"k")
            messages += 1
    return messages


def connect(arguments: argparse.Namespace) -> None:
    """The answer holds ``bandwidth_bytes_per_s`` where more than the smallest size was sent."""
    with socket.create_connection((arguments.host, arguments.port), timeout=arguments.deadline) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        say({"ready": True})
        wait_for_go()
        sizes = [size for size in SIZES if size <= arguments.largest]
        points: list[MessagePoint] = []
        for size in sizes:
            budget_s = arguments.seconds / len(sizes)
            if len(points) > 2 and _expected_s(points, size) > PATIENCE * budget_s:
                break
            points.append(_point(connection, size, budget_s=budget_s))
    answer = {"latency_s": points[0].quick_s / 2, "floor_s": points[0].floor_s / 2, "points": [asdict(p) for p in points]}
    say(answer | ({"bandwidth_bytes_per_s": bandwidth(points), "spread": points[-1].spread} if len(points) > 1 else {}))


def _expected_s(points: Sequence[MessagePoint], size: int) -> float:
    return points[0].quick_s + (points[-1].quick_s - points[0].quick_s) * size / points[-1].size_bytes


def _point(connection: socket.socket, size: int, *, budget_s: float) -> MessagePoint:
    message = struct.pack("!Q", size) + bytes(size)
    began = time.monotonic()
    _send(connection, message)
    samples: list[float] = []
    while len(samples) < MAX_SAMPLES:
        spent = time.monotonic() - began
        if len(samples) >= MIN_SAMPLES and spent > budget_s * (1 if len(samples) >= WANTED_SAMPLES else PATIENCE):
            break
        samples.append(_send(connection, message))
    timing = Timing.of(samples)
    return MessagePoint(size_bytes=size, seconds=timing.seconds, quick_s=timing.quick_s, floor_s=min(samples), spread=timing.spread,
                        samples=timing.samples)


def _send(connection: socket.socket, message: bytes) -> float:
    start = time.perf_counter()
    connection.sendall(message)
    if not connection.recv(1):
        raise ConnectionError("the other side closed the connection")
    return time.perf_counter() - start


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--all", action="store_true", help="serve every connection, until standard input is closed")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--largest", type=int, default=SIZES[-1], metavar="BYTES", help="send no larger messages")
    run(lambda arguments: serve(arguments) if arguments.serve else connect(arguments), parser)
