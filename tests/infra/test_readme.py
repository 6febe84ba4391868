"""What ``infra/README.md`` tells a person to type exists."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "infra/README.md").read_text()
COMMANDS = [line.strip() for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S) for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def test_files_it_names_are_there() -> None:
    named = set(re.findall(r"(?<![\w/.])(?:infra|containers|tests)/[\w./-]+", TEXT)) - {"infra/secrets/prefect_auth", "infra/secrets/aws_credentials"}
    assert len(named) > 10
    assert not {name for name in named if not (ROOT / name.rstrip(".")).exists()}
    table = re.findall(r"^\| `([\w.-]+\.(?:yaml|json))` \|", TEXT, re.M)
    assert set(table) == {p.name for p in (ROOT / "infra/kubernetes").iterdir()}


def test_parameters_it_uses_exist() -> None:
    signature = (ROOT / "flows/hetrl.py").read_text()
    for name in re.findall(r"--param (\w+)=", "\n".join(COMMANDS)):
        assert re.search(rf"^    {name}: ", signature, re.M), name


def test_services_of_its_table_are_those_of_the_compose_file() -> None:
    services = yaml.safe_load((ROOT / "infra/compose.yaml").read_text())["services"]
    section = TEXT.partition("## One server")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.M)) == set(services)
