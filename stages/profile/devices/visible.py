"""Which devices a probe's process sees."""

from __future__ import annotations

from collections.abc import Sequence

from stages.profile.devices.found import FoundDevice


def visible(device: FoundDevice, devices: Sequence[FoundDevice]) -> dict[str, str]:
    """Environment of a process that is to see that one of a machine's ``devices`` and no other GPU.

    NVIDIA's go by their UUID. AMD's go by their place among AMD's, and ``CUDA_VISIBLE_DEVICES`` must not be there: ROCm reads it as well,
    and uses only what both name.
    """
    if device.vendor != "amd":
        return {"CUDA_VISIBLE_DEVICES": device.uuid if device.vendor == "nvidia" else ""}
    first = min(d.index for d in devices if d.vendor == "amd")
    return {"HIP_VISIBLE_DEVICES": str(device.index - first)}
