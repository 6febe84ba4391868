"""A small rollout server for machines without an inference engine: batched sampling with a KV cache, through transformers.

It imports neither verl nor Megatron, so a server starts in the seconds that torch and transformers take.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

GATHER_S = 0.02
"""How long a batch waits for more requests: those of one iteration arrive within milliseconds."""


@dataclass
class Response:
    """What verl's agent loop reads of an answer: the fields of verl's own ``TokenOutput``, which only verl's import would give."""

    token_ids: list[int]
    log_probs: list[float]
    extra_fields: dict[str, Any] = field(default_factory=dict)
    routed_experts: None = None
    stop_reason: str = "completed"
    num_preempted: int = 0


class HfServer:
    """A Ray actor: one model replica of the rollout."""

    def __init__(self, *, model_path: str, replica: int, seed: int, response_tokens: int, max_sequences: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        tokenizer = AutoTokenizer.from_pretrained(model_path)
        self._pad, self._end = tokenizer.pad_token_id, tokenizer.eos_token_id
        self._model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        self._replica, self._seed = replica, seed
        self._response_tokens, self._max_sequences = response_tokens, max_sequences
        self._step: int | None = None
        self._seen: dict[tuple[int, ...], int] = {}
        self._queue: asyncio.Queue[tuple[list[int], dict[str, Any], asyncio.Future[Any]]] = asyncio.Queue()
        self._open = asyncio.Event()
        self._open.set()
        self._sampling = asyncio.Lock()
        self._loop_task: asyncio.Task[None] | None = None
        self._work = {"sequences": 0, "tokens": 0, "seconds": 0.0}

    async def address(self) -> str:
        return f"hetrl-hf-{self._replica}:0"

    async def take_work(self) -> dict[str, float]:
        """Sequences, tokens (prompt and response) and seconds since the last call."""
        work, self._work = self._work, {"sequences": 0, "tokens": 0, "seconds": 0.0}
        return work

    async def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any) -> Any:
        await self._open.wait()
        if self._loop_task is None:
            self._loop_task = asyncio.create_task(self._serve())
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self._queue.put((list(prompt_ids), dict(sampling_params), answer))
        return await answer

    async def _serve(self) -> None:
        while True:
            batch = [await self._queue.get()]
            await asyncio.sleep(GATHER_S)
            await self._open.wait()
            while not self._queue.empty() and len(batch) < self._max_sequences:
                batch.append(self._queue.get_nowait())
            try:
                async with self._sampling:
                    sampled = await asyncio.to_thread(self._sample, [(prompt, params) for prompt, params, _ in batch])
                for (_, _, answer), output in zip(batch, sampled, strict=True):
                    answer.set_result(output)
            except Exception as error:
                for _, _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)

    def _sample(self, requests: list[tuple[list[int], dict[str, Any]]]) -> list[Response]:
        """Sample all requests together: prompts padded on the left, one draw a step and sequence."""
        import torch

        started = time.monotonic()
        prompts = [prompt for prompt, _ in requests]
        temperatures = torch.tensor([params.get("temperature", 1.0) for _, params in requests])
        limit = max(params.get("max_tokens") or self._response_tokens for _, params in requests)
        draws = [self._generator(prompt) for prompt in prompts]
        width = max(map(len, prompts))
        tokens = torch.full((len(prompts), width), self._pad)
        mask = torch.zeros_like(tokens)
        for row, prompt in enumerate(prompts):
            tokens[row, width - len(prompt):] = torch.tensor(prompt)
            mask[row, width - len(prompt):] = 1
        chosen, log_probs = [], []
        ended = torch.zeros(len(prompts), dtype=torch.bool)
        cache = None
        with torch.no_grad():
            for _ in range(limit):
                positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1]:]
                output = self._model(input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True)
                cache = output.past_key_values
                scores = (output.logits[:, -1].float() / temperatures.clamp(min=1e-6)[:, None]).log_softmax(-1)
                # Gumbel's trick with a generator a request: what a request draws does not depend on its neighbours in the batch.
                noise = torch.stack([torch.rand(scores.shape[1], generator=g).clamp(min=1e-20) for g in draws])
                noise[temperatures == 0] = 0.5
                token = (scores - (-noise.log()).log()).argmax(-1)
                chosen.append(token)
                log_probs.append(scores.gather(1, token[:, None])[:, 0])
                tokens = token[:, None]
                mask = torch.cat([mask, torch.ones(len(prompts), 1, dtype=mask.dtype)], 1)
                ended |= token == self._end
                if ended.all():
                    break
        outputs = self._cut(torch.stack(chosen, 1).tolist(), torch.stack(log_probs, 1).tolist())
        self._work["sequences"] += len(outputs)
        self._work["tokens"] += sum(len(p) + len(o.token_ids) for p, o in zip(prompts, outputs, strict=True))
        self._work["seconds"] += time.monotonic() - started
        return outputs

    def _cut(self, rows: list[list[int]], log_probs: list[list[float]]) -> list[Response]:
        outputs = []
        for row, values in zip(rows, log_probs, strict=True):
            length = row.index(self._end) + 1 if self._end in row else len(row)
            outputs.append(Response(row[:length], values[:length], {"global_steps": self._step}))
        return outputs

    def _generator(self, prompt: list[int]) -> Any:
        """A random stream of its own for each request: seed, step, replica, prompt, and how often the prompt was asked this step."""
        import torch

        key = tuple(prompt)
        self._seen[key] = self._seen.get(key, 0) + 1
        text = repr((self._seed, self._step, self._replica, key, self._seen[key]))
        return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big"))

    async def load_weights(self, named: list[tuple[str, Any]], global_steps: int | None) -> None:
        """Replace every parameter. Raises ``ValueError`` naming what is missing or unknown."""
        import torch

        own, given = dict(self._model.named_parameters()), dict(named)
        if set(own) != set(given):
            missing, unknown = sorted(set(own) - set(given)), sorted(set(given) - set(own))
            raise ValueError(f"weights do not fit the model: missing {missing[:3]}, unknown {unknown[:3]}")
        with torch.no_grad():
            for name, value in given.items():
                own[name].copy_(value)
        self._seen.clear()
        if global_steps is not None:
            self._step = global_steps

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """Ends when nothing is being sampled any more: a batch that has begun is finished, what waits goes on when the door opens again."""
        self._open.clear()
        async with self._sampling:
            pass

    async def resume_generation(self) -> None:
        self._open.set()

    async def hold(self) -> None:
        """Never answers: a call that ends tells the caller that this process died."""
        await asyncio.Event().wait()

    async def sleep(self, *_: Any, **__: Any) -> None:
        """A CPU has no memory to hand over: sleeping, waking and releasing caches are nothing to do."""

    wake_up = clear_kv_cache = release_kv_cache = resume_kv_cache = start_profile = stop_profile = sleep
