"""The rollout's part of verl's configuration: which server, how large, how weights get there, and the asynchronous modes."""

from __future__ import annotations

from typing import Literal

from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.units import MIB
from stages.train.engines.verl.modes import mode_of, parts, rollout_apart
from stages.train.engines.verl.names import HF_SERVER, SEATS
from stages.train.engines.verl.platforms import Platform
from stages.train.engines.verl.ranks import seats

Server = Literal["hf", "vllm"]
Value = str | int | float | bool | None | list[str] | list[int] | dict[str, str | int]

_ROLLOUT = "actor_rollout_ref.rollout"
_LEAST_KV_BYTES = 64 * MIB
_LEAST_BUCKET_MIB = 16
_BYTES = {"float32": 4, "bfloat16": 2}


def rollout_keys(job: Job, plan: Plan, *, server: Server, router: str, platform: Platform) -> dict[str, Value]:
    """``router``: file of the settings of :mod:`router`."""
    apart = rollout_apart(plan)
    keys: dict[str, Value] = {
        f"{_ROLLOUT}.n": job.batch.responses_per_prompt,
        f"{_ROLLOUT}.seed": job.seed,
        f"{_ROLLOUT}.tensor_model_parallel_size": plan.tasks["rollout"].tp,
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": plan.tasks["actor_training"].micro_batch_sequences,
        f"{_ROLLOUT}.free_cache_engine": platform.sleeps and not apart,
        f"{_ROLLOUT}.agent.num_workers": 1,
        # Where the rollout has a pool of its own, that pool names the router: verl asks for one for no servers at all before.
        f"{_ROLLOUT}.router_config_path": None if apart else router,
        **_asynchronous(job, plan),
    }
    if server == "hf":
        return keys | {f"{_ROLLOUT}.name": HF_SERVER, f"{_ROLLOUT}.max_num_seqs": job.batch.sequences}
    keys |= _vllm(job, plan, platform)
    if not apart:
        return keys | {f"+{_ROLLOUT}.custom.{SEATS}": seats(plan)}
    return keys | {
        "actor_rollout_ref.hybrid_engine": False,
        f"{_ROLLOUT}.nnodes": 1,
        f"{_ROLLOUT}.n_gpus_per_node": len(plan.tasks["rollout"].ranks),
        f"{_ROLLOUT}.checkpoint_engine.backend": platform.weights_backend,
        f"{_ROLLOUT}.checkpoint_engine.custom_backend_module": platform.weights_module,
    }


def _vllm(job: Job, plan: Plan, platform: Platform) -> dict[str, Value]:
    flight = sequences_in_flight(job, plan)
    return {
        f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.dtype": platform.rollout_dtype,
        f"{_ROLLOUT}.enforce_eager": not platform.graphs,
        f"+{_ROLLOUT}.enable_sleep_mode": platform.sleeps and not rollout_apart(plan),
        f"{_ROLLOUT}.max_model_len": job.sequence_tokens_max,
        f"{_ROLLOUT}.max_num_seqs": flight,
        f"{_ROLLOUT}.max_num_batched_tokens": max(job.sequence_tokens_max, min(8192, flight * job.sequence_tokens_max)),
        f"+{_ROLLOUT}.engine_kwargs.vllm.kv_cache_memory_bytes": _kv_bytes(job, plan, flight, platform),
        f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": _bucket_mib(job),
    }


def sequences_in_flight(job: Job, plan: Plan) -> int:
    """Sequences a replica works on at once: as planned, else its share, at most vLLM's default of 256."""
    return int(plan.engine_hints.get("rollout_sequences_in_flight", 0)) or min(256, max(plan.tasks["rollout"].local_batch_sequences))


def _kv_bytes(job: Job, plan: Plan, flight: int, platform: Platform) -> int:
    """Room on one shard for the sequences in flight at full length, in the precision that is sampled in; no more than was planned."""
    model, tp = job.model("actor"), plan.tasks["rollout"].tp
    whole_blocks = -(-job.sequence_tokens_max // 128) * 128  # vLLM's CPU attention takes tokens in blocks of 128
    need = flight * whole_blocks * model.layers * model.kv_bytes_per_token_layer(_BYTES[platform.rollout_dtype]) // tp
    planned = int(plan.engine_hints.get("rollout_kv_bytes_per_device", 0)) or need
    return max(min(need, planned), _LEAST_KV_BYTES)


def _bucket_mib(job: Job) -> int:
    """Weights travel in buckets that hold the largest tensor."""
    model = job.model("actor")
    largest = max(model.vocab, model.intermediate, model.heads * model.head_dim) * model.hidden * 4
    return max(_LEAST_BUCKET_MIB, -(-largest // MIB))


def _asynchronous(job: Job, plan: Plan) -> dict[str, Value]:
    """``staleness`` batches are prefetched, and what lags further behind is dropped and sampled anew."""
    mode = mode_of(job, plan)
    keys: dict[str, Value] = {"trainer.v1.trainer_mode": mode}
    if mode == "sync":
        return keys
    keys |= {
        f"trainer.v1.{mode}.num_warmup_batches": job.staleness,
        "trainer.v1.sampler.max_off_policy_threshold": job.staleness + 1,
        "trainer.v1.sampler.max_off_policy_strategy": "drop",
    }
    if mode == "separate_async":
        # verl trains a mini-batch as soon as it has been sampled, and sends weights after the last of an iteration.
        keys["trainer.v1.separate_async.parameter_sync_step"] = parts(job, mode)
    return keys
