"""The journal: what is written is read back, and nothing that was not written ever is."""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peak import COMMAND, measure_process
from synthetic import header, plan
from synthetic_journal import CASES, END, HEADER, MEASUREMENTS, PLAN, record, sealed, write
from synthetic_rows import written_row

import commbench.analysis.statistics as statistics
from commbench.analysis.rows import make_row, make_rows
from commbench.analysis.statistics import summarise
from commbench.errors import RecordsError
from commbench.results import journal_reader, samples
from commbench.results.journal import CHECKSUM, Journal, encode_run, write_run
from commbench.results.journal_reader import JournalReader, decode_run, read_run
from commbench.results.records import Numerics, WrongElement
from commbench.results.run_folder import JOURNAL
from commbench.results.samples import (
    LONGEST_S,
    SHORTEST_S,
    SamplesOfBatches,
    concatenated,
    in_order,
    lengths_of,
    with_rank_times,
)  # fmt: skip
from commbench.results.schema import CUT_OFF, Batch, Measurement, ReportedTiming, Run, RunEnd
from commbench.stats import Estimate
from commbench.validation import texts_of


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = write(tmp_path, *MEASUREMENTS)
    run = Run(
        path=str(tmp_path), header=HEADER, measurements=MEASUREMENTS, end=END, launches=1,
        starts=(HEADER.started,),
    )  # fmt: skip
    assert read_run(path) == read_run(tmp_path) == run


def test_every_line_is_in_the_file_as_soon_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add(HEADER)
    sizes = [(tmp_path / JOURNAL).stat().st_size]
    measurement = MEASUREMENTS[0]
    for number, batch in enumerate(measurement.batches, start=1):
        journal.batch(measurement.case, batch)
        (found,) = read_run(tmp_path).measurements
        assert (found.batches, found.stop_reason) == (measurement.batches[:number], CUT_OFF)
        sizes.append((tmp_path / JOURNAL).stat().st_size)
    journal.add(measurement)
    run = read_run(tmp_path)
    assert (run.measurements, run.end) == ((measurement,), None)
    sizes.append((tmp_path / JOURNAL).stat().st_size)
    journal.end(END)
    assert sizes == sorted(set(sizes))


def launches(folder: Path, *outcomes: tuple[Measurement, ...]) -> Run:
    """What is read of a run of several launches."""
    for launch, measurements in enumerate(outcomes):
        journal = Journal(folder)
        journal.add(HEADER._replace(launch=launch, started=f"launch {launch}"))
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
    journal.add(HEADER._replace(launch=1))
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


def test_a_later_launch_with_another_plan_is_refused(tmp_path: Path) -> None:
    write(tmp_path, MEASUREMENTS[0])
    journal = Journal(tmp_path)
    journal.add(HEADER._replace(plan=replace(PLAN, seed=1), launch=1))
    journal.end(END)
    with pytest.raises(RecordsError, match=r"line 6, is damaged: a later launch has another plan"):
        read_run(tmp_path)


seconds = st.just(0.0) | st.floats(SHORTEST_S, LONGEST_S) | st.floats(1e-9, 1)
VALUES = {
    "int": st.integers(0, 10**6), "float": seconds, "str": st.text(max_size=20),
    "bool": st.booleans(), "None": st.none(),
}  # fmt: skip
"""By the words of annotations."""


def drawn(record: Any, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Records of a class; fields that are not given have any values of their types."""
    for name, text in texts_of(record).items():
        inner = text.removeprefix("tuple[")
        value = st.one_of(
            *(VALUES.get(kind, st.none()) for kind in inner.split(",")[0].split(" | "))
        )
        several = st.lists(value, max_size=3).map(tuple)
        given.setdefault(name, value if inner == text else several)
    return st.builds(record, **given)


per_rank = st.sampled_from([0, 2]).flatmap(
    lambda ranks: st.lists(seconds, min_size=ranks, max_size=ranks).map(tuple)
)
nothing, statuses = st.just(()), ["ok", "wrong", "unsupported", "skipped", "failed"]
batches = drawn(
    Batch,
    samples_s=st.lists(seconds, min_size=1, max_size=12).map(tuple),
    calls=st.integers(1, 20),
    rank_medians_s=per_rank,
    rank_behind_s=per_rank,
    last_in=nothing | st.tuples(VALUES["int"], VALUES["int"]),
    group_medians_s=nothing,  # these cases have no groups
    group_samples_s=nothing,
    rank_quantiles_s=nothing,  # they follow from the medians
    launch=st.just(0),
)
measurements = drawn(
    Measurement,
    case=st.sampled_from(CASES),
    status=st.sampled_from(statuses),
    first_wrong=st.none() | drawn(WrongElement),
    batches=st.lists(batches, max_size=4).map(tuple),
    reported=st.none() | drawn(ReportedTiming),
    rank_times=nothing,  # they follow from the batches
    numerics=st.lists(drawn(Numerics, bias=st.floats(-1e30, 1e30)), max_size=2).map(tuple),
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
    recorded = map(with_rank_times, measured)
    planned = tuple(sorted(recorded, key=lambda measurement: measurement.case.index))
    assert (run.header, run.measurements, run.end) == (HEADER, planned, end)
    assert len(make_rows(run)) == len([written_row(row) for row in make_rows(run)]) == len(measured)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_sample_that_is_no_finite_number_is_never_written(value: float, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add(HEADER)
    before = (tmp_path / JOURNAL).read_bytes()
    with pytest.raises((ValueError, RecordsError)):
        journal.batch(CASES[0], Batch(samples_s=(value,)))
    assert (tmp_path / JOURNAL).read_bytes() == before
    journal.end(END)


def test_the_samples_of_batches_are_tuples_of_what_was_appended() -> None:
    batches = [(1e-3, 0.1 + 0.2, 0.0), (), (2.0,)]
    found = SamplesOfBatches()
    for values in batches:
        found.append(values)
    assert [*found] == batches and found[1:] == batches[1:] and found[-1] == (2.0,)
    assert lengths_of(found) == [3, 0, 1] and [*concatenated(found)] == [*chain(*batches)]


def test_many_samples_have_the_summary_that_few_lines_of_python_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = Random(1)
    batches = [
        tuple(round(chance.lognormvariate(-9 + n / 40, 0.2), 6) for _ in range(1 + n))
        for n in range(40)
    ]
    mixed = [array("d", batch) if n % 2 else batch for n, batch in enumerate(batches)]
    launches = [in_order(mixed[:20]), in_order(mixed[20:])]
    few = summarise(batches, launches)
    assert few.design_effect > 1
    for module in (samples, statistics):
        monkeypatch.setattr(module, "MANY", 10)
    both = few, summarise(mixed, launches)
    one, other = ([e.ends if isinstance(e, Estimate) else (e,) for e in each] for each in both)
    assert [*chain(*other)] == pytest.approx([*chain(*one)], rel=1e-12)
    assert [*in_order(mixed)] == sorted(chain.from_iterable(batches))
    assert type(in_order(mixed)[0]) is float


def _large(folder: Path, each: int, size_bytes: int) -> Path:
    """A journal of about this size, with so many samples in a batch."""
    folder.mkdir()
    journal, chance, asked = Journal(folder), Random(each), plan()
    journal.add(header(asked, "large"))
    pool = [round(chance.lognormvariate(-9, 0.1), 9) for _ in range(9973)]
    while (folder / JOURNAL).stat().st_size < size_bytes:
        for case in asked.cases():
            at = chance.randrange(len(pool))
            journal.batch(case, Batch(tuple((pool[at:] + pool * 2)[:each]), rank_medians_s=(1, 1)))
    for case in asked.cases():
        journal.add(Measurement(case, "ok", stop_reason="fixed", wrong=0))
    journal.end(RunEnd("complete"))
    return folder


LOADED = """
import json
with open("run/run.jsonl") as lines:
    for line in lines:
        json.loads(line)
"""


@pytest.mark.full
@pytest.mark.parametrize(("each", "most_mib", "most_times"), [(40, 150, 2.0), (1000, 150, 2.0)])
def test_a_journal_of_100_mb_takes_little_memory_and_some_times_the_time_of_json(
    each: int, most_mib: float, most_times: float, tmp_path: Path
) -> None:
    _large(tmp_path / "run", each, 100_000_000)
    for command in ("show", "export"):
        ratios = []
        for _ in range(3):
            _, json_s = measure_process(LOADED, cwd=tmp_path)
            mib, cpu_s = measure_process(COMMAND, command, "run", cwd=tmp_path)
            assert mib < most_mib
            ratios.append(cpu_s / json_s)
        assert median(ratios) < most_times


def test_what_was_read_from_a_short_journal_needs_no_numpy(tmp_path: Path) -> None:
    folder = _large(tmp_path / "run", 5, 9000)
    assert read_run(folder).measurements[0].samples_s
    code = (
        "import sys; from commbench import api; api.load(sys.argv[1]).text(); "
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(folder)]).returncode == 0


def test_a_batch_line_leaves_out_what_is_the_default_and_reads_back_the_same(
    tmp_path: Path,
) -> None:
    batch = Batch((1e-3, 2e-3), rank_quantiles_s=(0.0, 1e-6), throttled_s=0.0, switches=2)
    run = Run("", HEADER, (Measurement(CASES[0], "ok", batches=(batch,)),), RunEnd("complete"))
    write_run(tmp_path, run)
    line = json.loads((tmp_path / JOURNAL).read_text().splitlines()[1])
    written = {"samples_s", "rank_quantiles_s", "throttled_s", "switches"}
    assert line.keys() == {"kind", "case", "digest", CHECKSUM} | written
    assert read_run(tmp_path).measurements == run.measurements
    whole = [*encode_run(run)]
    assert [*encode_run(decode_run(whole))] == whole == json.loads(json.dumps(whole))
    # As journals were written before:
    whole[1] = json.loads(json.dumps(batch._asdict())) | whole[1]
    assert whole[1].keys() >= {*Batch._fields}
    assert decode_run(whole).measurements == run.measurements


ODD = (
    None, True, 0, 1, -1, 0.0, -0.0, 1.5, -1e-6, 1e-20, 1e308, float("inf"), 1 << 53, (1 << 53) + 1,
    "", "text", {}, [], [None], [True], [0], [0.0, 1e-6], [0.0, -1e-6], [0.0, 1e-20], [1, 0.5],
    [3, 5], [1e9], [float("inf")], ["a"], [[]],
)  # fmt: skip


def batches_read(journal: Path, *, is_quick: bool) -> str | None:
    """The batches of a journal in words; None where it is refused."""
    try:
        run = journal_reader._read(journal, is_quick).run
    except RecordsError:
        return None
    return repr([[batch._asdict() for batch in m.batches] for m in run.measurements])


FIRST_LINE = next(iter(encode_run(Run("", HEADER, (), None))))


@pytest.mark.parametrize("name", [*Batch._fields, "case", "digest", "absent"])
def test_the_quick_reader_accepts_and_gives_what_the_careful_one_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {"kind": "batch", "samples_s": [1e-3, 0], "switches": 3, "rank_behind_s": [0.0, 1.0]}
    usual |= {"case": 0, "digest": CASES[0].digest}
    journal, taken = tmp_path / JOURNAL, []
    quickly = JournalReader.take_quickly
    monkeypatch.setattr(
        JournalReader,
        "take_quickly",
        lambda reader, line: taken.append(quickly(reader, line)) or taken[-1],
    )
    for value in ODD:
        lines = [FIRST_LINE, usual, usual, usual | {name: value}, usual]
        journal.write_text(sealed(json.dumps(line) + "\n" for line in lines))
        assert batches_read(journal, is_quick=True) == batches_read(journal, is_quick=False)
    assert taken.count(True) >= 2 * len(ODD)


def test_the_quick_reader_reads_odd_samples_as_the_careful_one_does(tmp_path: Path) -> None:
    journal = tmp_path / JOURNAL
    for odd in (
        "[1, true]", "[1, false]", "[null]", "[1, NaN]", "[1e400]", "[[1]]", '["]"]', '{"a": [1]}',
        "[]", "[-1]", "[1e-20]", "[1e8]", "[0.0, -0.0]", '[1], "samples_s": [true]',
        '[1], "\\u0073amples_s": [2]', "[123456789012345678901234567890]", "[1,]", "5", "[1]]",
    ):  # fmt: skip
        case = f'"case": 0, "digest": "{CASES[0].digest}"'
        line = f'{{"kind": "batch", "samples_s": {odd}, {case}}}'
        journal.write_text(sealed([json.dumps(FIRST_LINE) + "\n", line + "\n"]))
        assert batches_read(journal, is_quick=True) == batches_read(journal, is_quick=False)


@pytest.mark.parametrize(("got", "values"), [("nan", ": expected 3.0, got nan"), ("3.0", "")])
def test_a_wrong_element_that_came_late_is_told_without_its_values(got: str, values: str) -> None:
    wrong = WrongElement(1, 7, "3.0", got)
    assert samples.describe_wrong(wrong, 2) == f"rank 1, element 7{values}, in checked call 2"
