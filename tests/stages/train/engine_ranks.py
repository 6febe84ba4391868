"""Forks the ranks of one layout after another from a process that has verl and Megatron-Core imported: importing takes longer than
training, and a fork starts each layout without the process groups of the last.

``python -m tests.stages.train.engine_ranks megatron``: a layout as a JSON line on standard input, ``FOUND`` or ``FAILED`` and JSON on standard output.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
import threading
import traceback
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
    from tests.stages.train import engine_rank

    engine_rank.prepare(sys.argv[1])
    if threading.active_count() > 1:
        raise RuntimeError(f"a fork would lose threads: {[t.name for t in threading.enumerate()]}")
    for number, line in enumerate(sys.stdin):
        found, failed = _run(json.loads(line), number)
        out.write(f"FAILED {json.dumps(failed)}\n" if failed or found is None else f"FOUND {json.dumps(found)}\n")


def _run(settings: dict[str, Any], number: int) -> tuple[Any, list[str]]:
    """Figures of the rank that has them, and what went wrong, by rank."""
    context = multiprocessing.get_context("fork")
    world = len(settings["shares"]) * settings["pp"] * settings["tp"]
    meeting = Path(settings["workdir"]) / f"meeting-{number}"
    ranks = []
    for rank in range(world):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_rank, args=(settings, rank, world, meeting, sender))
        process.start()
        sender.close()
        ranks.append((process, receiver))
    found, failed = None, []
    for rank, (process, receiver) in enumerate(ranks):
        kind, value = "failed", f"did not answer within {DEADLINE_S:g} s"
        with contextlib.suppress(EOFError):
            if not failed and receiver.poll(DEADLINE_S):
                kind, value = receiver.recv()
        if kind == "failed":
            failed.append(f"rank {rank}: {value}")
            process.kill()
        elif value is not None:
            found = value
    for process, _ in ranks:
        process.join()
    return found, failed


def _rank(settings: dict[str, Any], rank: int, world: int, meeting: Path, answer: Connection) -> None:
    import torch

    from tests.stages.train import engine_rank

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0"}
    try:
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
        found = engine_rank.train(settings)
        torch.distributed.barrier()
        answer.send(("found", found))
    except BaseException:
        answer.send(("failed", traceback.format_exc()[-2000:]))


if __name__ == "__main__":
    main()
