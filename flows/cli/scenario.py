"""``hetrl scenario``: the published network settings of the 64-GPU testbed, reconstructed, as a topology file."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console

from artifacts.errors import InputError
from artifacts.topology import Topology
from flows.alone import run_alone
from flows.graph import FILE
from flows.launch import make_runner

console = Console(stderr=True, soft_wrap=True, highlight=False)


def scenario(name: str = typer.Argument(..., help="single-region, multi-region-hybrid, multi-country or multi-continent."),
             out: Path = typer.Option(..., "--out", help="File for the topology."),
             as_json: bool = typer.Option(False, "--json", help="The last line on standard output is one JSON object.")) -> None:
    """Write the topology of a published setting. Its matrices were never printed: what is reconstructed, and by which rules, is said.

    Example: hetrl scenario multi-country --out topology.json
    """
    parameters = {"cluster": {"kind": "scenario", "name": name}}
    with run_alone("profile", {}, parameters, runner=make_runner("process"), on_event=lambda event: None) as made:
        summary, topology = made.summary, made.read(Topology)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(topology.to_json(), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}",
                         fix=f"give a file, for example {out.name or 'out'}/{FILE['topology']}") from None
    notes = [str(note) for note in summary.get("notes", [])]
    label = "reconstructed, not measured" if topology.cluster.reconstructed else "as described"
    console.print(f"{topology.cluster.name}: {len(topology.devices)} GPUs in {len(topology.machines)} machines, {label}", markup=False)
    for note in notes:
        console.print(f"  {note}", style="dim", markup=False)
    console.print(f"  {out}", markup=False)
    if as_json:
        typer.echo(json.dumps({"topology": str(out), "name": topology.cluster.name, "machines": len(topology.machines),
                               "devices": len(topology.devices), "fingerprint": topology.fingerprint,
                               "reconstructed": topology.cluster.reconstructed, "notes": notes}))
