"""results.csv: written whole, read in little memory; damaged, unknown and contradicting values are
refused."""

from __future__ import annotations

import csv
import tracemalloc
from pathlib import Path

import pytest
import synthetic_rows
from commands import Commbench
from peak import COMMAND, measure_process
from synthetic import plan, steady, synthetic_run

import commbench as cb
from commbench.analysis.columns import COLUMNS, KEY
from commbench.analysis.csv_file import BLOCK, ResultsCsv, make_csv, read_results, row_at
from commbench.analysis.load import load
from commbench.analysis.rows import ResultRow, make_row
from commbench.answers.check.gate import CHECKED
from commbench.errors import RecordsError
from commbench.results.schema import Measurement, RunHeader


def rows(label: str = "ring") -> tuple[ResultRow, ResultRow]:
    asked = synthetic_rows.plan(sizes=(1000, 2))
    header = RunHeader(plan=asked, label=label, started="", launcher="local")
    measured, skipped = asked.cases()
    samples = synthetic_rows.batches((4e-6, 3e-6, 1e-6), (6e-6, 2e-6, 5e-6))
    return (
        make_row(header, Measurement(measured, "ok", stop_reason="fixed", batches=samples)),
        make_row(header, Measurement(skipped, skipped.status, reason=skipped.reason)),
    )


def found(folder: Path) -> list[tuple[str, ...]]:
    """The label, size, status, time and warnings of each row of the file."""
    with (folder / "results.csv").open(newline="") as text:
        return [
            tuple(row[name] for name in ("label", "size_bytes", "status", "time_us", "warnings"))
            for row in csv.DictReader(text)
        ]


FIRST, SECOND = ("ring", "1000", "ok", "3.5", "imprecise"), ("ring", "2", "skipped", "", "")


def test_the_file_is_complete_after_every_row(tmp_path: Path) -> None:
    file, (first, second) = ResultsCsv(tmp_path), rows()
    file.add()
    assert (tmp_path / "results.csv").read_text() == ",".join(COLUMNS) + "\n"
    file.add(first)
    assert found(tmp_path) == [FIRST]
    file.add(second)
    assert found(tmp_path) == [FIRST, SECOND]
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


def test_a_row_takes_the_place_of_that_of_the_same_case_and_rows_stand_as_planned(
    tmp_path: Path,
) -> None:
    file, (first, second) = ResultsCsv(tmp_path), rows()
    file.add(second)
    file.add(second, first)
    assert found(tmp_path) == [FIRST, SECOND]
    file.add(rows("tree")[0])
    assert found(tmp_path) == [("tree", *FIRST[1:]), SECOND]


def test_a_file_that_cannot_be_written_is_refused_with_where_the_results_are(
    tmp_path: Path,
) -> None:
    (tmp_path / "results.csv.new").mkdir()
    for folder, why, hint in (
        ("absent", "No such file or directory", "the folder was removed or moved during the run"),
        ("", "Is a directory", "every finished case is in run.jsonl of the same folder"),
    ):
        path = tmp_path / folder / "results.csv"
        with pytest.raises(RecordsError) as refused:
            ResultsCsv(path.parent).add()
        assert (refused.value.message, refused.value.hint) == (f"cannot write {path}: {why}", hint)


ASKED = plan(operations=("all_reduce", "all_gather", "barrier"), sizes=(1024, 4096))
"""Its first row is all_reduce of 1 KiB, the third all_gather, the fifth barrier."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return synthetic_run(tmp_path / "run", "mine", lambda _: steady(1e-4), ASKED)


@pytest.fixture
def rows_alone(folder: Path) -> Path:
    """Its rows, without a journal beside them."""
    return (folder / "results.csv").rename(folder.parent / "rows.csv")


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
        *((1, name, "odd", f"{name} 'odd' is unknown") for name in (
            "operation", "dtype", "reduce_op", "timing", "placement", "launch_mode")),
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
        (3, "busbw_GBps busbw_ci_low_GBps busbw_ci_high_GBps", "0.01",
         "busbw_GBps 0.01 is not algbw_GBps times 0.5"),
    ],
)  # fmt: skip
def test_a_value_that_no_measurement_has_is_refused(
    rows_alone: Path, row: int, column: str, value: str, why: str
) -> None:
    for name in column.split():
        change(rows_alone, row, name, value)
    with pytest.raises(RecordsError) as raised:
        cb.export(rows_alone)
    assert raised.value.message == f"{rows_alone}, line {row + 1}, is damaged: {why}"


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


def test_a_damaged_journal_beside_the_rows_is_named_and_fails_a_check(
    commbench: Commbench, folder: Path
) -> None:
    journal = folder / "run.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    lines[3] = lines[3].replace("0.0001", "0.0002", 1)
    journal.write_text("".join(lines))
    why = (
        "it has faults: run/run.jsonl, line 4, is damaged: its checksum is not that of "
        "this line and those before it"
    )
    ended = commbench("check", "run/results.csv", "--max-time", "1s")
    assert ended.code == 1
    assert f"FAIL: the run is incomplete, {why}" in " ".join(ended.out.split())
    for words in (["export"], ["compare", "run/other.csv"]):
        (folder / "other.csv").write_bytes((folder / "results.csv").read_bytes())
        ended = commbench(*words, "run/results.csv")
        assert f"run/results.csv is incomplete: {why}" in " ".join(ended.err.split())


def test_figures_of_an_overlap_may_be_below_zero(rows_alone: Path) -> None:
    for column, value in (("", "-0.03"), ("_ci_low", "-0.05"), ("_ci_high", "0.01")):
        change(rows_alone, 1, f"communication_slowdown{column}", value)
    assert "-0.03" in str(cb.export(rows_alone))
    change(rows_alone, 1, "communication_slowdown_ci_low", "-0.02")
    with pytest.raises(RecordsError, match=r"communication_slowdown -0\.03 is not between"):
        cb.export(rows_alone)


BYTES_PER_ROW = 250
BYTES_AT_ONCE = 2_000_000
"""Of the block that is read."""


def many_lines(file: Path, number: int) -> Path:
    """A results.csv of so many rows, of which most columns differ from row to row."""
    fixed = {"operation": "all_reduce", "dtype": "float32", "timing": "isolated", "status": "ok"}
    fixed |= {"wrong": 0, "label": "many", "launches": 3}
    times = [name for name in COLUMNS if name.endswith("_us") and not name.startswith("co")]
    with file.open("w") as text:
        text.write(make_csv([COLUMNS]))
        for row in range(number):
            values = fixed | dict.fromkeys(times, 100 + row / 7) | {"size_bytes": 4 * row + 4}
            text.write(make_csv([[values.get(name, "") for name in COLUMNS]]))
    return file


def test_the_rows_of_a_csv_are_those_of_its_journal(tmp_path: Path) -> None:
    asked = plan(operations=("all_reduce", "barrier"), sizes=tuple(range(4, 4 * 2 * BLOCK, 4)))
    folder = synthetic_run(tmp_path / "a", "a", lambda n: steady(1e-4 * (n.index + 1)), asked)
    rows, expected = load(folder / "results.csv").rows, [*load(folder / "run.jsonl").rows]
    assert len(rows) == len(expected) > BLOCK
    assert [*rows] == [rows[n] for n in range(len(rows))] == rows[:] == expected
    types = [[type(value) for value in row] for row in rows]
    assert types == [[type(value) for value in row] for row in expected]
    assert {type(None), int, float, str} <= {kind for row in types for kind in row}
    assert rows[-1] == expected[-1] and rows[BLOCK - 1 : BLOCK + 2] == expected[127:130]
    with pytest.raises(IndexError):
        rows[len(rows)]
    later = row_at(rows, BLOCK)
    assert (later.time, later.case) == (expected[BLOCK].time, expected[BLOCK].case)
    assert not hasattr(later, "no_such_field")


@pytest.mark.parametrize("columns", [COLUMNS, CHECKED, KEY])
def test_a_row_takes_few_bytes(tmp_path: Path, columns: tuple[str, ...]) -> None:
    number = 20 * BLOCK
    file = many_lines(tmp_path / "results.csv", number)
    read_results(file, columns)  # what is made once
    tracemalloc.start()
    try:
        rows = read_results(file, columns)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(rows) == number
    assert held < BYTES_PER_ROW * number
    assert peak < held + BYTES_AT_ONCE


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "rows", "most_mib"),
    [("export a.csv", 1_000_000, 300), ("check a.csv --max-time 1s", 1_000_000, 250),
     ("check a.csv --max-time 1s --max-time 2s", 1_000_000, 600),
     ("compare a.csv b.csv", 200_000, 300)],
)  # fmt: skip
def test_many_rows_take_little_memory(
    command: str, rows: int, most_mib: float, tmp_path: Path
) -> None:
    for name in {"a.csv", "b.csv"} & {*command.split()}:
        many_lines(tmp_path / name, rows)
    mib, _ = measure_process(COMMAND, *command.split(), cwd=tmp_path)
    assert mib < most_mib
