"""Damage to a journal of the newest schema is noticed, whatever it is, and named by its line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from synthetic import noisy, plan, synthetic_run
from synthetic_journal import CASES, HEADER, flip, record, sealed

from commbench.errors import RecordsError
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import Batch, Measurement, Run, RunEnd
from commbench.spec.case import Case


@pytest.mark.parametrize("flips", [40, pytest.param(300, marks=pytest.mark.full)])
@pytest.mark.parametrize("launches", [1, 2])
def test_a_flipped_bit_or_digit_anywhere_is_noticed(
    flips: int, launches: int, tmp_path: Path
) -> None:
    asked = plan(operations=("all_reduce", "barrier"), launches=launches)
    folder = synthetic_run(
        tmp_path / "run", "a", lambda case: noisy(1e-4, case.index, each=5), asked, launches
    )
    journal, chance = folder / JOURNAL, Random(flips)
    content = journal.read_bytes()
    assert not read_run(folder).incomplete
    unnoticed = []
    for _ in range(flips):
        journal.write_bytes(flip(content, chance))
        try:
            found = read_run(folder)
        except RecordsError as error:
            assert re.search("is damaged: |complete header|newer commbench|not text", str(error))
            continue
        if not found.incomplete:  # the end of the last line was hit
            unnoticed.append(journal.read_bytes())
    assert unnoticed == []


@pytest.mark.parametrize("number", range(7))
def test_a_line_that_is_doubled_removed_or_moved_is_noticed(
    number: int, lines: list[str], tmp_path: Path
) -> None:
    before, line, after = lines[:number], lines[number], lines[number + 1 :]
    for damaged in (
        [*before, line, line, *after], [*before, *after], [*before, after[0], line, *after[1:]]
    ):  # fmt: skip
        (tmp_path / JOURNAL).write_text("".join(damaged))
        with pytest.raises(RecordsError, match=r"line \d+, is damaged: "):
            read_run(tmp_path)


def _of_case(**other: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda line: line | {"case": line["case"] | other}


@pytest.mark.parametrize(
    ("number", "change", "why"),
    [
        (3, _of_case(size_bytes=8192), "size_bytes is 8192, in the plan 4096"),
        (3, _of_case(count=10240), "count is 10240, in the plan 1024"),
        (3, _of_case(operation="reduce"), "operation is 'reduce', in the plan 'all_reduce'"),
        (3, _of_case(timing="pipelined"), "timing is 'pipelined', in the plan 'isolated'"),
        (3, _of_case(index=2), "operation is 'all_reduce', in the plan 'gather'"),
        (3, _of_case(index=99), "the plan has no case 99"),
        (4, lambda line: line | {"wrong": 5, "status": "ok"}, "wrong is 5, and the status ok"),
        (4, lambda line: line | {"status": "okay"}, "status 'okay' is unknown"),
        (2, lambda line: line | {"digest": "00000000"}, "it measured another case than all_reduce"),
        (2, lambda line: line | {"case": 0}, "it measured another case than all_reduce"),
        (2, lambda line: line | {"launch": 1}, "it is of launch 1, in launch 0"),
    ],
)  # fmt: skip
def test_a_line_that_contradicts_the_plan_or_itself_is_refused(
    number: int, change: Any, why: str, lines: list[str], tmp_path: Path
) -> None:
    lines[number] = json.dumps(change(json.loads(lines[number]))) + "\n"
    (tmp_path / JOURNAL).write_text(sealed(lines))
    with pytest.raises(RecordsError, match=f"line {number + 1}, is damaged: {re.escape(why)}"):
        read_run(tmp_path)


def test_a_case_that_ends_twice_in_a_launch_is_refused(lines: list[str], tmp_path: Path) -> None:
    for extra, why in ((lines[3], "case 1 was finished"), (lines[2], "case 1 was finished")):
        (tmp_path / JOURNAL).write_text(sealed([*lines[:5], extra, *lines[5:]]))
        with pytest.raises(RecordsError, match=f"line 6, is damaged: {why} before"):
            read_run(tmp_path)
    (tmp_path / JOURNAL).write_text(sealed([*lines, lines[1]]))
    with pytest.raises(RecordsError, match="is damaged: the run had ended before"):
        read_run(tmp_path)


def test_what_a_later_process_appends_is_checked_with_what_was_there(tmp_path: Path) -> None:
    """Also after a line that a killed process left behind in part."""
    journal = Journal(tmp_path)
    journal.header(HEADER)
    journal.batch(CASES[0], Batch((1e-3,)))
    journal.close()
    path = tmp_path / JOURNAL
    path.write_bytes(path.read_bytes() + b'{"kind": "ba')
    journal = Journal(tmp_path)
    journal.header(HEADER._replace(resumed=True))
    measurements = [Measurement(case, "ok", batches=(Batch((1e-3,)),)) for case in CASES]
    record(journal, *measurements)
    journal.end(RunEnd("complete"))
    run = read_run(tmp_path)
    assert (run.checked, run.incomplete, run.resumed) == (True, "", 1)
    path.write_bytes(path.read_bytes().replace(b"samples_s", b"samples_S", 1))
    with pytest.raises(RecordsError, match="line 2, is damaged: its checksum"):
        read_run(tmp_path)


def test_a_run_says_what_it_lacks() -> None:
    timed = (Batch((1e-3,)),)
    measurements = tuple(Measurement(case, "ok", batches=timed) for case in CASES)
    whole = Run("", HEADER, measurements, RunEnd("complete"))
    assert whole.incomplete == ""
    cut = (measurements[0]._replace(stop_reason="cut off"), *measurements[1:])
    for run, why in (
        (whole._replace(end=None), "it has not ended: it is still running, or was killed"),
        (whole._replace(end=RunEnd("interrupted", "by SIGINT")), "it was interrupted: by SIGINT"),
        (whole._replace(end=RunEnd("failed")), "it failed"),
        (whole._replace(measurements=measurements[1:]), "it has 3 of its 4 cases"),
        (whole._replace(measurements=cut), "1 case did not finish"),
        (
            whole._replace(measurements=(*measurements[1:], Measurement(CASES[0], "ok"))),
            "1 case of status ok without samples",
        ),
    ):
        assert run.incomplete == why


def test_the_first_of_two_launches_is_not_the_whole_run(tmp_path: Path) -> None:
    folder = synthetic_run(tmp_path / "run", "a", asked=plan(launches=2), launches=1)
    assert read_run(folder).end is None


def test_the_digest_of_a_case_stays_when_a_dimension_is_added() -> None:
    case = CASES[0]
    assert case.digest == case._replace(status="skipped", reason="no memory").digest
    assert len({case.digest for case in CASES}) == len(CASES)
    assert "form" not in case.differing and Case._field_defaults["form"] == case.form
    assert case._replace(form="pieces").digest != case.digest
