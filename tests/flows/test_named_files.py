"""Stages that open a job's model and data are given them, and nothing else of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from artifacts.errors import StageCrashed
from artifacts.job import load_job
from flows.launch.base import Mount
from flows.named_files import named_files
from flows.session import RunRequest, new_run_id, open_run

ROOT = Path(__file__).parents[2]
JOB, PRETRAINED, PAIR = (ROOT / "infra" / name for name in ("jobs/qwen3-4b-grpo.yaml", "jobs/smollm2-grpo.yaml",
                                                            "clusters/workstation-pair.yaml"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder as a download leaves it: one file of its own, one a link."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1f2e").write_text("weights")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").symlink_to("../blobs/1f2e")
    return folder


def test_folders_links_and_files_that_are_here(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "train.parquet"
    data.touch()
    gone = f"dataset={{kind: parquet, train_file: {data}, validation_file: {tmp_path / 'gone.parquet'}}}"
    job = load_job(str(JOB), [gone])
    assert named_files(job) == [Mount(data, str(data))], "an id is no folder of this machine"
    actor = job.model("actor").model_copy(update={"hf_id": str(model)})
    mounts = named_files(job.model_copy(update={"models": {"actor": actor}}))
    assert mounts == [Mount(path, str(path), read_only=True) for path in (tmp_path / "blobs", model, data)]
    generated = load_job(str(JOB), [f"dataset.train_file={data}"])
    assert named_files(generated) == [], "reasoning-gym's prompts are in no file"


def test_only_stages_that_open_them_are_given_them(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = open_run(RunRequest(job=str(PRETRAINED), cluster=str(PAIR), until_stage="deploy", budget="20",
                                   store=(tmp_path / "store").as_uri(), overrides=(f"models.actor.hf_id={model}",)), run_id=new_run_id())
    given: dict[str, Any] = {}
    run = pipeline.runner.run

    def recorded(request: Any, **arguments: Any) -> Any:
        given[request.stage] = [mount.target for mount in arguments["extra_mounts"]]
        if request.stage == "deploy":
            raise StageCrashed("enough is seen")
        return run(request, **arguments)

    monkeypatch.setattr(pipeline.runner, "run", recorded)
    for stage in ("profile", "schedule"):
        pipeline.step(stage, lambda stage, event: None)
    with pytest.raises(StageCrashed, match="enough is seen"):
        pipeline.step("deploy", lambda stage, event: None)
    assert given == {"profile": [], "schedule": [], "deploy": [str(tmp_path / "blobs"), str(model)]}
