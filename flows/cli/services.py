"""``hetrl up``, ``hetrl down``, ``hetrl status``: the embedded services."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from artifacts.errors import StoreError
from artifacts.store import Store, is_held, open_store
from flows.launch.processes import marked
from flows.services import daemon, prefect
from flows.services.s3 import start_s3
from flows.services.state import embedded_s3, home, service_environment, store_url
from flows.services.sweep import sweep_all
from flows.session import default_store

console = Console(stderr=True, soft_wrap=True, highlight=False)


def up(port: int = typer.Option(prefect.PORT, help="Port of the Prefect server."),
       s3_port: int = typer.Option(8333, help="Port of the S3 server; 0: any free one.")) -> None:
    """Start the S3 server, the Prefect server and a worker with the deployments; those that run already are left alone.

    Example: hetrl up && prefect deployment run hetrl/train --watch
    """
    root = Path.cwd()
    with console.status("starting the S3 server …"):
        server = embedded_s3() or start_s3(home() / "s3", port=s3_port)
    console.print(f"S3 server       {server.endpoint}   browse {server.browser}")
    with console.status("starting the Prefect server …"):
        prefect.start_server(port)
    console.print(f"Prefect server  http://127.0.0.1:{port}")
    with console.status("deploying the flow …"):
        prefect.deploy(root, port)
    swept = sweep_all()
    with console.status("starting a worker …"):
        prefect.start_worker(root, {**service_environment(server), "HETRL_STORE": store_url(), "HETRL_HOME": str(home())}, port)
    console.print(f"worker          pool {prefect.POOL}" + (f"   (swept {len(swept)} left-over stages)" if swept else ""))
    api = "" if port == prefect.PORT else f"PREFECT_API_URL={prefect.api_url(port)} "
    console.print(f"\nnow:  {api}prefect deployment run hetrl/train --watch\nstop: hetrl down")


def down() -> None:
    """Stop what ``hetrl up`` started, and what crashed runs left behind. The data stays.

    Example: hetrl down
    """
    for name in (prefect.WORKER, prefect.SERVER):
        running = daemon.find(home(), name)
        console.print(f"{name:15} {'stopped' if running and running.stop() else 'was not running'}")
    server = embedded_s3()
    console.print(f"{'s3':15} {'stopped' if server and server.stop() else 'was not running'}")
    for what in sweep_all():
        console.print(f"swept {what}")


def status(store: str = typer.Option("", "--store", help="file:///… or s3://… Default: as for hetrl run."),
           pipeline: str = typer.Option("hetrl", "--pipeline", help="Name of the pipeline in the store."),
           as_json: bool = typer.Option(False, "--json", help="One JSON object on the last line.")) -> None:
    """What runs here, who holds which cluster, the latest versions, and where to look.

    Example: hetrl status --json
    """
    server = embedded_s3()
    rows = {
        "s3": {"running": server is not None, "where": server.endpoint if server else "", "browse": server.browser if server else ""},
        "prefect": {"running": daemon.find(home(), prefect.SERVER) is not None,
                    "where": f"http://127.0.0.1:{prefect.PORT}" if prefect.healthy() else ""},
        "worker": {"running": daemon.find(home(), prefect.WORKER) is not None, "where": f"pool {prefect.POOL}"},
    }
    for name, row in rows.items():
        console.print(f"{name:10} {'running' if row['running'] else 'not running':12} {row['where']}")
    stages = sorted({(mark.stage, mark.run_id) for _, mark in marked()})
    for stage, run_id in stages:
        console.print(f"stage      {stage} of run {run_id} runs on this machine", markup=False)
    seen = look_at(open_store(store or default_store(), pipeline=pipeline))
    console.print(f"store      {seen['url']}/{pipeline}", markup=False)
    for lease in seen["leases"]:
        who = f"{lease['holder']} (run {lease['run_id']})"
        console.print(f"cluster    {lease['cluster']} is held by {who} until {lease['until']}", markup=False)
    for stage, version in seen["latest"].items():
        console.print(f"latest     {stage}@{version['version'][:10]}  {version['when']}", markup=False)
    if "validate" in seen["latest"]:
        console.print("look       hetrl report; hetrl artifacts ls")
    if as_json:
        typer.echo(json.dumps({**rows, "store": {"running": server is not None, "where": seen["url"]}, "leases": seen["leases"],
                               "latest": seen["latest"], "stages": [{"stage": stage, "run_id": run_id} for stage, run_id in stages]}))


def look_at(opened: Store) -> dict[str, Any]:
    """``leases`` that keep others out now, and by stage the ``latest`` version with its time; a damaged one says so in its place."""
    leases, latest = [], {}
    for cluster in opened.clusters():
        record = opened.lease(cluster)
        if record is not None and is_held(record, datetime.now(UTC)):
            leases.append({"cluster": cluster, "holder": record.holder, "run_id": record.run_id, "until": _when(record.expires_at)})
    for stage in opened.stages():
        if ref := opened.latest(stage):
            try:
                when = _when(opened.manifest(ref).producer.finished_at)
            except StoreError as error:
                when = error.message
            latest[stage] = {"version": ref.version, "when": when}
    return {"url": opened.url, "leases": leases, "latest": latest}


def _when(moment: datetime) -> str:
    return moment.astimezone().isoformat(sep=" ", timespec="seconds")
