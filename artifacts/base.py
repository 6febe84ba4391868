"""What every document has in common: a schema version, canonical JSON, an identity, and readable validation errors."""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from artifacts.errors import InputError

MOST_BYTES = 512 << 20
"""Of a file a person named: twice the topology of the largest inventory."""

MOST_DEPTH = 50


def digest(value: Any) -> str:
    """sha256 (hex) of canonical JSON. Raises ``TypeError`` on anything JSON cannot hold exactly (never guesses)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _safe_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}", value) or ".." in value:
        raise ValueError(f"{value[:80]!r} is not a name: use letters, digits, '.', '_', '-' (at most 127, starting with a letter or digit)")
    return value


def _plain_json(value: dict[str, Any]) -> dict[str, Any]:
    """What is written can be read back: finite numbers, text that is Unicode, and no deeper than readers follow."""
    pending: list[tuple[Any, int]] = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > MOST_DEPTH:
            raise ValueError(f"nested more than {MOST_DEPTH} deep")
        if isinstance(item, dict):
            pending += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, (list, tuple)):
            pending += [(part, depth + 1) for part in item]
        elif isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"{item} is not a number JSON knows")
        elif isinstance(item, str):
            item.encode()
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(_plain_json)]
Name = Annotated[str, AfterValidator(_safe_name)]
Bytes = Annotated[int, Field(ge=0, le=2**63)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Strict(BaseModel):
    """A frozen value that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Document(Strict):
    """A document that lives in the store, as JSON.

    ``artifact`` is its name (and file stem); ``volatile`` names top-level fields that do not change what it *means*
    (time stamps and the like) and are therefore left out of :meth:`identity`.
    """

    artifact: ClassVar[str]
    volatile: ClassVar[frozenset[str]] = frozenset()

    schema_version: int = 1

    def to_json(self) -> str:
        return self.model_dump_json(indent=1) + "\n"

    def identity(self) -> str:
        """Digest of what the document means; equal identities are interchangeable as inputs of a later stage."""
        body = self.model_dump(mode="json")
        return digest({k: v for k, v in body.items() if k not in self.volatile})

    @classmethod
    def parse(cls, data: Any, *, where: str) -> Self:
        """Validate ``data`` (already decoded); raise ``InputError`` with one line that says what, where and what to do."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise InputError(describe(error, where=where, model=cls)) from None

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str) -> Self:
        return cls.parse(read_json(text, where=where), where=where)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        return cls.from_json(read_text(path), where=str(path))


def read_json(text: str | bytes, *, where: str) -> Any:
    """The data in ``text``; ``InputError`` where it is not JSON, or says one key twice (which one counts differs from reader to reader)."""
    try:
        if isinstance(text, bytes):
            text = text.decode()
        data = json.loads(text, parse_constant=_no_constants, object_pairs_hook=_no_key_twice)
        if _HALF_PAIR.search(text):
            json.dumps(data, ensure_ascii=False).encode()
        return data
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {str(error)[:200]}", fix="check that the file is complete") from None


_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape that alone is no character; two of them may be one."""


def _no_constants(name: str) -> Any:
    raise ValueError(f"{name} is not a number JSON knows")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {twice[:60]!r} is there twice")
    return found


def read_text(path: str | Path) -> str:
    """A text file a person named, in UTF-8 or with UTF-16's mark (what ``>`` writes on Windows), without its mark.

    Raises ``InputError`` that says why it cannot be read. A device that never ends is read up to a bound.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InputError(f"cannot read {path}: it is larger than {MOST_BYTES >> 20} MiB", fix="check the path")
        wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return data.decode("utf-16" if wide else "utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or ("not UTF-8 text" if isinstance(error, UnicodeError) else str(error))
        raise InputError(f"cannot read {path}: {reason}", fix="check the path") from None


def describe(error: ValidationError, *, where: str, model: type[BaseModel]) -> str:
    """All faults of a validation in one line, most helpful first: where, what, and which keys exist."""
    parts = []
    faults = error.errors(include_url=False)
    for fault in faults[:5]:
        place = ".".join(str(p)[:60] for p in fault["loc"][:12]) or "document"
        text = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            known = ", ".join(_fields_at(model, fault["loc"][:-1]))
            text = "unknown key" + (f"; known here: {known}" if known else "")
        elif fault["type"] == "missing":
            text = "missing; give it a value"
        else:
            got = fault.get("input")
            if isinstance(got, (str, int, float, bool)) and repr(got) not in text:
                text += f" (got {str(got)[:60]!r})"
        parts.append(f"{place}: {text[:400]}")
    more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
    return f"{where}: " + "; ".join(parts) + more


def _fields_at(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    current: Any = model
    for part in loc:
        fields = getattr(current, "model_fields", {})
        if part in fields:
            current = fields[part].annotation
        for arg in getattr(current, "__args__", ()):
            if isinstance(arg, type) and issubclass(arg, BaseModel):
                current = arg
    return sorted(getattr(current, "model_fields", {}))
