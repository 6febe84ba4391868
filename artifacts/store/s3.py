"""The store in an S3 bucket. An object appears by PutObject with ``If-None-Match: *``: the one condition every server keeps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from artifacts.errors import StoreError
from artifacts.store.backend import CHUNK_BYTES, ObjectInfo, check_key
from artifacts.store.s3_errors import code_of, explain
from artifacts.store.settings import StoreSettings

_PROBE = ".conditional-put"
_ABSENT = {"NoSuchKey", "NoSuchBucket", "404", "NotFound"}


class S3Backend:
    """Objects of ``bucket`` below ``prefix``. The bucket is made by the first write when the credentials allow it."""

    def __init__(self, bucket: str, prefix: str, settings: StoreSettings) -> None:
        self.bucket, self.prefix, self.settings = bucket, prefix, settings
        self.url = f"s3://{bucket}" + (f"/{prefix}" if prefix else "")
        self._made: tuple[int, Any] | None = None
        self._conditional_put_checked = False

    def put_if_absent(self, key: str, data: bytes | Path) -> bool:
        self._check_conditional_put()
        if isinstance(data, Path) and data.stat().st_size > self.settings.multipart_above_bytes:
            return self._put_in_parts(key, data)
        if isinstance(data, bytes):
            return self._put(self._key(key), lambda: data)
        with data.open("rb") as handle:
            return self._put(self._key(key), lambda: _rewound(handle))

    def get(self, key: str) -> bytes | None:
        chunks = self.read_chunks(key)
        return None if chunks is None else b"".join(chunks)

    def read_chunks(self, key: str) -> Iterator[bytes] | None:
        with self._explained("read", key):
            try:
                body = self._client.get_object(Bucket=self.bucket, Key=self._key(key))["Body"]
            except ClientError as error:
                if code_of(error)[1] in _ABSENT:
                    return None
                raise
        return self._chunks(key, body)

    def _chunks(self, key: str, body: Any) -> Iterator[bytes]:
        with self._explained("read", key):
            yield from body.iter_chunks(CHUNK_BYTES)

    def objects(self, folder: str) -> list[ObjectInfo]:
        top, found = self._folder(folder), []
        cut = len(self.prefix) + 1 if self.prefix else 0
        for page in self._pages(folder, Prefix=top):
            for item in page.get("Contents", []):
                key = item["Key"][cut:]
                if not key.startswith(".") and not key.endswith("/"):
                    found.append(ObjectInfo(key, item["Size"], item["LastModified"].timestamp()))
        return sorted(found)

    def folders(self, folder: str) -> list[str]:
        top = self._folder(folder)
        pages = self._pages(folder, Prefix=top, Delimiter="/")
        names = {item["Prefix"][len(top):].rstrip("/") for page in pages for item in page.get("CommonPrefixes", [])}
        return sorted(name for name in names if name and not name.startswith("."))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:  # one by one: the batch call wants Content-MD5 or checksums, on which servers differ
            with self._explained("remove", key):
                self._client.delete_object(Bucket=self.bucket, Key=self._key(key))

    def sweep_unfinished(self, older_than_s: float) -> list[str]:
        removed, oldest, top = [], time.time() - older_than_s, self._folder("")
        with self._explained("sweep", ""):
            try:
                pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket, Prefix=top)
                uploads = [upload for page in pages for upload in page.get("Uploads", [])]
            except ClientError as error:
                if code_of(error)[1] in _ABSENT | {"NotImplemented"}:
                    return []
                raise
            for upload in uploads:
                if upload["Initiated"].timestamp() <= oldest:
                    self._client.abort_multipart_upload(Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                    removed.append(f"{upload['Key'][len(top):]} (unfinished upload)")
        return removed

    @property
    def _client(self) -> Any:
        """One client a process: sockets must not be shared with a forked child."""
        if self._made is None or self._made[0] != os.getpid():
            with self._explained("open", ""):
                self._made = (os.getpid(), _make_client(self.settings))
        return self._made[1]

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{check_key(key)}" if self.prefix else check_key(key)

    def _folder(self, folder: str) -> str:
        return f"{self._key(folder)}/" if folder else f"{self.prefix}/" if self.prefix else ""

    def _pages(self, folder: str, **arguments: str) -> list[dict[str, Any]]:
        with self._explained("list", folder):
            try:
                return list(self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, **arguments))
            except ClientError as error:
                if code_of(error)[1] == "NoSuchBucket":
                    return []
                raise

    def _put(self, full_key: str, body: Callable[[], Any]) -> bool:
        with self._explained("write", full_key, whole=True):
            for pause_s in (0.05, 0.1, 0.2, 0.4, 0.8, None):
                try:
                    self._client.put_object(Bucket=self.bucket, Key=full_key, Body=body(), IfNoneMatch="*")
                    return True
                except ClientError as error:
                    status, code = code_of(error)
                    if code == "NoSuchBucket" and pause_s:
                        self._create_bucket()
                    elif status == 412:
                        return _was_ours(error) and self._holds(full_key, body())
                    elif status == 409 and pause_s:  # two conditional puts met; AWS asks to try again
                        time.sleep(pause_s)
                    elif status == 501:
                        raise _no_conditional_put(self.url, "does not implement it (501)") from None
                    else:
                        raise
        raise AssertionError("unreachable")

    def _holds(self, full_key: str, body: Any) -> bool:
        """After a lost answer the SDK tries again and meets its own object: that was a success."""
        if not isinstance(body, bytes):
            return False  # the caller stores it under another name; the sweep takes this one
        return self._client.get_object(Bucket=self.bucket, Key=full_key)["Body"].read() == body

    def _put_in_parts(self, key: str, path: Path) -> bool:
        """For files beyond one PUT. Not conditional: the writer gives these a key nobody else has."""
        parts = TransferConfig(multipart_chunksize=64 << 20, multipart_threshold=1, max_concurrency=4)
        with self._explained("write", key):
            if any(info.key == key for info in self.objects(os.path.dirname(key))):
                return False
            self._client.upload_file(str(path), self.bucket, self._key(key), Config=parts)
        return True

    def _create_bucket(self) -> None:
        where = {} if self.settings.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": self.settings.region}}
        try:
            self._client.create_bucket(Bucket=self.bucket, **where)
        except ClientError as error:
            if code_of(error)[1] not in {"BucketAlreadyOwnedByYou", "OperationAborted"}:
                raise explain(error, action="create bucket", where=self.bucket, endpoint=self._endpoint) from None

    def _check_conditional_put(self) -> None:
        """Some servers ignore the condition and overwrite in silence; on those nothing here would be safe."""
        if self._conditional_put_checked:
            return
        probe = f"{self.prefix}/{_PROBE}" if self.prefix else _PROBE
        if self._put(probe, lambda: b"This server keeps 'If-None-Match: *'.\n") and self._put(probe, lambda: b"It does not.\n"):
            raise _no_conditional_put(self.url, "ignores it and overwrites")
        self._conditional_put_checked = True

    @property
    def _endpoint(self) -> str:
        return self.settings.endpoint_url or f"AWS ({self.settings.region})"

    @contextmanager
    def _explained(self, action: str, key: str, *, whole: bool = False) -> Iterator[None]:
        where = f"s3://{self.bucket}/{key}" if whole else f"{self.url}/{key}".rstrip("/")
        try:
            yield
        except (ClientError, BotoCoreError, HTTPClientError) as error:
            raise explain(error, action=action, where=where, endpoint=self._endpoint) from None
        except Boto3Error as error:  # s3transfer wraps what it met
            cause = error.__cause__ or error.__context__ or error
            raise explain(cause if isinstance(cause, Exception) else error, action=action, where=where, endpoint=self._endpoint) from None
        except ValueError as error:
            raise StoreError(f"cannot {action} {where}: {error}", fix="check the AWS_* variables") from None


def _make_client(settings: StoreSettings) -> Any:
    session = boto3.session.Session(
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret_access_key,
        aws_session_token=settings.session_token,
        region_name=settings.region,
    )
    # Many servers refuse the checksum headers that newer SDKs send unasked; our own sha256 is in the manifest.
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path" if settings.path_style else "auto"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        retries={"mode": "standard", "max_attempts": settings.attempts},
        proxies={} if settings.loopback else None,
    )
    return session.client("s3", endpoint_url=settings.endpoint_url, verify=settings.ca_bundle, config=config)


def _rewound(handle: BinaryIO) -> BinaryIO:
    handle.seek(0)
    return handle


def _was_ours(error: ClientError) -> bool:
    return bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts"))


def _no_conditional_put(url: str, how: str) -> StoreError:
    return StoreError(
        f"the server of {url} {how}: PutObject with If-None-Match, by which versions are committed",
        fix="use a server that keeps it (AWS S3, MinIO, Ceph RGW, SeaweedFS), or a file:// store",
    )
