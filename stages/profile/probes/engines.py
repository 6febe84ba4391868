"""What does the arithmetic of a device probe: PyTorch on a CPU or a CUDA device, or NumPy where PyTorch is not installed.

Every operation is given as ``work(n)``: do it n times, return when it is done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

from stages.profile.devices.nvidia import condition, load_nvml

Work = Callable[[int], None]

CPU_TOKENS = (16, 64, 256, 1024)
CPU_WIDTHS = (64, 128, 256, 512, 1024)
CUDA_TOKENS = (64, 256, 1024, 4096)
CUDA_WIDTHS = (1024, 4096, 8192)


class Engine(Protocol):
    """``stream`` reads a matrix once (as a decode step reads weights); ``copy`` moves a buffer from host memory to the device,
    ``copy_back`` the other way (None: its memory is the host's, so that would be the same again); ``interruptible``: other programs take
    time from what is measured, and its clock does not tell it apart; ``condition`` says at which clocks the device runs now, and what holds
    them down ("" where nobody says)."""

    name: str
    dtype: str
    tokens: tuple[int, ...]
    widths: tuple[int, ...]
    buffer_bytes: int
    counts_cpu_time: bool
    interruptible: bool
    clock_name: str

    def clock(self) -> float: ...
    def condition(self) -> str: ...
    def matmul(self, tokens: int, width: int) -> Work: ...
    def stream(self, size_bytes: int) -> Work: ...
    def copy(self, size_bytes: int) -> Work: ...
    def copy_back(self, size_bytes: int) -> Work | None: ...


class _Cpu:
    dtype = "fp32"
    tokens: tuple[int, ...] = CPU_TOKENS
    widths: tuple[int, ...] = CPU_WIDTHS
    buffer_bytes = 64 << 20

    def __init__(self, threads: int) -> None:
        self.counts_cpu_time = threads == 1
        self.interruptible = threads > 1
        self.clock_name = "CPU time" if threads == 1 else "wall time"
        self.clock = time.thread_time if threads == 1 else time.perf_counter

    def condition(self) -> str:
        return ""

    def copy_back(self, size_bytes: int) -> Work | None:
        return None


class TorchCpu(_Cpu):
    """float32 on a CPU share of ``threads`` threads."""

    def __init__(self, threads: int) -> None:
        import torch

        super().__init__(threads)
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self._torch: Any = torch
        self.name = f"torch {torch.__version__}"

    def matmul(self, tokens: int, width: int) -> Work:
        torch = self._torch
        a, b, out = torch.rand(tokens, width), torch.rand(width, width), torch.empty(tokens, width)

        def work(n: int) -> None:
            for _ in range(n):
                torch.mm(a, b, out=out)
        return work

    def stream(self, size_bytes: int) -> Work:
        torch = self._torch
        weights, x = torch.ones(size_bytes // 4096, 1024), torch.ones(1024)
        out = torch.empty(weights.shape[0])

        def work(n: int) -> None:
            for _ in range(n):
                torch.mv(weights, x, out=out)
        return work

    def copy(self, size_bytes: int) -> Work:
        source, target = self._torch.ones(size_bytes // 4), self._torch.empty(size_bytes // 4)

        def work(n: int) -> None:
            for _ in range(n):
                target.copy_(source)
        return work


class NumpyCpu(_Cpu):
    """The same with NumPy; its number of threads is set by the environment of the process."""

    def __init__(self, threads: int) -> None:
        import numpy

        super().__init__(threads)
        self._numpy: Any = numpy
        self.name = f"numpy {numpy.__version__}"

    def matmul(self, tokens: int, width: int) -> Work:
        numpy = self._numpy
        a, b = numpy.ones((tokens, width), "f4"), numpy.ones((width, width), "f4")
        out = numpy.empty((tokens, width), "f4")

        def work(n: int) -> None:
            for _ in range(n):
                numpy.matmul(a, b, out=out)
        return work

    def stream(self, size_bytes: int) -> Work:
        numpy = self._numpy
        weights, x = numpy.ones((size_bytes // 4096, 1024), "f4"), numpy.ones(1024, "f4")
        out = numpy.empty(len(weights), "f4")

        def work(n: int) -> None:
            for _ in range(n):
                numpy.dot(weights, x, out=out)
        return work

    def copy(self, size_bytes: int) -> Work:
        numpy = self._numpy
        source, target = numpy.ones(size_bytes // 4, "f4"), numpy.ones(size_bytes // 4, "f4")

        def work(n: int) -> None:
            for _ in range(n):
                numpy.copyto(target, source)
        return work


class TorchCuda:
    """bf16 (fp16 below compute capability 8.0) on the first CUDA device this process may see.

    Written against PyTorch's CUDA interface; the project's own tests have no GPU to run it on.
    """

    tokens: tuple[int, ...] = CUDA_TOKENS
    widths: tuple[int, ...] = CUDA_WIDTHS
    buffer_bytes = 2 << 30
    counts_cpu_time = False
    interruptible = False
    clock_name = "wall time, synchronised"

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("this PyTorch sees no CUDA device: install the CUDA build, and check CUDA_VISIBLE_DEVICES")
        torch.set_grad_enabled(False)
        self._torch: Any = torch
        self.dtype = "bf16" if torch.cuda.get_device_capability(0) >= (8, 0) else "fp16"
        self._type = torch.bfloat16 if self.dtype == "bf16" else torch.float16
        self.name = f"torch {torch.__version__}"

    def clock(self) -> float:
        self._torch.cuda.synchronize()
        return time.perf_counter()

    def condition(self) -> str:
        """Of NVIDIA's GPUs; the library that would tell of AMD's is not asked."""
        nvml, uuid = load_nvml(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return condition(nvml, uuid) if nvml is not None and uuid else ""

    def _rand(self, *shape: int) -> Any:
        return self._torch.rand(*shape, device="cuda", dtype=self._type)

    def matmul(self, tokens: int, width: int) -> Work:
        torch = self._torch
        a, b, out = self._rand(tokens, width), self._rand(width, width), self._rand(tokens, width)

        def work(n: int) -> None:
            for _ in range(n):
                torch.mm(a, b, out=out)
        return work

    def stream(self, size_bytes: int) -> Work:
        torch = self._torch
        weights, x = self._rand(max(size_bytes // (2 * 8192), 1), 8192), self._rand(8192)
        out = self._rand(weights.shape[0])

        def work(n: int) -> None:
            for _ in range(n):
                torch.mv(weights, x, out=out)
        return work

    def copy(self, size_bytes: int) -> Work:
        host, device = self._buffers(size_bytes)

        def work(n: int) -> None:
            for _ in range(n):
                device.copy_(host, non_blocking=True)
        return work

    def copy_back(self, size_bytes: int) -> Work:
        host, device = self._buffers(size_bytes)

        def work(n: int) -> None:
            for _ in range(n):
                host.copy_(device, non_blocking=True)
        return work

    def _buffers(self, size_bytes: int) -> tuple[Any, Any]:
        torch = self._torch
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True), torch.empty(size_bytes, dtype=torch.uint8, device="cuda")


def open_engine(device: str, *, threads: int) -> Engine:
    """The engine for a device. Raises ``RuntimeError`` where PyTorch sees no CUDA device."""
    if device == "cuda":
        return TorchCuda()
    try:
        return TorchCpu(threads)
    except ImportError:
        return NumpyCpu(threads)
