"""Journals of each schema, frozen in tests/data, still read to their values."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from synthetic import noisy, synthetic_run
from synthetic_journal import flip
from synthetic_rows import written_row

from commbench.analysis.load import load, open_run
from commbench.analysis.rows import make_rows
from commbench.errors import RecordsError
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_progress, read_run
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import SCHEMA, Batch, Measurement, RunEnd, StartUp
from commbench.spec.case import Case
from commbench.spec.plan import Plan

DATA = Path(__file__).parents[1] / "data"
FROZEN = DATA / "journal-schema-1.jsonl"
FROZEN_2 = DATA / "journal-schema-2.jsonl"
FROZEN_3 = DATA / "journal-schema-3.jsonl"


def test_the_journal_of_the_first_schema_still_reads_to_its_values() -> None:
    run = read_run(FROZEN)
    assert (run.header.schema, run.checked) == (SCHEMA, False)
    assert run.name == run.header.label == "all_reduce-barrier"
    assert run.header.plan == Plan(
        operations=("all_reduce", "barrier"),
        sizes=(1024, 4096),
        backend="gloo",
        device="cpu",
        world_size=2,
        iterations=3,
        warmup=1,
        timeout_s=300.0,
    )
    assert run.header.hosts == ("example",)
    assert [rank.rank for rank in run.header.ranks] == [0, 1]
    assert run.header.environment["kernel"] == "6.1.0"
    small = Case(
        index=0, operation="all_reduce", dtype="float32", reduce_op="sum", root=None,
        placement="in_place", timing="isolated", size_bytes=1024, count=256, ranks=2,
    )  # fmt: skip
    assert run.header.ranks[1].cores == (1,)
    assert (run.header.overhead_s, run.header.resolution_s) == (1.9e-07, 1e-9)
    assert run.measurements[0] == Measurement(
        case=small,
        status="ok",
        stop_reason="fixed",
        wrong=0,
        batches=(
            run.measurements[0].batches[0],
            Batch(
                samples_s=(0.004015927,),
                calls=1,
                warmup=1,
                rank_medians_s=(0.004015927, 0.003162815),
                rank_behind_s=(0.0, 0.000943947),
                last_in=(0, 1),
                entry_skew_s=0.000943947,
                operation_s=0.003162815,
                elapsed_s=0.011537189000000002,
                queued_s=0.00639289,
                switches=3,
                throttled_s=0.0,
                stolen_s=0.0,
            ),
        ),
    )
    assert run.end == RunEnd(status="complete", elapsed_s=0.301371)


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


def test_the_journal_of_the_second_schema_still_reads_to_its_values() -> None:
    progress = read_progress(FROZEN_2)
    run = progress.run
    assert (run.header.schema, run.header.label) == (SCHEMA, "all_reduce-barrier")
    assert not run.checked
    assert run.header.plan == Plan(
        operations=("all_reduce", "barrier"),
        sizes=(1024,),
        backend="gloo",
        device="cpu",
        world_size=2,
        iterations=3,
        warmup=1,
        timing="both",
        launches=2,
        timeout_s=120.0,
    )
    assert (run.header.hosts, run.header.ranks[1].interface) == (("example",), "lo")
    assert (progress.launch, progress.finished) == (1, {0, 1, 2, 3})
    assert run.measurements[0].case == Case(
        index=0, operation="all_reduce", dtype="float32", reduce_op="sum", root=None,
        placement="in_place", timing="isolated", size_bytes=1024, count=256, ranks=2,
    )  # fmt: skip
    assert run.measurements[1].batches[1] == Batch(
        samples_s=(0.00924321,),
        calls=2,
        warmup=1,
        rank_medians_s=(0.00799832, 0.00924321),
        rank_behind_s=(0.002489708, 7.2e-08),
        last_in=(1, 0),
        entry_skew_s=0.002489708,
        operation_s=0.007998356,
        elapsed_s=0.019328108,
        queued_s=0.009372633,
        switches=2,
        throttled_s=0.0,
        stolen_s=0.01,
    )
    assert run.end == RunEnd(status="complete", elapsed_s=0.297995)


def test_the_journal_of_the_third_schema_still_reads_to_its_values() -> None:
    progress = read_progress(FROZEN_3)
    run = progress.run
    assert (run.header.schema, run.checked, run.incomplete) == (3, True, "")
    assert (progress.launch, progress.finished) == (1, {0, 1, 2, 3})
    assert run.header.start_up == StartUp(0.012382559, 0.002727055, 0.000337286, 0.003674829)
    assert run.measurements[1].batches[1] == Batch(
        samples_s=(0.0002445701,),
        calls=20,
        warmup=1,
        rank_medians_s=(0.0002445701, 0.0002437022),
        rank_behind_s=(1.01e-05, 7.258e-06),
        last_in=(0, 1),
        entry_skew_s=7.258e-06,
        operation_s=0.0002442072,
        elapsed_s=0.0053189330000000005,
        queued_s=0.002562833,
        switches=3,
        throttled_s=0.0,
        stolen_s=0.0,
    )
    assert run.end == RunEnd(status="complete", elapsed_s=0.065633)


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
    journal.header(before.run.header._replace(resumed=True))
    journal.batch(whole.measurements[0].case, whole.measurements[0].batches[1])
    journal.measurement(whole.measurements[0])
    assert whole.end
    journal.end(whole.end)
    schemas = [json.loads(line).get("schema") for line in path.read_text().splitlines()]
    assert [schema for schema in schemas if schema] == [1, SCHEMA]
    after = read_progress(tmp_path)
    assert (after.finished, after.run.resumed, after.launch) == ({0, 1, 2}, 1, 0)
    assert (after.run.measurements, after.run.end) == (whole.measurements, whole.end)

    # After a header of schema 3 a line of schema 1 is no longer one.
    path.write_text(path.read_text() + last_batch)
    with pytest.raises(RecordsError, match=r"line 13, is damaged: its checksum"):
        read_run(tmp_path)
