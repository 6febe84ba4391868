"""A TUN device inside another process's network namespace, with host routes to its peers: system calls, no tool needed."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

DEVICE = "lab0"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCADDRT, _SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFMTU, _SIOCSIFTXQLEN = 0x890B, 0x8914, 0x8916, 0x8922, 0x8943
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_RTF_UP, _RTF_HOST, _RTF_REJECT = 0x0001, 0x0004, 0x0200
_CLONE_NEWNET = 0x40000000
_QUEUE_PACKETS = 1000
_LAST_RESORT = 100
_libc = ctypes.CDLL(None, use_errno=True)


class _Route(ctypes.Structure):
    """The kernel's ``struct rtentry``."""

    _fields_ = (
        ("pad1", ctypes.c_ulong), ("dst", ctypes.c_char * 16), ("gateway", ctypes.c_char * 16), ("genmask", ctypes.c_char * 16),
        ("flags", ctypes.c_ushort), ("pad2", ctypes.c_short), ("pad3", ctypes.c_ulong), ("tos", ctypes.c_ubyte), ("cls", ctypes.c_ubyte),
        ("pad4", ctypes.c_short * 3), ("metric", ctypes.c_short), ("dev", ctypes.c_char_p), ("mtu", ctypes.c_ulong),
        ("window", ctypes.c_ulong), ("irtt", ctypes.c_ushort),
    )


def open_tun(pid: int, *, address: str, peers: Sequence[str], mtu: int) -> int:
    """A file descriptor from which the packets to ``peers`` (IPv4) of process ``pid``'s namespace are read, and into which those to
    ``address`` are written. The device goes when it is closed; then the peers are unreachable, not suddenly near.

    Raises ``OSError``: no such process, no TUN in this kernel, no permission.
    """
    with _inside(pid):
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                _configure(control, _SIOCSIFADDR, _sockaddr(address))
                _configure(control, _SIOCSIFMTU, struct.pack("i", mtu))
                _configure(control, _SIOCSIFTXQLEN, struct.pack("i", _QUEUE_PACKETS))
                _configure(control, _SIOCSIFFLAGS, struct.pack("h", _IFF_UP | _IFF_RUNNING))
                for peer in peers:
                    _add_route(control, peer, device=DEVICE.encode(), flags=_RTF_UP | _RTF_HOST, metric=0)
                    _add_route(control, peer, device=None, flags=_RTF_UP | _RTF_HOST | _RTF_REJECT, metric=_LAST_RESORT)
        except BaseException:
            os.close(fd)
            raise
        return fd


@contextmanager
def _inside(pid: int) -> Iterator[None]:
    here = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set_namespace(there)
            try:
                yield
            finally:
                _set_namespace(here)
        finally:
            os.close(there)
    finally:
        os.close(here)


def _set_namespace(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def _configure(control: socket.socket, request: int, value: bytes) -> None:
    fcntl.ioctl(control, request, struct.pack("16s24s", DEVICE.encode(), value))


def _add_route(control: socket.socket, peer: str, *, device: bytes | None, flags: int, metric: int) -> None:
    route = _Route(flags=flags, metric=metric + 1, dev=device)
    # A char array as a field takes no zero bytes by assignment.
    for name, text in (("dst", peer), ("gateway", "0.0.0.0"), ("genmask", "255.255.255.255")):
        ctypes.memmove(ctypes.addressof(route) + getattr(_Route, name).offset, _sockaddr(text), 16)
    try:
        fcntl.ioctl(control, _SIOCADDRT, bytes(route))
    except FileExistsError:
        if device is not None:
            raise  # the last resort stays from an earlier router of this namespace


def _sockaddr(address: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
