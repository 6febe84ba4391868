"""A lab's YAML: which link a pair has, and one clear line for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifacts.errors import InputError
from flows.lab.spec import check_fits, read_lab

ROOT = Path(__file__).parents[3]
MACHINES = """name: l
machines:
- {name: a1, region: a, cpus: 0.5, memory_gib: 2}
- {name: a2, region: a, cpus: 0.5, memory_gib: 2}
- {name: b1, region: b, cpus: 0.25, memory_gib: 2}
links:
"""
INSIDE = "- {between: [a, a], latency_ms: 1, bandwidth_mbit_per_s: 100}\n"
ACROSS = "- {between: [a, b], latency_ms: 20, bandwidth_mbit_per_s: 50}\n"


def written(folder: Path, text: str) -> Path:
    (folder / "lab.yaml").write_text(text)
    return folder / "lab.yaml"


def test_the_most_particular_link_counts_in_both_directions(tmp_path: Path) -> None:
    more = "- {between: [b, a2], latency_ms: 30, bandwidth_mbit_per_s: 40}\n- {between: [b1, a1], latency_ms: 40, bandwidth_mbit_per_s: 30}\n"
    pairs = {(a, b): link.latency_ms for a, b, link in read_lab(written(tmp_path, MACHINES + INSIDE + ACROSS + more)).pairs()}
    assert pairs == {("a1", "a2"): 1, ("a2", "a1"): 1, ("a1", "b1"): 40, ("b1", "a1"): 40, ("a2", "b1"): 30, ("b1", "a2"): 30}


@pytest.mark.parametrize(("text", "says"), [
    ("name: [", "lab.yaml is not YAML, line "),
    ("- 1", "does not describe a lab"),
    (MACHINES.replace("a2", "a1") + INSIDE + ACROSS, "machine a1 is there twice"),
    (MACHINES.replace("a2", "b") + INSIDE + ACROSS, "b names a machine and a region"),
    (MACHINES + INSIDE, "no link between a1–b1, a2–b1"),
    (MACHINES + INSIDE + ACROSS + ACROSS.replace("a, b", "b, a"), "link a–b is there twice"),
    (MACHINES + INSIDE + ACROSS.replace("b]", "c]"), "a link names c, neither a machine nor a region"),
    (MACHINES + INSIDE + ACROSS.replace("50", "5000"), "links.1.bandwidth_mbit_per_s"),
    (MACHINES.replace("cpus: 0.25", "cpus: lots") + INSIDE + ACROSS, "machines.2.cpus"),
    (MACHINES.replace("cpus: 0.25", "cores: 1") + INSIDE + ACROSS, "unknown key; known here: cpus,"),
])
def test_a_yaml_that_cannot_be_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        read_lab(written(tmp_path, text))
    assert says in error.value.line
    assert "lab.yaml" in error.value.line
    assert "\n" not in error.value.line


def test_a_quota_this_machine_lacks() -> None:
    spec = read_lab(ROOT / "infra/lab/two-regions.yaml")
    check_fits(spec, cores=2, memory_bytes=16 << 30)
    with pytest.raises(InputError, match=r"quotas of 1\.2 cores in all, this machine has 1"):
        check_fits(spec, cores=1, memory_bytes=16 << 30)
    with pytest.raises(InputError, match=r"may take 10 GiB in all, this machine has 8\.0 GiB"):
        check_fits(spec, cores=2, memory_bytes=8 << 30)
