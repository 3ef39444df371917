"""The journal: what is written is read back, and nothing that was not written ever is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.analysis.columns import columns_of
from commbench.analysis.rows import make_row, make_rows
from commbench.errors import CommbenchError, RecordsError
from commbench.results.decode import LONGEST_S, SHORTEST_S
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import JOURNAL, create_folder
from commbench.results.schema import (
    CUT_OFF,
    SCHEMA,
    Batch,
    LinkProbe,
    Measurement,
    RankInfo,
    ReportedTiming,
    Run,
    RunEnd,
    RunHeader,
    WrongElement,
)
from commbench.spec.case import Case
from commbench.spec.plan import Plan

FROZEN = Path(__file__).parents[1] / "data" / "journal-schema-1.jsonl"

PLAN = Plan(
    operations=("all_reduce", "gather"),
    sizes=(1024, 4096),
    root=1,
    backend="gloo",
    device="cpu",
    world_size=2,
    iterations=3,
)
HEADER = RunHeader(
    plan=PLAN,
    label="été \u2028 \x1b[1m",
    started="2026-11-21T00:00:00+00:00",
    launcher="local",
    environment={"host": "example", "variables": {"GLOO_SOCKET_IFNAME": "lo"}, "cuda": None},
    ranks=(RankInfo(0, "example", 1000, "cpu", (0,), "quiet"), RankInfo(1, "example", 1001, "cpu")),
    num_nodes=1,
    commbench="0.1.0",
    overhead_s=1.5e-7,
    resolution_s=1e-9,
    link_probes=(LinkProbe(0, 1, 1 << 22, 0.0125), LinkProbe(1, 0, 1 << 22, 0.0625)),
)
CASES = PLAN.cases()
MEASUREMENTS = (
    Measurement(
        case=CASES[0],
        status="ok",
        stop_reason="fixed",
        wrong=0,
        batches=(
            Batch(
                samples_s=(1.5e-4, 0.1 + 0.2),
                calls=20,
                warmup=1,
                rank_medians_s=(1.4e-4, 1.5e-4),
                rank_behind_s=(0.0, 1.25e-5),
                last_in=(0, 2),
                entry_skew_s=1.41e-7,
                operation_s=1.3e-4,
                elapsed_s=0.25,
                queued_s=0.125,
                switches=3,
                throttled_s=0.0,
                stolen_s=0.01,
            ),
            Batch(samples_s=(1.25e-4,)),
        ),
    ),
    Measurement(
        case=CASES[1],
        status="wrong",
        reason="rank 1, element 7: expected 3.0, got nan",
        wrong=1,
        first_wrong=WrongElement(rank=1, element=7, expected="3.0", got="nan"),
        batches=(Batch(samples_s=(1e-3,)),),
    ),
    Measurement(case=CASES[2], status="failed", reason='"quoted",\nand on two lines'),
)
END = RunEnd(status="complete", elapsed_s=0.25)


def record(journal: Journal, *measurements: Measurement) -> None:
    """Write cases as a run does: batches in rounds, each case's own line after its last batch."""
    rounds = max((len(m.batches) for m in measurements), default=0)
    for number in range(max(rounds, 1)):
        for measurement in measurements:
            if number < len(measurement.batches):
                journal.batch(measurement.case, measurement.batches[number])
            if number == max(len(measurement.batches), 1) - 1:
                journal.measurement(measurement)


def write(folder: Path, *measurements: Measurement, end: RunEnd = END) -> Path:
    journal = Journal(folder)
    journal.header(HEADER)
    record(journal, *measurements)
    journal.end(end)
    return folder / JOURNAL


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    """The lines of a journal: header, first batches of cases 0 and 1, case 1,
    case 2, second batch of case 0, case 0, end."""
    return write(tmp_path, *MEASUREMENTS).read_text(encoding="utf-8").splitlines(keepends=True)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = write(tmp_path, *MEASUREMENTS)
    run = Run(path=str(tmp_path), header=HEADER, measurements=MEASUREMENTS, end=END)
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
    (tmp_path / JOURNAL).write_text("".join(lines[:-2]), encoding="utf-8")
    run = read_run(tmp_path)
    assert run.measurements == (
        Measurement(
            case=CASES[0], status="ok", stop_reason="cut off", batches=MEASUREMENTS[0].batches
        ),
        *MEASUREMENTS[1:],
    )
    assert run.measurements[0].samples_s == (1.5e-4, 0.1 + 0.2, 1.25e-4)
    assert run.measurements[0].wrong is None
    assert columns_of(make_row(run.header, run.measurements[0]))["stop_reason"] == "cut off"


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
    (tmp_path / JOURNAL).write_text("".join(lines), encoding="utf-8")
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
    last_in=st.just(()) | st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    entry_skew_s=st.none() | seconds,
    operation_s=st.none() | seconds,
    elapsed_s=seconds,
    queued_s=st.none() | seconds,
    switches=st.integers(0, 10**9),
    throttled_s=st.none() | seconds,
    stolen_s=st.none() | seconds,
    launch=st.integers(0, 99),
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
)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(measurements, max_size=4, unique_by=lambda measurement: measurement.case.index),
    st.builds(
        RunEnd,
        status=st.sampled_from(["complete", "failed"]),
        reason=st.text(),
        elapsed_s=seconds,
    ),
)
def test_whatever_was_measured_is_read_back_to_the_last_bit(
    measured: list[Measurement], end: RunEnd
) -> None:
    with TemporaryDirectory() as folder:
        run = read_run(write(Path(folder), *measured, end=end))
    planned = tuple(sorted(measured, key=lambda measurement: measurement.case.index))
    assert (run.header, run.measurements, run.end) == (HEADER, planned, end)
    assert len(make_rows(run)) == len([columns_of(row) for row in make_rows(run)]) == len(measured)


def test_a_journal_cut_off_at_any_byte_gives_what_was_complete_or_is_refused(
    lines: list[str], tmp_path: Path
) -> None:
    whole = "".join(lines).encode()
    path = tmp_path / "cut.jsonl"
    outcomes: list[object] = []
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        try:
            run = read_run(path)
        except RecordsError as error:
            outcomes.append(error.message)
            continue
        assert run.header == HEADER
        assert run.end == (END if length == len(whole) else None)
        for found in run.measurements:
            written = MEASUREMENTS[found.case.index]
            assert found.batches == written.batches[: len(found.batches)]
            assert found.stop_reason == CUT_OFF or found == written
        outcomes.append([(m.case.index, len(m.batches), m.stop_reason) for m in run.measurements])
    ends = [len("".join(lines[:number]).encode()) for number in range(len(lines) + 1)]
    cut, second, third = (0, 1, CUT_OFF), (1, 1, ""), (2, 0, "")
    assert outcomes == [
        *[f"{path} holds no complete header"] * ends[1],
        *[[]] * (ends[2] - ends[1]),
        *[[cut]] * (ends[3] - ends[2]),
        *[[cut, (1, 1, CUT_OFF)]] * (ends[4] - ends[3]),
        *[[cut, second]] * (ends[5] - ends[4]),
        *[[cut, second, third]] * (ends[6] - ends[5]),
        *[[(0, 2, CUT_OFF), second, third]] * (ends[7] - ends[6]),
        *[[(0, 2, "fixed"), second, third]] * (ends[8] - ends[7] + 1),
    ]


def test_the_journal_of_the_first_schema_still_reads_to_its_values() -> None:
    run = read_run(FROZEN)
    assert run.header.schema == SCHEMA
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
            Batch(
                samples_s=(0.005009643, 0.002277332),
                calls=1,
                warmup=1,
                rank_medians_s=(0.003286551, 0.002269392),
                rank_behind_s=(3.693e-06, 0.001729036),
                last_in=(1, 1),
                entry_skew_s=0.0013794855,
                operation_s=0.002265699,
                elapsed_s=0.011311979000000002,
                queued_s=0.008150363,
                switches=16,
                throttled_s=0.0,
                stolen_s=0.0,
            ),
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
    names = (
        "operation", "size_bytes", "time_us", "busbw_GBps", "wrong", "batches", "entry_skew_us",
        "operation_us", "slowest_rank", "status",
    )  # fmt: skip
    rows = [columns_of(make_row(run.header, measurement)) for measurement in run.measurements]
    assert [tuple(columns[name] for name in names) for columns in rows] == [
        ("all_reduce", 1024, 4015.927, 0.0002549847, 0, 2, 1161.716, 2714.257, 1, "ok"),
        ("all_reduce", 4096, 8285.979, 0.000494329, 0, 2, 3587.481, 6167.759, 1, "ok"),
        ("barrier", 0, 5596.298, None, None, 2, 3522.215, 3771.57, 1, "ok"),
    ]
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
    assert refused.value.hint == f"this one reads up to {SCHEMA}; upgrade commbench to read it"


@pytest.mark.parametrize("schema", [0, -1, "1", None, 1.5, True, [[]]])
def test_a_schema_that_is_no_version_is_refused(
    schema: Any, lines: list[str], tmp_path: Path
) -> None:
    header = json.loads(lines[0]) | {"schema": schema}
    (tmp_path / JOURNAL).write_text(json.dumps(header) + "\n", encoding="utf-8")
    with pytest.raises(RecordsError, match=r"line 1, is damaged: schema .* is not a version"):
        read_run(tmp_path)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", '"nan"', '"inf"'])
def test_a_sample_that_is_no_finite_number_is_refused_with_its_line(
    value: str, lines: list[str], tmp_path: Path
) -> None:
    lines[1] = lines[1].replace('"samples_s": [0.00015', f'"samples_s": [{value}')
    assert value in lines[1]
    (tmp_path / JOURNAL).write_text("".join(lines), encoding="utf-8")
    with pytest.raises(RecordsError, match=r"line 2, is damaged: "):
        read_run(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_sample_that_is_no_finite_number_is_never_written(value: float, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.header(HEADER)
    before = (tmp_path / JOURNAL).read_bytes()
    with pytest.raises((ValueError, RecordsError)):
        journal.batch(CASES[0], Batch(samples_s=(value,)))
    assert (tmp_path / JOURNAL).read_bytes() == before
    journal.end(END)


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
    path.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(RecordsError) as refused:
        read_run(tmp_path)
    assert refused.value.message.startswith(f"{path}, line 3, is damaged: ")
    assert refused.value.hint == (
        "the lines before it are sound; remove it and what follows to read 2 of them"
    )


@pytest.mark.parametrize(
    ("path_in_line", "value"),
    [
        ("case.operation", "all_shuffle"),
        ("case.dtype", "float12"),
        ("case.size_bytes", "1K"),
        ("case.size_bytes", None),
        ("status", 5),
        ("first_wrong", {"rank": 1}),
        ("reported", {"time_s": "soon", "statistic": ""}),
        ("surprise", 1),
        ("case.operation", ""),
        ("case.size_bytes", -1),
        ("case.size_bytes", 10**400),
        ("case.index", 10**9),
        ("case.index", -1),
        ("wrong", -1),
        ("reason", "x" * 10_001),
        ("reported", {"time_s": -1.0, "statistic": ""}),
    ],
)
def test_a_value_that_is_none_of_a_measurement_is_refused_with_its_line(
    path_in_line: str, value: Any, lines: list[str], tmp_path: Path
) -> None:
    values = json.loads(lines[3])
    *within, name = path_in_line.split(".")
    (values[within[0]] if within else values)[name] = value
    lines[3] = json.dumps(values) + "\n"
    (tmp_path / JOURNAL).write_text("".join(lines), encoding="utf-8")
    with pytest.raises(RecordsError, match=r"line 4, is damaged: "):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("samples_s", None),
        ("samples_s", []),
        ("samples_s", ["soon"]),
        ("samples_s", {"0": 1.0}),
        ("samples_s", [1.0, None]),
        ("rank_medians_s", 5),
        ("rank_behind_s", [None]),
        ("last_in", [1.5]),
        ("entry_skew_s", "little"),
        ("calls", None),
        ("calls", 1.5),
        ("calls", 0),
        ("rank_medians_s", [1.0]),
        ("rank_behind_s", [1.0, 1.0, 1.0]),
        ("last_in", [3]),
        ("elapsed_s", None),
        ("switches", "many"),
        ("launch", "first"),
        ("surprise", 1),
        ("samples_s", [10**400]),
        ("samples_s", [-1e-4]),
        ("samples_s", [5e-324]),
        ("samples_s", [1e8]),
        ("calls", 2**53 + 1),
        ("switches", -1),
        ("last_in", [3, -3]),
        ("queued_s", 1e300),
    ],
)
def test_a_value_that_is_none_of_a_batch_is_refused_with_its_line(
    name: str, value: Any, lines: list[str], tmp_path: Path
) -> None:
    lines[1] = json.dumps(json.loads(lines[1]) | {name: value}) + "\n"
    (tmp_path / JOURNAL).write_text("".join(lines), encoding="utf-8")
    with pytest.raises(RecordsError, match=r"line 2, is damaged: "):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("plan", {}), ("plan", None), ("ranks", None), ("ranks", [{"rank": 0}]), ("ranks", [5]),
        ("label", 5), ("environment", None), ("environment", {"load": float("nan")}),
        ("surprise", 1), ("launch", "first"), ("overhead_s", "little"), ("link_probes", [{"sender": 0}]),  # noqa: E501
        ("num_nodes", 0), ("environment", {"load": 10**20}), ("label", "x" * 10_001),
        ("environment", {"a": [[[[[1]]]]]}), ("environment", {"a": "x" * 200_000}),
        ("link_probes", [{"sender": 0, "receiver": 1, "size_bytes": 1, "seconds": -1.0}]),
    ],
)  # fmt: skip
def test_a_value_that_is_none_of_a_header_is_refused_with_its_line(
    name: str, value: Any, lines: list[str], tmp_path: Path
) -> None:
    lines[0] = json.dumps(json.loads(lines[0]) | {name: value}) + "\n"
    (tmp_path / JOURNAL).write_text("".join(lines), encoding="utf-8")
    with pytest.raises(RecordsError, match=r"line 1, is damaged: "):
        read_run(tmp_path)


def test_a_case_without_its_ranks_is_one_of_all_ranks(lines: list[str], tmp_path: Path) -> None:
    number = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == "case")
    written = json.loads(lines[number])
    assert written["case"].pop("ranks") == 2
    for ranks, readable in ((None, True), (1, True), (2, True), (3, False), (-1, False)):
        case = written["case"] | ({} if ranks is None else {"ranks": ranks})
        lines[number] = json.dumps(written | {"case": case}) + "\n"
        (tmp_path / JOURNAL).write_text("".join(lines), encoding="utf-8")
        if readable:
            found = read_run(tmp_path).measurements[case["index"]]
            assert found.case.ranks == (2 if ranks is None else ranks)
        else:
            with pytest.raises(RecordsError, match=f"line {number + 1}, is damaged: "):
                read_run(tmp_path)


def test_a_journal_must_begin_with_its_header(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text("".join(lines[1:]), encoding="utf-8")
    with pytest.raises(RecordsError, match="line 1, is damaged"):
        read_run(tmp_path)


def test_what_is_no_journal_at_all_is_refused_with_what_to_give(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    empty = tmp_path / "empty"
    empty.touch()
    for path, message in (
        (binary, f"{binary} is not text"),
        (empty, f"{empty} holds no complete header"),
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
        columns_of(row)


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
        columns_of(row)


def test_a_run_folder_is_made_with_its_parents_and_an_empty_journal(tmp_path: Path) -> None:
    folder = create_folder(tmp_path / "results" / "run")
    assert [path.name for path in folder.iterdir()] == [JOURNAL]
    assert (folder / JOURNAL).read_bytes() == b""


def test_an_empty_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert create_folder(tmp_path) == tmp_path


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RecordsError) as refused:
        create_folder(tmp_path)
    assert refused.value.message == f"{tmp_path} exists and is not empty"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RecordsError, match="cannot make the run folder"):
            create_folder(folder)
