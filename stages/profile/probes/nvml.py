"""Asks NVML in a process of its own: a driver in trouble hangs its callers."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from stages.profile.devices.nvidia import find, load_nvml
from stages.profile.probes.child import run, say


def main(_: argparse.Namespace) -> None:
    nvml = load_nvml()
    if nvml is None:
        say({"devices": [], "notes": ["an NVIDIA driver is here but nvidia-ml-py is not: install it to see the GPUs"]})
        return
    say(asdict(find(nvml)))


if __name__ == "__main__":
    run(main, argparse.ArgumentParser(description=__doc__))
