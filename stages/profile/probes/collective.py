"""All-reduce among several processes: whether the sum is right on every rank, and how long it takes, for each group size.

Rank r contributes (r + 1) times a pattern of small integers, so that the sum is exact in float32 and every element can be checked.
Rank 0 says the port of its store; the other ranks are told it when they are told to go.
Gloo is bound to the address it is given: left alone it takes what the host's name resolves to, often a loopback address.
"""

from __future__ import annotations

import argparse
import socket
import time
from datetime import timedelta
from typing import Any

from stages.profile.probes.child import run, say, wait_for_go
from stages.profile.probes.timing import Timing

PATTERN = 97
MAX_RANKS = 512
"""The pattern times the sum over as many ranks stays below 2^24, where float32 ends to count one by one."""
MIN_REPETITIONS, MAX_REPETITIONS = 5, 200


def main(arguments: argparse.Namespace) -> None:
    import torch
    from torch.distributed import PrefixStore, TCPStore

    rank, world = arguments.rank, arguments.world
    if world > MAX_RANKS:
        raise ValueError(f"{world} ranks: at most {MAX_RANKS} can be summed exactly")
    timeout = timedelta(seconds=arguments.deadline)
    if rank == 0:
        with socket.create_server((arguments.host, 0)) as listening:
            port = listening.getsockname()[1]
            store = TCPStore(arguments.host, port, world, is_master=True, timeout=timeout, wait_for_workers=False,
                             master_listen_fd=listening.detach())
        say({"port": port})
        wait_for_go()
    else:
        say({"ready": True})
        store = TCPStore(arguments.master, int(wait_for_go()), world, is_master=False, timeout=timeout, wait_for_workers=False)
    torch.set_num_threads(1)
    groups = []
    for size in sorted({*arguments.sizes, world}):
        if rank < size:
            group = _open(arguments.backend, PrefixStore(f"group-{size}", store), rank, size, arguments.host, timeout)
            groups.append(_reduce(group, PrefixStore(f"count-{size}", store), rank=rank, size=size, elements=arguments.bytes // 4,
                                  device=arguments.device, seconds=arguments.seconds))
    say({"groups": groups})
    PrefixStore("end", store).add("done", 1)
    if rank == 0:  # the store is in this process: it must outlive the others' last word
        while PrefixStore("end", store).add("done", 0) < world:
            time.sleep(0.01)


def _open(backend: str, store: Any, rank: int, size: int, host: str, timeout: timedelta) -> Any:
    from torch import distributed

    if backend == "nccl":
        nccl: Any = distributed.ProcessGroupNCCL  # written against PyTorch's interface: no two GPUs were at hand to try it on
        return nccl(store, rank, size, nccl.Options())
    gloo: Any = distributed.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=host)]
    options._timeout = timeout
    return gloo(store, rank, size, options)


def _reduce(group: Any, counts: Any, *, rank: int, size: int, elements: int, device: str, seconds: float) -> dict[str, Any]:
    """``wrong``: how many elements of the first sum are not what they should be. Seconds are this rank's, of one all-reduce."""
    import torch

    pattern = (torch.arange(elements, dtype=torch.float32) % PATTERN).to(device)
    data = pattern * (rank + 1)
    group.allreduce([data]).wait()
    wrong = int((data != pattern * (size * (size + 1) // 2)).sum())
    data.zero_()  # what is summed many times must stay finite
    took = _once(group, data)
    if rank == 0:
        counts.set("repetitions", str(max(MIN_REPETITIONS, min(MAX_REPETITIONS, int(seconds / took)))))
    samples = [_once(group, data) for _ in range(int(counts.get("repetitions")))]
    timing = Timing.of(samples)
    return {"size": size, "wrong": wrong, "bytes": 4 * elements, "seconds": timing.seconds, "quick_s": timing.quick_s,
            "spread": timing.spread, "samples": timing.samples}


def _once(group: Any, data: Any) -> float:
    start = time.perf_counter()
    group.allreduce([data]).wait()
    if data.is_cuda:
        import torch

        torch.cuda.synchronize()
    return max(time.perf_counter() - start, 1e-9)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="sizes of the groups (the first ranks of the world each)")
    parser.add_argument("--host", default="127.0.0.1", help="this rank's address")
    parser.add_argument("--master", default="127.0.0.1", help="rank 0's address")
    parser.add_argument("--backend", choices=["gloo", "nccl"], default="gloo")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--bytes", type=int, default=4 << 20)
    parser.add_argument("--seconds", type=float, default=0.3, help="time to repeat a group's all-reduce")
    run(main, parser)
