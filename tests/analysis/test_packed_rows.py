"""Rows of a results.csv: those of the journal, in little memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from peak import COMMAND, measure_process
from synthetic import plan, steady, synthetic_run

from commbench.analysis.columns import COLUMNS, KEY
from commbench.analysis.csv_file import make_csv, read_results
from commbench.analysis.load import load
from commbench.analysis.packed_rows import BLOCK, row_at
from commbench.gate.gate import CHECKED

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
    ("command", "most_mib"),
    [("export many.csv", 300), ("check many.csv --max-time 1s", 250),
     ("check many.csv --max-time 1s --max-time 2s", 600)],
)  # fmt: skip
def test_a_million_rows_are_exported_and_checked_in_little_memory(
    command: str, most_mib: float, tmp_path: Path
) -> None:
    many_lines(tmp_path / "many.csv", 1_000_000)
    mib, _ = measure_process(COMMAND, *command.split(), cwd=tmp_path)
    assert mib < most_mib


@pytest.mark.full
def test_two_files_of_many_rows_are_compared_in_some_memory(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        many_lines(tmp_path / name, 200_000)
    mib, _ = measure_process(COMMAND, "compare", "a.csv", "b.csv", cwd=tmp_path)
    assert mib < 300
