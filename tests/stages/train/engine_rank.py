"""One rank of verl's Megatron engine on a fixed batch, without Ray: prints loss and gradient norm of two steps as JSON.

Run by the agreement tests as a process of its own: ``python engine_rank.py settings.json``, with RANK, WORLD_SIZE, MASTER_* set.
"""

from __future__ import annotations

import json
import sys
import warnings

warnings.filterwarnings("ignore")

SEQUENCES, PROMPT_TOKENS = 16, 5


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    import verl  # noqa: F401 - loads the plugin

    from stages.train.engines.verl.plugin_cpu import load_megatron

    load_megatron()
    engine = _engine(settings)
    replica = engine.get_data_parallel_rank()
    shares = settings["shares"]
    start = sum(shares[:replica])
    batch = _batch(torch, start, start + shares[replica], settings["vocab"])
    replicas = len(shares)

    def loss(model_output, data, dp_group=None):  # type: ignore[no-untyped-def]
        """Policy-gradient loss over all response tokens of the global batch; verl averages gradients over replicas."""
        log_probs, total = model_output["log_probs"], 0.0
        offsets = log_probs.offsets()
        lengths = data["input_ids"].offsets().diff()
        for row in range(len(lengths)):
            own = log_probs.values()[offsets[row]:offsets[row + 1]]
            total = total - (own[PROMPT_TOKENS - 1:lengths[row] - 1] * data["advantage"][row]).sum()
        value = total / batch["tokens"] * replicas
        return value, {"own_loss": float(value) / replicas}

    found = []
    with engine.train_mode():
        for _ in range(2):
            output = engine.train_batch(batch["data"](settings["micro"]), loss)
            if engine.is_mp_src_rank_with_outputs():
                own = torch.tensor([sum(output["metrics"]["own_loss"])])
                torch.distributed.all_reduce(own, group=engine.get_data_parallel_group())
                found.append({"loss": own.item(), "grad_norm": float(output["metrics"]["grad_norm"])})
    if found and replica == 0:
        print("FOUND " + json.dumps(found), flush=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _engine(settings):  # type: ignore[no-untyped-def]
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import HFModelConfig, McoreEngineConfig, McoreOptimizerConfig
    from verl.workers.engine import EngineRegistry

    model = HFModelConfig(path=settings["model"], override_config={"attn_implementation": "sdpa"}, use_remove_padding=False,
                          enable_gradient_checkpointing=False)
    transformer = {"attention_backend": "local"}
    if settings["pp"] > 1:
        transformer["pipeline_model_parallel_layout"] = settings["layout"]
    config = McoreEngineConfig(tensor_model_parallel_size=settings["tp"], pipeline_model_parallel_size=settings["pp"], sequence_parallel=False,
                               use_mbridge=True, vanilla_mbridge=True, use_remove_padding=False, dtype="bfloat16",
                               override_transformer_config=transformer, forward_only=False)
    config.use_dynamic_bsz = False
    optimizer = McoreOptimizerConfig(lr=1e-3, clip_grad=1.0, total_training_steps=10)
    engine = EngineRegistry.new("language_model", "megatron", model_config=model, engine_config=config, optimizer_config=optimizer,
                                checkpoint_config=CheckpointConfig())
    engine.initialize()
    return engine


def _batch(torch, start: int, end: int, vocab: int):  # type: ignore[no-untyped-def]
    """Sequences ``start`` to ``end`` of one batch that is the same in every layout."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.utils.dataset.dataset_utils import DatasetPadMode

    generator = torch.Generator().manual_seed(0)
    lengths = [int(n) for n in torch.randint(10, 30, (SEQUENCES,), generator=generator)]
    ids = [torch.randint(0, vocab, (n,), generator=generator) for n in lengths]
    advantage = torch.randn(SEQUENCES, generator=generator)
    own = ids[start:end]

    def nested(rows):  # type: ignore[no-untyped-def]
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

    def data(micro: int):  # type: ignore[no-untyped-def]
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
        return batch

    return {"data": data, "tokens": sum(n - PROMPT_TOKENS for n in lengths)}


if __name__ == "__main__":
    main(sys.argv[1])
