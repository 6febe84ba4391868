"""verl's Megatron engines on a CPU: no Transformer Engine, transformers 5's names, attention masks as the local layers want them."""

from __future__ import annotations

import functools
from typing import Any

import torch

from stages.train.engines.verl import cuda_shim

cuda_shim.install()

import mbridge.core.llm_bridge as llm_bridge  # noqa: E402
import mbridge.core.util as bridge_util  # noqa: E402
import megatron.core.tensor_parallel.random as megatron_random  # noqa: E402
import verl.workers.engine.megatron.transformer_impl as megatron_engine  # noqa: E402
from mbridge.core.llm_bridge import LLMBridge  # noqa: E402
from mbridge.models.llama import LLaMABridge  # noqa: E402
from mbridge.models.qwen2 import Qwen2Bridge  # noqa: E402
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer  # noqa: E402
from megatron.core.transformer.dot_product_attention import DotProductAttention  # noqa: E402
from verl.workers.engine.base import EngineRegistry  # noqa: E402

from stages.train.engines.verl import tied, uneven  # noqa: E402


@EngineRegistry.register(model_type="language_model", backend="megatron", device="cpu")
class CpuMegatronLanguageModel(megatron_engine.MegatronEngineWithLMHead):
    pass


@EngineRegistry.register(model_type="value_model", backend="megatron", device="cpu")
class CpuMegatronValueModel(megatron_engine.MegatronEngineWithValueHead):
    pass


def apply() -> None:
    """Patch mbridge, Megatron-Core and verl in this process."""
    _local_layers()
    _names_of_transformers_5()
    _causal_masks()
    _nothing_for_later()
    uneven.apply()
    tied.apply()
    _state_from_a_checkpoint()


def _local_layers() -> None:
    """mbridge hard-wires Transformer Engine; the local layers keep norms as modules of their own, under other names."""
    spec = llm_bridge.get_gpt_decoder_block_spec

    def local_spec(config: Any, use_transformer_engine: bool = True, **kwargs: Any) -> Any:
        return spec(config, use_transformer_engine=False, **kwargs)

    llm_bridge.get_gpt_decoder_block_spec = local_spec
    for bridge in (Qwen2Bridge, LLaMABridge):
        bridge._OTHER_MAPPING = {"input_layernorm.weight": ["model.layers.{layer_number}.input_layernorm.weight"]}
        bridge._MLP_MAPPING["pre_mlp_layernorm.weight"] = ["model.layers.{layer_number}.post_attention_layernorm.weight"]
    base_config = LLMBridge._build_base_config

    def cpu_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        return base_config(self, *args, **kwargs, use_cpu_initialization=True, sequence_parallel=False, masked_softmax_fusion=False)

    LLMBridge._build_base_config = cpu_config


def _names_of_transformers_5() -> None:
    """mbridge 0.15.1 predates transformers 5 (rope_theta moved) and Megatron-Core 0.16 (a model type is gone)."""
    arguments = LLMBridge._get_gptmodel_args

    def with_rope(self: Any) -> Any:
        config = self.hf_config
        rope = getattr(config, "rope_parameters", None) or {}
        if rope.get("rope_type", "default") != "default":
            raise ValueError(f"rotary embeddings of type {rope['rope_type']!r} are not carried over to Megatron-Core")
        if getattr(config, "rope_theta", None) is None:
            config.rope_theta = rope.get("rope_theta", 10000.0)
        return arguments(self)

    LLMBridge._get_gptmodel_args = LLaMABridge._get_gptmodel_args = with_rope
    if not hasattr(bridge_util.ModelType, "encoder_and_decoder"):
        type.__setattr__(bridge_util.ModelType, "encoder_and_decoder", "encoder_and_decoder")


def _causal_masks() -> None:
    """verl hands over a (batch, sequence) padding mask as Transformer Engine takes it. Sequences are padded on the right, where a
    causal mask alone keeps padding out of every real position."""
    attention: Any = DotProductAttention
    forward = attention.forward

    @functools.wraps(forward)
    def causal(self: Any, query: torch.Tensor, key: Any, value: Any, attention_mask: torch.Tensor | None, *args: Any, **kwargs: Any) -> Any:
        if attention_mask is None or attention_mask.dim() == 2:
            length = query.shape[0]
            attention_mask = torch.ones(1, 1, length, length, dtype=torch.bool).triu(1)
        return forward(self, query, key, value, attention_mask, *args, **kwargs)

    attention.forward = causal


def _nothing_for_later() -> None:
    """Random states that Megatron sets on a GPU: without one torch keeps each request, with a traceback, and never comes to it."""
    megatron_random._lazy_call = lambda *_, **__: None


def _state_from_a_checkpoint() -> None:
    """Megatron-Core's optimizer without Apex or Transformer Engine loads no checkpoint: it wants a state before it loads one, misses the
    step of each parameter in it, and would then count the steps of all parameters in one shared tensor."""
    optimizer: Any = DistributedOptimizer
    state_dict, load, set_states = optimizer.state_dict, optimizer.load_state_dict, optimizer._set_main_param_and_optimizer_states

    def with_a_state(self: Any) -> Any:
        state = self.optimizer.state
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                if not state[p]:
                    state[p] = {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        return state_dict(self)

    def with_steps_of_their_own(self: Any, loaded: Any) -> None:
        load(self, loaded)
        for held in self.optimizer.state.values():
            held["step"] = held["step"].clone()

    def with_the_step(self: Any, model_param: Any, tensors: dict[str, torch.Tensor]) -> None:
        group, order = self.model_param_group_index_map[model_param]
        main = self.optimizer.param_groups[group]["params"][order]
        set_states(self, model_param, {"step": self.optimizer.state[main]["step"], **tensors})

    optimizer.state_dict, optimizer.load_state_dict = with_a_state, with_steps_of_their_own
    optimizer._set_main_param_and_optimizer_states = with_the_step
