"""Names that the configuration and the processes of a run agree on. Imports nothing of verl."""

from __future__ import annotations

HF_SERVER = "hetrl_hf"
"""verl's name for the small Hugging Face server; its own name for vLLM is ``vllm``."""

SEATS = "hetrl_seats"
"""Key of verl's ``rollout.custom``: Megatron rank → seat in the rollout (replica × shards + shard), where both share their devices."""

WEIGHTS_BACKEND = "hetrl_objects"
WEIGHTS_MODULE = "stages.train.engines.verl.weights"
