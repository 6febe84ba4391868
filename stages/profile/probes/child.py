"""The probe's side of the conversation with :class:`stages.profile.probes.launch.Probe`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, TextIO

GRACE_S = 2.0


_out: list[TextIO] = []
"""Where answers go: what was standard output when :func:`run` began."""


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=_out[0], flush=True)


def wait_for_go() -> str:
    """Block until the parent says go, and return what it said; end when it is gone."""
    word = sys.stdin.readline()
    if not word:
        sys.exit(1)
    return word.strip()


def run(main: Callable[[argparse.Namespace], None], parser: argparse.ArgumentParser) -> None:
    """Parse, arm the deadline, run. The alarm ends a probe whose parent died before it could."""
    parser.add_argument("--deadline", type=float, default=60.0, metavar="S", help="end by then, whatever happens")
    arguments = parser.parse_args()
    _claim_stdout()
    signal.setitimer(signal.ITIMER_REAL, arguments.deadline + GRACE_S)
    try:
        main(arguments)
    except Exception as error:  # whatever a driver or a library throws is an answer to the parent, in one line
        say({"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else 'no message'}"})
        sys.exit(1)


def _claim_stdout() -> None:
    """Keep standard output for answers: what libraries print goes to standard error."""
    _out.append(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
