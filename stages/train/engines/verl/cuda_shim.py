"""Let code that hard-wires ``torch.cuda`` (Megatron-Core) run on a torch without CUDA: streams and events that do nothing, tensors
asked for on ``cuda`` made on the CPU.

The tensor factories are wrapped rather than a ``TorchFunctionMode`` pushed, because a mode belongs to one thread and Ray's actors
run their methods in several.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

import torch

FACTORIES = (
    "empty", "zeros", "ones", "full", "tensor", "arange", "rand", "randn", "randint", "randperm", "as_tensor", "linspace",
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like",
)
_MEMORY = 1 << 35
_installed = False


class NoStream:
    """A CUDA stream on a machine without any: work is done when the call returns."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def _nothing(self, *_: Any, **__: Any) -> None:
        return None

    wait_stream = wait_event = synchronize = _nothing

    def record_event(self, event: NoEvent | None = None) -> NoEvent:
        return event or NoEvent()

    def query(self) -> bool:
        return True

    def __enter__(self) -> NoStream:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, 0


class NoEvent:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def _nothing(self, *_: Any, **__: Any) -> None:
        return None

    record = wait = synchronize = _nothing

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 0.0


def install() -> None:
    """Patch this process, once. Only for a torch without CUDA.

    Raises:
        RuntimeError: this torch has CUDA; patching it would hide real devices.
    """
    global _installed
    if _installed:
        return
    if torch.cuda.is_available():
        raise RuntimeError("the CUDA shim is for machines without CUDA; this one has it")
    _installed = True
    _patch_cuda()
    _patch_tensors()


def _patch_cuda() -> None:
    cuda: Any = torch.cuda
    cpu = torch.device("cpu")
    stream = NoStream()

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def constant(value: Any) -> Callable[..., Any]:
        return lambda *_, **__: value

    for name in ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "manual_seed_all"):
        setattr(cuda, name, nothing)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, constant(0))
    cuda.current_device, cuda.device_count = constant(cpu), constant(1)
    cuda.Stream, cuda.Event = NoStream, NoEvent
    cuda.current_stream = cuda.default_stream = constant(stream)
    cuda.stream = lambda *_, **__: contextlib.nullcontext()
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = cuda.random.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    cuda.manual_seed = lambda seed: torch.default_generator.manual_seed(seed)
    cuda.default_generators = [torch.default_generator]
    cuda.mem_get_info = constant((_MEMORY // 2, _MEMORY))
    cuda.get_device_capability, cuda.get_device_name = constant((8, 0)), constant("cpu")
    properties = types.SimpleNamespace(name="cpu", major=8, minor=0, multi_processor_count=1, total_memory=_MEMORY)
    cuda.get_device_properties = constant(properties)


def _patch_tensors() -> None:
    tensor: Any = torch.Tensor
    to, kind = tensor.to, tensor.type
    tensor.cuda = lambda self, *_, **__: self
    torch.nn.Module.cuda = lambda self, *_, **__: self  # type: ignore[method-assign,assignment]
    tensor.record_stream = lambda self, *_: None
    tensor.pin_memory = lambda self, *_, **__: self
    tensor.to = lambda self, *args, **kwargs: to(self, *map(_on_cpu, args), **{k: _on_cpu(v) for k, v in kwargs.items()})
    # Megatron compares type names ("torch.cuda.BFloat16Tensor"), so names are given as on CUDA.
    tensor.type = lambda self, *args, **kwargs: (
        kind(self, *args, **kwargs) if args or kwargs else kind(self).replace("torch.", "torch.cuda.", 1))
    for name in FACTORIES:
        setattr(torch, name, _made_on_cpu(getattr(torch, name)))


def _on_cpu(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("cuda"):
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


def _made_on_cpu(factory: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _on_cpu(kwargs["device"])
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return factory(*args, **kwargs)

    return make
