"""What a stage container is given of this machine: a user, a store, credentials, folders. No more than that."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docker import types

from artifacts.errors import InputError
from artifacts.store.settings import StoreSettings
from artifacts.store.url import parse_url
from flows.launch.base import Mount
from flows.launch.output import SECRET_NAME

WORKDIR = "/hetrl/work"
_CA_BUNDLE = "/hetrl/ca.pem"
_NOBODY = 65534
_S3_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
                 "AWS_ENDPOINT_URL_S3", "AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION")
_NOT_FOR_STAGES = ("HETRL_DOCKER_", "HETRL_IMAGE_", "HETRL_STAGE_")


@dataclass(frozen=True)
class Access:
    """Who the stage is in its container and what it sees. The environment holds credentials: it is not for logs or labels."""

    uid: int
    gid: int
    environment: dict[str, str]
    mounts: list[types.Mount]
    network: str


def grant(store: str, *, workdir: Path, extra_mounts: Sequence[Mount], network: str | None, rootless: bool) -> Access:
    """The access a stage needs for its store, its work folder and ``extra_mounts``.

    The user is never root, with one exception: a root caller whose ``file://`` store belongs to root. (With a rootless
    engine the container's uid 0 is the caller, who is no root here.) Raises ``InputError`` for a mount that is not there.
    """
    url = parse_url(store)
    settings = StoreSettings.from_env() if url.scheme == "s3" else None
    folder = Path(url.root) if url.scheme == "file" else None
    mounts = [types.Mount(WORKDIR, str(workdir), type="bind")]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        mounts.append(types.Mount(str(folder), str(folder), type="bind"))
    for extra in extra_mounts:
        if not extra.source.exists():
            raise InputError(f"{extra.source}, to be mounted as {extra.target}, does not exist", fix="check the path")
        mounts.append(types.Mount(extra.target, str(extra.source.absolute()), type="bind", read_only=extra.read_only))
    environment = _environment(os.environ, settings)
    if settings is not None and settings.ca_bundle:
        mounts.append(types.Mount(_CA_BUNDLE, str(Path(settings.ca_bundle).absolute()), type="bind", read_only=True))
        environment["AWS_CA_BUNDLE"] = _CA_BUNDLE
    uid, gid = (0, 0) if rootless else _user(folder)
    loopback = settings is not None and settings.loopback
    return Access(uid=uid, gid=gid, environment=environment, mounts=mounts, network=network or ("host" if loopback else "bridge"))


def hand_over(workdir: Path, access: Access) -> None:
    """Give the work folder and the request in it to the container's user (only root can, and only root needs to).

    Raises ``InputError`` where this root may not: one in a container without that capability.
    """
    if os.geteuid() != 0:
        return
    try:
        for path in (workdir, *workdir.iterdir()):
            os.chown(path, access.uid, access.gid, follow_symlinks=False)
    except PermissionError:
        raise InputError(f"this root may not give {workdir} to the stage's user {access.uid}",
                         fix="run the flow as another user (of infra/compose.yaml: HETRL_UID), who owns the folder") from None


def _user(store_folder: Path | None) -> tuple[int, int]:
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    if store_folder is not None:
        owner = store_folder.stat()
        return owner.st_uid, owner.st_gid
    return _NOBODY, _NOBODY


def _environment(env: Mapping[str, str], settings: StoreSettings | None) -> dict[str, str]:
    """The variables a stage needs: the store's, and ours that are neither about launching nor secret."""
    chosen = {name: value for name, value in env.items()
              if name.startswith("HETRL_") and not name.startswith(_NOT_FOR_STAGES) and not SECRET_NAME.search(name)}
    if settings is not None:
        chosen.update({name: env[name] for name in _S3_VARIABLES if env.get(name)})
        if settings.access_key_id is None:
            chosen.update(_profile_credentials())
    # There is no entry for this user in the image's /etc/passwd; libraries ask these first.
    return {**chosen, "HOME": "/tmp", "USER": "hetrl", "LOGNAME": "hetrl", "TMPDIR": "/tmp", "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1"}


def _profile_credentials() -> dict[str, str]:
    """Credentials from the caller's AWS profile, which a container cannot read. An instance's role is left to the SDK inside."""
    home = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials")
    if not os.environ.get("AWS_PROFILE") and not home.is_file():
        return {}
    import botocore.session

    found = botocore.session.get_session().get_credentials()
    if found is None:
        return {}
    frozen = found.get_frozen_credentials()
    values = {"AWS_ACCESS_KEY_ID": frozen.access_key, "AWS_SECRET_ACCESS_KEY": frozen.secret_key, "AWS_SESSION_TOKEN": frozen.token}
    return {name: value for name, value in values.items() if value}
