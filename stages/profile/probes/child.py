"""The probe's side of the conversation with :class:`stages.profile.probes.launch.Probe`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

GRACE_S = 2.0


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=_out, flush=True)


def wait_for_go() -> None:
    """Block until the parent says go; end when it is gone."""
    if not sys.stdin.readline():
        sys.exit(1)


def run(main: Callable[[argparse.Namespace], None], parser: argparse.ArgumentParser) -> None:
    """Parse, arm the deadline, run. The alarm ends a probe whose parent died before it could."""
    parser.add_argument("--deadline", type=float, default=60.0, metavar="S", help="end by then, whatever happens")
    arguments = parser.parse_args()
    signal.setitimer(signal.ITIMER_REAL, arguments.deadline + GRACE_S)
    try:
        main(arguments)
    except Exception as error:  # whatever a driver or a library throws is an answer to the parent, in one line
        say({"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else 'no message'}"})
        sys.exit(1)


def _claim_stdout() -> Any:
    """Keep standard output for answers: what libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out


_out = _claim_stdout()
