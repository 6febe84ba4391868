"""Surveys a live Ray cluster as its driver, in a process of its own: Ray retries for minutes, takes over signals, and can hang."""

from __future__ import annotations

import argparse

from artifacts.errors import HetrlError
from stages.cluster.join import joined
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

    with joined(arguments.address):
        nodes, notes = machine_nodes(ray.nodes())
        budget = Budget(bandwidth_s=arguments.bandwidth_seconds, latency_s=arguments.latency_seconds, network_s=arguments.network_seconds)
        request = Request(device_seconds=arguments.device_seconds, budget=budget, shares=arguments.shares, deadline_s=arguments.deadline)
        Survey(nodes, notes, request, emit=lambda event: say(encode(event))).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--device-seconds", type=float, default=4.5)
    parser.add_argument("--bandwidth-seconds", type=float, default=1.5)
    parser.add_argument("--latency-seconds", type=float, default=0.3)
    parser.add_argument("--network-seconds", type=float, default=200.0)
    parser.add_argument("--shares", type=int, default=None)
    run(main, parser)
