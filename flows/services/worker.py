"""A Prefect worker whose runs end with it: ``python -m flows.services.worker --pool hetrl``, as infra/compose.yaml has it in a container.

Prefect's own worker leaves its runs going when it is stopped. In a container they would then be killed with it, and the stages they have
started in other containers would be nobody's. So: first no new run, then each run is ended and ends its stage, then what is left is swept;
and swept before the start, too, for an end that left no time for that.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from contextlib import suppress
from types import FrameType

import psutil

from flows.services.sweep import sweep_all

RUNS_END_S = 30.0
"""A stage has ten seconds to stop, then it is killed and removed; the run reports that, which takes the server an answer."""
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: what a worker that ended has left becomes a child of this process, and is found


def main() -> int:
    """The worker's exit status; 0 when it was asked to stop."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    _sweep()
    worker = subprocess.Popen([sys.executable, "-m", "prefect", "worker", "start", *sys.argv[1:]])
    asked: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if not asked:  # a second one would have it killed
            worker.terminate()
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    status = worker.wait()
    runs = psutil.Process().children(recursive=True)
    for run in runs:
        with suppress(psutil.NoSuchProcess):
            run.terminate()
    _, alive = psutil.wait_procs(runs, timeout=RUNS_END_S)
    for run in alive:
        with suppress(psutil.NoSuchProcess):
            run.kill()
    psutil.wait_procs(alive, timeout=5)
    _sweep()
    return 0 if asked else status


def _sweep() -> None:
    for what in sweep_all():
        print(f"swept {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
