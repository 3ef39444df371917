"""What the kernel knows of a process's waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from commbench.host import cpu_counters as strain
from commbench.host.cpu_counters import FIELDS, UNKNOWN, CpuCounters


def test_readings_go_up_and_their_difference_is_never_negative() -> None:
    reader = CpuCounters()
    before = reader.read()
    sum(range(100_000))
    after = reader.read()
    assert len(before) == len(FIELDS)
    assert all(UNKNOWN <= then <= now for then, now in zip(before, after, strict=True))
    since = reader.since(before)
    assert since[0] > 0
    assert all(value >= 0 for value, then in zip(since, before, strict=True) if then != UNKNOWN)


def test_what_was_or_is_unknown_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = CpuCounters()
    before = reader.read()
    before[1] = UNKNOWN
    assert reader.since(before)[1] == UNKNOWN
    monkeypatch.setattr(strain, "_STAT", Path("/nowhere/stat"))
    assert reader.since(before)[FIELDS.index("stolen_s")] == UNKNOWN


def test_a_host_that_tells_nothing_leaves_everything_but_time_and_switches_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(strain, "_STAT", Path("/nowhere/stat"))
    monkeypatch.setattr(strain, "_TASKS", Path("/nowhere/task"))
    monkeypatch.setattr(strain, "_throttling_file", lambda: None)
    reader = CpuCounters()
    elapsed, queued, switches, throttled, stolen = reader.read()
    assert (queued, throttled, stolen) == (UNKNOWN,) * 3
    assert min(elapsed, switches) >= 0


@pytest.mark.parametrize(
    ("text", "key", "unit", "found"),
    [
        ("nr_periods 5\nthrottled_usec 1234\n", "throttled_usec", 1000, 1_234_000),
        ("nr_throttled 2\nthrottled_time 987654\n", "throttled_time", 1, 987_654),
        ("usage_usec 5\n", "throttled_usec", 1000, UNKNOWN),
        ("throttled_usec many\n", "throttled_usec", 1000, UNKNOWN),
        ("", "throttled_usec", 1000, UNKNOWN),
    ],
)
def test_throttling_is_read_from_either_version_of_control_groups(
    text: str, key: str, unit: int, found: int, tmp_path: Path
) -> None:
    file = tmp_path / "cpu.stat"
    file.write_text(text)
    assert strain._throttled_ns((file, key, unit)) == found
    assert strain._throttled_ns((tmp_path / "gone", key, unit)) == UNKNOWN
