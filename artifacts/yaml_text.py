"""YAML that a person wrote, into plain data, whatever is in it: bounded in size and depth, and refused in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from artifacts.errors import InputError

MOST_CHARACTERS = 16 << 20
MOST_VALUES = 500_000
"""Values once every alias is written out: nine anchors of nine aliases each are 400 million values in half a kilobyte."""
MOST_DEPTH = 50

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LONG_NUMBER = re.compile(r"[-+]?[0-9][0-9a-fA-Fxob_:.]{99,}")


def read_yaml(text: str, *, where: str) -> Any:
    """The data in ``text``; ``where`` is what messages call it.

    Raises:
        InputError: not YAML, a tag that makes anything but plain data, a key that is there twice, too large or too deep.
    """
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"{where} has {len(text)} characters", fix=f"at most {MOST_CHARACTERS} are read")
    try:
        _check(yaml.parse(text, _LOADER), where)
        return yaml.load(text, _LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise _not_yaml(where, mark, getattr(error, "problem", None) or str(error)) from None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:  # a date that is none, !!int of a word, …
        raise _not_yaml(where, None, f"a value is not of its type ({error})") from None


@dataclass
class _Open:
    """A list or mapping whose end has not come: what it holds so far, written out, and how deep that goes."""

    anchor: str | None
    keys: set[str] | None
    """Of a mapping the keys seen; None for a list."""
    values: int = 1
    height: int = 0
    at_key: bool = field(default=True)


def _check(events: Iterator[Any], where: str) -> None:
    """Refuse what would be too much, or not be read as it is written, before anything is built."""
    open_: list[_Open] = []
    anchors: dict[str, tuple[int, int]] = {}
    total = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            _place(open_, None, event, where)
            open_.append(_Open(event.anchor, set() if isinstance(event, yaml.MappingStartEvent) else None))
            values, height = 1, 0
        elif isinstance(event, yaml.CollectionEndEvent):
            done = open_.pop()
            if done.anchor:
                anchors[done.anchor] = (done.values, done.height + 1)
            if open_:
                open_[-1].values += done.values
                open_[-1].height = max(open_[-1].height, done.height + 1)
            continue
        elif isinstance(event, yaml.ScalarEvent):
            if event.implicit[0] and _LONG_NUMBER.fullmatch(event.value):
                raise _not_yaml(where, event.start_mark, f"a number of {len(event.value)} digits")
            event.value.encode()  # half of a surrogate pair is no text
            _place(open_, event.value, event, where)
            if event.anchor:
                anchors[event.anchor] = (1, 0)
            values, height = 1, 0
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors and any(one.anchor == event.anchor for one in open_):
                raise _not_yaml(where, event.start_mark, f"*{event.anchor} is inside of itself")
            _place(open_, None, event, where)
            values, height = anchors.get(event.anchor or "", (1, 0))
        else:
            continue
        total += values
        if open_ and not isinstance(event, yaml.CollectionStartEvent):
            open_[-1].values += values
            open_[-1].height = max(open_[-1].height, height)
        if total > MOST_VALUES:
            raise _not_yaml(where, event.start_mark, f"more than {MOST_VALUES} values, aliases written out")
        if len(open_) + height > MOST_DEPTH:
            raise _not_yaml(where, event.start_mark, f"nested more than {MOST_DEPTH} deep")


def _place(open_: list[_Open], key: str | None, event: Any, where: str) -> None:
    """Note that a value begins here; in a mapping it may be a key, which must be new."""
    if not open_ or (keys := open_[-1].keys) is None:
        return
    if open_[-1].at_key and key is not None:
        if key in keys:
            raise _not_yaml(where, event.start_mark, f"key {key[:60]!r} is there twice")
        keys.add(key)
    open_[-1].at_key = not open_[-1].at_key


def _not_yaml(where: str, mark: Any, problem: str) -> InputError:
    place = f", line {mark.line + 1}" if mark else ""
    return InputError(f"{where} is not YAML{place}: {problem[:200]}", fix="check indentation, quotes and names")
