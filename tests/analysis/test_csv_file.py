"""results.csv, whole files compared."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from synthetic_rows import batches

from commbench.analysis.columns import COLUMNS
from commbench.analysis.csv_file import ResultsCsv
from commbench.analysis.rows import ResultRow, make_row
from commbench.errors import RecordsError
from commbench.results.schema import Measurement, RunHeader
from commbench.spec.plan import Plan

HEAD = ",".join(COLUMNS) + "\n"


def rows(label: str = "ring") -> tuple[ResultRow, ResultRow]:
    plan = Plan(
        operations=("all_reduce",), sizes=(1000, 2), backend="gloo", device="cpu", world_size=2
    )
    header = RunHeader(plan=plan, label=label, started="", launcher="local")
    measured, skipped = plan.cases()
    return (
        make_row(
            header,
            Measurement(
                case=measured,
                status="ok",
                stop_reason="fixed",
                wrong=0,
                batches=batches(
                    (4e-6, 3e-6, 1e-6),
                    (6e-6, 2e-6, 5e-6),
                    rank_medians_s=(1e-6, 3e-6),
                    entry_skew_s=0.125e-6,
                    operation_s=3.25e-6,
                    elapsed_s=1e-3,
                    queued_s=2.5e-4,
                    switches=1,
                ),
            ),
        ),
        make_row(header, Measurement(case=skipped, status=skipped.status, reason=skipped.reason)),
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
    file.write()
    assert (tmp_path / "results.csv").read_text() == HEAD
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


def test_whoever_reads_meanwhile_finds_a_whole_file(tmp_path: Path) -> None:
    file = ResultsCsv(tmp_path)
    file.write()
    with (tmp_path / "results.csv").open() as reader:
        assert reader.read(5) == "label"
        file.add(rows()[0])
        assert "label" + reader.read() == HEAD


def test_the_rows_read_back_under_the_documented_columns(tmp_path: Path) -> None:
    file = ResultsCsv(tmp_path)
    for row in rows('a, "quoted"\nlabel'):
        file.add(row)
    with (tmp_path / "results.csv").open(newline="") as text:
        found = list(csv.DictReader(text))
    assert [tuple(row) for row in found] == [tuple(COLUMNS)] * 2
    assert {row["label"] for row in found} == {'a, "quoted"\nlabel'}
    assert float(found[0]["time_us"]) == 3.5
    assert found[1]["time_us"] == ""


def test_a_file_that_cannot_be_written_is_refused_with_where_the_results_are(
    tmp_path: Path,
) -> None:
    path = tmp_path / "absent" / "results.csv"
    with pytest.raises(RecordsError) as refused:
        ResultsCsv(path.parent).write()
    assert refused.value.message == f"cannot write {path}: No such file or directory"
    assert refused.value.hint == "the folder was removed or moved during the run"
    (tmp_path / "results.csv.new").mkdir()
    with pytest.raises(RecordsError) as refused:
        ResultsCsv(tmp_path).write()
    assert refused.value.message.endswith("results.csv: Is a directory")
    assert refused.value.hint == "every finished case is in run.jsonl of the same folder"
