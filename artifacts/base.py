"""What every document has in common: a schema version, canonical JSON, an identity, and readable validation errors."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from artifacts.errors import InputError


def digest(value: Any) -> str:
    """sha256 (hex) of canonical JSON. Raises ``TypeError`` on anything JSON cannot hold exactly (never guesses)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _safe_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}", value) or ".." in value:
        raise ValueError(f"{value[:80]!r} is not a name: use letters, digits, '.', '_', '-' (at most 127, starting with a letter or digit)")
    return value


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
        try:
            data = json.loads(text, parse_constant=_no_constants)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} is not JSON: {error}", fix="check that the file is complete") from None
        return cls.parse(data, where=where)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        return cls.from_json(read_text(path), where=str(path))


def _no_constants(name: str) -> Any:
    raise ValueError(f"{name} is not a number JSON knows")


def read_text(path: str | Path) -> str:
    """A text file a person named, or an ``InputError`` that says why it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(f"cannot read {path}: {reason}", fix="check the path") from None


def describe(error: ValidationError, *, where: str, model: type[BaseModel]) -> str:
    """All faults of a validation in one line, most helpful first: where, what, and which keys exist."""
    parts = []
    faults = error.errors(include_url=False)
    for fault in faults[:5]:
        place = ".".join(str(p) for p in fault["loc"]) or "document"
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
        parts.append(f"{place}: {text}")
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
