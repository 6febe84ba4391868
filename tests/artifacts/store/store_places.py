"""A place for a store to be in, with a back door to its objects: tests damage them as an accident would."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import boto3
from botocore.config import Config

from artifacts.manifest import Producer
from artifacts.store import Store, StoreSettings, open_store
from artifacts.store.url import parse_url


@dataclass(frozen=True)
class Place:
    url: str
    settings: StoreSettings | None = None

    def open(self, pipeline: str = "hetrl") -> Store:
        return open_store(self.url, pipeline=pipeline, settings=self.settings)

    def raw_get(self, key: str) -> bytes:
        if self.settings is None:
            return self._path(key).read_bytes()
        return self._client().get_object(Bucket=self._bucket, Key=self._full(key))["Body"].read()

    def raw_put(self, key: str, data: bytes) -> None:
        """Overwrite, which the store itself never does."""
        if self.settings is None:
            self._path(key).parent.mkdir(parents=True, exist_ok=True)
            self._path(key).write_bytes(data)
        else:
            self._client().put_object(Bucket=self._bucket, Key=self._full(key), Body=data)

    def raw_delete(self, key: str) -> None:
        if self.settings is None:
            self._path(key).unlink()
        else:
            self._client().delete_object(Bucket=self._bucket, Key=self._full(key))

    def _path(self, key: str) -> Path:
        return Path(parse_url(self.url).root, key)

    @property
    def _bucket(self) -> str:
        return parse_url(self.url).root

    def _full(self, key: str) -> str:
        prefix = parse_url(self.url).prefix
        return f"{prefix}/{key}" if prefix else key

    def _client(self):
        assert self.settings is not None
        return boto3.client(
            "s3", endpoint_url=self.settings.endpoint_url, region_name=self.settings.region,
            aws_access_key_id=self.settings.access_key_id, aws_secret_access_key=self.settings.secret_access_key,
            config=Config(s3={"addressing_style": "path"}, request_checksum_calculation="when_required", proxies={}),
        )


def own_url(prefix: str = "runs/one") -> str:
    """A place of its own in the one bucket of the tests (a bucket takes at least one of the server's volumes)."""
    return f"s3://hetrl-tests/t-{uuid.uuid4().hex[:12]}/{prefix}".rstrip("/")


def producer() -> Producer:
    now = datetime.now(UTC)
    return Producer(hetrl="0.1.0", code_digest="c0de", started_at=now, finished_at=now)
