"""The page of dependencies is about what is pinned, and says what the installed packages declare."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "infra/docs/dependencies.md"
spec = importlib.util.spec_from_file_location("dependencies", ROOT / "infra/dependencies.py")
assert spec and spec.loader
dependencies = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dependencies)

ROWS = {name: (version, licence, parts) for name, version, licence, parts
        in re.findall(r"^\| (\S+) \| (\S+) \| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE) if name not in ("package", "---")}


def test_the_page_has_exactly_what_is_pinned() -> None:
    assert {name: row[0] for name, row in ROWS.items()} == dependencies.pinned()


def test_the_script_writes_the_page() -> None:
    """``python infra/dependencies.py > …``. What an environment lacks, it cannot say the licence of."""
    done = subprocess.run([sys.executable, "infra/dependencies.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    heads = [text.partition("\n| package |")[0].partition("\n| licence |")[0] for text in (done.stdout, PAGE.read_text(encoding="utf-8"))]
    assert heads[0] == heads[1]
    assert re.findall(r"^\| (\S+) \| (\S+) \|", done.stdout.partition("| package |")[2].partition("|---|---|---|---|")[2], re.MULTILINE) == [(n, r[0]) for n, r in ROWS.items()]


def test_licences_are_those_the_packages_declare() -> None:
    compared = 0
    for name, (version, licence, _) in ROWS.items():
        found = dependencies.installed(name)
        if found is not None and found.version.split("+")[0] == version:
            assert licence.replace("\\|", "|") == dependencies.licence(found), name
            compared += 1
    assert compared > len(ROWS) // 2


def test_every_package_is_needed_by_a_part_of_the_project() -> None:
    assert not [name for name, row in ROWS.items() if not re.fullmatch(r"[a-z-]+(, [a-z-]+)*", row[2])]


def test_no_licence_is_missing_but_those_that_declare_none() -> None:
    assert {name for name, row in ROWS.items() if row[1] in ("not declared", "not installed here")} == {"oss-harmony", "zss"}
