"""One rank of a verl engine on a fixed batch, without Ray: loss and gradient norm of each step, or a reward model's scores."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, McoreEngineConfig, McoreOptimizerConfig
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from stages.train.engines.verl.reward import at_the_end

SEQUENCES, PROMPT_TOKENS = 16, 5
CONTENTS = ("model", "optimizer")


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device=["cpu"])
class CpuFsdp2(FSDPEngineWithLMHead):
    """verl's own FSDP2 engine, known to verl for a CPU: another implementation of the same mathematics, in float32."""


def read_model(settings: dict[str, Any]) -> HFModelConfig:
    """The model's configuration and tokenizer, which all ranks may share."""
    return HFModelConfig(path=settings["model"], override_config={"attn_implementation": "sdpa"}, use_remove_padding=False,
                         enable_gradient_checkpointing=False)


def train(settings: dict[str, Any], model: HFModelConfig) -> list[dict[str, float]] | None:
    """Steps of this rank's share; the figures, on the first rank that has them. The process group is there already."""
    engine = _megatron(settings, model) if settings["backend"] == "megatron" else _fsdp2(settings, model)
    engine.initialize()
    if settings["load"]:
        engine.load_checkpoint(settings["load"])
    replica, shares = engine.get_data_parallel_rank(), settings["shares"]
    start = sum(shares[:replica])
    batch, tokens = _batch(start, start + shares[replica], settings["micro"][replica], settings["vocab"])

    def loss(model_output: Any, data: Any, dp_group: Any = None) -> Any:
        """Policy-gradient loss over all response tokens of the global batch; verl averages gradients over replicas."""
        log_probs, total = model_output["log_probs"], 0.0
        offsets = log_probs.offsets()
        lengths = data["input_ids"].offsets().diff()
        for row in range(len(lengths)):
            own = log_probs.values()[offsets[row]:offsets[row + 1]]
            total = total - (own[PROMPT_TOKENS - 1:lengths[row] - 1] * data["advantage"][row]).sum()
        value = total / tokens * len(shares)
        return value, {"own_loss": float(value) / len(shares)}

    found = []
    with engine.train_mode():
        for _ in range(settings["steps"]):
            output = engine.train_batch(batch, loss)
            if engine.is_mp_src_rank_with_outputs():
                own = torch.tensor([sum(output["metrics"]["own_loss"])])
                torch.distributed.all_reduce(own, group=engine.get_data_parallel_group())
                found.append({"loss": own.item(), "grad_norm": float(output["metrics"]["grad_norm"])})
    if settings["save"]:
        engine.save_checkpoint(settings["save"], global_step=settings["steps"])
    return found if found and replica == 0 else None


def score(settings: dict[str, Any], model: HFModelConfig) -> dict[str, Any] | None:
    """Scores of this rank's share by a model with one number for a head, on Megatron-Core, by the number of the sequence, and that head; on
    the ranks that have them."""
    model.model_type = "value_model"
    engine = _megatron(settings, model, forward_only=True)
    engine.initialize()
    replica, shares = engine.get_data_parallel_rank(), settings["shares"]
    start = sum(shares[:replica])
    batch, _ = _batch(start, start + shares[replica], settings["micro"][replica], settings["vocab"])
    with engine.eval_mode():
        output = engine.infer_batch(batch, loss_function=None)
    if not engine.is_mp_src_rank_with_outputs():
        return None
    scores = at_the_end(output["model_output"]["values"], batch["responses"].offsets().diff())["rm_scores"]
    from verl.utils.megatron_utils import unwrap_model

    head = next(part for part in unwrap_model(engine.module) if part.post_process).output_layer.weight
    return {"scores": {str(start + row): float(own[-1]) for row, own in enumerate(scores.unbind()) if not own[:-1].any()},
            "head": head[0].tolist()}


def score_alone(settings: dict[str, Any], model: HFModelConfig) -> dict[str, Any]:
    """The same by transformers' own reward model, in float32. ``head``: instead of the one in its files."""
    from transformers import AutoModelForSequenceClassification

    reward = AutoModelForSequenceClassification.from_pretrained(settings["model"], num_labels=1, dtype=torch.float32).eval()
    reward.config.pad_token_id = None  # tokens of the batch are random; none of them pads
    batch, _ = _batch(0, SEQUENCES, SEQUENCES, settings["vocab"])
    with torch.no_grad():
        if settings["head"]:
            reward.score.weight.copy_(torch.tensor(settings["head"])[None])
        return {"scores": {str(row): float(reward(input_ids=ids[None]).logits) for row, ids in enumerate(batch["input_ids"].unbind())}}


CALLS = {"train": train, "score": score, "score alone": score_alone}


def _megatron(settings: dict[str, Any], model: HFModelConfig, *, forward_only: bool = False) -> Any:
    transformer = {"attention_backend": "local"}
    if settings["pp"] > 1:
        transformer["pipeline_model_parallel_layout"] = settings["layout"]
    config = McoreEngineConfig(tensor_model_parallel_size=settings["tp"], pipeline_model_parallel_size=settings["pp"], sequence_parallel=False,
                               use_mbridge=True, vanilla_mbridge=True, use_remove_padding=False, dtype="bfloat16",
                               override_transformer_config=transformer, forward_only=forward_only, dist_ckpt_optim_fully_reshardable=True)
    config.use_dynamic_bsz = False
    optimizer = McoreOptimizerConfig(lr=1e-3, clip_grad=1.0, total_training_steps=10)
    kind = "value_model" if forward_only else "language_model"
    return EngineRegistry.new(kind, "megatron", model_config=model, engine_config=config, optimizer_config=optimizer,
                              checkpoint_config=CheckpointConfig(save_contents=list(CONTENTS), load_contents=list(CONTENTS)))


def _fsdp2(settings: dict[str, Any], model: HFModelConfig) -> Any:
    single = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    config = FSDPEngineConfig(strategy="fsdp2", use_torch_compile=False, forward_only=False, mixed_precision=single,
                              fsdp_size=settings["sharded_over"])
    config.use_dynamic_bsz = False
    optimizer = FSDPOptimizerConfig(lr=1e-3, clip_grad=1.0, total_training_steps=10)
    return EngineRegistry.new("language_model", "fsdp2", model_config=model, engine_config=config, optimizer_config=optimizer,
                              checkpoint_config=CheckpointConfig())


def _batch(start: int, end: int, micro: int, vocab: int) -> tuple[TensorDict, int]:
    """Sequences ``start`` to ``end`` of one batch that is the same in every layout, and the response tokens of the whole batch."""
    generator = torch.Generator().manual_seed(0)
    lengths = [int(n) for n in torch.randint(10, 30, (SEQUENCES,), generator=generator)]
    ids = [torch.randint(0, vocab, (n,), generator=generator) for n in lengths]
    advantage = torch.randn(SEQUENCES, generator=generator)
    own = ids[start:end]

    def nested(rows: list[torch.Tensor]) -> torch.Tensor:
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

    mask = [torch.cat([torch.zeros(PROMPT_TOKENS), torch.ones(len(x) - PROMPT_TOKENS)]).long() for x in own]
    batch = TensorDict({
        "input_ids": nested(own), "position_ids": nested([torch.arange(len(x)) for x in own]), "loss_mask": nested(mask),
        "prompts": nested([x[:PROMPT_TOKENS] for x in own]), "responses": nested([x[PROMPT_TOKENS:] for x in own]),
        "response_mask": nested([torch.ones(len(x) - PROMPT_TOKENS).long() for x in own]),
        "advantage": advantage[start:end], "temperature": torch.ones(len(own)),
    }, batch_size=len(own))
    tu.assign_non_tensor(batch, use_dynamic_bsz=False, micro_batch_size_per_gpu=micro, use_remove_padding=False, temperature=1.0,
                         calculate_entropy=False, global_batch_size=SEQUENCES, use_fused_kernels=False, max_token_len_per_gpu=4096,
                         sp_size=1, max_response_len=32, pad_mode=DatasetPadMode.NO_PADDING)
    return batch, sum(n - PROMPT_TOKENS for n in lengths)
