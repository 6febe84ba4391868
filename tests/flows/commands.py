"""The command line's own parser, without running anything: is this a command as it stands?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from flows.cli.main import app


def leaves(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """'artifacts ls' → its command."""
    if isinstance(subcommands := getattr(command, "commands", None), dict):
        for name, one in subcommands.items():
            yield from leaves(one, f"{path} {name}".strip())
    else:
        yield path, command


def parses(arguments: list[str]) -> str:
    """'' when ``hetrl`` takes ``arguments``: names of options, their types, what is required; else what it says. Nothing is run."""
    command = typer.main.get_command(app)
    for _, leaf in leaves(command):
        leaf.callback = lambda **_: None
    try:
        command.main(args=arguments, prog_name="hetrl", standalone_mode=False)
    except Exception as error:
        if not any(kind.__name__ == "ClickException" for kind in type(error).__mro__):  # typer has a click of its own inside
            raise
        return f"hetrl {' '.join(arguments)}: {error.format_message() if hasattr(error, 'format_message') else error}"
    return ""
