"""Surveys a live Ray cluster as its driver, in a process of its own: Ray retries for minutes, takes over signals, and can hang."""

from __future__ import annotations

import argparse
from typing import Any

import psutil

from artifacts.errors import HetrlError, RunnerUnavailable
from stages.profile.fleet.findings import encode
from stages.profile.fleet.nodes import machine_nodes
from stages.profile.fleet.rounds import Budget
from stages.profile.fleet.survey import Request, Survey
from stages.profile.probes.child import run, say


def main(arguments: argparse.Namespace) -> None:
    try:
        _survey(arguments)
    except HetrlError as error:
        say({"error": error.kind, "message": error.message, "fix": error.fix})
        return
    say({"end": True})


def _survey(arguments: argparse.Namespace) -> None:
    import ray

    _connect(arguments.address)
    try:
        nodes, notes = machine_nodes(ray.nodes())
        budget = Budget(bandwidth_s=arguments.bandwidth_seconds, latency_s=arguments.latency_seconds, network_s=arguments.network_seconds)
        request = Request(device_seconds=arguments.device_seconds, budget=budget, shares=arguments.shares, deadline_s=arguments.deadline)
        Survey(nodes, notes, request, emit=lambda event: say(encode(event))).run()
    finally:
        ray.shutdown()


def _connect(address: str) -> None:
    import ray
    from ray._private import ray_constants

    options: dict[str, Any] = {}
    if address != "auto" and (own := _loopback_node(address)):
        # Ray turns a loopback address into the machine's own, where such nodes do not listen, unless told it is single-host.
        ray_constants.ENABLE_RAY_CLUSTER = False
        options = {"_node_ip_address": own}
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise RunnerUnavailable(f"cannot join the Ray cluster at {address} from here: {str(error).strip().splitlines()[0]}",
                                fix="run this on a machine that has a Ray node of that cluster, and check with `ray status`") from None


def _loopback_node(address: str) -> str:
    """The loopback address of a node of the cluster on this machine, or "" where its nodes listen on real ones."""
    import ray._raylet

    raylet: Any = ray._raylet
    listening = {n.node_manager_address for n in raylet.GcsClient(address=address).get_all_node_info().values()}
    loopback = sorted(a for a in listening if a.startswith("127.") or a == "::1")
    here = {a.address for addresses in psutil.net_if_addrs().values() for a in addresses}
    return loopback[0] if loopback and not (listening - {*loopback}) & here else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--device-seconds", type=float, default=4.5)
    parser.add_argument("--bandwidth-seconds", type=float, default=1.5)
    parser.add_argument("--latency-seconds", type=float, default=0.3)
    parser.add_argument("--network-seconds", type=float, default=200.0)
    parser.add_argument("--shares", type=int, default=None)
    run(main, parser)
