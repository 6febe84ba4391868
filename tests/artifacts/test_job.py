"""Jobs: what can be, what cannot, and what the user is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifacts.errors import InputError
from artifacts.job import Job, load_job
from tests.artifacts import samples

JOBS = sorted((Path(__file__).parents[2] / "infra/jobs").glob("*.yaml"))
TINY = next(p for p in JOBS if p.name == "tiny-grpo.yaml")


@pytest.mark.parametrize("path", JOBS, ids=lambda p: p.stem)
def test_shipped_jobs_load(path: Path) -> None:
    assert load_job(str(path)).name == path.stem


def test_tasks_follow_the_algorithm() -> None:
    assert samples.job().tasks() == ["rollout", "reference_inference", "actor_training"]
    assert samples.job(algorithm="ppo", reward="model").tasks() == [
        "rollout", "reward_inference", "reference_inference", "critic_inference", "actor_training", "critic_training"]


def test_override_changes_one_field() -> None:
    job = load_job(str(TINY), ["batch.prompts=16", "mode=async", "models.actor=Qwen3-0.6B"])
    assert (job.batch.prompts, job.mode, job.model("actor").layers, job.model("reference").layers) == (16, "async", 28, 28)


def test_folders_and_files_are_named_in_full_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "small").mkdir(parents=True)
    (tmp_path / "train.parquet").touch()
    spec = load_job(str(TINY)).model("actor").model_dump()
    set_model = f"models.actor={ {**spec, 'hf_id': 'models/small'} }"
    job = load_job(str(TINY), [set_model, "dataset.kind=parquet", "dataset.train_file=./train.parquet", "models.reward=Qwen3-0.6B"])
    assert job.model("actor").hf_id == str(tmp_path / "models" / "small") and job.dataset.train_file == str(tmp_path / "train.parquet")
    assert job.dataset.validation_file == "" and job.model("reward").hf_id == "Qwen/Qwen3-0.6B"
    assert load_job(str(TINY), ["models.actor=Qwen3-0.6B", "dataset.train_file=none"]).dataset.train_file == "none"


@pytest.mark.parametrize(("overrides", "says"), [
    (["bath.prompts=8"], "bath: unknown key; known here: .*batch"),
    (["batch.promts=8"], "batch.promts: unknown key; known here: .*prompts"),
    (["batch.mini_batch_prompts=3"], "mini_batch_prompts 3 does not divide prompts 8"),
    (["batch.mini_batch_prompts=16"], "more than prompts 8"),
    (["batch.micro_batch_sequences=64"], "more than a mini-batch holds"),
    (["batch.responses_per_prompt=1", "batch.micro_batch_sequences=1"], "at least 2"),
    (["batch.prompts=.nan"], "batch.prompts"),
    (["response_tokens.mean=99"], "mean 99 is above max"),
    (["models.actor=Qwen9"], "model 'Qwen9' is not in the catalog"),
    (["nonsense"], "not of the form"),
    (["name.x=1"], "name is not a section|names? .*section|is not a section"),
    (["name=../../etc"], "is not a name"),
])
def test_what_cannot_be_is_refused_in_one_line(overrides: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says) as raised:
        load_job(str(TINY), overrides)
    assert raised.value.exit_status == 2
    assert "\n" not in raised.value.line


@pytest.mark.parametrize(("text", "says"), [
    ("a: [", "is not YAML"),
    ("- 1", "holds list, not a job"),
    ("!!python/object/apply:os.system [true]", "is not YAML"),
    ("{}", "name: missing"),
])
def test_files_that_are_no_jobs(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        load_job(str(path))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nowhere.yaml: No such file"):
        load_job(str(tmp_path / "nowhere.yaml"))


def test_optimizer_steps_are_counted_from_the_batch() -> None:
    body = samples.job().model_dump(mode="json")
    body["batch"] |= {"prompts": 8, "mini_batch_prompts": 2, "epochs": 3}
    assert Job.parse(body, where="x").batch.optimizer_steps == 12
