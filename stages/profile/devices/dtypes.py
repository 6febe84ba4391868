"""Which 16-bit formats an NVIDIA GPU computes in."""

from __future__ import annotations

from artifacts.topology import Dtype

_ARCHITECTURES: dict[str, tuple[int, int]] = {"Kepler": (3, 5), "Maxwell": (5, 2), "Pascal": (6, 0), "Volta": (7, 0), "Turing": (7, 5),
                                              "Ampere": (8, 0), "Ada Lovelace": (8, 9), "Hopper": (9, 0), "Blackwell": (10, 0)}
"""The lowest compute capability of each (NVIDIA's CUDA C++ programming guide): enough to tell the formats, not the part."""


def dtypes_of(capability: tuple[int, int] | None) -> tuple[Dtype, ...]:
    """bf16 from compute capability 8.0, fp16 from 5.3 (NVIDIA's CUDA C++ programming guide, arithmetic instructions)."""
    if capability is None:
        return ("fp16", "fp32")
    if tuple(capability) >= (8, 0):
        return ("bf16", "fp16", "fp32")
    return ("fp16", "fp32") if tuple(capability) >= (5, 3) else ("fp32",)


def dtypes_of_architecture(name: str) -> tuple[Dtype, ...] | None:
    """By the architecture nvidia-smi names; None for one that is not known."""
    capability = _ARCHITECTURES.get(name)
    return dtypes_of(capability) if capability else None
