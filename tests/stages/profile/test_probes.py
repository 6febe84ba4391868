"""Probes on this machine: what they measure, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from stages.profile.cgroup import cpu_used_s
from stages.profile.probes import device
from stages.profile.probes.engines import open_engine
from stages.profile.probes.launch import Probe, ProbeFailed
from stages.profile.probes.network import SIZES, MessagePoint, bandwidth
from stages.profile.probes.timing import MIN_SAMPLES, Timing, repeat


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
    calls: list[int] = []
    now = [0.0]

    def work(n: int) -> None:
        calls.append(n)
        now[0] += 1e-4 * n

    timing = repeat(work, lambda: now[0], budget_s=0.0)
    assert timing.samples >= MIN_SAMPLES
    assert timing.seconds == pytest.approx(1e-4) and timing.spread == pytest.approx(0)
    assert calls[-1] * 1e-4 >= 2e-3, "one call of 0.1 ms is too short to time alone"


def _seconds(engine: str, *operations: str) -> list[float]:
    """Seconds of each operation by an engine of one thread, in a process of its own (NumPy's threads are set when it is loaded)."""
    script = ("from stages.profile.probes.engines import NumpyCpu, TorchCpu\nfrom stages.profile.probes.timing import repeat\n"
              f"engine = {engine}(1)\n"
              + "".join(f"print(repeat(engine.{operation}, engine.clock, budget_s=0.2).quick_s)\n" for operation in operations))
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, env=env, check=True)
    return [float(line) for line in done.stdout.split()]


@pytest.mark.parametrize("engine", ["NumpyCpu", "TorchCpu"])
def test_more_work_takes_longer(engine: str) -> None:
    if engine == "TorchCpu":
        pytest.importorskip("torch")
    small, large, *memory = _seconds(engine, "matmul(256, 128)", "matmul(256, 512)", "stream(16 << 20)", "stream(64 << 20)",
                                     "copy(16 << 20)", "copy(64 << 20)")
    assert large > 4 * small, "sixteen times the arithmetic"
    assert memory[1] > 1.5 * memory[0] and memory[3] > 1.5 * memory[2], "four times the bytes"


def test_engine_of_the_cpu_is_torch_where_it_is_installed() -> None:
    pytest.importorskip("torch")
    assert open_engine("cpu", threads=1).name.startswith("torch ")


def test_cuda_engine_says_what_is_missing() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(RuntimeError, match="no CUDA device"):
        open_engine("cuda", threads=1)


@pytest.mark.parametrize(("sharing", "granted"), [(1, 0.5), (4, 0.125)])
def test_of_a_quota_the_device_has_what_its_group_was_granted(monkeypatch: pytest.MonkeyPatch, sharing: int, granted: float) -> None:
    """The kernel's counters are stood in for: throttled, and half the wall time granted to the group, of which this thread's part is small."""
    began = time.monotonic()
    counts = iter([3, 4])
    monkeypatch.setattr(device, "throttled_count", lambda: next(counts))
    monkeypatch.setattr(device, "cpu_used_s", lambda: (time.monotonic() - began) / 2)
    engine = open_engine("cpu", threads=1)
    monkeypatch.setattr(engine, "clock", lambda: (time.monotonic() - began) / 100)
    answer = device.measure(engine, seconds=0.3, memory_bytes=1 << 24, sharing=sharing)
    assert answer["granted"] == pytest.approx(granted, rel=0.01)


def test_what_a_device_gives_back_to_the_host_is_measured_where_it_has_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy within this machine stands in for a GPU's memory."""
    engine = open_engine("cpu", threads=1)
    assert device.measure(engine, seconds=0.2, memory_bytes=1 << 24)["back"] is None
    monkeypatch.setattr(engine, "copy_back", engine.copy)
    back = device.measure(engine, seconds=0.2, memory_bytes=1 << 24)["back"]
    assert isinstance(back, dict) and back["rate"] > 1e7 and back["samples"] >= MIN_SAMPLES and back["size"] == 1 << 20


def test_the_group_s_cpu_time_grows_with_what_its_processes_use() -> None:
    before, mine = cpu_used_s(), time.process_time()
    if before is None:
        pytest.skip("the kernel does not say how much CPU time this control group used")
    while time.process_time() - mine < 0.2:
        pass
    after = cpu_used_s()
    assert after is not None and after - before >= 0.19


def test_a_probe_that_does_not_answer_is_ended_at_its_deadline() -> None:
    with Probe("network", ["--serve"], deadline_s=300) as probe:
        pid = probe._process.pid
        assert probe.read()["port"] > 0
        probe.go(within_s=0.5)
        with pytest.raises(ProbeFailed, match="did not answer within 0 s"):
            probe.read()  # nobody connects
    assert not _alive(pid)


def test_a_probe_that_breaks_says_why() -> None:
    with Probe("network", ["--port", "1"], deadline_s=300) as probe, pytest.raises(ProbeFailed, match="probe network: ConnectionRefusedError"):
        probe.read()


def test_a_device_that_torch_cannot_open_is_a_line_not_a_traceback() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with (Probe("device", ["--device", "cuda", "--memory-bytes", "1"], deadline_s=300) as probe,
          pytest.raises(ProbeFailed, match="RuntimeError: this PyTorch sees no CUDA device")):
        probe.read()


def test_a_probe_left_alone_ends_with_its_parent() -> None:
    probe = Probe("network", ["--port", "1"], deadline_s=300)
    probe.close()
    probe.close()
    with pytest.raises(ProbeFailed, match="ended with status"):
        Probe.read(_closed_early())


def _closed_early() -> Probe:
    """A probe that was killed before it said anything."""
    probe = Probe("network", ["--serve"], deadline_s=300)
    probe._process.kill()
    probe._timer.cancel()
    return probe


def _points(*, bytes_per_s: float, round_trip_s: float, burst: int = 0) -> list[MessagePoint]:
    """What messages take over a link that lets ``burst`` bytes through at once."""
    seconds = [round_trip_s + max(0, size - burst) / bytes_per_s for size in SIZES]
    return [MessagePoint(size_bytes=n, seconds=s, quick_s=s, floor_s=s, spread=0, samples=9) for n, s in zip(SIZES, seconds, strict=True)]


@pytest.mark.parametrize("mbit", [10, 100, 1000])
@pytest.mark.parametrize("round_trip_ms", [0.1, 20, 120])
@pytest.mark.parametrize("burst", [0, 256 << 10])
def test_neither_delay_nor_a_shapers_burst_counts_in_the_bandwidth_of_a_slow_link(mbit: float, round_trip_ms: float, burst: int) -> None:
    points = _points(bytes_per_s=mbit * 1e6 / 8, round_trip_s=round_trip_ms / 1e3, burst=burst)
    assert bandwidth(points) * 8e-6 == pytest.approx(mbit, rel=0.01)


def test_a_quick_link_is_the_better_of_two_sizes() -> None:
    points = _points(bytes_per_s=5e9, round_trip_s=1e-5)
    interrupted = [*points[:-1], replace(points[-1], quick_s=points[-1].quick_s + 4e-3)]
    assert bandwidth(points) == pytest.approx(5e9, rel=1e-3) and bandwidth(interrupted) == pytest.approx(5e9, rel=1e-3)


def test_link_between_two_processes() -> None:
    with (Probe("network", ["--serve"], deadline_s=300) as server,
          Probe("network", ["--port", str(server.read()["port"]), "--seconds", "0.3"], deadline_s=300) as client):
        assert client.read() == {"ready": True}
        client.go()
        answer = client.read()
        messages = server.read()["messages"]
    seconds = {p["size_bytes"]: p["quick_s"] for p in answer["points"]}
    assert 0 < 2 * answer["latency_s"] == seconds[64]
    assert answer["bandwidth_bytes_per_s"] > (8 << 20) / seconds[8 << 20], "the delay of a message is no part of its bandwidth"
    assert seconds[8 << 20] > 2 * seconds[1 << 20] > seconds[64]
    assert messages == sum(p["samples"] + 1 for p in answer["points"]), "a warm-up a size, and every message was answered"
