"""The reward model's folder as Megatron reads it: a transformer whose head is one number, scored at a sequence's last token.

Hugging Face keeps that head as ``score.weight`` (``…ForSequenceClassification``), mbridge looks for it where a language model has its
vocabulary's (``lm_head.weight``). The folder made here holds links to the model's own files and the head under both names.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from artifacts.base import digest
from artifacts.errors import InputError
from artifacts.model_spec import ModelSpec

HEAD, AS_MEGATRON_NAMES_IT = "score.weight", "lm_head.weight"
_HEAD_FILE, _INDEX = "reward-head.safetensors", "model.safetensors.index.json"


def with_head(model: Path, *, cache: Path) -> Path:
    """A folder for Megatron, made below ``cache``, of a Hugging Face folder with a reward model in safetensors.

    Raises:
        InputError: there is no head of one number, by its name or by its shape.
    """
    from safetensors import safe_open
    from safetensors.torch import save_file

    where = {name: path.name for path in sorted(model.glob("*.safetensors")) for name in _names(path)}
    if HEAD not in where:
        raise InputError(f"{model} holds no reward model: there is no {HEAD} in its safetensors files",
                         fix="give a folder saved from a ...ForSequenceClassification with one label")
    with safe_open(model / where[HEAD], framework="pt") as file:
        head = file.get_tensor(HEAD)
    if head.dim() != 2 or head.shape[0] != 1:
        raise InputError(f"the reward model {model} gives {head.shape[0]} numbers a sequence; a reward is one",
                         fix="give a model with num_labels 1")
    folder = cache / f"reward-{digest([str(model.resolve()), where])[:16]}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in model.iterdir():
        if path.is_file() and path.name != _INDEX:
            os.symlink(path.resolve(), folder / path.name)
    save_file({AS_MEGATRON_NAMES_IT: head}, folder / _HEAD_FILE)
    index = {"metadata": {}, "weight_map": {**where, AS_MEGATRON_NAMES_IT: _HEAD_FILE}}
    (folder / _INDEX).write_text(json.dumps(index), encoding="utf-8")
    return folder


def build_toy_reward_model(spec: ModelSpec, language_model: Path, *, seed: int, cache: Path) -> Path:
    """A reward model with random weights and the tokenizer of ``language_model``, a toy of the same shape; found again below ``cache``.

    What it rewards means nothing. That a policy can raise it shows that the whole chain works.
    """
    import torch
    from transformers import AutoConfig, Qwen3ForSequenceClassification

    folder = cache / f"{spec.name}-reward-{digest([language_model.name, seed, 1])[:16]}"
    if folder.is_dir():
        return folder
    scratch = cache / f".{folder.name}.{os.getpid()}"
    shutil.copytree(language_model, scratch)
    (scratch / "model.safetensors").unlink()
    config = AutoConfig.from_pretrained(language_model)
    config.num_labels, config.tie_word_embeddings = 1, False
    with torch.random.fork_rng():
        torch.manual_seed(seed + 1)  # not the actor's own weights
        model = Qwen3ForSequenceClassification(config).float()
        with torch.no_grad():
            model.get_input_embeddings().weight[config.pad_token_id].normal_(0.0, config.initializer_range)
            model.score.weight.normal_(0.0, config.hidden_size**-0.5)  # rewards that differ by about one
    model.save_pretrained(scratch)
    scratch.rename(folder)
    return folder


def check_tokenizer(reward: Path, actor: Path) -> None:
    """Raise ``InputError`` unless both read the same tokens: the reward model is given the actor's, not its text."""
    from transformers import AutoTokenizer

    read, sampled = (AutoTokenizer.from_pretrained(str(path)).get_vocab() for path in (reward, actor))
    differ = next((token for token, number in sampled.items() if read.get(token) != number), None)
    if differ is not None:
        raise InputError(f"the reward model {reward} has another tokenizer than the actor: {differ!r} is not the same token in both",
                         fix="choose a reward model of the actor's family")


def _names(path: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return list(file.keys())
