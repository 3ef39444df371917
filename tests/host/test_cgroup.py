"""Limits of control groups, read from folders that look like theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_files import lay, put

from commbench.host.cgroup import (
    CgroupLimit,
    find_cpu_statistics,
    read_cpu_limit,
    read_free_bytes,
    read_throttled_ns,
)


def test_the_tightest_limit_counts_in_version_2(tmp_path: Path) -> None:
    lay(tmp_path, proc__self__cgroup="0::/outer/inner\n")
    put(tmp_path, "sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n")
    put(tmp_path, "sys/fs/cgroup/outer/cpu.max", "250000 100000\n")
    put(tmp_path, "sys/fs/cgroup/outer/cpu.stat", "usage_usec 5\nnr_periods 200\nnr_throttled 50\n")
    assert read_cpu_limit(tmp_path) == CgroupLimit(2.5, 0.25)


def test_version_1_and_a_path_that_is_not_visible_here(tmp_path: Path) -> None:
    lay(tmp_path, proc__self__cgroup="3:cpu,cpuacct:/docker/abc\n2:memory:/docker/abc\n0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "1000")
    put(tmp_path, "sys/fs/cgroup/memory/memory.usage_in_bytes", "400")
    put(tmp_path, "proc/meminfo", "MemTotal: 9 kB\nMemAvailable:       8 kB\n")
    assert read_cpu_limit(tmp_path) == CgroupLimit(1.5, None)
    assert read_free_bytes(tmp_path) == 600


@pytest.mark.parametrize("quota", ["-1", "max 100000"])
def test_no_limit_is_none(tmp_path: Path, quota: str) -> None:
    lay(tmp_path, proc__self__cgroup="1:cpu:/\n0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota)
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    put(tmp_path, "sys/fs/cgroup/cpu.max", quota)
    assert read_cpu_limit(tmp_path) == CgroupLimit(None, None)
    assert read_cpu_limit(tmp_path / "nowhere") == CgroupLimit(None, None)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host of 16 GiB, of which 8 are available, in files of a folder."""
    lay(
        tmp_path,
        proc__meminfo="MemTotal: 16777216 kB\nMemAvailable:  8388608 kB\n",
        proc__self__cgroup="0::/job/step\n",
    )
    return tmp_path


def set_memory(host: Path, group: str, limit: str, used: int, cached: int) -> None:
    put(host, f"sys/fs/cgroup/{group}/memory.max", limit + "\n")
    put(host, f"sys/fs/cgroup/{group}/memory.current", f"{used}\n")
    put(host, f"sys/fs/cgroup/{group}/memory.stat", f"anon 5\ninactive_file {cached}\n")


def test_without_limits_all_that_is_available_is_free(host: Path) -> None:
    assert read_free_bytes(host) == 8 << 30
    set_memory(host, "job/step", "max", 1 << 30, 0)
    assert read_free_bytes(host) == 8 << 30


def test_a_group_leaves_its_limit_less_what_cannot_be_dropped(host: Path) -> None:
    set_memory(host, "job/step", str(4 << 30), 3 << 30, 1 << 30)
    assert read_free_bytes(host) == 2 << 30


def test_groups_above_count_too(host: Path) -> None:
    set_memory(host, "job/step", str(4 << 30), 0, 0)
    set_memory(host, "job", str(1 << 30), 1 << 29, 0)
    assert read_free_bytes(host) == 1 << 29


def test_a_host_that_tells_nothing_has_an_unknown_amount_free(tmp_path: Path) -> None:
    assert read_free_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nr_periods 5\nthrottled_usec 1234\n", 1_234_000),
        ("nr_throttled 2\nthrottled_time 987654\n", 987_654),
        ("usage_usec 5\n", None),
        ("throttled_usec many\n", None),
        ("", None),
    ],
)
def test_throttling_is_read_from_either_version_of_control_groups(
    text: str, found: int | None, tmp_path: Path
) -> None:
    file = tmp_path / "cpu.stat"
    file.write_text(text)
    assert read_throttled_ns(file) == found
    assert read_throttled_ns(tmp_path / "gone") is None


def test_throttling_is_counted_by_the_innermost_group_that_tells_it(tmp_path: Path) -> None:
    lay(tmp_path, proc__self__cgroup="0::/job/step\n")
    assert find_cpu_statistics(tmp_path) is None
    put(tmp_path, "sys/fs/cgroup/job/step/cpu.stat", "usage_usec 5\n")
    put(tmp_path, "sys/fs/cgroup/job/cpu.stat", "throttled_usec 5\n")
    assert find_cpu_statistics(tmp_path) == tmp_path / "sys/fs/cgroup/job/cpu.stat"
