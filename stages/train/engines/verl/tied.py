"""Models whose vocabulary's head is their embedding, which mbridge 0.15.1 half knows: what it forgets of them, and of their critics.

The same on every platform, so applied on all of them.
"""

from __future__ import annotations

import functools
from typing import Any

from mbridge.core.bridge import Bridge
from mbridge.core.safetensor_io import SafeTensorIO
from mbridge.core.util import unwrap_model
from mbridge.models.llama import LLaMABridge
from mbridge.models.qwen2 import Qwen2Bridge

HEAD, VOCABULARY, EMBEDDING = "output_layer.weight", "lm_head.weight", "model.embed_tokens.weight"


def apply() -> None:
    """Patch mbridge in this process."""
    bridge: Any = Bridge
    files: Any = SafeTensorIO
    for family in (Qwen2Bridge, LLaMABridge):
        family._adjust_mapping_for_shared_weights = _of_this_model
    load = bridge.load_weights

    @functools.wraps(load)
    def with_a_head_of_its_own(self: Any, models: list[Any], weights_path: str, *args: Any, **kwargs: Any) -> None:
        # A critic's head is one number, so verl says that its embeddings are not tied. mbridge then looks for the vocabulary's head in the
        # files, only to leave it out; a model with tied embeddings has none there. What it finds instead it leaves out as well.
        values = any(_gives_values(model) for model in unwrap_model(models))
        if values and VOCABULARY not in self._get_safetensor_io(weights_path).load_hf_weight_names():
            _head_is_embedding(self)
        load(self, models, weights_path, *args, **kwargs)

    read = files.load_some_hf_weight

    @functools.wraps(read)
    def each_once(self: Any, names: list[str]) -> Any:
        return read(self, list(dict.fromkeys(names)))  # it counts what it finds, and a tensor of two names is found once

    bridge.load_weights, files.load_some_hf_weight = with_a_head_of_its_own, each_once


def _of_this_model(bridge: Any) -> None:
    """mbridge notes tied embeddings on the class, for whatever model comes next in this process, and for Llama's bridge not at all."""
    if getattr(bridge.hf_config, "tie_word_embeddings", False):
        _head_is_embedding(bridge)


def _head_is_embedding(bridge: Any) -> None:
    bridge._DIRECT_MAPPING = {**bridge._DIRECT_MAPPING, HEAD: EMBEDDING}


def _gives_values(model: Any) -> bool:
    weight = getattr(getattr(model, "output_layer", None), "weight", None)
    return weight is not None and weight.shape[0] == 1
