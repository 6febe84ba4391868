"""What the engine needs of a machine's GPUs, tried one by one: ``python -m stages.train.gpu_check`` (``hetrl doctor --gpu``).

One JSON object a check on standard output: name, ok, found, mend. Every check runs in a process of its own with a deadline: a driver in
trouble hangs or kills whoever asks it. Exit status 0 when all are well. Written without a GPU at hand: only its refusals have been seen.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

DEADLINE_S = 120.0


@dataclass(frozen=True)
class Check:
    """``mend`` is for where it is not ok."""

    name: str
    ok: bool
    found: str
    mend: str = ""


def _driver() -> Check:
    import pynvml

    pynvml.nvmlInit()
    names = [pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]
    return Check("driver", bool(names), f"{pynvml.nvmlSystemGetDriverVersion()}: {', '.join(names) or 'no GPU'}",
                 "pass the GPUs to this container")


def _torch() -> Check:
    import torch

    found = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return Check("torch", found, f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}, {torch.cuda.device_count()} GPUs"
                 + ("" if found or not torch.cuda.is_available() else " without bf16"), "install a CUDA build of torch")


def _matmul() -> Check:
    """What profile would measure, roughly: the rate of one large multiplication on each GPU."""
    import torch

    rates = []
    for index in range(torch.cuda.device_count()):
        a = torch.randn(8192, 8192, device=f"cuda:{index}", dtype=torch.bfloat16)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.device(index):
            for _ in range(3):
                a @ a
            start.record()
            for _ in range(10):
                a @ a
            end.record()
            torch.cuda.synchronize()
        rates.append(10 * 2 * 8192**3 / (start.elapsed_time(end) / 1e3) / 1e12)
    return Check("bf16", bool(rates), "TFLOP/s: " + (", ".join(f"{rate:.0f}" for rate in rates) or "no GPU to ask"), "see nvidia-smi")


def _nccl() -> Check:
    import torch

    count = torch.cuda.device_count()
    if not count:
        return Check("nccl", False, "no GPU to ask", "see the driver")
    context = torch.multiprocessing.spawn(_nccl_rank, args=(count,), nprocs=count, join=False)
    until = time.monotonic() + DEADLINE_S / 2
    while not context.join(timeout=1):  # raises what a rank raised
        if time.monotonic() > until:
            raise TimeoutError(f"an all-reduce over {count} GPUs did not end")
    return Check("nccl", True, f"{'.'.join(map(str, torch.cuda.nccl.version()))}, all-reduce over {count} GPUs")


def _nccl_rank(rank: int, count: int) -> None:
    import torch

    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method="tcp://127.0.0.1:29517", rank=rank, world_size=count)
    value = torch.full((1,), float(rank), device="cuda")
    torch.distributed.all_reduce(value)
    if value.item() != count * (count - 1) / 2:
        raise RuntimeError(f"the sum of the ranks is {value.item()}")


def _attention() -> Check:
    import transformer_engine
    import transformer_engine.pytorch

    return Check("attention", True, f"Transformer Engine {transformer_engine.__version__}")


def _engine() -> Check:
    from stages.train.engines.verl import versions

    versions.check()
    return Check("engine", True, ", ".join(f"{name} {version}" for name, version in versions.found().items()))


def _vllm() -> Check:
    from importlib.metadata import version

    return Check("vllm", True, version("vllm"))


CHECKS: dict[str, tuple[Callable[[], Check], str]] = {
    "driver": (_driver, "install the NVIDIA driver; in a container, pass the GPUs"),
    "torch": (_torch, "install a CUDA build of torch"),
    "bf16": (_matmul, "see nvidia-smi"),
    "nccl": (_nccl, "see what NCCL_DEBUG=INFO says"),
    "attention": (_attention, "pip install transformer-engine[pytorch], built for this CUDA"),
    "engine": (_engine, "pip install 'hetrl[engine-cuda]'"),
    "vllm": (_vllm, "pip install vllm, a release that verl 0.9.1 knows"),
}
"""Name → the check, and what to do where it fails with an error."""


def check_all() -> Iterator[Check]:
    """Each check's answer, as they come."""
    for name, (_, mend) in CHECKS.items():
        try:
            asked = subprocess.run([sys.executable, "-m", "stages.train.gpu_check", "--only", name], capture_output=True, text=True,
                                   timeout=DEADLINE_S, check=False)
        except subprocess.TimeoutExpired:
            yield Check(name, False, f"no answer within {DEADLINE_S:g} s", mend)
            continue
        lines = [line for line in asked.stdout.splitlines() if line.startswith("{")]
        last = (asked.stderr.strip().splitlines() or [f"ended with status {asked.returncode}"])[-1]
        yield Check(**json.loads(lines[-1])) if lines else Check(name, False, last, mend)


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--only":
        print(json.dumps(asdict(CHECKS[sys.argv[2]][0]())), flush=True)
        return
    well = True
    for check in check_all():
        well = well and check.ok
        print(json.dumps(asdict(check)), flush=True)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
