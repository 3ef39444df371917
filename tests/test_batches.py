"""How often and in which order real runs measure: --timing, --order, --seed, --launches and what
sampling is asked for."""

from __future__ import annotations

from itertools import groupby

import pytest
from commands import Commbench, Ended, run_commbench
from synthetic_rows import written_row

from commbench.analysis.diagnostics import DIAGNOSTICS
from commbench.analysis.rows import make_row, make_rows
from commbench.answers.show.rows import timings_table
from commbench.results.journal_reader import read_run
from commbench.worker.sampling import CaseOrder

CASES = range(6)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Both ways of timing two sizes and a barrier: six cases, in the order of seed 1."""
    ended = run_commbench(
        tmp_path_factory.mktemp("both"), "run", "--op", "all_reduce,barrier", "--sizes", "1K,16K",
        "--timing", "both", "--seed", "1", "--precision", "30%", "--budget", "0.05", "--no-plots",
        "--launches", "1",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    return ended


def measured(ended: Ended) -> list[int]:
    """The cases in the order they were measured."""
    return [line["case"] for line in ended.journal() if line["kind"] == "batch"]


def first_cases(seed: int, cases: range, number: int) -> list[int | None]:
    """The cases measured first while none is ahead of the others."""
    order = CaseOrder("shuffled", seed)
    return [order.next(cases, lambda _: 0.0) for _ in range(number)]


def test_the_header_tells_what_was_asked_and_what_the_loop_and_the_clock_add(both: Ended) -> None:
    header = both.journal()[0]
    asked = ("timing", "seed", "precision", "budget_s", "order", "launches", "iterations")
    found = [header["plan"][name] for name in asked]
    assert found == ["both", 1, 0.3, 0.05, "shuffled", 1, None]
    assert min(header["overhead_s"], header["resolution_s"]) > 0 == header["launch"]


def test_every_case_is_measured_at_least_twice_in_rounds_of_the_seeds_order(both: Ended) -> None:
    order = measured(both)
    assert all(order.count(case) >= 2 for case in CASES)
    # In the first round no case is ahead of the others.
    assert order[:6] == first_cases(1, CASES, 6)
    assert order[:6] != sorted(order[:6])
    assert order[:6] != order[6:12]


def test_a_batch_comes_with_all_that_was_seen_in_it(both: Ended) -> None:
    for case in CASES:
        for batch in both.batches(case):
            assert min(batch["samples_s"]) > 0
            assert batch["rank_quantiles_s"] == sorted(batch["rank_quantiles_s"])
            assert batch["operation_s"] > 0
            # Samples are per call; the loop lasted at least as long as all calls of one rank.
            assert batch["elapsed_s"] >= sum(batch["samples_s"]) * batch["calls"] * 0.999
    for measurement in read_run(both.folder).measurements:
        (times,) = measurement.rank_times
        assert len(times.medians_s) == len(times.behind_s) == 2
        assert sum(times.last_in) == times.iterations == len(measurement.samples_s)


def test_isolated_iterations_have_one_call_and_pipelined_ones_several(both: Ended) -> None:
    for case, row in zip(CASES, both.rows(), strict=True):
        (calls,) = {batch["calls"] for batch in both.batches(case)}
        assert int(row["calls"]) == calls
        assert calls == 1 if row["timing"] == "isolated" else 2 <= calls <= 20
    timings = [row["timing"] for row in both.rows()]
    assert timings == [*["isolated"] * 2, *["pipelined"] * 2, "isolated", "pipelined"]
    # Only the first batch has more than one untimed call.
    for case in CASES:
        first, *later = both.batches(case)
        assert 0 <= first["warmup"] <= 201
        assert {batch["warmup"] for batch in later} <= {0, 1}


def test_rows_tell_of_their_batches(both: Ended) -> None:
    known = {warning.name for warning in DIAGNOSTICS}
    for case, row in zip(CASES, both.rows(), strict=True):
        batches = both.batches(case)
        assert int(row["batches"]) == len(batches)
        assert int(row["iterations"]) == sum(len(batch["samples_s"]) for batch in batches)
        assert row["launches"] == "1"
        assert row["launch_min_us"] == row["launch_max_us"] == row["time_us"]
        assert set(row["warnings"].split()) <= known
        assert float(row["operation_us"]) > 0


def test_the_reason_to_stop_is_true(both: Ended) -> None:
    run = read_run(both.folder)
    for measurement, row in zip(run.measurements, both.rows(), strict=True):
        time = make_row(run.header, measurement).time
        assert time is not None and time.precision is not None
        calls = measurement.batches[0].calls
        assert {
            "precision": time.precision <= 0.3,
            "budget": sum(measurement.samples_s) * calls >= 0.05,
        }[row["stop_reason"]]


def test_the_table_puts_both_ways_side_by_side(both: Ended) -> None:
    table = timings_table(make_rows(read_run(both.folder)))
    title = "all_reduce float32 sum in_place"
    cases = [alone.case for alone, _ in table.rows]
    named = [(case.title_without("timing"), case.size_bytes) for case in cases]
    assert named == [(title, 1 << 10), (title, 1 << 14), ("barrier", 0)]
    alone, queued = both.rows()[4:6]
    ratio = float(alone["time_us"]) / float(queued["time_us"])
    (of_ratio,) = (column.of for column in table.columns if column.heading == "ratio")
    assert of_ratio(table.rows[2]).value == pytest.approx(ratio, rel=1e-5)
    assert table.title in both.out


def test_ascending_order_settles_one_case_after_another(commbench: Commbench) -> None:
    ended = commbench("run", "--op", "all_reduce,barrier", "--sizes", "1K,2K", "--no-plots",
                      "--order", "ascending", "--iters", "5", "--timing", "pipelined")  # fmt: skip
    assert ended.code == 0, ended.err
    assert [case for case, _ in groupby(measured(ended))] == [0, 1, 2]
    assert [len(batch["samples_s"]) for batch in ended.batches(1)] == [3, 2]
    lines = [line for line in ended.journal() if line["kind"] == "case"]
    assert [line["case"]["index"] for line in lines] == [0, 1, 2]
    assert all(batch["calls"] >= 2 for case in range(3) for batch in ended.batches(case))
    assert "calls back to back, slowest rank, median" in " ".join(ended.out.split())
    assert "Time alone over time back to back" not in ended.out


def test_a_case_that_cannot_be_so_precise_ends_with_its_budget(commbench: Commbench) -> None:
    asked = ("--op", "barrier", "--precision", "1e-9", "--budget", "0.03", "--no-plots")
    ended = commbench("run", *asked, "--launches", "1")
    assert ended.code == 0, ended.err
    (row,) = ended.rows()
    assert row["stop_reason"] == "budget"
    spent = [sum(batch["samples_s"]) for batch in ended.batches(0)]
    assert sum(spent) >= 0.03
    # It went on only as long as the budget was not used up and batches were too few.
    fewest = 2 if float(row["time_us"]) > 5000 else 5
    assert sum(spent[:-1]) < 0.03 or len(spent) <= 5
    assert len(spent) >= fewest

    # A single launch is never surer than launches usually differ.
    assert commbench("run", *asked, "--launches", "2", "--output", "two").code == 0
    said = " ".join(commbench("show", "two", "--warnings").out.split())
    # Where other load made ranks wait, that explains the wide interval.
    _, is_queued, explained = said.partition("queued (all rows): ")
    told = "wide intervals" if is_queued else "imprecise (all rows): the interval is "
    assert told in (explained or said)


WRONG_AT_FIRST = """
from pathlib import Path
from commbench.plan.operations import OPERATIONS
healthy = OPERATIONS["all_gather"].call
def corrupt(dist, b):
    healthy(dist, b)
    first = Path("run/run.jsonl").read_text().count('"kind": "header"') == 1
    if b.rank == 1 and first and b.receive.numel() > 100:
        b.receive[77] += 1
OPERATIONS["all_gather"] = OPERATIONS["all_gather"]._replace(call=corrupt)
"""


def test_launches_are_fresh_processes_and_the_worst_outcome_counts(program: Commbench) -> None:
    ended = program(WRONG_AT_FIRST, "--op", "all_gather,barrier", "--sizes", "4K,8K", "--iters",
                    "4", "--launches", "2", "--no-plots")  # fmt: skip
    assert ended.code == 5, ended.err
    headers = [line for line in ended.journal() if line["kind"] == "header"]
    assert [found["launch"] for found in headers] == [0, 1]
    assert [found["plan"]["launches"] for found in headers] == [2, 2]
    pids = [{rank["pid"] for rank in found["ranks"]} for found in headers]
    assert not pids[0] & pids[1]
    assert [line["kind"] for line in ended.journal()].count("end") == 2

    for case in range(3):
        batches = ended.batches(case)
        assert [(batch["launch"], len(batch["samples_s"])) for batch in batches] == [
            (0, 2), (0, 2), (1, 2), (1, 2)
        ]  # fmt: skip
    # The host is measured beside the first batch of each launch.
    measured_hosts = [
        {line["launch"] for line in ended.journal()
         if line["kind"] == "batch" and (line.get(name) or 0) > 0}
        for name in ("host_round_trip_s", "host_copy_s")
    ]  # fmt: skip
    assert measured_hosts == [{0, 1}, {0, 1}]
    # Each launch has an order of its own.
    order = measured(ended)
    assert order == [case for seed in (0, 1) for case in first_cases(seed, range(3), 6)]
    lines = [line for line in ended.journal() if line["kind"] == "case"]
    wrong = [line["wrong"] for line in lines if line["case"]["index"] == 0]
    assert wrong == [1, 0]

    rows = ended.rows()
    assert [(row["status"], row["wrong"]) for row in rows] == [
        ("wrong", "1"), ("wrong", "1"), ("ok", "")
    ]  # fmt: skip
    *wrong_rows, barrier = rows
    assert (barrier["launches"], barrier["batches"], barrier["iterations"]) == ("2", "4", "8")
    low, high = float(barrier["launch_min_us"]), float(barrier["launch_max_us"])
    assert 0 < low <= float(barrier["time_us"]) <= high
    assert {(row["time_us"], row["iterations"]) for row in wrong_rows} == {("", "0")}
    assert "; 2 launches" in ended.out


def test_show_reads_the_same_as_results_csv_says(both: Ended) -> None:
    shown = run_commbench(both.folder.parent, "show", "run")
    assert (shown.code, shown.out) == (0, both.out)
    run = read_run(both.folder)
    for measurement, written in zip(run.measurements, both.rows(), strict=True):
        columns = written_row(make_row(run.header, measurement))
        read = {name: "" if value is None else str(value) for name, value in columns.items()}
        assert read == written
