"""The list of runs, whole lines compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_replay import synthetic_replay

from commbench.report.run_list import run_list_text, sweep_list_text
from commbench.results.run_folder import StoredRun, list_stored_runs

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
    assert [line.split() for line in run_list_text(runs).splitlines()] == [
        ["folder", "label", "started", "what", "ranks", "status"],
        ["─" * 75],
        ["a", "ring", "2026-11-21", "06:00:00", "all_reduce", "1K-64M", "16", "nccl", "complete"],
        ["b", "2026-11-21", "06:00:00", "barrier", "2", "gloo", "interrupted"],
        ["c", "2026-11-21", "06:00:00", "gather", "+1", "8...24", "2", "gloo", "failed"],
        ["d", "not", "ended"],
    ]


def test_the_folder_is_printed_whole_and_is_enough_where_it_has_the_time_and_the_label() -> None:
    folder = "20261121-060000-" + "x" * 64
    run = StoredRun(
        "2026-11-21T06:00:00+00:00", Path(folder), "x" * 64, ("reduce_scatter", "gather"), SIZES,
        "gloo", 1024, "interrupted",
    )  # fmt: skip
    lines = run_list_text([run]).splitlines()
    assert lines[0].split()[0] == "folder" and "label" not in lines[0]
    assert lines[2].split()[0] == folder


def test_sweeps_are_listed_by_their_folders() -> None:
    assert sweep_list_text(["20261121-060000-sweep-a"]).splitlines() == [
        "Sweeps (`commbench show FOLDER` prints one):", "  20261121-060000-sweep-a",
    ]  # fmt: skip
    assert sweep_list_text([]) == ""


def test_a_replay_is_listed_with_the_name_of_its_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    synthetic_replay(Path("results/20261121-060000-mine"), "mine", variants=["calls"])
    text = run_list_text(list_stored_runs())
    assert "replay of resnet  2 gloo  complete" in text
