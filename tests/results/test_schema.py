"""Journals of each schema, frozen in tests/data, still read to their values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest
from synthetic import noisy, plan, steady, synthetic_run
from synthetic_journal import flip
from synthetic_rows import written_row
from synthetic_sweep import synthetic_sweep

from commbench.analysis.columns import COLUMNS
from commbench.analysis.load import load, open_run
from commbench.analysis.rows import make_rows
from commbench.errors import RecordsError, UsageError
from commbench.plan.case import Case
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_progress, read_run
from commbench.results.run_folder import JOURNAL, create_folder, find_run
from commbench.results.samples import with_rank_times
from commbench.results.schema import SCHEMA, Batch, Measurement, RunEnd

DATA = Path(__file__).parents[1] / "data"
FROZEN = DATA / "journal-schema-1.jsonl"
FROZEN_2 = DATA / "journal-schema-2.jsonl"
FROZEN_3, FROZEN_4 = DATA / "journal-schema-3.jsonl", DATA / "journal-schema-4.jsonl"


@pytest.mark.parametrize(
    ("schema", "launch", "finished", "elapsed_s", "checked"),
    [
        (1, 0, {0, 1, 2}, 0.301371, False), (2, 1, {0, 1, 2, 3}, 0.297995, False),
        (3, 1, {0, 1, 2, 3}, 0.065633, True), (4, 1, {0, 1, 2, 3}, 0.065633, True),
        (5, 1, {0, 1, 2, 3}, 0.065633, True),
    ],
)  # fmt: skip
def test_the_journal_of_each_schema_is_read_in_the_newest(
    schema: int, launch: int, finished: set[int], elapsed_s: float, checked: bool
) -> None:
    """tests/golden has the rows of the first three."""
    progress = read_progress(DATA / f"journal-schema-{schema}.jsonl")
    run = progress.run
    assert (progress.launch, progress.finished) == (launch, finished)
    assert (run.header.schema, run.checked, run.incomplete) == (SCHEMA, checked, "")
    assert (run.header.label, run.header.hosts) == ("all_reduce-barrier", ("example",))
    assert [rank.rank for rank in run.header.ranks] == [0, 1]
    assert run.end == RunEnd(status="complete", elapsed_s=elapsed_s)


def test_what_an_older_batch_has_of_each_rank_is_added_up() -> None:
    measured = read_run(FROZEN).measurements[0]
    small = Case(
        index=0, operation="all_reduce", dtype="float32", reduce_op="sum", root=None,
        placement="in_place", timing="isolated", size_bytes=1024, count=256, ranks=2,
    )  # fmt: skip
    batch = Batch(
        (0.004015927,), warmup=1, rank_medians_s=(0.004015927, 0.003162815),
        rank_behind_s=(0.0, 0.000943947), last_in=(0, 1), entry_skew_s=0.000943947,
        operation_s=0.003162815, elapsed_s=0.011537189000000002, queued_s=0.00639289, switches=3,
        throttled_s=0.0, stolen_s=0.0,
    )  # fmt: skip
    whole = Measurement(small, "ok", stop_reason="fixed", wrong=0, batches=(batch,))
    assert measured.batches[1] == with_rank_times(whole).batches[0]
    assert measured._replace(batches=(), rank_times=()) == whole._replace(batches=())


def test_a_journal_of_a_newer_schema_is_refused_with_advice(
    lines: list[str], tmp_path: Path
) -> None:
    header = json.loads(lines[0]) | {"schema": SCHEMA + 1, "plan": "in another form"}
    path = tmp_path / JOURNAL
    path.write_text("".join([json.dumps(header) + "\n", *lines[1:]]), encoding="utf-8")
    with pytest.raises(RecordsError) as refused:
        read_run(tmp_path)
    assert refused.value.message == (
        f"{path} was written by a newer commbench: its schema is {SCHEMA + 1}"
    )
    assert refused.value.hint == f"this one reads schemas up to {SCHEMA}; upgrade commbench"


@pytest.mark.parametrize("schema", [0, -1, "1", None, 1.5, True, [[]]])
def test_a_schema_that_is_no_version_is_refused(
    schema: Any, lines: list[str], tmp_path: Path
) -> None:
    header = json.loads(lines[0]) | {"schema": schema}
    (tmp_path / JOURNAL).write_text(json.dumps(header) + "\n", encoding="utf-8")
    with pytest.raises(RecordsError, match=r"line 1, is damaged: .*: it is no header"):
        read_run(tmp_path)


def test_the_journal_of_the_fourth_schema_has_what_that_of_the_third_had() -> None:
    before, after = read_run(FROZEN_3), read_run(FROZEN_4)
    assert (after.header, after.measurements) == (before.header, before.measurements)
    assert '"ranks": {"number": 2, "same": {"host": "example",' in FROZEN_4.read_text()


def as_schema_1(line: str) -> str:
    """A line of schema 2 as schema 1 had it."""
    values = json.loads(line)
    old = {"batches": "visits", "link_probes": "hops"}
    values = {old.get(name, name): value for name, value in values.items()}
    if values["kind"] == "batch":
        values["kind"] = "visit"
    if values["kind"] == "case":
        del values["case"]["ranks"]
    return json.dumps(values | ({"schema": 1} if values["kind"] == "header" else {})) + "\n"


def test_the_same_run_reads_to_the_same_values_in_both_schemas(tmp_path: Path) -> None:
    lines = FROZEN_2.read_text(encoding="utf-8").splitlines()
    (tmp_path / JOURNAL).write_text("".join(map(as_schema_1, lines)), encoding="utf-8")
    assert '"kind": "visit"' in (tmp_path / JOURNAL).read_text(encoding="utf-8")
    old, new = read_progress(tmp_path), read_progress(FROZEN_2)
    assert [written_row(row) for row in make_rows(old.run)] == [
        written_row(row) for row in make_rows(new.run)
    ]
    assert old.run._replace(path="") == new.run._replace(path="")
    assert old.digest == new.digest


def in_schema_2(folder: Path) -> Path:
    """Make the journal of a run folder one of schema 2; its path."""
    path = folder / JOURNAL
    plain = re.sub(r', "(crc32|digest)": "[0-9a-f]{8}"', "", path.read_text())
    plain = re.sub(r', "host_\w+_s": null', "", plain)  # fields that came later
    path.write_text(plain.replace(f'"schema": {SCHEMA}', '"schema": 2'))
    return path


def test_an_older_journal_is_compared_with_the_rows_beside_it(tmp_path: Path) -> None:
    journal = in_schema_2(synthetic_run(tmp_path / "a", "a"))
    text = journal.read_text()
    assert load(tmp_path / "a").rows == load(tmp_path / "a" / "results.csv").rows
    for was, is_now, column in (
        ('"samples_s": [1.0', '"samples_s": [1.9', "time_us"),
        ('"kind": "batch"', '"kind": "batch", "calls": 2', "calls"),
        ('"wrong": 0', '"wrong": null', "wrong"),
        ('"label": "a"', '"label": "b"', "label"),
    ):
        assert was in text
        journal.write_text(text.replace(was, is_now, 1))
        for read in (load, open_run):
            with pytest.raises(RecordsError, match=rf"row 1 of .*csv contradicts .*: {column} is "):
                read(tmp_path / "a")
    journal.write_text(text.replace('"samples_s": [1.0', '"samples_s": [1.9', 1))
    (tmp_path / "a" / "results.csv").unlink()
    assert load(tmp_path / "a").run


@pytest.mark.full
def test_most_flips_in_an_older_journal_are_noticed_by_its_rows(tmp_path: Path) -> None:
    journal = in_schema_2(
        synthetic_run(tmp_path / "a", "a", lambda case: noisy(1e-4, case.index, each=5))
    )
    content, chance, unnoticed = journal.read_bytes(), Random(1), 0
    for _ in range(300):
        journal.write_bytes(flip(content, chance))
        with suppress(RecordsError):
            unnoticed += not load(tmp_path / "a").incomplete
    assert unnoticed <= 100  # without the rows it is 143


def test_a_run_of_the_first_schema_is_resumed_in_the_newest(tmp_path: Path) -> None:
    lines = FROZEN.read_text(encoding="utf-8").splitlines(keepends=True)
    begun, last_batch = lines[:-3], lines[-3]
    path = tmp_path / JOURNAL
    path.write_text("".join(begun), encoding="utf-8")
    before = read_progress(tmp_path)
    assert (before.finished, before.run.end) == ({1, 2}, None)
    whole = read_run(FROZEN)
    journal = Journal(tmp_path)
    journal.add(before.run.header._replace(resumed=True))
    journal.batch(whole.measurements[0].case, whole.measurements[0].batches[1])
    journal.add(whole.measurements[0])
    assert whole.end
    journal.end(whole.end)
    schemas = [json.loads(line).get("schema") for line in path.read_text().splitlines()]
    assert [schema for schema in schemas if schema] == [1, SCHEMA]
    after = read_progress(tmp_path)
    assert (after.finished, len(after.run.restarts), after.launch) == ({0, 1, 2}, 1, 0)
    found = [m._replace(rank_times=()) for m in after.run.measurements]
    assert found == [m._replace(rank_times=()) for m in whole.measurements]
    assert after.run.end == whole.end

    # After a header of schema 3 a line of schema 1 is no longer one.
    path.write_text(path.read_text() + last_batch)
    with pytest.raises(RecordsError, match=r"line 13, is damaged: its checksum"):
        read_run(tmp_path)


FIELDS = len(COLUMNS)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = Path("results")
    for stamp, label in (("060000", "ring"), ("060100", "tree"), ("060200", "ring")):
        started = f"2026-11-21T{stamp[:2]}:{stamp[2:4]}:00+00:00"
        synthetic_run(folder / f"20261121-{stamp}-{label}", label, started=started)
    synthetic_run(folder / "mine", "trial")
    (folder / "notes").mkdir()
    synthetic_run(folder / "nested" / "inner", "inner")
    (folder / "20261121-070000-sweep-algo").mkdir()
    (folder / "20261121-070000-sweep-algo" / "sweep.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("results/mine", "mine"), ("mine", "mine"), ("trial", "mine"), ("tri", "mine"),
        ("tree", "20261121-060100-tree"), ("tre", "20261121-060100-tree"),
        ("20261121-060000-ring", "20261121-060000-ring"),
        ("20261121-0600", "20261121-060000-ring"), ("ring", "20261121-060200-ring"),
    ],
)  # fmt: skip
def test_a_run_is_found_by_path_folder_label_or_beginning(
    results: Path, text: str, folder: str
) -> None:
    assert find_run(text) == results / folder


def test_the_newest_of_several_runs_is_taken_and_said(results: Path) -> None:
    said: list[str] = []
    for text in ("tree", "ring"):
        find_run(text, said.append)
    assert said == [f"ring: the newest of 2 runs is {results / '20261121-060200-ring'}"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("tr", "'tr' is the start of several labels", "give one of them: tree, trial"),
        ("20261121-060", "'20261121-060' is the start of several folders", "give one of them: "
         "20261121-060000-ring, 20261121-060100-tree, 20261121-060200-ring"),
        ("rnig", "there is no file, folder or run 'rnig'", "did you mean ring?"),
        ("zzz", "there is no file, folder or run 'zzz'",
         "give a run folder, its run.jsonl, or a label under results/ (`commbench list`)"),
        ("results/notes", "results/notes is a folder without a run",
         "a run folder has a run.jsonl; `commbench list` lists those in results/"),
        ("nested", "results/nested is a folder without a run",
         "name a run in it: results/nested/inner"),
        ("algo", "algo is a sweep, not a run",
         "use `commbench show`, `plot` or `report` on it alone"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("results")
def test_what_is_not_there_is_refused_with_what_may_be_meant(
    text: str, message: str, hint: str
) -> None:
    with pytest.raises((RecordsError, UsageError)) as caught:
        find_run(text)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.usefixtures("results")
def test_a_setting_that_a_sweep_lacks_is_refused_with_those_that_it_has() -> None:
    synthetic_sweep(Path("swept"))
    with pytest.raises(RecordsError) as caught:
        find_run("swept/quiet")
    assert caught.value.message == "the sweep swept has no quiet"
    named = "name one: swept/cpu-mode=plain, swept/cpu-mode=quiet"
    assert caught.value.hint == f"{named}; or finish it: `commbench sweep --resume swept`"


def test_journal_and_csv_give_the_same_frame(tmp_path: Path) -> None:
    folder = synthetic_run(tmp_path / "a", "mine", asked=plan(operations=("all_reduce", "barrier")))
    journal, csv = load(folder / "run.jsonl"), load(folder / "results.csv")
    assert journal.rows == csv.rows
    assert journal.columns == csv.columns == tuple(COLUMNS)
    assert [*journal.rows] == [*csv.rows]
    pd.testing.assert_frame_equal(journal.frame(), csv.frame())
    assert (journal.name, csv.name) == ("mine", "mine")
    assert journal.run and journal.header and not csv.run and not csv.header
    assert load(folder).run == journal.run


def test_an_older_file_lacks_columns_and_they_are_empty(tmp_path: Path) -> None:
    csv = synthetic_run(tmp_path / "a", "mine") / "results.csv"
    frame = pd.read_csv(csv)
    frame.iloc[:, : list(COLUMNS).index("status") + 1].to_csv(csv, index=False)
    source = load(csv)
    assert source.columns == tuple(COLUMNS)
    assert {row.gpu_shared for row in source.rows} == {None}
    assert {row.warnings for row in source.rows} == {""}
    assert source.frame()["gpu_shared"].isna().all()


def test_the_older_name_of_a_column_is_read_as_todays(tmp_path: Path) -> None:
    csv = synthetic_run(tmp_path / "a", "mine") / "results.csv"
    now = load(csv).rows
    assert {row.batches for row in now} == {10}
    csv.write_text(csv.read_text().replace(",batches,", ",visits,", 1))
    assert load(csv).rows == now


def test_a_file_without_a_label_goes_by_its_name(tmp_path: Path) -> None:
    csv = synthetic_run(tmp_path / "folder", "mine") / "results.csv"
    frame = pd.read_csv(csv)
    frame.drop(columns="label").to_csv(csv, index=False)
    assert load(csv).name == "folder"
    csv.rename(tmp_path / "old.csv")
    assert load(tmp_path / "old.csv").name == "old"


def broken(number: int, **values: str) -> Callable[[list[str]], list[str]]:
    """What gives a line other values."""

    def change(lines: list[str]) -> list[str]:
        fields = dict(zip(COLUMNS, lines[number - 1].split(","), strict=True)) | values
        return [*lines[: number - 1], ",".join(fields.values()), *lines[number:]]

    return change


@pytest.mark.parametrize(
    ("damage", "line", "why"),
    [
        *((broken(3, time_us=value), 3, f"time_us is {value!r}")
          for value in ("fast", "nan", "inf", "-4", "1e999", "1_0")),
        (broken(4, time_us="1"), 4,
         "time_us 1 is not between time_ci_low_us and time_ci_high_us"),
        (broken(4, time_p5_us="5", time_p5_ci_high_us="4"), 4,
         "time_p5_us 5 is not between time_p5_ci_low_us and time_p5_ci_high_us"),
        (broken(3, busbw_GBps="99"), 3,
         "busbw_GBps 99 is not between busbw_ci_low_GBps and busbw_ci_high_GBps"),
        (broken(3, time_min_us="999"), 3,
         "time_us 16.384 is not between time_min_us and time_max_us"),
        (broken(3, algbw_GBps="1.01"), 3, "algbw_GBps 1.01 is not size_bytes over time_us"),
        (broken(5, wrong="7"), 5, "wrong is 7, and the status ok"),
        (broken(5, status="okay"), 5, "status 'okay' is unknown"),
        (broken(2, size_bytes="1.5"), 2, "size_bytes is '1.5'"),
        (broken(2, size_bytes=""), 2, "size_bytes is empty"),
        (broken(2, status=""), 2, "status is empty"),
        (lambda lines: [*lines[:3], lines[1], *lines[3:]], 4, "an earlier line has the same case"),
        (lambda lines: [*lines, lines[2]], 6, "an earlier line has the same case"),
        (lambda lines: [*lines[:4], lines[4][:90]], 5,
         f"it has 17 fields, the first line {FIELDS}"),
        (lambda lines: [*lines[:2], lines[2] + ",1", *lines[3:]], 3,
         f"it has {FIELDS + 1} fields, the first line {FIELDS}"),
        (lambda lines: [lines[0], *(line + ",1" for line in lines[1:])], 2,
         f"it has {FIELDS + 1} fields, the first line {FIELDS}"),
        (lambda lines: [*lines[:3], "", *lines[3:]], 4,
         f"it has 0 fields, the first line {FIELDS}"),
        (lambda lines: [*lines, *lines], 6, "world_size is 'world_size'"),
    ],
)  # fmt: skip
def test_a_damaged_csv_is_refused_with_the_line(
    tmp_path: Path, damage: object, line: int, why: str
) -> None:
    csv = synthetic_run(tmp_path / "a", "mine") / "results.csv"
    lines = csv.read_text().splitlines()
    csv.write_text("\n".join(damage(lines)) + "\n")  # type: ignore[operator]
    with pytest.raises(RecordsError) as caught:
        load(csv)
    assert caught.value.message == f"{csv}, line {line}, is damaged: {why}"


def test_the_line_of_damage_is_found_among_many_and_after_fields_of_several_lines(
    tmp_path: Path,
) -> None:
    asked = plan(sizes=tuple(4 * (i + 1) for i in range(300)))
    csv = synthetic_run(tmp_path / "a", "two\nlines", lambda _: steady(1e-4, 2), asked)
    path = csv / "results.csv"
    assert len(load(path).rows) == 300
    text = path.read_text()
    path.write_text(text.replace(",800,200,", ",800,-200,", 1))
    with pytest.raises(RecordsError) as caught:
        load(path)
    # The record of size 800 is the 200th of two lines each, after one line of names.
    assert caught.value.message == f"{path}, line 401, is damaged: count is '-200'"


def test_a_last_line_that_was_cut_is_refused(tmp_path: Path) -> None:
    csv = synthetic_run(tmp_path / "a", "mine") / "results.csv"
    whole = csv.read_text()
    csv.write_text(whole[:-1])
    assert len(load(csv).rows) == 4  # only the line's end is missing
    *lines, last = whole.splitlines()
    csv.write_text("\n".join([*lines, ",".join(last.split(",")[:41])]))
    with pytest.raises(RecordsError, match="line 5, is damaged: it has 41 fields"):
        load(csv)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a results.csv: it has no column operation"),
        (b"a,b\n1,2\n", "is not a results.csv: it has no column operation"),
        (b"operation,size_bytes\nall_reduce,8\n", "is not a results.csv: it has no column dtype"),
        (b"\xff\xfe\x00", "is not text"),
        (b'operation,size_bytes,"time', "is not a results.csv: it has no column dtype"),
    ],
)
def test_what_is_no_results_csv_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    csv = tmp_path / "results.csv"
    csv.write_bytes(content)
    with pytest.raises(RecordsError) as caught:
        load(csv)
    assert message in caught.value.message


def test_a_file_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    with pytest.raises(RecordsError) as caught:
        load(other)
    assert caught.value.message == f"{other} is not the output of a tool that commbench knows"
    assert caught.value.hint
    with pytest.raises(RecordsError, match="has no results"):
        load(tmp_path)
    with pytest.raises(RecordsError, match="cannot read"):
        load(tmp_path / "nowhere")


def test_a_run_folder_is_made_with_an_empty_journal(tmp_path: Path) -> None:
    folder = create_folder(tmp_path / "run")
    assert [path.name for path in folder.iterdir()] == [JOURNAL]
    assert (folder / JOURNAL).read_bytes() == b""


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RecordsError) as refused:
        create_folder(tmp_path)
    assert refused.value.message == f"{tmp_path} exists and is not empty"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
