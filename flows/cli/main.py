"""``hetrl``: the command line. A stage is reached as anyone reaches it, through its request."""

from __future__ import annotations

import os
import sys

import typer
from rich.console import Console

from artifacts.errors import HetrlError
from artifacts.version import hetrl_version
from flows.cli import artifacts, doctor, lab, plan, replay, report, run, scenario, services, simulate, stages

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None,
                  help="Plan, deploy and run RL post-training of LLMs on mixed GPU fleets. "
                       "Example: hetrl run --job infra/jobs/tiny-grpo.yaml")
app.command()(run.run)
app.command()(report.report)
app.command()(services.up)
app.command()(services.down)
app.command()(services.status)
app.command()(doctor.doctor)
app.command()(stages.profile)
app.command()(scenario.scenario)
app.command()(plan.schedule)
app.command()(plan.predict)
app.command()(simulate.simulate)
app.command()(stages.deploy)
app.command()(stages.train)
app.command()(stages.validate)
app.command()(replay.replay)
app.add_typer(lab.app, name="lab", help="A heterogeneous cluster on this machine, in containers.")
app.add_typer(artifacts.app, name="artifacts", help="Read the store: versions, lineage, differences, digests.")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hetrl {hetrl_version()}")
        raise typer.Exit


@app.callback()
def _options(version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version.")) -> None:
    pass


def main() -> None:
    """Entry point. Expected errors print one line and exit with their kind's status; bugs keep their traceback."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    try:
        app()
    except HetrlError as error:
        Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(f"hetrl: {error.line}")
        sys.exit(error.exit_status)
    except SystemExit as ended:
        if ended.code == 130:  # typer has made it of a KeyboardInterrupt
            Console(stderr=True, soft_wrap=True).print("hetrl: stopped; what was finished is in the store")
        raise


if __name__ == "__main__":
    main()
