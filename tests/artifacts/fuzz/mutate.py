"""Hostile documents out of good ones, the same for a seed every time."""

from __future__ import annotations

import json
import random
from typing import Any

WORDS = ["", " ", "x" * 5000, "../../etc/passwd", "/etc/passwd", "..\\..\\boot.ini", "a/../../b", "file:///etc/passwd", "~root/.ssh", "CON",
         "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "{{7*7}}", "${HOME}", "$(touch owned)", "`touch owned`", "; rm -rf .",
         "' OR 1=1 --", "%s%n%x", "!!python/object/apply:os.system [touch owned]", "&a *a", "*a", "- - -", "\u202etxt.exe", "\u2028", "\u0085",
         "\ud800", "\udfff\ud800", "\x00", "\x1b[2J\x1b]0;owned\x07", "name\n", "\r\n", "e\u0301", "\uff21\uff22", "\U0010ffff", "nan", "1e999",
         "0x1F", "1_000", "2026-13-45", "0001-01-01T00:00:00Z", "true", "null", "__class__", "manifest.json", "history"]
NUMBERS = [0, -1, 1, 2, 2**31, 2**53 + 1, 2**63, 2**64, -2**63, 10**30, 10**400, -0.0, 0.5, 1e308, -1e308, 5e-324, 1e-320, float("inf"),
           float("-inf"), float("nan"), True, False, None]
TEXTS = ["", "\n", "null", "[]", "{}", "0", "\"x\"", "[" * 100_000, "{\"a\":" * 50_000, "9" * 5000, "\ufeff", "<!DOCTYPE x [<!ENTITY a 'b'>]>",
         "%PDF-1.4", "PK\x03\x04", "\x00" * 64, "- " * 500, "? " * 500, "a: " * 500, "&a [*a]", "!!binary x", "!!int x", "!!timestamp x",
         "!!float x", "0x" + "f" * 6000, "a: 0x" + "f" * 6000 + "\n", "%YAML 9.9\n---\n", "--- 1\n--- 2\n", "<<: 1\n", "<<: [1]\n", "? [a]\n: b\n",
         "!!set {a}", "!!omap [a: b]", "2026-99-99", "=", "\t- a"]


class Twice(str):
    """A key that is equal to no other, so that a dict, and the JSON made of it, holds one name twice."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def nested(rng: random.Random) -> Any:
    value: Any = rng.choice([[], {}, 0, "x"])
    deep = rng.choice([2, 30, 60, 300, 900])
    for _ in range(deep):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def strange(rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(WORDS)
    if kind < 0.75:
        return rng.choice(NUMBERS)
    if kind < 0.82:
        return nested(rng)
    return rng.choice([[], {}, [[]], [None], [1] * 300, {"": 0}, {"a": {"b": {}}}, {"__class__": "x", "$ref": "#"}, ["x"] * 50])


def mutate_tree(good: Any, rng: random.Random) -> Any:
    """One to three changes at random places of a copy: a key dropped, doubled, renamed, a value of another type, extreme, nested, swapped."""
    tree = json.loads(json.dumps(good))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        tree = _change(tree, rng)
    return tree


def _change(tree: Any, rng: random.Random) -> Any:
    holder, key = _place(tree, rng)
    if holder is None:
        return strange(rng)
    what = rng.randrange(9)
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, dict):
        holder[Twice(key)] = rng.choice([holder[key], strange(rng)])
    elif what == 2 and isinstance(holder, dict):
        holder[rng.choice(WORDS)] = holder.pop(key)
    elif what == 3 and isinstance(holder, list):
        holder.extend([holder[key]] * rng.choice([1, 2, 100]))
    elif what == 4:
        other, name = _place(tree, rng)
        if other is not None and other is not holder:
            value = json.loads(json.dumps(other[name]))
            holder[key] = value
    elif what == 5:
        holder[key] = [holder[key]]
    elif what == 6:
        holder[key] = str(holder[key])
    else:
        holder[key] = strange(rng)
    return tree


def _place(tree: Any, rng: random.Random) -> tuple[Any, Any]:
    """A holder and a key in it; (None, None): the whole."""
    holder, key = None, None
    while isinstance(tree, (dict, list)) and tree and (holder is None or rng.random() < 0.8):
        holder = tree
        key = rng.choice(list(tree)) if isinstance(tree, dict) else rng.randrange(len(tree))
        tree = tree[key]
    return holder, key


def as_json(tree: Any, rng: random.Random) -> str:
    """As Python writes it, ``NaN`` and ``Infinity`` included; with escapes or with the characters themselves."""
    return json.dumps(tree, ensure_ascii=rng.random() < 0.5)


def mutate_text(good: str, rng: random.Random) -> str:
    """Damage to the text itself: cut, spliced, repeated, a line dropped or moved, a value replaced, or another text altogether."""
    what = rng.randrange(8)
    at = rng.randrange(len(good) + 1)
    if what == 0:
        return good[:at]
    if what == 1:
        return good[:at] + rng.choice([*WORDS, *TEXTS]) + good[at:]
    if what == 2:
        return good[:at] + good[at + rng.choice([1, 2, 10, 100]):]
    if what == 3:
        return rng.choice(TEXTS)
    lines = good.split("\n")
    line = rng.randrange(len(lines))
    if what == 4:
        lines.insert(rng.randrange(len(lines) + 1), lines[line])
    elif what == 5:
        del lines[line]
    elif what == 6:
        lines[line] = rng.choice([" ", "  ", "\t", "- ", "? ", "&a ", "*a ", "!!str ", "!!python/name:os.system "]) + lines[line]
    else:
        head, colon, _ = lines[line].partition(":")
        lines[line] = f"{head}{colon} {rng.choice([*WORDS, *map(str, [0, -1, 2**63, 1e308, '.inf', '.nan', '[]', '{}', '[[1]]', 'no'])])}"
    return "\n".join(lines)


def as_bytes(text: str, rng: random.Random) -> bytes:
    """Encoded, at times wrongly."""
    data = text.encode("utf-8", "surrogatepass")
    what = rng.randrange(20)
    if what == 0:
        return text.encode(rng.choice(["utf-16", "utf-32", "utf-7", "utf-8-sig"]), "surrogatepass")
    if what == 1 and data:
        at = rng.randrange(len(data))
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
    if what == 2:
        return data + rng.choice([b"\xff\xfe", b"\xc0\xaf", b"\xed\xa0\x80", b"\x00", b"\xf4\x90\x80\x80"])
    return data
