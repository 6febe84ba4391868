"""Small documents of the store itself carry the digest of their own bytes, so that a changed byte is noticed."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TypeVar

from artifacts.base import Document, read_json
from artifacts.errors import InputError, StoreError

_BLANK = "0" * 64
_SEAL = re.compile(rb'"seal": "sha256:([0-9a-f]{64})"\n}\n\Z')

D = TypeVar("D", bound=Document)


def seal(document: Document) -> bytes:
    """JSON whose last key ``seal`` is the sha256 of these very bytes with the seal's digits as zeros."""
    body = {**document.model_dump(mode="json"), "seal": f"sha256:{_BLANK}"}
    text = (json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
    head, tail = text[: -len(_BLANK) - 4], text[-4:]
    return head + hashlib.sha256(text).hexdigest().encode() + tail


def unseal(data: bytes, model: type[D], *, where: str) -> D:
    """The document, or ``StoreError`` saying that ``where`` is truncated, altered, or of another kind."""
    match = _SEAL.search(data)
    if match is None:
        raise StoreError(f"{where} is truncated or altered: its seal is missing", fix=_RESTORE)
    start, end = match.span(1)
    blank = data[:start] + _BLANK.encode() + data[end:]
    if hashlib.sha256(blank).hexdigest().encode() != match.group(1):
        raise StoreError(f"{where} is altered: its bytes are not those that were sealed", fix=_RESTORE)
    try:
        body = read_json(data, where=where)
        body.pop("seal")
        return model.parse(body, where=where)
    except InputError as error:
        raise StoreError(error.message, fix="read it with the HetRL that wrote it") from None


_RESTORE = "restore the object from a backup, or run the stage again with --force"
