"""The tables, the sentences and the picture of a replay."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pictures import require_readable
from synthetic import noisy, steady
from synthetic_step import MIB, STEP, WORKLOAD, replay_run, without_times

from commbench.api.runs import Run
from commbench.report.replay_text import replay_sections
from commbench.report.run_document import ShownRun, document
from commbench.results.schema import Run as Recorded
from commbench.spec.case import Case
from commbench.spec.workload import Call, Program, Step
from commbench.stats.estimate import Estimate
from commbench.views.document import Section, Table
from commbench.views.pictures import Bars

VARIANTS = {
    "calls": 16e-3, "gaps": 20e-3, "bucket:4M": 18e-3, "bucket:16M": 20e-3,
    "reduce_scatter+all_gather": 25e-3,
}  # fmt: skip


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def seconds(case: Case) -> float:
    return VARIANTS.get(case.variant) or case.size_bytes * 1e-3 / MIB or 5e-4


@pytest.fixture(scope="module")
def run() -> Recorded:
    return replay_run(samples=lambda case: steady(seconds(case)))


def sentences(run: Recorded) -> str:
    return " ".join(Run(*run).text().split())


def section_of(run: Recorded) -> Section:
    shown = ShownRun(run)
    (section,) = replay_sections(run, shown.steps)
    return section


def test_a_replay_has_a_table_of_its_operations_and_one_of_the_step(run: Recorded) -> None:
    section = section_of(run)
    assert section.title == "Replay of small; train; 3 steps of 20.0 ms in its trace"
    operations, whole, *_ = section.blocks
    assert isinstance(operations, Table) and isinstance(whole, Table)
    headings, rows, _ = operations.texts()
    assert headings == ["group", "ranks", "operation", "calls", "bytes", "traced time", "waiting",
                        "replay time", "95 % interval", "busbw GB/s"]  # fmt: skip
    assert rows[0][:8] == (
        "world", "2", "all_reduce", "2", "12 MiB", "9.00 ms", "500.0 us", "12.00 ms",
    )  # fmt: skip
    assert [row[2] for row in rows[1:]] == ["recv", "send"]
    lines = {row.name: row for row in whole.rows}
    times = {name: row.time.value for name, row in lines.items()}
    assert times["trace: whole step"] == pytest.approx(20e-3)
    assert times["trace: communication"] == pytest.approx(9e-3)
    assert times["trace: without waiting"] == pytest.approx(8e-3)
    assert times["trace: waiting"] == pytest.approx(1e-3)
    assert times["trace: without computation"] == pytest.approx(10e-3)
    gaps, bucket = lines["all calls with gaps"], lines["buckets of 4 MiB"]
    assert gaps.over_step and gaps.over_step.value == pytest.approx(1.0)
    assert lines["trace: waiting"].over_step == Estimate(pytest.approx(0.05))
    assert bucket.over_baseline and bucket.over_baseline.value == pytest.approx(0.9)
    assert "over all calls with gaps" in whole.texts()[0]


def test_the_answer_says_where_the_time_goes_and_what_would_be_saved(run: Recorded) -> None:
    assert " ".join(document(ShownRun(run)).answer).startswith(
        "all_reduce over world takes most of the time of all calls: 90 % in the trace, 100 % here. "
        "11 % of the communication of the trace, 1.00 ms of 9.00 ms a step, is waiting for other "
        "ranks; `commbench workload show TRACES` says which rank waits for which. One after "
        "another and without computation, the calls take 16.00 ms here and 10.0 ms in the trace, "
        "1.60 times (1.59-1.61) as long: communication is slower here."
    )
    assert "Buckets of 4 MiB would save most: 10 % less time." in document(ShownRun(run)).answer


def test_where_the_trace_and_the_replay_differ_in_what_takes_most_both_are_named() -> None:
    slow = replay_run(samples=lambda case: steady(1.0 if case.pairs else seconds(case)))
    text = sentences(slow)
    assert "all_reduce over world takes most of the time of all calls: 90 % in the trace." in text
    assert "messages over pp take most of the time of all calls: 99 % here." in text


def test_a_long_name_of_a_step_is_wrapped_and_fits_the_picture() -> None:
    name = "a_long_name_of_a_step_of_a_model_with_many_layers " * 3
    long = WORKLOAD._replace(steps=(STEP._replace(name=name.strip()),))
    run = replay_run(long, lambda _: steady(1e-3))
    assert max(map(len, Run(*run).text().splitlines())) <= 80
    from commbench.report.replay_plot import replay_pictures

    for picture in replay_pictures([run]):
        require_readable(picture)


def test_the_rows_of_single_calls_are_shown_where_they_are_asked_for(run: Recorded) -> None:
    for has_calls, shown in ((False, 0), (True, 8)):
        found = document(ShownRun(run, has_calls=has_calls))
        (table,) = [b for b in found.blocks if isinstance(b, Table) and b.rows]
        assert len(table.rows if table.brief is None else table.brief) == shown


def test_a_generated_step_has_columns_of_the_replay_only() -> None:
    workload = WORKLOAD._replace(steps=(without_times(STEP),))
    text = sentences(replay_run(workload, lambda case: steady(seconds(case))))
    assert "in its trace" not in text and "traced" not in text
    assert "over all calls" in text and "trace: " not in text
    assert "all_reduce over world takes most of the time of all calls: 100 % here." in text


def test_a_trace_of_one_rank_says_nothing_of_waiting() -> None:
    calls = (Call("all_reduce", "world", "float32", MIB, start_s=1e-3, time_s=2e-3),)
    workload = WORKLOAD._replace(
        steps=(Step("s", (Program((0, 1), calls),), 2, 1e-2),),
        notes=("ranks without a trace are taken to make the same calls",),
    )
    text = sentences(replay_run(workload, lambda case: steady(seconds(case))))
    assert "Note: ranks without a trace are taken to make the same calls." in text
    assert "trace: waiting" not in text
    assert "The trace does not say how much of it is waiting." in text
    assert "All calls are all_reduce over world." in text


def test_a_step_on_fewer_ranks_is_not_compared_with_the_network_of_the_trace() -> None:
    calls = (Call("all_reduce", "world", "float32", MIB, start_s=1e-3, time_s=2e-3),)
    workload = WORKLOAD._replace(
        world_size=4, groups={"world": ((0, 1, 2, 3),)},
        steps=(Step("s", (Program((0, 1, 2, 3), calls),), 2, 1e-2),),
    )  # fmt: skip
    text = sentences(replay_run(workload, lambda case: steady(seconds(case)), ranks=2))
    assert "Note: ranks 0 to 1 of 4 are kept." in text
    assert "the trace had more ranks, so this does not compare the networks." in text
    assert "slower here" not in text and "faster here" not in text


def test_the_verdict_says_that_no_variant_saves_time() -> None:
    slow = {**VARIANTS, "bucket:4M": 22e-3, "bucket:16M": 24e-3}
    run = replay_run(samples=lambda case: steady(slow.get(case.variant) or 1e-3))
    assert "No variant of the step takes less time." in sentences(run)


def test_variants_that_a_step_does_not_have_are_named_with_the_reason() -> None:
    one = (Call("all_reduce", "world", "float32", 2 * MIB),)
    none = (Call("all_gather", "world", "float32", 2 * MIB),)
    for calls, expected in (
        (one, "no variant with buckets: it needs two neighbouring all_reduces."),
        (none, "with buckets and reduce_scatter + all_gather: it has no all_reduce."),
        (none, "The step has no variant with gaps: its source says nothing about gaps."),
        ((one[0]._replace(size_bytes=1024),), "its all_reduces have less than 1 MiB."),
    ):
        workload = WORKLOAD._replace(steps=(Step("s", (Program((0, 1), calls),)),))
        text = sentences(replay_run(workload, lambda _: steady(1e-3), variants=("all",)))
        assert expected in text
    assert "no variant with" not in sentences(replay_run(variants=("all",)))


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (lambda case: steady(seconds(case)) if not case.step else None,
         "Not measured: replay train calls"),
        (lambda case: steady(seconds(case)) if case.step else None, "buckets of 4 MiB 18.00 ms"),
        (lambda _: None, "Not measured"),
        (lambda case: noisy(seconds(case), case.index, noise=0.5, batches=2, each=3),
         "No variant of the step is seen to take less time."),
        (lambda case: [[seconds(case)]],
         "Buckets of 4 MiB would save most: 10 % less time, without an interval"),
    ],
)  # fmt: skip
def test_a_run_that_was_cut_off_still_has_its_tables(
    samples: Callable[[Case], list[list[float]] | None], expected: str
) -> None:
    run = replay_run(samples=samples)
    text = Run(*run).text()
    assert max(map(len, text.splitlines())) <= 80
    assert expected in sentences(run)


def test_json_has_the_figures_in_seconds_and_bytes(run: Recorded) -> None:
    values = json.loads(Run(*run).text("json"))
    replayed = values["replay"]
    (step,) = replayed["steps"]
    assert (replayed["workload"], step["name"], step["baseline"]) == ("small", "train", "gaps")
    reduced = step["operations"][0]
    assert reduced["traced_transfer_s"] == pytest.approx(9e-3)
    assert reduced["replayed_s"]["value"] == pytest.approx(12e-3)
    assert reduced["size_bytes"] == 12 * MIB
    assert reduced["busbw_bytes_per_s"]["value"] == pytest.approx(12 * MIB / 12e-3)
    assert step["step_over_trace"]["value"] == pytest.approx(1.0)
    by_variant = {each["variant"]: each for each in step["variants"]}
    assert by_variant["bucket:4M"]["over_baseline"]["value"] == pytest.approx(0.9)
    assert by_variant["gaps"]["over_baseline"] is None


def test_the_picture_has_a_bar_for_the_trace_and_one_for_here(run: Recorded) -> None:
    from commbench.report.plots import run_pictures

    (picture,) = run_pictures([run])
    require_readable(picture)
    assert picture.name == "replay"
    assert "90 % in the trace" in picture.description
    operations, whole = (panel for panel in picture.panels if isinstance(panel, Bars))
    assert [row.name for row in operations.rows] == ["all_reduce, world", "recv, pp", "send, pp"]
    trace, here = operations.rows[0].bars
    assert (trace.time.value, trace.more_s) == pytest.approx((9e-3, 5e-4))
    assert here.time.value == pytest.approx(12e-3)
    # A bar of two parts has both numbers, and they are those of the tables.
    assert trace.text == "9.00 ms + 500 us"
    texts = [bar.text for row in whole.rows for bar in row.bars]
    assert texts[:2] == ["20.0 ms", "8.00 ms + 1.00 ms"] and "18.00 ms" in texts
