"""A store's address: ``file:///absolute/folder`` or ``s3://bucket/prefix``, checked before anything is touched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from artifacts.errors import InputError

_HOW = "write file:///absolute/folder or s3://bucket/prefix"
# Amazon's rules for a bucket's name; the leading '.' or '-' and '..' are excluded by the ends and the look-ahead.
_BUCKET = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX_PART = re.compile(r"[A-Za-z0-9_=+@-][A-Za-z0-9._=+@-]*")


@dataclass(frozen=True)
class StoreUrl:
    """``root`` is the folder (file) or the bucket (s3); ``prefix`` is '' or ends without a slash."""

    scheme: Literal["file", "s3"]
    root: str
    prefix: str = ""

    def __str__(self) -> str:
        if self.scheme == "file":
            return Path(self.root).as_uri()
        return f"s3://{self.root}" + (f"/{self.prefix}" if self.prefix else "")


def parse_url(text: str) -> StoreUrl:
    """The address a person wrote, or ``InputError``. A credential in it is refused and not repeated."""
    try:
        parts = urlsplit(text)
        credentials = bool(parts.username or parts.password) or "@" in parts.netloc
    except ValueError:
        raise InputError("the store's address cannot be read", fix=_HOW) from None
    if credentials:
        raise InputError("the store's address holds credentials", fix="give them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    shown = repr(text.split("?")[0][:120])
    if parts.query or parts.fragment:
        raise InputError(f"store {shown}: nothing may follow the path", fix=_HOW)
    if parts.scheme == "file":
        folder = unquote(parts.path)
        if parts.netloc not in {"", "localhost"} or not folder.startswith("/") or not folder.isprintable():
            raise InputError(f"store {shown}: the folder is not absolute", fix="write three slashes: file:///absolute/folder")
        return StoreUrl("file", str(Path(folder).absolute()))
    if parts.scheme == "s3":
        if not _BUCKET.fullmatch(parts.netloc):
            raise InputError(f"store {shown}: {parts.netloc[:70]!r} is not a bucket's name", fix="use 3 to 63 of a-z, 0-9, '.' and '-'")
        prefix = parts.path.strip("/")
        if prefix and not all(_PREFIX_PART.fullmatch(part) for part in prefix.split("/")):
            raise InputError(f"store {shown}: the prefix has a part that is not a name", fix="use letters, digits and ._=+@-")
        return StoreUrl("s3", parts.netloc, prefix)
    raise InputError(f"store {shown} is not an address this program knows", fix=_HOW)
