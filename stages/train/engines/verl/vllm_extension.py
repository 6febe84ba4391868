"""What verl adds to vLLM's own worker process, for vLLM's CPU build."""

from __future__ import annotations

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """Weights through ``reload_weights``: the CPU build packs linear layers and frees the originals, so verl's ``load_weights`` finds
    nothing to write to."""

    model_runner: Any

    def update_weights_from_ipc(self, peft_config: Any = None, base_sync_done: bool = False, use_shm: bool = False) -> None:
        received: list[tuple[str, torch.Tensor]] = []

        def keep(weights: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
            received.extend((name, tensor.clone()) for name, tensor in weights)  # the bucket is written over by the next

        BucketedWeightReceiver(zmq_handle=self._get_zmq_handle(), device=torch.device("cpu"), use_shm=use_shm).receive_weights(
            on_bucket_received=keep)
        self.model_runner.reload_weights(weights_iterator=iter(received))
