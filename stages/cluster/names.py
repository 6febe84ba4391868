"""Where local nodes listen, and the custom resources by which Ray nodes say which machine they are and what devices they have."""

from __future__ import annotations

LOOPBACK = "127.0.0.1"
MACHINE, DEVICE = "machine:", "device:"
# Ray counts resources in steps of 1e-4; a bundle takes one step of its machine, so the machine never runs out.
MACHINE_AMOUNT, MACHINE_SHARE = 1.0, 1e-4
# What an actor takes of its bundle's device to prove that it has it.
DEVICE_SHARE = 1e-2


def machine_resource(machine: str) -> str:
    return MACHINE + machine


def device_resource(device: str) -> str:
    return DEVICE + device
