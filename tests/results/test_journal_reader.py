"""Damaged journals: every line that cannot be right is refused by its number."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_journal import END, HEADER, MEASUREMENTS, sealed
from synthetic_rows import written_row

from commbench.analysis.rows import make_rows
from commbench.errors import CommbenchError, RecordsError
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import CUT_OFF

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


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", '"nan"', '"inf"'])
def test_a_sample_that_is_no_finite_number_is_refused_with_its_line(
    value: str, lines: list[str], tmp_path: Path
) -> None:
    lines[1] = lines[1].replace('"samples_s": [0.00015', f'"samples_s": [{value}')
    assert value in lines[1]
    (tmp_path / JOURNAL).write_text(sealed(lines), encoding="utf-8")
    with pytest.raises(RecordsError, match=r"line 2, is damaged: "):
        read_run(tmp_path)


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
        (
            lines[2][:40] + "\n",
            "line 3, column 41, is damaged: Expecting property name enclosed in double quotes",
        ),
        ('{"kind": }\n', "line 3, column 10, is damaged: Expecting value"),
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
    ("queued_s", 1e300),
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


def test_an_imbalance_of_which_no_blocks_follow_is_refused_with_its_line(
    lines: list[str], tmp_path: Path
) -> None:
    number = next(i for i, line in enumerate(lines) if '"imbalance": ""' in line)
    lines[number] = lines[number].replace('"imbalance": ""', '"imbalance": "skewed"')
    (tmp_path / JOURNAL).write_text(sealed(lines), encoding="utf-8")
    with pytest.raises(RecordsError, match=rf"line {number + 1}, is damaged: unknown imbalance"):
        read_run(tmp_path)
