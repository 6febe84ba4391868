"""The limits of a control group, read from trees of files as the two versions of the kernel's interface show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.profile import cgroup, host

MANY = "9223372036854771712"
"""Version 1's word for no limit of memory."""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hierarchy in place of the kernel's, and a process that is in no group until :func:`put` says so."""
    monkeypatch.setattr(cgroup, "_MOUNT", tmp_path / "cgroup")
    monkeypatch.setattr(cgroup, "_SELF", tmp_path / "self")
    return tmp_path


def put(tree: Path, self: str, files: dict[str, str]) -> None:
    (tree / "self").write_text(self)
    for name, text in files.items():
        path = tree / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_version_2_inside_a_container(tree: Path) -> None:
    """With a namespace of its own: the group is the root of what is mounted."""
    put(tree, "0::/\n", {"cpu.max": "40000 20000", "memory.max": "3221225472", "cpu.stat": "usage_usec 2500000\nnr_throttled 7"})
    assert (cgroup.cpu_quota(), cgroup.memory_limit()) == (2.0, 3 << 30)
    assert (cgroup.throttled_count(), cgroup.cpu_used_s()) == (7, 2.5)


def test_version_2_below_systemds_slices(tree: Path) -> None:
    """The session has no limit of its own; its user's slice has one, and that of all users a wider one."""
    put(tree, "0::/user.slice/user-1000.slice/session-2.scope\n", {
        "cpu.stat": "usage_usec 900000000",
        "user.slice/cpu.max": "400000 100000", "user.slice/memory.max": "max", "user.slice/cpu.stat": "nr_throttled 0",
        "user.slice/user-1000.slice/cpu.max": "150000 100000", "user.slice/user-1000.slice/memory.max": "8589934592",
        "user.slice/user-1000.slice/cpu.stat": "usage_usec 4000000\nnr_throttled 3",
        "user.slice/user-1000.slice/session-2.scope/cpu.max": "max 100000", "user.slice/user-1000.slice/session-2.scope/memory.max": "max",
        "user.slice/user-1000.slice/session-2.scope/cpu.stat": "usage_usec 1000000\nnr_throttled 0"})
    assert (cgroup.cpu_quota(), cgroup.memory_limit()) == (1.5, 8 << 30)
    assert (cgroup.throttled_count(), cgroup.cpu_used_s()) == (3, 1.0), "throttled with its slice; its own time"


def test_version_2_without_limits(tree: Path) -> None:
    put(tree, "0::/system.slice/hetrl.service\n", {"system.slice/hetrl.service/cpu.max": "max 100000", "system.slice/hetrl.service/memory.max": "max"})
    assert (cgroup.cpu_quota(), cgroup.memory_limit(), cgroup.throttled_count(), cgroup.cpu_used_s()) == (None, None, 0, None)


ONE = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n"


def test_version_1_on_the_host(tree: Path) -> None:
    put(tree, ONE, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": MANY,
                    "cpu/docker/abc/cpu.cfs_quota_us": "50000", "cpu/docker/abc/cpu.cfs_period_us": "100000",
                    "cpu/docker/abc/cpu.stat": "nr_periods 9\nnr_throttled 4", "cpuacct/docker/abc/cpuacct.usage": "1500000000",
                    "memory/docker/abc/memory.limit_in_bytes": "2147483648"})
    assert (cgroup.cpu_quota(), cgroup.memory_limit()) == (0.5, 2 << 30)
    assert (cgroup.throttled_count(), cgroup.cpu_used_s()) == (4, 1.5)


def test_version_1_inside_a_container(tree: Path) -> None:
    """The path is the host's, and is not there: what is mounted is the group itself."""
    put(tree, ONE, {"cpu/cpu.cfs_quota_us": "25000", "cpu/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "1073741824",
                    "cpuacct/cpuacct.usage": "250000000"})
    assert (cgroup.cpu_quota(), cgroup.memory_limit(), cgroup.cpu_used_s()) == (0.25, 1 << 30, 0.25)


@pytest.mark.parametrize("text", ["", "0::/../../elsewhere\n", "nonsense"])
def test_where_nothing_is_known_there_is_no_limit(tree: Path, text: str) -> None:
    put(tree, text, {})
    assert (cgroup.cpu_quota(), cgroup.memory_limit(), cgroup.throttled_count(), cgroup.cpu_used_s()) == (None, None, 0, None)


def test_a_machine_is_what_its_group_may_use(tree: Path) -> None:
    put(tree, "0::/\n", {"cpu.max": "50000 100000", "memory.max": "1073741824"})
    machine = host.this_host("m")
    assert (machine.cores, machine.quota, machine.memory_bytes) == (1, 0.5, 1 << 30)
