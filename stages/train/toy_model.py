"""A small model with random weights and a tokenizer, made on the spot from a :class:`ModelSpec` that names no weights.

Nothing is downloaded. The same specification, texts and seed give the same files, so the folder is a cache.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from artifacts.base import digest
from artifacts.errors import InputError
from artifacts.model_spec import ModelSpec

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (PAD, START, END)
CHAT_TEMPLATE = (
    "{% for message in messages %}" + START + "{{ message['role'] }}\n{{ message['content'] }}" + END + "\n{% endfor %}"
    "{% if add_generation_prompt %}" + START + "assistant\n{% endif %}"
)


def build_toy_model(spec: ModelSpec, texts: Iterable[str], *, seed: int, max_positions: int, cache: Path) -> Path:
    """A Hugging Face folder (config, safetensors, tokenizer) for ``spec``; made once per content, found again below ``cache``.

    Raises:
        InputError: the specification is not one the Qwen3 architecture can hold.
    """
    texts = sorted(set(texts))
    key = digest({"spec": spec.model_dump(), "texts": texts, "seed": seed, "positions": max_positions, "recipe": 1})[:16]
    folder = cache / f"{spec.name}-{key}"
    if folder.is_dir():
        return folder
    if spec.qkv_bias or not spec.qk_norm:
        raise InputError(f"model {spec.name} has no hf_id and is not shaped like Qwen3 (qk_norm without qkv_bias)",
                         fix="give hf_id, or use qk_norm: true and qkv_bias: false")
    scratch = cache / f".{folder.name}.{os.getpid()}"
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        tokenizer = _tokenizer(texts, vocab=spec.vocab)
        tokenizer.save_pretrained(scratch)
        _model(spec, tokenizer, seed=seed, max_positions=max_positions).save_pretrained(scratch)
        scratch.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _tokenizer(texts: list[str], *, vocab: int):  # type: ignore[no-untyped-def]
    """A byte-level BPE over the job's own texts: any text can be written, frequent pieces are one token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    least = 256 + len(SPECIAL)
    if vocab < least:
        raise InputError(f"vocab {vocab} holds no byte-level tokenizer: 256 bytes and {len(SPECIAL)} marks need {least}", fix="raise vocab")
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=list(SPECIAL), show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    inner.train_from_iterator([*texts, "user assistant system"], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, pad_token=PAD, additional_special_tokens=[START])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _model(spec: ModelSpec, tokenizer, *, seed: int, max_positions: int):  # type: ignore[no-untyped-def]
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=spec.vocab, hidden_size=spec.hidden, intermediate_size=spec.intermediate, num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads, num_key_value_heads=spec.kv_heads, head_dim=spec.head_dim, max_position_embeddings=max_positions,
        tie_word_embeddings=spec.tied_embeddings, eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.pad_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    config.architectures = ["Qwen3ForCausalLM"]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config).float()
        # Transformers zeroes the padding token's row. A random policy samples that token, RMSNorm amplifies a zero vector without
        # bound, and the gradient of that one row then drowns all others under Megatron: the row gets ordinary values.
        with torch.no_grad():
            weight = model.get_input_embeddings().weight
            weight[tokenizer.pad_token_id].normal_(0.0, config.initializer_range)
    return model
