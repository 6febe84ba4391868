"""Settings of the docker runner from the environment, and who a container runs as."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifacts.errors import InputError
from flows.launch import access
from flows.launch.docker_settings import DockerSettings


def test_defaults_name_the_images_of_this_project() -> None:
    settings = DockerSettings.from_env({})
    assert settings.image("train") == "hetrl/train:latest"
    assert settings.device_requests() == [] and settings.network is None and settings.memory is None


def test_a_registry_and_a_tag() -> None:
    settings = DockerSettings.from_env({"HETRL_IMAGE_PREFIX": "registry.example:5000/team/hetrl-", "HETRL_IMAGE_TAG": "1.2"})
    assert settings.image("train") == "registry.example:5000/team/hetrl-train:1.2"


@pytest.mark.parametrize(("text", "count", "devices"), [("all", -1, None), ("2", 2, None), ("device=0,2", 0, ["0", "2"]),
                                                        ("device=GPU-5fd4,MIG-a/1", 0, ["GPU-5fd4", "MIG-a/1"])])
def test_gpus_are_asked_for_as_docker_run_does(text: str, count: int, devices: list[str] | None) -> None:
    (wanted,) = DockerSettings.from_env({"HETRL_DOCKER_GPUS": text}).device_requests()
    assert (wanted.count or 0, wanted.device_ids or None, wanted.capabilities) == (count, devices, [["gpu"]])


@pytest.mark.parametrize(("name", "value"), [("HETRL_DOCKER_GPUS", "some"), ("HETRL_DOCKER_MEMORY", "lots"), ("HETRL_DOCKER_SHM", "-1g"),
                                             ("HETRL_DOCKER_CPUS", "0"), ("HETRL_DOCKER_PIDS", "0"), ("HETRL_DOCKER_CPUS", "two")])
def test_a_setting_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(InputError, match=name):
        DockerSettings.from_env({name: value})


def granted(tmp_path: Path, store: str, **fields: bool) -> access.Access:
    return access.grant(store, workdir=tmp_path, extra_mounts=[], network=None, rootless=fields.get("rootless", False))


def test_a_rootless_engine_maps_uid_0_to_the_caller(tmp_path: Path) -> None:
    found = granted(tmp_path, f"file://{tmp_path}/store", rootless=True)
    assert (found.uid, found.gid) == (0, 0)


def test_any_caller_but_root_is_itself_in_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1234)
    monkeypatch.setattr("os.getegid", lambda: 99)
    for store in ("s3://bucket", f"file://{tmp_path}/store"):
        found = granted(tmp_path, store)
        assert (found.uid, found.gid) == (1234, 99)


def test_credentials_of_a_profile_are_resolved_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = AKIALAB\naws_secret_access_key = of-the-profile\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    environment = granted(tmp_path, "s3://bucket").environment
    assert (environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]) == ("AKIALAB", "of-the-profile")
    assert "AWS_PROFILE" not in environment
    assert not any(name.startswith("AWS_") for name in granted(tmp_path, f"file://{tmp_path}/store").environment)


def test_a_private_certificate_authority_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text("certificate")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    found = granted(tmp_path, "s3://bucket")
    assert found.environment["AWS_CA_BUNDLE"] == "/hetrl/ca.pem"
    assert {"Target": "/hetrl/ca.pem", "Source": str(tmp_path / "ca.pem"), "Type": "bind", "ReadOnly": True} in found.mounts
