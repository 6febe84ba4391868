"""Runs of a trivial stage in containers: ``python -m tests.benchmarks.container_churn --runs 1000``.

Says whether they left anything, and what the runner adds to a container's own time: the difference of the medians of its runs and of bare
containers of the same image in between. Exit status 1 when something was left or the overhead is above 1.5 s.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from artifacts.invocation import StageRequest
from flows.launch.docker_runner import DockerRunner
from flows.launch.engine import connect
from tests.flows.launch.churn import churn
from tests.flows.launch.docker_images import SETTINGS, build_image
from tests.flows.launch.tiny_stages import write_stages

OVERHEAD_S = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    arguments = parser.parse_args()
    engine = connect()
    with tempfile.TemporaryDirectory(prefix="churn-") as folder:
        code = Path(folder) / "code"
        code.mkdir()
        image = build_image(engine, write_stages(code))
        try:
            request = StageRequest(stage="good", store="s3://bucket/prefix", pipeline="p", version="v", run_id="churn", workdir=f"{folder}/work")
            done = churn(DockerRunner(settings=SETTINGS), engine, request, arguments.runs, bare_every=max(1, arguments.runs // 50),
                         on_run=lambda n: print(f"\r{n + 1}", end="", file=sys.stderr, flush=True))
        finally:
            engine.images.remove(image, force=True)
    run_s, bare_s = statistics.median(done.run_s), statistics.median(done.bare_s)
    print(f"\n{len(done.run_s)} runs, median {run_s:.2f} s; {len(done.bare_s)} bare containers, median {bare_s:.2f} s; overhead {run_s - bare_s:+.2f} s")
    left = {what: names for what, names in done.left.items() if names}
    print(f"left behind: {left or 'nothing'}")
    sys.exit(1 if left or run_s - bare_s > OVERHEAD_S else 0)


if __name__ == "__main__":
    main()
