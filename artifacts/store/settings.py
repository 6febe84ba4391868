"""Where the store's settings come from: the usual AWS variables and a few of ours, read once, never printed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from artifacts.errors import InputError

_YES, _NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


@dataclass(frozen=True)
class StoreSettings:
    """How an S3 store is reached. ``repr`` leaves the secrets out."""

    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str = "us-east-1"
    endpoint_url: str | None = None
    ca_bundle: str | None = None
    path_style: bool = False
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0
    attempts: int = 3
    multipart_above_bytes: int = 4 << 30
    """One PUT holds at most 5 GiB; larger files go in parts, which no server commits conditionally everywhere."""

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> StoreSettings:
        """Settings from ``env`` (default: the process environment). Raises ``InputError`` naming the variable that cannot be used.

        Without ``AWS_ACCESS_KEY_ID`` the SDK's own chain (profile, instance role) is asked.
        """
        env = os.environ if env is None else env
        key, secret = env.get("AWS_ACCESS_KEY_ID") or None, env.get("AWS_SECRET_ACCESS_KEY") or None
        if (key is None) != (secret is None):
            given, lacking = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if key else ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID")
            raise InputError(f"{given} is set but {lacking} is not", fix="set both, or neither")
        endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or None
        bundle = env.get("AWS_CA_BUNDLE") or None
        if bundle and not Path(bundle).is_file():
            raise InputError(f"AWS_CA_BUNDLE: {bundle} is not a file", fix="point it at a PEM file, or unset it")
        return cls(
            access_key_id=key,
            secret_access_key=secret,
            session_token=env.get("AWS_SESSION_TOKEN") or None,
            region=env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1",
            endpoint_url=_endpoint(endpoint),
            ca_bundle=bundle,
            path_style=_flag(env, "HETRL_S3_PATH_STYLE", default=endpoint is not None),
            connect_timeout_s=_number(env, "HETRL_S3_CONNECT_TIMEOUT_S", default=5.0),
            read_timeout_s=_number(env, "HETRL_S3_READ_TIMEOUT_S", default=60.0),
            attempts=int(_number(env, "HETRL_S3_ATTEMPTS", default=3)),
        )

    @property
    def loopback(self) -> bool:
        """The endpoint is on this machine: no proxy is asked for it."""
        host = urlsplit(self.endpoint_url or "").hostname or ""
        return host in {"localhost", "::1"} or host.startswith("127.")


def _endpoint(url: str | None) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise InputError("AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL) is not an http(s) address", fix="write it like http://127.0.0.1:8333")
    if parts.username or parts.password:
        raise InputError("AWS_ENDPOINT_URL_S3 holds credentials", fix="move them to AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    return url.rstrip("/")


def _flag(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = env.get(name, "").strip().lower()
    if text and text not in _YES | _NO:
        raise InputError(f"{name}={text[:20]!r} is neither true nor false", fix="use true or false")
    return default if not text else text in _YES


def _number(env: Mapping[str, str], name: str, *, default: float) -> float:
    text = env.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if not 0.05 <= value <= 86400 or (name.endswith("ATTEMPTS") and value < 1):
        raise InputError(f"{name}={text[:20]!r} cannot be used", fix="give a positive number")
    return value
