"""Reads hostile documents and says, as JSON, what came of them: ``python -m tests.artifacts.fuzz --documents 10000``.

A process of its own: an audit hook, which nothing takes back, watches that reading opens no file for writing, starts no process and
connects to nobody; and its memory is bounded.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import time
import traceback
from typing import Any

from artifacts.errors import HetrlError, InputError, StoreError
from tests.artifacts.fuzz.readers import WHERE, Reader, readers

MOST_LINE = 4000
MEMORY_BYTES = 4 << 30
_watching = False
_forbidden: list[str] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching:
        return
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "os.mkdir", "os.remove"):
        _forbidden.append(f"{event} {arguments!r}"[:200])


def judge(reader: Reader, document: Any) -> tuple[str, str]:
    """('read' or 'refused', '') or ('bad', why)."""
    try:
        reader.read(document)
    except (InputError, StoreError) as error:
        return ("bad", f"an unclear refusal: {error.line[:300]!r}") if unclear(error) else ("refused", "")
    except Exception:
        return "bad", traceback.format_exc(limit=-4)
    return "read", ""


def unclear(error: HetrlError) -> bool:
    """One line that names the document, of a length a person reads, which any terminal shows as it is."""
    line = error.line
    return not (error.message.startswith(WHERE) and len(error.message) > len(WHERE) + 5 and len(line) <= MOST_LINE
                and line.isprintable())


def main() -> None:
    global _watching
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=10_000, help="of each kind")
    parser.add_argument("--kind", action="append", help="only this one")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.addaudithook(_watch)
    found: dict[str, Any] = {}
    for name, reader in readers().items():
        if options.kind and name not in options.kind:
            continue
        counts = {"read": 0, "refused": 0, "bad": 0}
        examples: list[str] = []
        began = time.process_time()
        for number in range(options.documents):
            document = reader.make(random.Random(f"{options.seed}/{name}/{number}"))
            _watching = True
            verdict, why = judge(reader, document)
            _watching = False
            counts[verdict] += 1
            last = why.strip().rsplit("\n", 1)[-1][:60]
            if why and len(examples) < 5 and not any(last in example for example in examples):
                examples.append(f"document {number}: {document[:300]!r}\n{why}")
        found[name] = counts | {"cpu_s": round(time.process_time() - began, 2), "examples": examples}
    print(json.dumps({"kinds": found, "forbidden": _forbidden}))


if __name__ == "__main__":
    main()
