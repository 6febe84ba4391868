"""Prompts, rewards, the toy model and its tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artifacts.catalog import models
from artifacts.errors import InputError
from artifacts.job import Dataset
from stages.train.dataset import write_prompts
from stages.train.toy_model import build_toy_model

pytest.importorskip("reasoning_gym")
pq = pytest.importorskip("pyarrow.parquet")

GCD = Dataset(task="gcd", options={"min_numbers": 3, "max_numbers": 3, "min_value": 1, "max_value": 9}, size=20)


def test_prompts_are_rows_verl_reads(tmp_path: Path) -> None:
    prompts = write_prompts(GCD, seed=0, folder=tmp_path)
    rows = pq.read_table(prompts.train_file).to_pylist()
    assert len(rows) == 20
    first = rows[0]
    assert first["data_source"] == "reasoning_gym/gcd"
    assert [m["role"] for m in first["prompt"]] == ["user"]
    entry = json.loads(first["reward_model"]["ground_truth"])
    assert entry["question"] == first["prompt"][0]["content"]
    assert len({row["extra_info"]["index"] for row in rows}) == 20


def test_prompts_depend_on_the_seed_and_nothing_else(tmp_path: Path) -> None:
    texts = [write_prompts(GCD, seed=seed, folder=tmp_path / str(i)).texts for i, seed in enumerate((0, 0, 1))]
    assert texts[0] == texts[1] != texts[2]


def test_the_scorer_is_the_tasks_own(tmp_path: Path) -> None:
    from stages.train.engines.verl.score import compute_score

    row = pq.read_table(write_prompts(GCD, seed=0, folder=tmp_path).train_file).to_pylist()[0]
    truth = row["reward_model"]["ground_truth"]
    answer = json.loads(truth)["answer"]
    assert compute_score(row["data_source"], f" {answer}\n", truth) == 1.0
    assert 0 < compute_score(row["data_source"], f"it is {answer}", truth) < 1
    assert compute_score(row["data_source"], "", truth) == 0.0


@pytest.mark.parametrize(("dataset", "message"), [
    (Dataset(task="gcdd"), "no 'gcdd'.*gcd"), (Dataset(task="gcd", options={"colour": 3}), "refuses"),
    (Dataset(kind="parquet", train_file="/nowhere.parquet"), "cannot read"),
])
def test_datasets_that_cannot_be(dataset: Dataset, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        write_prompts(dataset, seed=0, folder=tmp_path)
    import re

    assert re.search(message, error.value.line)


def test_own_parquet_files_are_checked_for_verls_columns(tmp_path: Path) -> None:
    import pyarrow as pa

    pq.write_table(pa.table({"prompt": ["x"], "data_source": ["y"]}), tmp_path / "bad.parquet")
    with pytest.raises(InputError, match="lacks the columns reward_model"):
        write_prompts(Dataset(kind="parquet", train_file=str(tmp_path / "bad.parquet")), seed=0, folder=tmp_path)
    good = write_prompts(GCD, seed=0, folder=tmp_path).train_file
    assert write_prompts(Dataset(kind="parquet", train_file=str(good)), seed=0, folder=tmp_path).validation_file == good


def test_the_toy_model_is_the_specification(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = models()["tiny-qwen3"]
    folder = build_toy_model(spec, ["the answer is 42"], seed=3, max_positions=64, cache=tmp_path)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert sum(p.numel() for p in model.parameters()) == spec.params()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) <= spec.vocab
    text = "Grüße, 42 \u2713"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False)
    assert chat == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_no_embedding_row_is_zero(tmp_path: Path) -> None:
    """Not the padding token's either: a random policy samples it, and a zero row's gradient drowns all others."""
    from transformers import AutoModelForCausalLM

    folder = build_toy_model(models()["tiny-qwen3"], ["x"], seed=0, max_positions=64, cache=tmp_path)
    weight = AutoModelForCausalLM.from_pretrained(folder).get_input_embeddings().weight
    assert weight.norm(dim=1).min() > 0.01


def test_the_toy_model_is_made_once_per_content(tmp_path: Path) -> None:
    spec = models()["tiny-qwen3"]
    first = build_toy_model(spec, ["b", "a"], seed=0, max_positions=64, cache=tmp_path)
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert build_toy_model(spec, ["a", "b", "b"], seed=0, max_positions=64, cache=tmp_path) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp
    other = build_toy_model(spec, ["a", "b"], seed=1, max_positions=64, cache=tmp_path)
    assert other != first
    assert (other / "model.safetensors").read_bytes() != (first / "model.safetensors").read_bytes()
    assert (other / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(("fields", "message"), [({"vocab": 200}, "byte-level"), ({"qk_norm": False}, "Qwen3")])
def test_toy_models_that_cannot_be(fields: dict, message: str, tmp_path: Path) -> None:
    spec = models()["tiny-qwen3"].model_copy(update=fields)
    with pytest.raises(InputError, match=message):
        build_toy_model(spec, ["x"], seed=0, max_positions=64, cache=tmp_path)
    assert not any(p for p in tmp_path.iterdir() if not p.name.startswith("."))
