"""Forks the ranks of one layout after another from a process that has verl and Megatron-Core imported: importing takes longer than
training, and a fork starts each layout without the process groups of the last.

``python -m tests.stages.train.engine_ranks``: a layout as a JSON line on standard input, ``FOUND`` or ``FAILED`` and JSON on standard output.
FSDP2's ranks are forked from a fork made before Megatron's stand-in for CUDA is in place, which transformers cannot load a model under.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
import threading
import traceback
import uuid
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

DEADLINE_S = 120.0


def main() -> None:
    warnings.filterwarnings("ignore")
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(1)
    from stages.train.engines.verl import plugin_cpu
    from tests.stages.train import engine_rank  # noqa: F401  what all ranks import, before the first fork

    models: dict[str, Any] = {}
    plain, there = multiprocessing.get_context("fork").Pipe()
    multiprocessing.get_context("fork").Process(target=_serve, args=(there, plain, models)).start()
    there.close()
    plugin_cpu.load_megatron()
    for line in sys.stdin:
        settings = json.loads(line)
        if settings["backend"] == "megatron":
            found, failed = _run(settings, models)
        else:
            plain.send(settings)
            found, failed = plain.recv()
        out.write(f"FAILED {json.dumps(failed)}\n" if failed or not found else f"FOUND {json.dumps(found)}\n")
    plain.close()


def _serve(asked: Connection, other: Connection, models: dict[str, Any]) -> None:
    other.close()
    with contextlib.suppress(EOFError):
        while True:
            asked.send(_run(asked.recv(), models))


def _run(settings: dict[str, Any], models: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """Figures of the ranks that have them, and what went wrong, by rank. ``models``: configurations, read once for all ranks."""
    from tests.stages.train import engine_rank

    if settings["model"] not in models:
        models[settings["model"]] = engine_rank.read_model(settings)
    if threading.active_count() > 1:
        raise RuntimeError(f"a fork would lose threads: {[t.name for t in threading.enumerate()]}")
    context = multiprocessing.get_context("fork")
    world = len(settings["shares"]) * settings["pp"] * settings["tp"]
    meeting = Path(settings["workdir"]) / f"meeting-{uuid.uuid4()}"
    ranks = []
    for rank in range(world):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_rank, args=(settings, models[settings["model"]], rank, world, meeting, sender))
        process.start()
        sender.close()
        ranks.append((process, receiver))
    found, failed = [], []
    for rank, (process, receiver) in enumerate(ranks):
        kind, value = "failed", f"did not answer within {DEADLINE_S:g} s"
        with contextlib.suppress(EOFError):
            if not failed and receiver.poll(DEADLINE_S):
                kind, value = receiver.recv()
        if kind == "failed":
            failed.append(f"rank {rank}: {value}")
            process.kill()
        elif value is not None:
            found.append(value)
    for process, _ in ranks:
        process.join()
    return found, failed


def _rank(settings: dict[str, Any], model: Any, rank: int, world: int, meeting: Path, answer: Connection) -> None:
    import torch

    from tests.stages.train import engine_rank

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0"}
    try:
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
        found = engine_rank.CALLS[settings["call"]](settings, model)
        torch.distributed.barrier()
        answer.send(("found", found))
    except BaseException:
        answer.send(("failed", traceback.format_exc()[-2000:]))


if __name__ == "__main__":
    main()
