"""The list of runs: its rows and its JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_replay import synthetic_replay

from commbench.report.run_list import VIEW, RunList, document
from commbench.results.run_folder import StoredRun, list_stored_runs
from commbench.views.document import Table

SIZES = tuple(1 << n for n in range(10, 27))
STARTED = "2026-11-21T06:00:00+00:00"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def rows(*runs: StoredRun) -> list[tuple[str, ...]]:
    table = document(RunList(runs, ())).blocks[0]
    assert isinstance(table, Table)
    return [tuple(column.cell(run) for column in table.columns) for run in runs]


def test_a_run_is_one_line_with_what_it_measured() -> None:
    assert rows(
        StoredRun(STARTED, Path("a"), "ring", ("all_reduce",), SIZES, "nccl", 16, "complete"),
        StoredRun(STARTED, Path("b"), "b", ("barrier",), SIZES, "gloo", 2, "interrupted"),
        StoredRun(STARTED, Path("c"), "c", ("gather", "reduce"), (8, 24), "gloo", 2, "failed"),
        StoredRun("", Path("d"), "d"),
    ) == [
        ("a", "ring", "2026-11-21 06:00:00", "all_reduce 1K-64M", "16 nccl", "complete"),
        ("b", "", "2026-11-21 06:00:00", "barrier", "2 gloo", "interrupted"),
        ("c", "", "2026-11-21 06:00:00", "gather +1 8...24", "2 gloo", "failed"),
        ("d", "", "", "", "", "not ended"),
    ]


def test_the_folder_is_enough_where_it_has_the_time_and_the_label() -> None:
    folder = "20261121-060000-" + "x" * 64
    run = StoredRun(STARTED, Path(folder), "x" * 64, ("gather",), SIZES, "gloo", 1024, "failed")
    assert rows(run)[0][:3] == (folder, "", "")


def test_a_replay_is_listed_with_the_name_of_its_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    synthetic_replay(Path("results/20261121-060000-mine"), "mine", variants=["calls"])
    runs = list_stored_runs()
    assert [row[3:] for row in rows(*runs)] == [("replay of resnet", "2 gloo", "complete")]
    found = json.loads(VIEW.write(RunList(runs, ["a-sweep"]), "json"))
    assert (found["runs"][0]["label"], found["sweeps"]) == ("mine", ["a-sweep"])
