"""Latency and bandwidth of one direction between two processes, over a real TCP connection.

``--serve`` opens a port and says which; ``--connect`` sends messages of several sizes and waits for a one-byte answer to each.
A message of n bytes thus takes a round trip plus n over the bandwidth: half the round trip of the smallest is the latency, the better of
the two largest gives the bandwidth (far away the largest, as TCP needs time to get going; nearby the one that fits between two
interruptions). Waiting for a processor that other programs use only ever adds time, so both are taken from the lower quartile.
"""

from __future__ import annotations

import argparse
import socket
import struct
import time
from dataclasses import asdict, dataclass

from stages.profile.probes.child import run, say, wait_for_go
from stages.profile.probes.timing import Timing

SIZES = (64, 4 << 10, 64 << 10, 1 << 20, 8 << 20)
MIN_SAMPLES, WANTED_SAMPLES, MAX_SAMPLES = 5, 30, 2000
PATIENCE = 4
"""A size may take this many times its share of the budget to come to the samples that are wanted, on a busy machine or a long way."""


@dataclass(frozen=True)
class MessagePoint:
    """Seconds from sending ``size_bytes`` to the answer."""

    size_bytes: int
    seconds: float
    quick_s: float
    spread: float
    samples: int


def serve(arguments: argparse.Namespace) -> None:
    with socket.create_server((arguments.host, 0)) as server:
        server.settimeout(arguments.deadline)
        say({"port": server.getsockname()[1]})
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(arguments.deadline)
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
    say({"messages": messages})


def connect(arguments: argparse.Namespace) -> None:
    with socket.create_connection((arguments.host, arguments.port), timeout=arguments.deadline) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        say({"ready": True})
        wait_for_go()
        points = [_point(connection, size, budget_s=arguments.seconds / len(SIZES)) for size in SIZES]
    round_trip = points[0].quick_s
    best = max(points[-2:], key=lambda point: _bandwidth(point, round_trip))
    say({"latency_s": round_trip / 2, "bandwidth_bytes_per_s": _bandwidth(best, round_trip), "spread": best.spread,
         "points": [asdict(p) for p in points]})


def _bandwidth(point: MessagePoint, round_trip_s: float) -> float:
    return point.size_bytes / max(point.quick_s - round_trip_s, 1e-9)


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
    return MessagePoint(size_bytes=size, seconds=timing.seconds, quick_s=timing.quick_s, spread=timing.spread,
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
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.5)
    run(lambda arguments: serve(arguments) if arguments.serve else connect(arguments), parser)
