"""commbench, unchanged, against a backend whose operations last what a script says."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import pytest
import scripted
from commands import Ended, run_commbench
from scripted import run_scripted, skip_if_disturbed, skip_if_stalled, timed_calls

from commbench.results.journal_reader import read_run

MEDIAN_US = 1000.0
HARDLY = 0.1
"""Share of calls that other load may disturb where a tenth more time is to be told: so many slow
calls shift the median of 5 % noise by 0.7 %."""
OF_THE_HOST = {"queued", "stolen", "throttled", "stalls", "too_few_cores"}
"""Warnings that other work on this host earns, whatever the script says."""

BOTH_US = 20_000.0
"""What a call lasts that is computed beside."""

Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return partial(run_scripted, tmp_path)


def warnings(row: dict[str, str]) -> set[str]:
    return set(row["warnings"].split()) - OF_THE_HOST


@pytest.mark.parametrize(
    ("script", "iterations"),
    # So many that with this seed their own median lies within half a percent of the script's.
    [("constant", "60"), ("noisy", "200")],
)
def test_a_clean_script_is_measured_within_1_percent_and_nothing_is_warned_about(
    run: Run, script: str, iterations: str
) -> None:
    ended = run(script, "--sizes", "4K,8K,12K", "--iters", iterations, seed=4)
    cases = timed_calls(ended)
    for row, calls in zip(ended.rows(), cases, strict=True):
        came_us = median(call.actual_ns for call in calls) * 1e-3
        assert float(row["time_us"]) == pytest.approx(came_us, rel=0.01), row
    skip_if_disturbed(cases, scripted.CALM)
    for row in ended.rows():
        assert float(row["time_us"]) == pytest.approx(MEDIAN_US, rel=0.01), row
        assert warnings(row) - {"imprecise"} == set(), row


def covered(ended: Ended) -> tuple[int, int]:
    """Rows whose interval holds the script's median, and rows."""
    rows = ended.rows()
    inside = [
        float(row["time_ci_low_us"]) <= MEDIAN_US <= float(row["time_ci_high_us"]) for row in rows
    ]
    return sum(inside), len(rows)


def test_intervals_cover_the_truth(run: Run) -> None:
    ended = run("noisy", "--sizes", "4K-4140:+4", "--budget", "0.03", seed=11)
    skip_if_disturbed(timed_calls(ended), scripted.CALM)
    found, rows = covered(ended)
    assert rows == 12
    assert found / rows >= 0.76  # 95 % less three standard errors of so many


@pytest.mark.full
@pytest.mark.parametrize("script", ["noisy", "wide"])
def test_intervals_cover_the_truth_in_95_percent_of_400_runs(run: Run, script: str) -> None:
    ended = run(script, "--sizes", "4K-5692:+4", seed=5)
    skip_if_disturbed(timed_calls(ended), scripted.CALM)
    found, rows = covered(ended)
    assert rows == 400
    assert abs(found / rows - 0.95) <= 0.03, found / rows


def compared(where: Path, first: str, second: str) -> Counter[str]:
    """How often `compare` gives each verdict on rows of two scripts, so many calls each that the
    medians are known to about half a percent."""
    names = []
    for seed, script in enumerate((first, second)):
        folder = where / f"{seed}-{script}"
        folder.mkdir()
        ended = run_scripted(folder, script, "--sizes", "4K-4412:+4", "--iters", "150", seed=seed)
        skip_if_disturbed(timed_calls(ended), HARDLY)
        names.append(f"{folder.name}/run")
    told = run_commbench(where, "compare", *names, "--format", "csv")
    assert told.code == 0, told.err
    return Counter(row["verdict"] for row in csv.DictReader(told.out.splitlines()))


@pytest.mark.full
def test_compare_calls_10_percent_slower_slower_under_5_percent_of_noise(tmp_path: Path) -> None:
    verdicts = compared(tmp_path, "noisy", "slower_10")
    assert verdicts.total() == 80
    assert verdicts["slower"] >= 0.95 * 80, verdicts
    assert not verdicts["faster"]


@pytest.mark.full
def test_compare_calls_the_same_script_neither_slower_nor_faster(tmp_path: Path) -> None:
    verdicts = compared(tmp_path, "noisy", "noisy")
    assert verdicts.total() == 80
    assert verdicts["slower"] + verdicts["faster"] <= 0.05 * 80, verdicts


@pytest.mark.full
def test_undisturbed_calls_tell_what_medians_cannot_where_the_host_switches(tmp_path: Path) -> None:
    for seed, name in enumerate("ab"):
        (tmp_path / name).mkdir()
        options = ("--sizes", "4K-128K", "--precision", "2%")
        ended = run_scripted(tmp_path / name, "switching", *options, seed=seed, median_us=500.0)
        skip_if_disturbed(timed_calls(ended))
    told = run_commbench(tmp_path, "compare", "a/run", "b/run", "--format", "json")
    (pooled,) = json.loads(told.out)["comparisons"][0]["pooled"]
    assert pooled["verdict"] == "undecided"
    assert pooled["undisturbed_verdict"] == "same"


def test_a_late_rank_is_named(run: Run) -> None:
    ended = run("late_rank", "--sizes", "4K")
    skip_if_disturbed(timed_calls(ended))
    (row,) = ended.rows()
    assert row["slowest_rank"] == "1"
    skip_if_stalled(timed_calls(ended))
    found = warnings(row)
    assert "always_last" in found and "skew" not in found  # which it explains
    assert float(row["entry_skew_us"]) == pytest.approx(scripted.DELAY_US, rel=0.05)
    assert float(row["operation_us"]) == pytest.approx(MEDIAN_US, rel=0.05)


def test_a_rank_that_turns_slow_is_named(run: Run) -> None:
    ended = run("slow_after_50", "--sizes", "4K", "--iters", "100")
    skip_if_disturbed(timed_calls(ended))
    (row,) = ended.rows()
    assert row["slowest_rank"] == "1"
    assert warnings(row) & {"drift", "bimodal"}


def test_drift_is_warned_about(run: Run) -> None:
    ended = run("drifting", "--sizes", "4K", "--iters", "90", seed=2)
    skip_if_disturbed(timed_calls(ended))
    assert "drift" in warnings(ended.rows()[0])


def test_two_modes_are_warned_about(run: Run) -> None:
    ended = run("bimodal", "--sizes", "4K", "--iters", "100", seed=4)
    skip_if_disturbed(timed_calls(ended))
    skip_if_stalled(timed_calls(ended))
    assert "bimodal" in warnings(ended.rows()[0])


@pytest.mark.full
def test_a_form_takes_as_long_as_its_calls_together(run: Run) -> None:
    many = run("constant", "--sizes", "4K", "--tensors", "1,4", "--iters", "30", "--form",
               "separate,reduce_scatter+all_gather,reduce+broadcast")  # fmt: skip
    shortest_us = {row["form"]: float(row["time_min_us"]) for row in many.rows()}
    calls = {
        "direct": 1, "reduce_scatter+all_gather": 2, "reduce+broadcast": 2, "flat": 1, "separate": 4
    }  # fmt: skip
    assert shortest_us == pytest.approx(
        {form: number * MEDIAN_US for form, number in calls.items()}, rel=0.03
    )


def overlap_of(where: Path, script: str) -> tuple[dict[str, str], float]:
    """The row of both at once, of calls and computations that take about as long, and how long the
    computation takes alone, in us; the test is skipped where the host disturbed too many."""
    options = ("--sizes", "4K", "--overlap", "scripted", "--no-check", "--iters", "15")
    run_scripted(where, script, *options, "--warmup", "1", median_us=BOTH_US)
    scripted.know_computation()
    lines = (where / "run/results.csv").read_text().splitlines()
    rows = {row["part"]: row for row in csv.DictReader(lines)}
    computed_us = 1e3 * int(rows["both"]["work"].split()[0])
    assert computed_us == pytest.approx(BOTH_US, rel=0.1)
    truth_us = {"communication": BOTH_US, "computation": computed_us}
    for measurement in read_run(where / "run").measurements:
        samples = [1e6 * seconds for seconds in measurement.samples_s]
        least = truth_us.get(measurement.case.part, min(samples))
        assert min(samples) > 0.99 * least
        share = sum(sample > 1.01 * least for sample in samples) / len(samples)
        if share > scripted.TOLERATED:
            pytest.skip(f"other load on this host disturbed {share:.0%} of the calls")
    return rows["both"], computed_us


def require_shares(row: dict[str, str], both_us: float, computed_us: float) -> None:
    """The figures of a row are those of two that take so long together."""
    saved_us = BOTH_US + computed_us - both_us
    for column, share in (
        ("hidden_share", saved_us / min(BOTH_US, computed_us)),
        ("imb_overlap", saved_us / max(BOTH_US, computed_us)),
        ("osu_overlap", saved_us / BOTH_US),
    ):
        assert float(row[column]) == pytest.approx(min(share, 1.0), abs=0.03), column
    gain = (BOTH_US + computed_us) / both_us
    assert float(row["overlap_gain"]) == pytest.approx(gain, rel=0.02)


@pytest.mark.full  # the next test checks the shares of one overlap
@pytest.mark.parametrize("hidden", [0, 50, 100])
def test_a_known_hidden_share_comes_back_within_3_points(tmp_path: Path, hidden: int) -> None:
    row, computed_us = overlap_of(tmp_path, f"hidden_{hidden}")
    background_us = BOTH_US * hidden / 100
    both_us = max(computed_us, background_us) + BOTH_US - background_us
    require_shares(row, both_us, computed_us)
    assert float(row["computation_slowdown"]) == pytest.approx(0, abs=0.02)
    # What nobody waits for does not go on, so that part of the communication ends later.
    slowdown = both_us / BOTH_US - 1 if hidden < 100 else 0
    assert float(row["communication_slowdown"]) == pytest.approx(slowdown, abs=0.02)


def test_known_slowdowns_of_both_come_back_within_2_percent(tmp_path: Path) -> None:
    row, computed_us = overlap_of(tmp_path, "slows")
    assert float(row["communication_slowdown"]) == pytest.approx(0.3, abs=0.02)
    assert float(row["computation_slowdown"]) == pytest.approx(0.2, abs=0.02)
    require_shares(row, 1.3 * BOTH_US, computed_us)
