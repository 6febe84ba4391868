"""Asks amdsmi in a process of its own: a driver in trouble hangs its callers."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from stages.profile.devices.amd import find, load_amdsmi
from stages.profile.probes.child import run, say


def main(_: argparse.Namespace) -> None:
    amdsmi = load_amdsmi()
    if amdsmi is None:
        say({"devices": [], "notes": ["an AMD driver is here but amdsmi is not: install ROCm's Python package to see the GPUs"]})
        return
    say(asdict(find(amdsmi)))


if __name__ == "__main__":
    run(main, argparse.ArgumentParser(description=__doc__))
