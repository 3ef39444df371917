"""Rows of a results.csv whose values are unknown, contradict each other, or contradict the journal
beside them are refused, by every command alike."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import Commbench
from synthetic import plan, steady, synthetic_run

import commbench as cb
from commbench.errors import RecordsError

ASKED = plan(operations=("all_reduce", "all_gather", "barrier"), sizes=(1024, 4096))
"""Its first row is all_reduce of 1 KiB, the third all_gather, the fifth barrier."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return synthetic_run(tmp_path / "run", "mine", lambda _: steady(1e-4), ASKED)


def change(path: Path, row: int, column: str, value: str) -> Path:
    """The file with another value in a row, counted from 1."""
    lines = list(csv.reader(path.read_text().splitlines()))
    assert lines[row][lines[0].index(column)] != value
    lines[row][lines[0].index(column)] = value
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
    return path


@pytest.mark.parametrize(
    ("row", "column", "value", "why"),
    [
        (1, "operation", "foo", "operation 'foo' is unknown"),
        (1, "dtype", "float99", "dtype 'float99' is unknown"),
        (1, "reduce_op", "mean", "reduce_op 'mean' is unknown"),
        (1, "timing", "twice", "timing 'twice' is unknown"),
        (1, "placement", "aside", "placement 'aside' is unknown"),
        (1, "launch_mode", "lazy", "launch_mode 'lazy' is unknown"),
        (1, "operation", "broadcast", "broadcast has no reduce_op"),
        (1, "root", "0", "all_reduce has no root"),
        (1, "world_size", "8", "group_size 2 is not world_size 8, without a group"),
        (1, "group_size", "4", "world_size 2 is not between group_size and world_size"),
        (1, "count", "7", "size_bytes 1024 is not that of 7 float32 times 1"),
        (3, "dtype", "float64", "size_bytes 1024 is not that of 128 float64 times 2"),
        (3, "size_bytes", "2048", "size_bytes 2048 is not that of 128 float32 times 2"),
        (1, "iterations", "-5", "iterations is '-5'"),
        (1, "iterations", "1", "batches 10 is not between launches and iterations"),
        (1, "launches", "11", "batches 10 is not between launches and iterations"),
        (5, "launches", "-1", "launches is '-1'"),
    ],
)
def test_a_value_that_no_measurement_has_is_refused(
    folder: Path, row: int, column: str, value: str, why: str
) -> None:
    path = change((folder / "results.csv").rename(folder.parent / "rows.csv"), row, column, value)
    with pytest.raises(RecordsError) as raised:
        cb.export(path)
    assert raised.value.message == f"{path}, line {row + 1}, is damaged: {why}"


def test_a_bus_bandwidth_is_the_factor_times_the_algorithm_bandwidth(folder: Path) -> None:
    path = (folder / "results.csv").rename(folder.parent / "rows.csv")
    for column in ("busbw_GBps", "busbw_ci_low_GBps", "busbw_ci_high_GBps"):
        change(path, 3, column, "0.01")
    with pytest.raises(RecordsError, match=r"busbw_GBps 0\.01 is not algbw_GBps times 0\.5"):
        cb.export(path)


@pytest.mark.parametrize(
    ("column", "value"),
    [("iterations", "39"), ("num_nodes", "2"), ("cpu_mode", "pinned"),
     ("time_ci_low_us", "99"), ("wrong", "")],
)  # fmt: skip
def test_rows_are_compared_with_the_journal_beside_them(
    folder: Path, column: str, value: str
) -> None:
    path = folder / "results.csv"
    assert cb.check(path, max_time="1s").exit_code == 0
    change(path, 2, column, value)
    with pytest.raises(RecordsError, match=rf"row 2 of .* contradicts run.jsonl: {column} is "):
        cb.check(path, max_time="1s")


def test_every_command_refuses_an_unknown_operation_in_two_lines(
    commbench: Commbench, folder: Path
) -> None:
    change(folder / "results.csv", 2, "operation", "foo")
    for words in (["check", "--max-time", "1s"], ["compare", "run"], ["export"], ["report"]):
        ended = commbench(*words, "run/results.csv")
        assert ended.code == 6
        error, hint = ended.err.splitlines()
        assert error == "error: run/results.csv, line 3, is damaged: operation 'foo' is unknown"
        assert hint.startswith("hint: ")


def test_a_damaged_journal_beside_the_rows_is_named_and_fails_a_check(
    commbench: Commbench, folder: Path
) -> None:
    journal = folder / "run.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    lines[3] = lines[3].replace("0.0001", "0.0002", 1)
    journal.write_text("".join(lines))
    why = (
        "it cannot be used whole: run/run.jsonl, line 4, is damaged: its checksum is not that of "
        "this line and those before it"
    )
    ended = commbench("check", "run/results.csv", "--max-time", "1s")
    assert ended.code == 1
    assert f"FAIL: the run is incomplete, {why}" in " ".join(ended.out.split())
    for words in (["export"], ["compare", "run/other.csv"]):
        (folder / "other.csv").write_bytes((folder / "results.csv").read_bytes())
        ended = commbench(*words, "run/results.csv")
        assert f"run/results.csv is incomplete: {why}" in ended.err


def test_figures_of_an_overlap_may_be_below_zero(folder: Path) -> None:
    path = folder / "results.csv"
    path = path.rename(folder.parent / "rows.csv")
    for column, value in (("", "-0.03"), ("_ci_low", "-0.05"), ("_ci_high", "0.01")):
        change(path, 1, f"communication_slowdown{column}", value)
    assert "-0.03" in str(cb.export(path))
    change(path, 1, "communication_slowdown_ci_low", "-0.02")
    with pytest.raises(RecordsError, match=r"communication_slowdown -0\.03 is not between"):
        cb.export(path)
