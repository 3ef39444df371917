"""What the kernel knows of a process's waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    monkeypatch.setattr(reader, "_host", Path("/nowhere"))
    assert reader.since(before)[FIELDS.index("stolen_s")] == UNKNOWN


def test_a_host_that_tells_nothing_leaves_everything_but_time_and_switches_unknown() -> None:
    reader = CpuCounters(Path("/nowhere"))
    elapsed, queued, switches, throttled, stolen = reader.read()
    assert (queued, throttled, stolen) == (UNKNOWN,) * 3
    assert min(elapsed, switches) >= 0
