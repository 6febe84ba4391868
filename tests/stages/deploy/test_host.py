"""Hosts against the topology and the engine's needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from artifacts.catalog import models
from artifacts.deployment import Check
from artifacts.errors import ClusterChanged, HetrlError, InputError, RunnerUnavailable
from artifacts.job import Dataset, Engine
from artifacts.plan import pipeline_layout
from artifacts.units import GIB, MIB
from stages.deploy.engine import engine_configuration, spans
from stages.deploy.facts import HostFacts, gather, model_problem, pinned
from stages.deploy.faults import raise_if_any
from stages.deploy.host import check_hosts, look_here
from tests.stages.cluster.fleets import fleet
from tests.stages.deploy.plans import pool_plan, tiny_job, uneven_plan


def facts(**changes: object) -> HostFacts:
    fields: dict[str, object] = {
        "python": "3.11.7", "versions": {"ray": "2.60.0", "torch": "2.13.0", "verl": "0.9.1", "megatron-core": "0.16.1", "vllm": "0.24.0"},
        "cores": 8, "memory_bytes": 64 * GIB, "shm_free_bytes": 8 * GIB, "disk_free_bytes": 100 * GIB, "disk_path": "/tmp",
        "gpu_uuids": ["uuid-a-0", "uuid-a-1"], "unreadable": {}}
    return HostFacts(**(fields | changes))  # type: ignore[arg-type]


def refusal(found: dict[str, HostFacts], **job: object) -> HetrlError:
    topology = fleet({"a": 2, "b": 1}, vendor="nvidia", cpus=4)
    wanted = tiny_job(**job)
    with pytest.raises(HetrlError) as caught:
        raise_if_any(check_hosts(wanted, topology, pool_plan(wanted, topology, ["a-0", "a-1"]), found, min_disk_bytes=GIB))
    return caught.value


def test_a_gpu_that_is_gone_is_named() -> None:
    error = refusal({"a": facts(gpu_uuids=["uuid-a-1"])})
    assert isinstance(error, ClusterChanged)
    assert error.message == "machine a no longer has a-0 (uuid-a-0); the driver lists 1 GPUs"
    assert "NVIDIA driver does not answer, 2 GPUs are planned" in refusal({"a": facts(gpu_uuids=None)}).message


def test_a_smaller_machine_is_another_machine() -> None:
    error = refusal({"a": facts(cores=2, memory_bytes=GIB // 2)})
    assert isinstance(error, ClusterChanged)
    assert "machine a has 2 CPUs, the topology says 4" in error.message
    assert "machine a has 512.0 MiB of memory, the topology says 1.0 GiB" in error.message


def test_what_the_engine_needs() -> None:
    error = refusal({"a": facts(versions={"torch": "2.13.0", "verl": "0.8.0"}, shm_free_bytes=64 * MIB, disk_free_bytes=10 * MIB,
                                unreadable={"org/model": "not in the cache"})})
    assert isinstance(error, InputError)
    for part in ("a: ray, megatron-core, vllm not installed", "/dev/shm has 64.0 MiB free, 1 Ray nodes with 2 ranks need 160.0 MiB",
                 "10.0 MiB free on the disk of /tmp, 1.0 GiB needed", "cannot read org/model: not in the cache"):
        assert part in error.message
    if pinned():
        assert f"a: verl 0.8.0 is installed, this HetRL needs {pinned()['verl']}" in error.message


def test_vllms_cpu_build_is_asked_for_where_it_is_to_sample() -> None:
    job, topology = tiny_job(engine=Engine(rollout="vllm")), fleet({"a": 1})
    versions = {"ray": "2.60.0", "torch": "2.13.0", "verl": "0.9.1", "megatron-core": "0.16.1"}
    with pytest.raises(RunnerUnavailable, match="a: vllm not installed") as refused:
        raise_if_any(check_hosts(job, topology, pool_plan(job, topology, ["a-0"]), {"a": facts(versions=versions)}, min_disk_bytes=GIB))
    assert "containers/build.py --rollout vllm" in refused.value.fix


def test_hosts_must_be_alike() -> None:
    error = refusal({"a": facts(), "b": facts(python="3.12.1", gpu_uuids=["uuid-b-0"])})
    assert isinstance(error, RunnerUnavailable) and "different versions of Python: a 3.11, b 3.12" in error.message


def test_this_host_is_looked_at(tmp_path: Path) -> None:
    job, topology = tiny_job(), fleet({"a": 1})
    found = look_here(job, topology, pool_plan(job, topology, ["a-0"]), disk_path=str(tmp_path))
    assert found.cores == len(os.sched_getaffinity(0)) and found.memory_bytes > 0 and found.disk_free_bytes > 0
    assert found.gpu_uuids is None and found.unreadable == {}  # CPU devices: no driver is asked
    names = {"pydantic"} | set(found.versions)
    assert "ray" in names or found.versions == {}


def test_models_and_data_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "data.parquet").write_bytes(b"PAR1")
    found = gather(disk_path=str(tmp_path), models=[str(tmp_path / "model"), str(tmp_path / "none"), "no-such-org/no-such-model"],
                   files=[str(tmp_path / "data.parquet"), str(tmp_path / "gone.parquet")], reasoning_task="no_such_task", ask_nvml=False)
    assert set(found.unreadable) == {str(tmp_path / "none"), "no-such-org/no-such-model", str(tmp_path / "gone.parquet"),
                                     "reasoning-gym task no_such_task"}
    assert model_problem("not an id!") != ""


def test_parquet_files_are_looked_for_where_the_job_names_them(tmp_path: Path) -> None:
    data = Dataset(kind="parquet", train_file=str(tmp_path / "train.parquet"))
    spec = models()["tiny-qwen3"].model_copy(update={"hf_id": str(tmp_path)})
    job, topology = tiny_job(dataset=data, models={"actor": spec}), fleet({"a": 1})
    found = look_here(job, topology, pool_plan(job, topology, ["a-0"]), disk_path=str(tmp_path))
    assert found.unreadable == {str(tmp_path): "No such file or directory", str(tmp_path / "train.parquet"): "No such file or directory"}


def test_engine_configuration_is_the_plans() -> None:
    job, topology = tiny_job(algorithm="ppo"), fleet({"a": 3, "b": 1, "c": 2})
    found = engine_configuration(job, topology, uneven_plan(job, topology))
    assert found["actor_training.layers"] == "Et*3|tL" and found["critic_training.tp"] == 2
    assert (found["actor_training.dp"], found["actor_training.pp"], found["actor_training.local_batch_sequences"]) == (2, 2, "20,12")
    assert found["rollout_server"] == "hf" and found["rollout.group"] == "actor" and found["hint.kv_bytes"] == 1024
    assert found["mini_batch_sequences"] == 32 and "staleness" not in found
    on_gpus = engine_configuration(tiny_job(mode="async", engine=Engine()), fleet({"a": 1}, vendor="nvidia"),
                                   pool_plan(tiny_job(), fleet({"a": 1}, vendor="nvidia"), ["a-0"]))
    assert on_gpus["rollout_server"] == "vllm" and on_gpus["staleness"] == 1


def test_layouts_as_megatron_writes_them() -> None:
    assert [pipeline_layout(layers) for layers in ([5], [1], [4, 1], [3, 2, 1, 1])] == ["Et*5L", "EtL", "Et*4|tL", "Et*3|t*2|t|tL"]
    assert spans(["a", "a", "b", "a"]) == "a×2, b, a"


@pytest.mark.engine
def test_megatron_reads_the_layouts() -> None:
    layout = pytest.importorskip("megatron.core.transformer.pipeline_parallel_layer_layout")
    for layers in ([5], [4, 1], [3, 2, 1, 1]):
        parsed = layout.PipelineParallelLayerLayout.from_str(pipeline_layout(layers), len(layers))
        held = [sum(kind.name == "decoder" for kind in parsed.layout[stage][0]) for stage in range(len(layers))]
        assert held == layers


def test_checks_are_kept_also_when_they_pass() -> None:
    job, topology = tiny_job(), fleet({"a": 2}, vendor="nvidia")
    report = check_hosts(job, topology, pool_plan(job, topology, ["a-0"]), {"a": facts()}, min_disk_bytes=GIB)
    assert Check(name="a: /dev/shm", ok=True, found="8.0 GiB") in report.checks
