"""The list of runs, whole lines compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from commbench.report.run_list import run_list_text
from commbench.results.run_folder import StoredRun

SIZES = tuple(1 << n for n in range(10, 27))


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def test_a_run_is_one_line_with_what_it_measured() -> None:
    started = "2026-11-21T06:00:00+00:00"
    runs = [
        StoredRun(started, Path("a"), "ring", ("all_reduce",), SIZES, "nccl", 16, "complete"),
        StoredRun(started, Path("b"), "b", ("barrier",), SIZES, "gloo", 2, "interrupted"),
        StoredRun(started, Path("c"), "c", ("gather", "reduce"), (8, 24), "gloo", 2, "failed"),
        StoredRun("", Path("d"), "d"),
    ]
    assert [line.split(maxsplit=1)[1] for line in run_list_text(runs).splitlines()[2:]] == [
        "2026-11-21 06:00  all_reduce 1K-64M  16 nccl  complete",
        "2026-11-21 06:00  barrier            2 gloo   interrupted",
        "2026-11-21 06:00  gather +1 8...24   2 gloo   failed",
        "not ended",
    ]


def test_a_long_label_is_shortened_to_fit_eighty_columns() -> None:
    run = StoredRun(
        "2026-11-21T06:00:00+00:00", Path("a"), "x" * 64, ("reduce_scatter", "gather"), SIZES,
        "gloo", 1024, "interrupted",
    )  # fmt: skip
    (line,) = run_list_text([run]).splitlines()[2:]
    assert line.startswith("  xxxxxxxxxxx… ") or len(line) <= 80
    assert "x…" in line
