"""``hetrl lab``: a heterogeneous cluster on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console

from flows.lab import lab
from flows.lab.spec import read_lab

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)

JSON = typer.Option(False, "--json", help="The last line on standard output is one JSON object.")


@app.command()
def up(spec: Path = typer.Argument(..., help="The lab's YAML (example: infra/lab/two-regions.yaml)."), as_json: bool = JSON) -> None:
    """Make a Ray cluster of containers with the quotas, limits and links that a YAML says. Needs root and Docker.

    Example: hetrl lab up infra/lab/two-regions.yaml && hetrl profile --cluster lab --out out/
    """
    wanted = read_lab(spec)
    with console.status(f"bringing up lab {wanted.name} …"):
        state = lab.up(wanted, say=console.print)
    for machine in wanted.machines:
        console.print(f"{machine.name:16} {state.addresses[machine.name]:15} {machine.cpus:g} cores, {machine.memory_gib:g} GiB"
                      + (f", {machine.region}" if machine.region else ""))
    console.print(f"\nRay: {state.address}\nnow:  hetrl profile --cluster lab --out out/\nstop: hetrl lab down")
    if as_json:
        typer.echo(json.dumps({"name": wanted.name, "address": state.address, "machines": state.addresses}))


@app.command()
def down() -> None:
    """Remove the lab: containers, network, router, devices, files. Also what a crash left behind. Needs root.

    Example: hetrl lab down
    """
    with console.status("removing the lab …"):
        removed = lab.down()
    for what in removed:
        console.print(f"removed {what}")
    if not removed:
        console.print("no lab is up")


@app.command()
def status(as_json: bool = JSON) -> None:
    """What of the lab runs.

    Example: hetrl lab status
    """
    found = lab.status()
    name = found.state.spec.name if found.state else ""
    if not (name or found.machines or found.head or found.router):
        console.print("no lab is up")
    else:
        console.print(f"lab {name or '(unknown)'}: {'up' if found.whole else 'not whole; type: hetrl lab down'}")
        for part, state in {**found.machines, "Ray's head": found.head, "router": found.router}.items():
            console.print(f"  {part:16} {state if isinstance(state, str) else 'running' if state else 'not running'}")
    if as_json:
        typer.echo(json.dumps({"name": name, "up": found.whole, "address": found.state.address if found.state else "",
                               "machines": found.machines, "head": found.head, "router": found.router}))
