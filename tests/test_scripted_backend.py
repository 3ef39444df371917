"""The scripted backend keeps its word, and commbench unchanged measures what it says."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from statistics import mean, median, stdev

import pytest
import scripted
from commands import Ended
from scripted import DRIFT_CALLS, SCRIPTS, SLOW_FROM_CALL, skip_if_disturbed, timed_calls

from commbench.results.journal_reader import read_run

MEDIAN_US = 2000.0

Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return partial(scripted.run_scripted, tmp_path, median_us=MEDIAN_US)


def test_operations_last_as_long_as_their_script_says(run: Run) -> None:
    operations = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all"]
    ended = run("constant", "--op", ",".join(operations), "--sizes", "4K", "--iters", "60")
    rows, cases = ended.rows(), timed_calls(ended)
    assert [row["operation"] for row in rows] == operations
    for row, calls in zip(rows, cases, strict=True):
        assert (row["status"], row["wrong"], row["iterations"]) == ("ok", "0", "60")
        assert {(call.operation, call.size_bytes) for call in calls} == {(row["operation"], 4096)}
        assert {call.scripted_ns for call in calls} == {1e3 * MEDIAN_US}
    skip_if_disturbed(cases)
    for row in rows:
        assert float(row["time_us"]) == pytest.approx(MEDIAN_US, rel=0.01), row
        assert float(row["entry_skew_us"]) < 10, row


def test_what_has_no_script_is_still_right(run: Run) -> None:
    ended = run("constant", "--op", "gather,scatter,send_recv,barrier", "--sizes", "4K",
                "--iters", "5")  # fmt: skip
    assert {row["status"] for row in ended.rows()} == {"ok"}


def test_the_truth_tells_what_each_sample_was(run: Run) -> None:
    ended = run("noisy", "--sizes", "4K,8K", "--iters", "20", "--launches", "2", seed=3)
    measurements, truths = read_run(ended.folder).measurements, timed_calls(ended)
    scripted = [call.scripted_ns for calls in truths for call in calls]
    assert len(set(scripted)) == len(scripted) == 80  # every case, launch and call has its own
    assert all(0 <= c.late_ns <= c.actual_ns - c.scripted_ns for calls in truths for c in calls)
    skip_if_disturbed(truths)
    for measurement, calls in zip(measurements, truths, strict=True):
        errors_us = [
            1e6 * sample - 1e-3 * call.actual_ns
            for sample, call in zip(measurement.samples_s, calls, strict=True)
        ]
        # 2 % of a call: a slow host takes 25 us from the last stamp of the backend to ours.
        assert abs(median(errors_us)) < 0.02 * MEDIAN_US


@pytest.mark.parametrize(
    ("script", "middle", "spread"),
    [("noisy", 1, 0.05), ("wide", 1, 0.2), ("slower_10", 1.1, 0.055), ("bimodal", 1.25, 0.25)],
)
def test_noise_has_the_median_and_the_spread_that_it_is_said_to_have(
    script: str, middle: float, spread: float
) -> None:
    draws = [SCRIPTS[script].shape(Random(number), number) for number in range(20000)]
    middle_of = mean if script == "bimodal" else median  # a sample's median is at one of two modes
    assert middle_of(draws) == pytest.approx(middle, rel=0.01)
    assert stdev(draws) == pytest.approx(spread, rel=0.05)


def test_a_drifting_operation_ends_up_30_percent_slower() -> None:
    at = [median(SCRIPTS["drifting"].shape(Random(n), call) for n in range(5000))
          for call in (0, DRIFT_CALLS // 2, DRIFT_CALLS)]  # fmt: skip
    assert at == pytest.approx([1, 1.15, 1.3], rel=0.01)


def test_a_rank_that_turns_slow_does_so_from_the_call_in_the_script(run: Run) -> None:
    ended = run("slow_after_50", "--sizes", "4K", "--iters", "100")
    (calls,) = timed_calls(ended)
    for call in calls:
        extra_us = scripted.DELAY_US * (call.number >= SLOW_FROM_CALL)
        assert call.scripted_ns == 1e3 * (MEDIAN_US + extra_us)
    assert {call.number >= SLOW_FROM_CALL for call in calls} == {False, True}
