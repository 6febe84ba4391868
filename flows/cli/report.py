"""``hetrl report``: the latest run, in the terminal and as a page."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from artifacts.errors import InputError
from artifacts.store import open_store
from flows.cli.summary import print_documents
from flows.session import default_store
from flows.upstream import Upstream

console = Console(soft_wrap=True, highlight=False)


def report(out: Path = typer.Option(Path(".hetrl/report.html"), "--out", help="Where to write the page."),
           store: str = typer.Option("", "--store", help="file:///… or s3://… Default: as for hetrl run."),
           pipeline: str = typer.Option("hetrl", "--pipeline", help="Name of the pipeline in the store.")) -> None:
    """What the latest run planned, what happened, how far off the prediction was; and its page, written to a file.

    Example: hetrl report --out report.html
    """
    opened = open_store(store or default_store(), pipeline=pipeline)
    upstream = Upstream(opened)
    known = upstream.all_of("validate")
    if not known:
        raise InputError(f"there is no validated run in {opened.url}/{pipeline}", fix="hetrl run")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        opened.read_file(known["validation"], "report.html", out)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}", fix="choose another place with --out") from None
    print_documents(opened, known, console, look={"report": str(out.absolute())})
