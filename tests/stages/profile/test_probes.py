"""Probes on this machine: what they measure, and how they end."""

from __future__ import annotations

import os
import time

import pytest

from stages.profile.probes.engines import NumpyCpu, TorchCpu, open_engine
from stages.profile.probes.launch import Probe, ProbeFailed
from stages.profile.probes.timing import MIN_SAMPLES, Timing, repeat

ENGINES = [NumpyCpu, TorchCpu]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_timing_is_the_median_and_ignores_a_single_interruption() -> None:
    timing = Timing.of([1.0] * 5 + [1.2] * 5 + [50.0])
    assert timing.seconds == 1.2
    assert timing.quick_s == 1.0
    assert timing.spread == pytest.approx(0.1 / 1.2)


def test_repeat_batches_short_work_and_takes_enough_samples() -> None:
    calls = []
    timing = repeat(lambda n: (calls.append(n), time.sleep(2e-4 * n))[0], time.perf_counter, budget_s=0.0)
    assert timing.samples >= MIN_SAMPLES
    assert max(calls) > 1, "one call of 0.2 ms is too short to time alone"
    assert 2e-4 <= timing.seconds < 2e-2


@pytest.mark.parametrize("engine_class", ENGINES)
def test_more_arithmetic_takes_longer(engine_class: type[NumpyCpu | TorchCpu]) -> None:
    pytest.importorskip("torch")
    engine = engine_class(1)
    times = [repeat(engine.matmul(256, width), engine.clock, budget_s=0.1).seconds for width in (128, 256, 512)]
    assert times[1] > 1.5 * times[0] and times[2] > 1.5 * times[1], "each width has four times the arithmetic of the one before"


@pytest.mark.parametrize("engine_class", ENGINES)
def test_reading_more_memory_takes_longer(engine_class: type[NumpyCpu | TorchCpu]) -> None:
    pytest.importorskip("torch")
    engine = engine_class(1)
    for operation in (engine.stream, engine.copy):
        small, large = (repeat(operation(size << 20), engine.clock, budget_s=0.1).seconds for size in (16, 64))
        assert large > 2 * small


def test_engine_of_the_cpu_is_torch_where_it_is_installed() -> None:
    pytest.importorskip("torch")
    assert open_engine("cpu", threads=1).name.startswith("torch ")


def test_cuda_engine_says_what_is_missing() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(RuntimeError, match="no CUDA device"):
        open_engine("cuda", threads=1)


def test_a_probe_that_does_not_answer_is_ended_at_its_deadline() -> None:
    start = time.monotonic()
    with Probe("network", ["--serve"], deadline_s=1.5) as probe:
        pid = probe._process.pid
        assert probe.read()["port"] > 0
        with pytest.raises(ProbeFailed, match=r"did not answer within 2 s|timed out"):
            probe.read()  # nobody connects
    assert time.monotonic() - start < 10
    assert not _alive(pid)


def test_a_probe_that_breaks_says_why() -> None:
    with Probe("network", ["--port", "1"], deadline_s=20) as probe, pytest.raises(ProbeFailed, match="probe network: ConnectionRefusedError"):
        probe.read()


def test_a_device_that_torch_cannot_open_is_a_line_not_a_traceback() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with (Probe("device", ["--device", "cuda", "--memory-bytes", "1"], deadline_s=60) as probe,
          pytest.raises(ProbeFailed, match="RuntimeError: this PyTorch sees no CUDA device")):
        probe.read()


def test_a_probe_left_alone_ends_with_its_parent() -> None:
    probe = Probe("network", ["--port", "1"], deadline_s=20)
    probe.close()
    probe.close()
    with pytest.raises(ProbeFailed, match="ended with status"):
        Probe.read(_closed_early())


def _closed_early() -> Probe:
    """A probe that was killed before it said anything."""
    probe = Probe("network", ["--serve"], deadline_s=20)
    probe._process.kill()
    probe._timer.cancel()
    return probe


def test_link_between_two_processes() -> None:
    with (Probe("network", ["--serve"], deadline_s=60) as server,
          Probe("network", ["--port", str(server.read()["port"]), "--seconds", "0.3"], deadline_s=60) as client):
        assert client.read() == {"ready": True}
        client.go()
        answer = client.read()
        messages = server.read()["messages"]
    assert 0 < answer["latency_s"] < 0.5
    assert answer["bandwidth_bytes_per_s"] > 1e7
    seconds = {p["size_bytes"]: p["quick_s"] for p in answer["points"]}
    assert seconds[8 << 20] > 2 * seconds[1 << 20] > seconds[64]
    assert messages == sum(p["samples"] + 1 for p in answer["points"]), "a warm-up a size, and every message was answered"
