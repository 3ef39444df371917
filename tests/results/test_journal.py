"""The journal: what is written is read back, and nothing that was not written ever is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_journal import CASES, END, HEADER, MEASUREMENTS, PLAN, record, sealed, write
from synthetic_rows import written_row

from commbench.analysis.rows import make_row, make_rows
from commbench.errors import RecordsError
from commbench.results.decode import LONGEST_S, SHORTEST_S
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import (
    CUT_OFF,
    Batch,
    Measurement,
    ReportedTiming,
    Run,
    RunEnd,
    WrongElement,
)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = write(tmp_path, *MEASUREMENTS)
    run = Run(path=str(tmp_path), header=HEADER, measurements=MEASUREMENTS, end=END, launches=1)
    assert read_run(path) == read_run(tmp_path) == run


def test_every_line_is_in_the_file_as_soon_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.header(HEADER)
    sizes = [(tmp_path / JOURNAL).stat().st_size]
    measurement = MEASUREMENTS[0]
    for number, batch in enumerate(measurement.batches, start=1):
        journal.batch(measurement.case, batch)
        (found,) = read_run(tmp_path).measurements
        assert (found.batches, found.stop_reason) == (measurement.batches[:number], CUT_OFF)
        sizes.append((tmp_path / JOURNAL).stat().st_size)
    journal.measurement(measurement)
    run = read_run(tmp_path)
    assert (run.measurements, run.end) == ((measurement,), None)
    sizes.append((tmp_path / JOURNAL).stat().st_size)
    journal.end(END)
    assert sizes == sorted(set(sizes))


def test_each_batch_has_a_line_of_its_own_and_none_is_written_twice(lines: list[str]) -> None:
    found = [json.loads(line) for line in lines]
    assert [line["kind"] for line in found] == [
        "header", "batch", "batch", "case", "case", "batch", "case", "end"
    ]  # fmt: skip
    assert [line["case"] for line in found if line["kind"] == "batch"] == [0, 1, 0]
    assert [line["batches"] for line in found if line["kind"] == "case"] == [[], [], []]


def test_a_case_without_a_line_of_its_own_was_cut_off(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text(sealed(lines[:-2]), encoding="utf-8")
    run = read_run(tmp_path)
    assert run.measurements == (
        Measurement(
            case=CASES[0], status="ok", stop_reason="cut off", batches=MEASUREMENTS[0].batches
        ),
        *MEASUREMENTS[1:],
    )
    assert run.measurements[0].samples_s == (1.5e-4, 0.1 + 0.2, 1.25e-4)
    assert run.measurements[0].wrong is None
    assert written_row(make_row(run.header, run.measurements[0]))["stop_reason"] == "cut off"


def test_cases_come_in_the_order_of_the_plan_however_they_were_finished(tmp_path: Path) -> None:
    run = read_run(write(tmp_path, *reversed(MEASUREMENTS)))
    assert run.measurements == MEASUREMENTS


def launches(folder: Path, *outcomes: tuple[Measurement, ...]) -> Run:
    """What is read of a run of several launches."""
    for launch, measurements in enumerate(outcomes):
        journal = Journal(folder)
        journal.header(HEADER._replace(launch=launch, started=f"launch {launch}"))
        record(journal, *measurements)
        journal.end(END._replace(reason=f"launch {launch}"))
    return read_run(folder)


def measured(index: int, time_s: float, launch: int, **outcome: Any) -> Measurement:
    """A case that took this time in two batches of a launch."""
    batches = (Batch(samples_s=(time_s,), launch=launch),) * 2
    return Measurement(
        case=CASES[index], **({"status": "ok", "stop_reason": "budget"} | outcome), batches=batches
    )


def test_batches_of_several_launches_belong_to_the_same_case(tmp_path: Path) -> None:
    run = launches(
        tmp_path,
        (measured(0, 1e-3, 0), measured(1, 2e-3, 0)),
        (measured(1, 4e-3, 1), measured(0, 3e-3, 1)),
    )
    assert run.header == HEADER._replace(started="launch 0")
    assert run.end == END._replace(reason="launch 1")
    first, second = run.measurements
    assert (first.case, second.case) == (CASES[0], CASES[1])
    assert first.samples_s == (1e-3, 1e-3, 3e-3, 3e-3)
    assert [batch.launch for batch in second.batches] == [0, 0, 1, 1]
    assert make_row(run.header, second).launch_medians == (2e-3, 4e-3)


def test_a_launch_that_still_goes_on_makes_the_run_go_on(tmp_path: Path) -> None:
    launches(tmp_path, (measured(0, 1e-3, 0),))
    journal = Journal(tmp_path)
    journal.header(HEADER._replace(launch=1))
    assert read_run(tmp_path).end is None
    journal.batch(CASES[1], Batch(samples_s=(1.0,), launch=1))
    first, second = read_run(tmp_path).measurements
    journal.end(END)
    assert (first.stop_reason, second.stop_reason) == ("budget", CUT_OFF)


@pytest.mark.parametrize("wrong_launch", [0, 1, 2])
def test_of_several_launches_the_worst_outcome_counts(wrong_launch: int, tmp_path: Path) -> None:
    outcomes = [
        {"status": "wrong", "wrong": 5, "reason": "made up"}
        if launch == wrong_launch
        else {"wrong": 0, "stop_reason": f"launch {launch}"}
        for launch in range(3)
    ]
    run = launches(tmp_path, *((measured(0, 1e-3, n, **o),) for n, o in enumerate(outcomes)))
    (found,) = run.measurements
    assert (found.status, found.wrong, found.reason) == ("wrong", 5, "made up")
    assert len(found.batches) == 6


def test_of_several_launches_that_went_well_the_last_ones_outcome_counts(tmp_path: Path) -> None:
    reasons = ("precision", "budget")
    run = launches(
        tmp_path, *((measured(0, 1e-3, n, stop_reason=r),) for n, r in enumerate(reasons))
    )
    assert run.measurements[0].stop_reason == "budget"


def test_a_later_launch_with_another_plan_is_refused(tmp_path: Path) -> None:
    write(tmp_path, MEASUREMENTS[0])
    journal = Journal(tmp_path)
    journal.header(HEADER._replace(plan=replace(PLAN, seed=1), launch=1))
    journal.end(END)
    with pytest.raises(RecordsError, match=r"line 6, is damaged: a later launch has another plan"):
        read_run(tmp_path)


@pytest.mark.parametrize("index", [len(CASES), 10**9, -1, True, None, "0", 0.0, {}])
def test_a_batch_to_no_case_of_the_plan_is_refused_with_its_line(
    index: Any, lines: list[str], tmp_path: Path
) -> None:
    lines[2] = json.dumps(json.loads(lines[2]) | {"case": index}) + "\n"
    (tmp_path / JOURNAL).write_text(sealed(lines), encoding="utf-8")
    with pytest.raises(RecordsError, match=r"line 3, is damaged: "):
        read_run(tmp_path)


def test_a_journal_that_is_opened_again_keeps_what_it_has(tmp_path: Path) -> None:
    path = write(tmp_path, MEASUREMENTS[0], end=RunEnd(status="interrupted"))
    before = path.read_bytes()
    Journal(tmp_path).end(END)
    assert path.read_bytes().startswith(before)
    assert read_run(path).end == END


seconds = st.just(0.0) | st.floats(SHORTEST_S, LONGEST_S) | st.floats(1e-9, 1)
per_rank = st.sampled_from([0, 2]).flatmap(
    lambda ranks: st.lists(seconds, min_size=ranks, max_size=ranks).map(tuple)
)
batches = st.builds(
    Batch,
    samples_s=st.lists(seconds, min_size=1, max_size=12).map(tuple),
    calls=st.integers(1, 20),
    warmup=st.integers(0, 10**6),
    rank_medians_s=per_rank,
    rank_behind_s=per_rank,
    group_medians_s=st.just(()),
    group_samples_s=st.just(()),  # these cases have no groups, and overlap nothing
    last_in=st.just(()) | st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    entry_skew_s=st.none() | seconds,
    operation_s=st.none() | seconds,
    fastest_rank_s=st.none() | seconds,
    enqueue_s=st.none() | seconds,
    late_iterations=st.none() | st.integers(0, 10**6),
    clock_mhz=st.none() | st.integers(0, 10**4),
    power_w=st.none() | st.floats(0, 1e4),
    temperature_c=st.none() | st.integers(-20, 120),
    throttle_reasons=st.just(()) | st.tuples(st.text(max_size=20)),
    elapsed_s=seconds,
    queued_s=st.none() | seconds,
    switches=st.integers(0, 10**9),
    group_bytes=st.none() | st.integers(0, 10**9),
    throttled_s=st.none() | seconds,
    stolen_s=st.none() | seconds,
    launch=st.just(0),
    communication_s=st.just(()),
    computation_s=st.just(()),
    host_round_trip_s=st.none() | seconds,
    host_copy_s=st.none() | seconds,
    work=st.text(max_size=20),
)
measurements = st.builds(
    Measurement,
    case=st.sampled_from(CASES),
    status=st.sampled_from(["ok", "wrong", "unsupported", "skipped", "failed"]),
    reason=st.text(max_size=30),
    stop_reason=st.sampled_from(["", "fixed", "precision", "budget", "cap"]),
    wrong=st.none() | st.integers(0, 2**53),
    first_wrong=st.none()
    | st.builds(WrongElement, st.integers(0, 9), st.integers(0, 2**40), st.text(), st.text()),
    batches=st.lists(batches, max_size=4).map(tuple),
    reported=st.none()
    | st.builds(ReportedTiming, seconds, st.text(), st.integers(0, 9), *[st.none() | seconds] * 5),
).filter(lambda measurement: measurement.status != "ok" or not measurement.wrong)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(measurements, max_size=4, unique_by=lambda measurement: measurement.case.index),
    st.builds(
        RunEnd,
        status=st.sampled_from(["complete", "failed"]),
        reason=st.text(),
        elapsed_s=seconds,
        risen=st.dictionaries(st.text(), st.dictionaries(st.text(), st.integers(1, 1 << 50))),
    ),
)
def test_whatever_was_measured_is_read_back_to_the_last_bit(
    measured: list[Measurement], end: RunEnd
) -> None:
    with TemporaryDirectory() as folder:
        run = read_run(write(Path(folder), *measured, end=end))
    planned = tuple(sorted(measured, key=lambda measurement: measurement.case.index))
    assert (run.header, run.measurements, run.end) == (HEADER, planned, end)
    assert len(make_rows(run)) == len([written_row(row) for row in make_rows(run)]) == len(measured)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_sample_that_is_no_finite_number_is_never_written(value: float, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.header(HEADER)
    before = (tmp_path / JOURNAL).read_bytes()
    with pytest.raises((ValueError, RecordsError)):
        journal.batch(CASES[0], Batch(samples_s=(value,)))
    assert (tmp_path / JOURNAL).read_bytes() == before
    journal.end(END)
