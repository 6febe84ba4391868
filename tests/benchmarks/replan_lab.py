"""The story of a re-plan with a training going on, in the lab: ``sudo python -m tests.benchmarks.replan_lab``.

A training runs on three machines. One of them is killed under it: the run fails in one line, its checkpoints stay. The next run profiles what
is left, plans from the plan that was in force, deploys, and trains on from the last checkpoint. It is stopped, the machine is put back with a
slower link to it, and the same again, to the end. Prints both plan diffs; exit status 1 when a training did not go on from where it was. While an engine
starts and in its first iteration the machines have no quotas; it is about twenty minutes in all.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from artifacts.errors import HetrlError
from artifacts.invocation import Log, Outcome, Progress
from artifacts.plan import Plan
from artifacts.plan_diff import working_devices
from artifacts.throughput import Throughput
from flows.lab import lab
from flows.lab.machines import LABEL, MACHINE_LABEL
from flows.lab.spec import read_lab
from flows.lab.state import lab_identity
from flows.launch.engine import connect
from flows.pipeline import Pipeline
from flows.replan import compare, plan_in_force
from flows.session import RunRequest, new_run_id, open_run
from tests.benchmarks.on_the_lab import limit

ROOT = Path(__file__).parents[2]
MACHINES = {"near-fast": "near", "near-slow": "near", "far-fast": "far"}
CPUS = {"near-fast": 0.5, "near-slow": 0.25, "far-fast": 0.5}
OnEvent = Callable[[str, Log | Progress | Outcome], None]


def spec(folder: Path, machines: list[str], *, far_mbit_per_s: int) -> Path:
    lines = ["name: replan", "machines:", *(f"- {{name: {m}, region: {MACHINES[m]}, cpus: {CPUS[m]}, memory_gib: 3}}" for m in machines), "links:"]
    lines += ["- {between: [near, near], latency_ms: 1, bandwidth_mbit_per_s: 300}"]
    if "far-fast" in machines:
        lines += [f"- {{between: [near, far], latency_ms: 15, bandwidth_mbit_per_s: {far_mbit_per_s}}}"]
    path = folder / "replan.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(store: str, iterations: int, *, on_event: OnEvent) -> Pipeline:
    """All stages until train, as a re-plan does them; prints the plan diff where there is one."""
    overrides = (f"iterations={iterations}", "checkpoint_every=1")
    request = RunRequest(job=str(ROOT / "infra/jobs/tiny-grpo.yaml"), overrides=overrides, cluster="lab", store=store, until_stage="train", warm=True)
    pipeline = open_run(request, run_id=new_run_id())
    for stage in pipeline.options.selection.stages:
        before = plan_in_force(pipeline) if stage == "schedule" else None
        result = pipeline.step(stage, on_event)
        print(f"{stage}: {'hit' if result.hit else 'made'} {result.version} in {result.seconds:.0f} s ({result.reason})", flush=True)
        if before is not None and (replanned := compare(pipeline, before)):
            print(replanned.markdown)
    return pipeline


def resumed_step(pipeline: Pipeline) -> tuple[int, int]:
    """(iterations of the run before, iterations in all) of the latest training."""
    text = pipeline.store.read_bytes(pipeline.known["throughput"], "throughput.jsonl")
    log = Throughput.from_jsonl(text, where="throughput.jsonl")
    return log.header.resumed_step, len(log.iterations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=6)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hetrl-replan-") as name:
        folder = Path(name)
        store = (folder / "store").as_uri()
        try:
            told = story(folder, store, arguments.iterations)
        finally:
            lab.down()
    print(f"trained on from iteration {told.resumed} (killed after {told.killed}, stopped after {told.stopped} more), {told.done} in all")
    if not told.went_on(arguments.iterations):
        raise SystemExit("the training did not go on from where it was")


@dataclass(frozen=True)
class Told:
    """Iterations kept before the machine was killed, and more before the stop; from which the last run trained on; how many in all."""

    killed: int
    stopped: int
    resumed: int
    done: int

    def went_on(self, iterations: int) -> bool:
        return self.killed >= 1 <= self.stopped and self.resumed == self.killed + self.stopped and self.done == iterations


def story(folder: Path, store: str, iterations: int) -> Told:
    """Leaves the lab up."""
    lab.up(read_lab(spec(folder, list(MACHINES), far_mbit_per_s=100)), say=print)
    killed = _interrupted(store, iterations, after=2, by=lambda: _kill("far-fast"))
    lab.down()
    lab.up(read_lab(spec(folder, ["near-fast", "near-slow"], far_mbit_per_s=100)), say=print)
    stopped = _interrupted(store, iterations, after=2, by=_stop)
    lab.down()
    lab.up(read_lab(spec(folder, list(MACHINES), far_mbit_per_s=20)), say=print)
    pipeline = run(store, iterations, on_event=_quiet)
    resumed, done = resumed_step(pipeline)
    return Told(killed, stopped, resumed, done)


def _interrupted(store: str, iterations: int, *, after: int, by: Callable[[], None]) -> int:
    """Train until that many iterations are kept, and then do something that ends the training; how many were kept."""
    kept = 0

    def on_event(stage: str, event: Log | Progress | Outcome) -> None:
        nonlocal kept
        _quiet(stage, event)
        if isinstance(event, Log) and event.message.startswith("checkpoint after iteration"):
            kept += 1
            if kept == after:
                by()

    started = time.monotonic()
    try:
        pipeline = run(store, iterations, on_event=on_event)
    except HetrlError as error:
        print(f"after {time.monotonic() - started:.0f} s and {kept} iterations: {error.line}")
        return kept
    used = {d.rpartition("-")[0] for d in working_devices(pipeline.store.read(pipeline.known["plan"], Plan))}
    raise SystemExit(f"the training was not interrupted: its plan is of {sorted(used)}")


def _stop() -> None:
    raise HetrlError("stopped, to plan with the machine that is back")


def _kill(machine: str) -> None:
    labels = [f"{LABEL}={lab_identity()}", f"{MACHINE_LABEL}={machine}"]
    for container in connect().containers.list(filters={"label": labels}):
        container.kill()


def _quiet(stage: str, event: Log | Progress | Outcome) -> None:
    if isinstance(event, Log) and event.level in ("warning", "error"):
        print(f"  [{stage}] {event.message}", flush=True)
    if stage == "train" and isinstance(event, Progress):
        limit(lifted=not event.message.startswith("iteration "))


if __name__ == "__main__":
    main()
