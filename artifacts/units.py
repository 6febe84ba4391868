"""SI inside; GiB, Gbit/s and ms only where a person reads or writes them."""

from __future__ import annotations

KIB, MIB, GIB = 2**10, 2**20, 2**30
GB = 10**9
TERA = 10**12


def gbit_per_s(value: float) -> float:
    """Gbit/s → bytes/s."""
    return value * 1e9 / 8


def milliseconds(value: float) -> float:
    """ms → s."""
    return value / 1e3


def show_bytes(value: float) -> str:
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def show_seconds(value: float) -> str:
    if value >= 120:
        minutes, seconds = divmod(round(value), 60)
        return f"{minutes} min {seconds} s"
    if value >= 1:
        return f"{value:.2f} s"
    if value >= 1e-3:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e6:.0f} µs"


def show_rate(bytes_per_s: float) -> str:
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.1f} {unit}"
    return f"{bytes_per_s:.0f} B/s"


def show_flops(flops_per_s: float) -> str:
    for unit, size in (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6)):
        if flops_per_s >= size:
            return f"{flops_per_s / size:.1f} {unit}"
    return f"{flops_per_s:.0f} FLOP/s"
