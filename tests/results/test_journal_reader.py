"""Damaged journals: every line that cannot be right is refused by its number."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import noisy, plan, synthetic_run
from synthetic_journal import CASES, END, HEADER, MEASUREMENTS, flip, record, sealed
from synthetic_rows import written_row

from commbench.analysis.rows import make_rows
from commbench.errors import CommbenchError, RecordsError
from commbench.plan.case import Case
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import CUT_OFF, Batch, Measurement, Run, RunEnd

FROZEN = Path(__file__).parents[1] / "data" / "journal-schema-1.jsonl"


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.full)])
def test_a_journal_cut_off_at_any_byte_gives_what_was_complete_or_is_refused(
    lines: list[str], tmp_path: Path, step: int
) -> None:
    """At every byte, or at one of `step` and at those around the ends of lines."""
    whole = "".join(lines).encode()
    ends = [len("".join(lines[:number]).encode()) for number in range(len(lines) + 1)]
    lengths = {*range(0, len(whole), step), *(end + i for end in ends for i in (-2, -1, 0, 1, 2))}
    lengths &= set(range(len(whole) + 1))
    path = tmp_path / "cut.jsonl"
    outcomes: dict[int, object] = {}
    for length in lengths:
        path.write_bytes(whole[:length])
        try:
            run = read_run(path)
        except RecordsError as error:
            outcomes[length] = error.message
            continue
        assert run.header == HEADER
        assert run.end == (END if length == len(whole) else None)
        for found in run.measurements:
            written = MEASUREMENTS[found.case.index]
            assert found.batches == written.batches[: len(found.batches)]
            assert found.stop_reason == CUT_OFF or found == written
        outcomes[length] = [(m.case.index, len(m.batches), m.stop_reason) for m in run.measurements]
    cut, second, third = (0, 1, CUT_OFF), (1, 1, ""), (2, 0, "")
    expected = [
        *[f"{path} has no complete header"] * ends[1],
        *[[]] * (ends[2] - ends[1]),
        *[[cut]] * (ends[3] - ends[2]),
        *[[cut, (1, 1, CUT_OFF)]] * (ends[4] - ends[3]),
        *[[cut, second]] * (ends[5] - ends[4]),
        *[[cut, second, third]] * (ends[6] - ends[5]),
        *[[(0, 2, CUT_OFF), second, third]] * (ends[7] - ends[6]),
        *[[(0, 2, "fixed"), second, third]] * (ends[8] - ends[7] + 1),
    ]
    assert outcomes == {length: expected[length] for length in lengths}


@pytest.mark.parametrize(
    "damage",
    [
        "", "{", "[]", "3", "null", "not JSON", '{"kind": "case"}', '{"kind": "row"}', "{}",
        '{"kind": "header"}', "[" * 100_000, '{"kind": "case", "case": 5, "status": "ok"}',
        "9" * 5000, '{"kind": "batch"}', '{"kind": "batch", "case": 0}',
    ],
)  # fmt: skip
def test_a_damaged_line_in_the_middle_is_named_by_its_number(
    damage: str, lines: list[str], tmp_path: Path
) -> None:
    lines[2] = damage + "\n"
    path = tmp_path / JOURNAL
    path.write_text(sealed(lines), encoding="utf-8")
    with pytest.raises(RecordsError) as refused:
        read_run(tmp_path)
    message = refused.value.message
    assert message.startswith(f"{path}, line 3, ")
    where = message.removeprefix(f"{path}, line 3, ")
    assert re.match(r"(column \d+, )?is damaged: ", where)
    assert not re.search(r"line \d|column \d.*column \d", where)
    assert refused.value.hint == (
        "the lines before it can be read: copy the file, then remove this line and all lines after "
        "it; their samples are lost"
    )


def test_text_that_is_no_json_is_named_by_one_line_and_one_column(
    lines: list[str], tmp_path: Path
) -> None:
    path = tmp_path / JOURNAL
    for damaged, where in (
        (lines[2][:40] + "\n", "line 3, column 41, is damaged: no JSON is there"),
        ('{"kind": }\n', "line 3, column 10, is damaged: no JSON is there"),
        ("[" * 100_000 + "\n", "line 3, is damaged: it is no JSON"),
    ):
        path.write_text("".join([*lines[:2], damaged, *lines[3:]]), encoding="utf-8")
        with pytest.raises(RecordsError) as refused:
            read_run(tmp_path)
        assert refused.value.message.startswith(f"{path}, {where}")


OF_A_HEADER = (
    ("plan", {}), ("plan", None), ("ranks", None), ("ranks", [{"rank": 0}]), ("ranks", [5]),
    ("ranks", [{"rank": -1, "host": "node1", "pid": 1, "device": "cpu"}]),
    ("label", 5), ("environment", None), ("environment", {"load": float("nan")}), ("surprise", 1),
    ("launch", "first"), ("overhead_s", "little"), ("link_probes", [{"sender": 0}]),
    ("num_nodes", 0), ("environment", {"load": 10**20}), ("label", "x" * 10_001),
    ("environment", {"a": [[[[[1]]]]]}), ("environment", {"a": "x" * 200_000}),
    ("link_probes", [{"sender": 0, "receiver": 1, "size_bytes": 1, "seconds": -1.0}]),
)  # fmt: skip
OF_A_BATCH = (
    ("samples_s", None), ("samples_s", []), ("samples_s", ["soon"]), ("samples_s", {"0": 1.0}),
    ("samples_s", [1.0, None]), ("rank_medians_s", 5), ("rank_behind_s", [None]),
    ("last_in", [1.5]), ("entry_skew_s", "little"), ("calls", None), ("calls", 1.5), ("calls", 0),
    ("rank_medians_s", [1.0]), ("rank_behind_s", [1.0, 1.0, 1.0]), ("last_in", [3]),
    ("elapsed_s", None), ("switches", "many"), ("launch", "first"), ("surprise", 1),
    ("samples_s", [10**400]), ("samples_s", [-1e-4]), ("samples_s", [5e-324]),
    ("samples_s", [1e8]), ("calls", 2**53 + 1), ("switches", -1), ("last_in", [3, -3]),
    ("queued_s", 1e300), ("samples_s", [nan]), ("samples_s", [inf]), ("samples_s", [-inf]),
    ("samples_s", ["nan"]), ("samples_s", ["inf"]),
    *(("case", value) for value in (len(CASES), 10**9, -1, True, None, "0", 0.0, {})),
)  # fmt: skip
OF_A_CASE = (
    ("case.operation", "all_shuffle"), ("case.dtype", "float12"), ("case.size_bytes", "1K"),
    ("case.size_bytes", None), ("status", 5), ("first_wrong", {"rank": 1}),
    ("reported", {"time_s": "soon", "statistic": ""}), ("surprise", 1), ("case.operation", ""),
    ("case.size_bytes", -1), ("case.size_bytes", 10**400), ("case.index", 10**9),
    ("case.index", -1), ("wrong", -1), ("reason", "x" * 10_001),
    ("reported", {"time_s": -1.0, "statistic": ""}),
)  # fmt: skip
OF_AN_END = (
    ("risen", 5), ("risen", {"node1": 5}), ("risen", {"node1": {"x": "12"}}),
    ("risen", {"node1": {"x": -1}}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("number", "name", "value"),
    [
        (number, *wrong)
        for number, several in ((0, OF_A_HEADER), (1, OF_A_BATCH), (3, OF_A_CASE), (-1, OF_AN_END))
        for wrong in several
    ],
)
def test_a_value_that_a_line_cannot_have_is_refused_with_its_line(
    number: int, name: str, value: Any, lines: list[str], tmp_path: Path
) -> None:
    values = json.loads(lines[number])
    *within, name = name.split(".")
    (values[within[0]] if within else values)[name] = value
    lines[number] = json.dumps(values) + "\n"
    (tmp_path / JOURNAL).write_text(sealed(lines), encoding="utf-8")
    where = number % len(lines) + 1
    with pytest.raises(RecordsError, match=rf"line {where}, is damaged: "):
        read_run(tmp_path)


def test_a_case_without_its_ranks_is_one_of_all_ranks(lines: list[str], tmp_path: Path) -> None:
    number = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == "case")
    written = json.loads(lines[number])
    assert written["case"].pop("ranks") == 2
    for ranks, readable in ((None, True), (2, True), (1, False), (3, False), (-1, False)):
        case = written["case"] | ({} if ranks is None else {"ranks": ranks})
        lines[number] = json.dumps(written | {"case": case}) + "\n"
        (tmp_path / JOURNAL).write_text(sealed(lines), encoding="utf-8")
        if readable:
            found = read_run(tmp_path).measurements[case["index"]]
            assert found.case.ranks == 2
        else:
            with pytest.raises(RecordsError, match=f"line {number + 1}, is damaged: "):
                read_run(tmp_path)


def test_a_journal_must_begin_with_its_header(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text(sealed(lines[1:]), encoding="utf-8")
    with pytest.raises(RecordsError, match="line 1, is damaged"):
        read_run(tmp_path)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_rows_beside_a_journal_that_cannot_be_read_are_named_and_never_to_be_deleted(
    lines: list[str], number: int, tmp_path: Path
) -> None:
    broken = ["{\n", *lines[number + 1 :]] if number else []
    (tmp_path / JOURNAL).write_text(sealed([*lines[:number], *broken]), encoding="utf-8")
    (tmp_path / "results.csv").write_text("operation,size_bytes\n", encoding="utf-8")
    with pytest.raises(RecordsError) as refused:
        read_run(tmp_path)
    assert f"{tmp_path / 'results.csv'}, which compare, check and export read" in refused.value.hint
    assert "delete" not in refused.value.hint and "measure again" not in refused.value.hint


def test_a_journal_with_a_damaged_header_has_one_hint(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text("".join(["{\n", *lines[1:]]), encoding="utf-8")
    hints = []
    for beside in (False, True):
        if beside:
            (tmp_path / "results.csv").write_text("operation,size_bytes\n", encoding="utf-8")
        with pytest.raises(RecordsError) as refused:
            read_run(tmp_path)
        hints.append(refused.value.hint)
    read = f"the rows are in {tmp_path / 'results.csv'}, which compare, check and export read"
    cannot = "without its first line run.jsonl cannot be read"
    assert hints == [f"{cannot}: measure again", f"{read}; {cannot}"]


def test_what_is_no_journal_at_all_is_refused_with_what_to_give(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    empty = tmp_path / "empty"
    empty.touch()
    for path, message in (
        (binary, f"{binary} is not text"),
        (empty, f"{empty} has no complete header"),
        (tmp_path / "absent", f"cannot read {tmp_path / 'absent'}: No such file or directory"),
        (tmp_path, f"cannot read {tmp_path / JOURNAL}: No such file or directory"),
    ):
        with pytest.raises(RecordsError) as refused:
            read_run(path)
        assert refused.value.message == message
        assert refused.value.hint


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=60), st.integers(0, 6000), st.integers(0, 40))
def test_a_journal_with_any_bytes_exchanged_makes_rows_or_is_refused(
    noise: bytes, start: int, length: int
) -> None:
    whole = FROZEN.read_bytes()
    with TemporaryDirectory() as folder:
        path = Path(folder) / JOURNAL
        path.write_bytes(whole[:start] + noise + whole[start + length :])
        try:
            run = read_run(path)
        except CommbenchError as refused:
            assert isinstance(refused, RecordsError)
            return
    for row in make_rows(run):
        written_row(row)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_journal_with_any_number_exchanged_makes_rows_or_is_refused(data: st.DataObject) -> None:
    text = FROZEN.read_text(encoding="utf-8")
    numbers = list(re.finditer(r"(?<=[ \[])-?\d[\d.e-]*(?=[,\]}])", text))
    number = data.draw(st.sampled_from(numbers))
    other = data.draw(st.sampled_from(["0", "-1", "1e-300", "1e300", "99", "0.5", "[]", "null"]))
    with TemporaryDirectory() as folder:
        path = Path(folder) / JOURNAL
        path.write_text(text[: number.start()] + other + text[number.end() :], encoding="utf-8")
        try:
            run = read_run(path)
        except RecordsError:
            return
    for row in make_rows(run):
        written_row(row)


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
        (3, _of_case(imbalance="skewed"), "unknown imbalance"),
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
    journal.add(HEADER)
    journal.batch(CASES[0], Batch((1e-3,)))
    journal.close()
    path = tmp_path / JOURNAL
    path.write_bytes(path.read_bytes() + b'{"kind": "ba')
    journal = Journal(tmp_path)
    journal.add(HEADER._replace(resumed=True))
    measurements = [Measurement(case, "ok", batches=(Batch((1e-3,)),)) for case in CASES]
    record(journal, *measurements)
    journal.end(RunEnd("complete"))
    run = read_run(tmp_path)
    assert (run.checked, run.incomplete, len(run.restarts)) == (True, "", 1)
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


def test_the_digest_of_a_case_stays_when_a_dimension_is_added() -> None:
    case = CASES[0]
    assert case.digest == case._replace(status="skipped", reason="no memory").digest
    assert len({case.digest for case in CASES}) == len(CASES)
    assert "form" not in case.differing and Case._field_defaults["form"] == case.form
    assert case._replace(form="pieces").digest != case.digest
