"""``hetrl up``, ``hetrl down``, ``hetrl status``: the embedded services."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console

from flows.services import daemon, prefect
from flows.services.s3 import start_s3
from flows.services.state import embedded_s3, home, service_environment, store_url
from flows.services.sweep import sweep_all

console = Console(stderr=True)


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


def status(as_json: bool = typer.Option(False, "--json", help="One JSON object on the last line.")) -> None:
    """What is running and where to look.

    Example: hetrl status
    """
    server = embedded_s3()
    rows = {
        "s3": {"running": server is not None, "where": server.endpoint if server else "", "browse": server.browser if server else ""},
        "prefect": {"running": daemon.find(home(), prefect.SERVER) is not None,
                    "where": f"http://127.0.0.1:{prefect.PORT}" if prefect.healthy() else ""},
        "worker": {"running": daemon.find(home(), prefect.WORKER) is not None, "where": f"pool {prefect.POOL}"},
        "store": {"running": server is not None, "where": store_url() if server else (home() / "store").as_uri()},
    }
    for name, row in rows.items():
        console.print(f"{name:10} {'running' if row['running'] else 'not running':12} {row['where']}")
    if as_json:
        typer.echo(json.dumps(rows))

