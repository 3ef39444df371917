"""Small files of /proc and /sys, read from folders that look like theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_files import lay

from commbench.host.procfs import (
    CpuTicks,
    parse_cores,
    parse_size,
    read_available_bytes,
    read_cpu_ticks,
    read_number,
    read_statistics,
    read_switch,
    read_text,
)


def test_what_is_not_there_or_not_readable_as_that_is_none(tmp_path: Path) -> None:
    lay(tmp_path, word="performance\n", empty="", one="1\n", two="2")
    texts = [read_text(tmp_path / name) for name in ("word", "empty", "none")]
    assert texts == ["performance", None, None]
    assert (read_number(tmp_path / "two"), read_number(tmp_path / "word")) == (2, None)
    assert (read_switch(tmp_path / "one"), read_switch(tmp_path / "two")) == (True, None)


@pytest.mark.parametrize(
    ("listed", "found"), [("0", (0,)), ("0-2,8", (0, 1, 2, 8)), ("", ()), ("0-1\n", (0, 1))]
)
def test_lists_of_cores_are_read_as_the_kernel_writes_them(
    listed: str, found: tuple[int, ...]
) -> None:
    assert parse_cores(listed) == found


@pytest.mark.parametrize(
    ("written", "size"), [("32768K", 32 << 20), ("1M", 1 << 20), ("", None), ("many", None)]
)
def test_sizes_of_caches_are_read_as_the_kernel_writes_them(written: str, size: int | None) -> None:
    assert parse_size(written) == size


def test_available_memory_is_read_in_bytes(tmp_path: Path) -> None:
    assert read_available_bytes(tmp_path) is None
    lay(tmp_path, proc__meminfo="MemTotal: 9 kB\nMemAvailable:       8 kB\n")
    assert read_available_bytes(tmp_path) == 8192
    lay(tmp_path, proc__meminfo="MemAvailable: many kB\n")
    assert read_available_bytes(tmp_path) is None


def test_statistics_are_the_lines_with_a_name_and_a_whole_number(tmp_path: Path) -> None:
    lay(tmp_path, stat="usage_usec 5\nburst many\n\nthree 1 2\nnr_periods 7\n")
    assert read_statistics(tmp_path / "stat") == {"usage_usec": 5, "nr_periods": 7}
    assert read_statistics(tmp_path / "none") == {}


def test_ticks_are_of_the_cores_that_were_named_or_of_all(tmp_path: Path) -> None:
    assert read_cpu_ticks(host=tmp_path) is None
    lines = ("cpu 3 0 0 17 0 0 0 4 0 0", "cpu0 1 0 0 9 0 0 0 1", "cpu1 2 0 0 8 0 0 0 3", "intr 5 6")
    lay(tmp_path, proc__stat="\n".join(lines) + "\n")
    assert read_cpu_ticks(host=tmp_path) == CpuTicks(3, 0, 0, 17, 0, 0, 0, 4)
    assert read_cpu_ticks((1,), tmp_path) == CpuTicks(2, 0, 0, 8, 0, 0, 0, 3)
    assert read_cpu_ticks((0, 1, 2), tmp_path) == CpuTicks(3, 0, 0, 17, 0, 0, 0, 4)
    assert read_cpu_ticks((7,), tmp_path) is None
    lay(tmp_path, proc__stat="cpu 1 2 3\n")
    assert read_cpu_ticks(host=tmp_path) is None
