"""Checks that need no cluster: per machine, with numbers, all at once, gravest kind first."""

from __future__ import annotations

import pytest

from artifacts.base import Strict
from artifacts.errors import ClusterChanged, HetrlError, InfeasiblePlan, InputError
from artifacts.job import Batch, Constraints, Job
from artifacts.model_spec import ModelSpec
from artifacts.plan import Plan
from artifacts.topology import Topology
from artifacts.units import GIB, MIB
from stages.deploy.faults import raise_if_any
from stages.deploy.fit import check_documents
from tests.stages.cluster.fleets import fleet
from tests.stages.deploy.plans import pool_plan, strategy, tiny_job, uneven_plan

UNEVEN = {"a": 3, "b": 1, "c": 2}


def refusal(job: Job, topology: Topology, plan: Plan, **options: object) -> HetrlError:
    with pytest.raises(HetrlError) as caught:
        raise_if_any(check_documents(job, topology, plan, **options))  # type: ignore[arg-type]
    return caught.value


def changed(document: Strict, **changes: object) -> Strict:
    return type(document).model_validate({**document.model_dump(), **changes})


def test_a_plan_that_fits_is_let_through() -> None:
    job, topology = tiny_job(algorithm="ppo"), fleet(UNEVEN)
    report = check_documents(job, topology, uneven_plan(job, topology))
    assert not report.faults and len(report.checks) == 8 and all(c.ok for c in report.checks)


def test_three_and_three_on_machines_with_four_and_two() -> None:
    """The sum is enough (6 ≥ 6); machine b is not."""
    job, topology = tiny_job(), fleet({"a": 4, "b": 2}, kind="ray", vendor="nvidia", cpus=64, memory_bytes=24 * GIB)
    error = refusal(job, topology, pool_plan(job, topology, ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2"]))
    assert isinstance(error, InfeasiblePlan)
    assert error.message == "machine b has 2 devices, the plan asks 3: there is no b-2"
    assert not check_documents(job, topology, pool_plan(job, topology, ["a-0", "a-1", "a-2", "a-3", "b-0", "b-1"])).faults


def test_cpus_are_counted_by_machine() -> None:
    job, topology = tiny_job(), fleet({"a": 4, "b": 2}, kind="ray", vendor="nvidia", cpus=4)
    plan = pool_plan(job, topology, ["a-0", "b-0", "b-1"])
    assert not check_documents(job, topology, plan, cpus_per_rank=2).faults
    error = refusal(job, topology, plan, cpus_per_rank=3)
    assert isinstance(error, InfeasiblePlan)
    assert error.message == "machine b has 4 CPUs, its 2 ranks ask 6 (3 each)" and "cpus_per_rank" in error.fix


def test_another_state_of_the_cluster_is_told_in_words() -> None:
    job, old = tiny_job(algorithm="ppo"), fleet(UNEVEN)
    plan = uneven_plan(job, old)
    smaller = fleet({"a": 2, "b": 1, "c": 2})
    error = refusal(job, smaller, plan, planned_for=old)
    assert isinstance(error, ClusterChanged) and error.exit_status == 4
    assert "device a-2 (device, uuid-a-2) of machine a is gone" in error.message
    assert "machine a has 2 devices, the plan asks 3: there is no a-2" in error.message
    assert not check_documents(job, fleet(UNEVEN), plan).faults  # the first state again: the old plan is valid


@pytest.mark.parametrize(("new", "words"), [
    (fleet({"a": 3, "c": 2}), "machine b is gone"),
    (fleet(UNEVEN | {"d": 1}), "machine d is new"),
    (fleet(UNEVEN, memory_bytes=GIB), "device a-0 has 1.0 GiB, had 2.0 GiB"),
    (fleet(UNEVEN, dtypes=("fp32",)), "device a-0 computes in fp32, did in bf16/fp16/fp32"),
    (changed(fleet(UNEVEN), basis={"share.flops": 2e9}, fingerprint=""), "rate share.flops is 2e+09, was unknown"),
    (changed(fleet(UNEVEN), fingerprint="", links=[k.model_dump() | {"probe": "failed"} for k in fleet(UNEVEN).links if k.source != "a"]),
     "link a → a does not work any more"),
])
def test_what_differs_is_named(new: Topology, words: str) -> None:
    job, old = tiny_job(algorithm="ppo"), fleet(UNEVEN)
    error = refusal(job, new, uneven_plan(job, old), planned_for=old)
    assert isinstance(error, ClusterChanged) and words in error.message


def test_without_the_old_topology_the_fingerprints_are_named() -> None:
    job, old, new = tiny_job(algorithm="ppo"), fleet(UNEVEN), fleet(UNEVEN, memory_bytes=GIB)
    error = refusal(job, new, uneven_plan(job, old))
    assert old.fingerprint[:12] in error.message and new.fingerprint[:12] in error.message


def test_a_plan_of_another_job() -> None:
    job, topology = tiny_job(algorithm="ppo"), fleet(UNEVEN)
    error = refusal(tiny_job(seed=7), topology, uneven_plan(job, topology))
    assert isinstance(error, InputError)
    assert "made for another job" in error.message and "has critic_inference, critic_training too many for grpo" in error.message


def test_layers_heads_and_batch_must_be_the_models() -> None:
    job, topology = tiny_job(), fleet({"a": 3})
    base = pool_plan(job, topology, ["a-0", "a-1", "a-2"])
    wrong = strategy(["a-0", "a-1", "a-2"], dp=1, pp=1, tp=3, layers=[5], shares=[31])
    error = refusal(job, topology, Plan(**{**base.model_dump(), "tasks": base.tasks | {"rollout": wrong}}))
    assert isinstance(error, InfeasiblePlan) and len(error.details["faults"]) == 3
    assert "rollout: stages [5] hold 5 layers, tiny-qwen3 has 4" in error.message
    assert "rollout: tp 3 does not divide the 4 heads of tiny-qwen3" in error.message
    assert "rollout: the replicas take 31 sequences, the batch has 32" in error.message


def test_pins_regions_and_degrees_are_kept() -> None:
    constraints = Constraints(pin={"actor_training": ["b"]}, fix={"rollout": {"tp": 2}}, forbid_regions=["mars"])
    job, topology = tiny_job(constraints=constraints), fleet({"a": 4, "b": 2}, region="mars")
    error = refusal(job, topology, pool_plan(job, topology, ["a-0", "b-0", "b-1"]))
    assert "actor_training is pinned to b, the plan puts it on a too (3 ranks; b has 2 devices)" in error.message
    assert "rollout: the job fixes tp 2, the plan has 1" in error.message
    assert "rollout uses a, b in a forbidden region" in error.message


def test_what_a_plan_may_not_use_is_refused_by_the_constraints_name() -> None:
    constraints = Constraints(keep_data_in=["venus"], forbid_devices=["a-1", "b"], max_devices=2)
    job, topology = tiny_job(constraints=constraints), fleet({"a": 4, "b": 2}, region="mars")
    error = refusal(job, topology, pool_plan(job, topology, ["a-0", "a-1", "b-1"]))
    assert isinstance(error, InfeasiblePlan)
    assert "rollout uses a, b outside venus, which data may not leave (keep_data_in)" in error.message
    assert "rollout uses a-1, b-1, which forbid_devices leaves out" in error.message
    assert "the plan uses 3 devices, max_devices allows 2" in error.message
    kept = tiny_job(constraints=Constraints(keep_data_in=["mars"], forbid_devices=["a-1"], max_devices=3))
    assert not check_documents(kept, topology, pool_plan(kept, topology, ["a-0", "a-2", "b-1"])).faults


def test_bf16_needs_devices_that_know_it() -> None:
    job, topology = tiny_job(), fleet({"v": 2}, dtypes=("fp16", "fp32"))
    error = refusal(job, topology, pool_plan(job, topology, ["v-0", "v-1"]))
    assert isinstance(error, InfeasiblePlan)
    assert "bf16 cannot be computed on v-0 (device: fp16/fp32), v-1 (device: fp16/fp32)" in error.message


def test_weights_and_optimizer_must_fit() -> None:
    big = ModelSpec(name="big", layers=4, hidden=1024, heads=16, kv_heads=8, head_dim=64, intermediate=4096, vocab=32000)
    job, topology = tiny_job(models={"actor": big}), fleet({"a": 1, "b": 1}, memory_bytes=512 * MIB)
    plan = pool_plan(job, topology, ["a-0", "b-0"])
    # bf16 weights of rollout, reference and training (2 + 2 + 2), float32 gradients (4), the optimizer halved over the replicas (12 / 2).
    need = big.params() * (2 + 2 + 2 + 4 + 6)
    error = refusal(job, topology, plan)
    assert isinstance(error, InfeasiblePlan)
    assert f"device a-0 has 512.0 MiB, weights and optimizer alone take {need / GIB:.1f} GiB" in error.message
    larger = fleet({"a": 1, "b": 1}, memory_bytes=need)
    assert not check_documents(job, larger, pool_plan(job, larger, ["a-0", "b-0"])).faults


def test_all_faults_in_one_message() -> None:
    job = tiny_job(batch=Batch(prompts=4, responses_per_prompt=4))
    topology = fleet({"a": 4, "b": 2}, kind="ray", cpus=2, dtypes=("fp32",))
    plan = pool_plan(tiny_job(), topology, ["a-0", "b-0", "b-1", "b-2"])
    error = refusal(job, topology, plan)
    assert isinstance(error, InputError)  # what belongs together comes before what fits
    assert error.message.startswith("7 things are in the way: (1) the plan was made for another job")
    for part in ("b has 2 devices, the plan asks 3", "b has 2 CPUs, its 3 ranks ask 3", "rollout: the replicas take 32 sequences, the batch has 16",
                 "bf16 cannot be computed"):
        assert part in error.message
    assert "\n" not in error.line and [f["kind"] for f in error.details["faults"]].count("InfeasiblePlan") == 6
