"""Comparisons of made-up runs: matching, verdicts, honesty and power, crossovers, facts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp, hypot, log, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from synthetic import header, in_memory, noisy, plan, steady, synthetic_run

from commbench.analysis.environment import Difference
from commbench.analysis.load import LoadedRun, as_loaded_run, load
from commbench.answers.compare.comparison import (
    COMPARED,
    Comparison,
    Crossover,
    compare,
    require_two_runs,
    row_kind,
)
from commbench.answers.compare.pooling import PooledRatio, by_size_text, random_effects
from commbench.answers.compare.ratio import OVERLAP, ComparedRow, why_not_compared
from commbench.answers.compare.turns import RunFacts
from commbench.errors import RecordsError, UsageError
from commbench.plan.case import Case
from commbench.results.schema import Measurement, ReportedTiming, Run
from commbench.stats import Estimate

pytestmark = pytest.mark.usefixtures("launches_alike")

MANY = 1000


@cache
def at(seconds: float, seed: int, rows: int, batch_noise: float = 0.0) -> LoadedRun:
    """Rows of 10 batches x 20 samples with 5 % log-normal noise, and more between batches."""
    chance = np.random.default_rng(seed)
    samples = seconds * chance.lognormal(0, 0.05, (rows, 10, 20))
    samples *= chance.lognormal(0, batch_noise, (rows, 10, 1))
    return as_loaded_run(in_memory(f"seed {seed}", samples.tolist()), COMPARED)


def column(rows: Sequence[Any], name: str) -> list[Any]:
    return [getattr(row, name) for row in rows]


def test_a_copy_of_a_run_is_the_same_run() -> None:
    run = in_memory("a", [steady(1e-4)] * 3)
    with pytest.raises(UsageError, match="b is a copy of a"):
        require_two_runs(
            as_loaded_run(run._replace(path="a")), as_loaded_run(run._replace(path="b"))
        )


def test_a_true_slowdown_of_ten_percent_is_found() -> None:
    counts = compare(at(100e-6, 1, MANY), at(110e-6, 2, MANY)).counts
    assert counts["slower"] >= 0.95 * MANY
    assert counts["faster"] == 0
    counts = compare(at(110e-6, 2, MANY), at(100e-6, 1, MANY)).counts
    assert counts["faster"] >= 0.95 * MANY


@pytest.mark.parametrize(
    ("rows", "batch_noise", "tolerance"), [(MANY, 0.0, 0.05), (MANY, 0.0, 0.0), (300, 0.05, 0.0)]
)
def test_no_difference_is_not_found_where_there_is_none(
    rows: int, batch_noise: float, tolerance: float
) -> None:
    a, b = (at(100e-6, seed, rows, batch_noise) for seed in (1, 2))
    counts = compare(a, b, tolerance=tolerance).counts
    assert counts["slower"] + counts["faster"] <= 0.05 * rows


def test_a_comparison_by_hand(tmp_path: Path) -> None:
    def slower(case: Case) -> list[list[float]]:
        return [[1.5 * s for s in batch] for batch in steady(case.size_bytes * 1e-9)]

    a = load(synthetic_run(tmp_path / "a", "a"))
    b = load(synthetic_run(tmp_path / "b", "b", slower))
    found = compare(a, b)
    assert found.counts == {
        "faster": 0, "slower": 4, "same": 0, "undecided": 0, "not compared": 0
    }  # fmt: skip
    row = found.rows[-1]
    assert (row.kind, row.a.size_bytes) == ("all_reduce float32 sum in_place", 1 << 20)
    assert row.ratio.value == pytest.approx(1.5)
    assert row.ratio.low < 1.5 < row.ratio.high
    assert (row.verdict, row.reason) == ("slower", "")
    assert (len(found.only_a), len(found.only_b)) == (0, 0)


@pytest.mark.parametrize(
    ("files", "launches"),
    [(("a", "b"), 4), (("a/results.csv", "b/results.csv"), 1), (("a", "b/results.csv"), 1)],
)
def test_runs_and_their_csv_files_have_the_same_verdict(
    tmp_path: Path, files: tuple[str, str], launches: int
) -> None:
    for name, seconds in (("a", 1e-3), ("b", 2e-3)):
        synthetic_run(tmp_path / name, name, lambda _, s=seconds: steady(s), launches=launches)
    rows = compare(*(load(tmp_path / file) for file in files)).rows
    assert column(rows, "verdict") == ["slower"] * 4


def test_rows_without_a_counterpart_are_kept_and_listed(tmp_path: Path) -> None:
    a = load(synthetic_run(tmp_path / "a", "a", asked=plan(sizes=(1024, 2048, 4096))))
    more = plan(operations=("all_reduce", "barrier"), sizes=(2048, 8192))
    b = load(synthetic_run(tmp_path / "b", "b", lambda _: steady(1e-3), asked=more))
    found = compare(a, b)
    assert [row.a.size_bytes for row in found.rows] == [2048]
    assert column(found.only_a, "size_bytes") == [1024, 4096]
    assert [row_kind(row) for row in found.only_b] == ["all_reduce float32 sum in_place", "barrier"]


@pytest.mark.parametrize(
    ("a", "b", "matches"),
    [
        ({"dtypes": ("float32",)}, {"dtypes": ("float64",)}, 0),
        ({"reduce_ops": ("sum",)}, {"reduce_ops": ("max",)}, 0),
        ({"placement": "in_place"}, {"placement": "out_of_place"}, 0),
        ({"timing": "isolated"}, {"timing": "pipelined"}, 0),
        ({"timing": "isolated"}, {"timing": "both"}, 4),
        ({"operations": ("broadcast",)}, {"operations": ("broadcast",), "root": 1}, 0),
        ({"operations": ("broadcast",), "root": 1}, {"operations": ("broadcast",), "root": 1}, 4),
        ({"seed": 1}, {"seed": 2}, 4),
    ],
)
def test_rows_match_by_all_that_makes_a_case(a: dict, b: dict, matches: int) -> None:  # type: ignore[type-arg]
    sources = []
    for name, more in (("a", a), ("b", b)):
        asked = plan(**more)
        measurements = tuple(
            Measurement(case, "ok", reported=ReportedTiming(1e-3, "mean")) for case in asked.cases()
        )
        sources.append(as_loaded_run(Run(name, header(asked, name), measurements, None)))
    assert len(compare(*sources).rows) == matches


def test_a_key_that_is_there_twice_is_refused_with_its_lines(tmp_path: Path) -> None:
    folder = synthetic_run(tmp_path / "a", "a")
    csv = tmp_path / "results.csv"
    lines = (folder / "results.csv").read_text().splitlines(keepends=True)
    csv.write_text("".join([*lines, lines[2].replace("a", "b", 1)]))
    with pytest.raises(RecordsError) as caught:
        compare(load(csv), load(folder))
    assert caught.value.message == (
        f"{csv} has two rows of all_reduce float32 sum in_place 16 KiB: lines 3 and 6"
    )


NO_INTERVAL = "decided by the two times alone, because no interval is known of "
SHORT, STEADY = [[1e-3, 1.1e-3]], steady(9e-3)


@pytest.mark.parametrize(
    ("a", "b", "verdict", "reason"),
    [
        (SHORT, STEADY, "slower", ""),
        (STEADY, SHORT, "faster", ""),
        (SHORT, SHORT, "undecided", OVERLAP),
        ([[1e-3]], [[1.1e-3]], "undecided", OVERLAP),
        (None, STEADY, "not compared", "nothing timed in A"),
        (STEADY, [[0.0] * 8], "not compared", "nothing timed in B"),
        (STEADY, "wrong", "not compared", "wrong results in B"),
        ("unsupported", STEADY, "not compared", "unsupported in A"),
        (ReportedTiming(9e-3, "mean of 20"), STEADY, "same", f"{NO_INTERVAL}A"),
    ],
)
def test_what_lacks_an_interval_or_a_time_says_so(
    tmp_path: Path, a: Any, b: Any, verdict: str, reason: str
) -> None:
    runs = []
    for name, given in (("a", a), ("b", b)):
        statuses = {1 << 10: given} if isinstance(given, str) else {}
        samples = given if isinstance(given, list) or given is None else STEADY
        run = load(
            synthetic_run(
                tmp_path / name, name, lambda _, s=samples: s, plan(sizes=(1024,)),
                statuses=statuses,
            )
        )  # fmt: skip
        if isinstance(given, ReportedTiming):
            assert run.run
            (found,) = run.run.measurements
            found = found._replace(batches=(), reported=given)
            run = as_loaded_run(run.run._replace(measurements=(found,)))
        runs.append(run)
    found = compare(*runs)
    assert [(row.verdict, row.reason) for row in found.rows] == [(verdict, reason)]
    assert found.pooled[:1] == () or found.pooled[0].verdict == verdict
    assert found.differences == (
        (Difference("statistic of a time", "mean of 20", "median over iterations, slowest rank"),)
        if isinstance(a, ReportedTiming) else ()
    )  # fmt: skip


def test_rows_that_compute_different_amounts_are_not_compared() -> None:
    def row(part: str, work: str) -> SimpleNamespace:
        return SimpleNamespace(status="ok", time_s=1.0, part=part, work=work)

    assert why_not_compared(row("both", "9 x m"), row("both", "9 x m")) == ""
    assert why_not_compared(row("both", "9 x m"), row("both", "8 x m")) == (
        "9 x m is computed in A, and 8 x m in B"
    )
    alone = row("communication", "9 x m"), row("communication", "8 x m")
    assert why_not_compared(*alone) == ""


def test_a_crossover_is_an_interval_of_sizes(tmp_path: Path) -> None:
    # B takes 0.8, 1, 1.3, 0.7 times as long: faster, same, slower, faster.
    factors = dict(zip((1 << 10, 1 << 14, 1 << 18, 1 << 20), (0.8, 1, 1.3, 0.7), strict=True))
    a = load(synthetic_run(tmp_path / "a", "a", lambda _: steady(1e-3)))
    b = load(synthetic_run(tmp_path / "b", "b", lambda c: steady(1e-3 * factors[c.size_bytes])))
    found = compare(a, b)
    assert column(found.rows, "verdict") == ["faster", "same", "slower", "faster"]
    kind = "all_reduce float32 sum in_place"
    assert found.crossovers == (
        Crossover(kind, 1 << 10, 1 << 18, "faster", "slower"),
        Crossover(kind, 1 << 18, 1 << 20, "slower", "faster"),
    )


def test_sizes_ascend_and_kinds_keep_their_order(tmp_path: Path) -> None:
    asked = plan(operations=("broadcast", "all_reduce"), sizes=(4096, 1024))
    a = load(synthetic_run(tmp_path / "a", "a", lambda _: steady(1e-3), asked=asked))
    assert [(row.a.operation, row.a.size_bytes) for row in compare(a, a).rows] == [
        (operation, size) for operation in ("broadcast", "all_reduce") for size in (1024, 4096)
    ]


def test_what_must_match_and_what_else_differs(tmp_path: Path) -> None:
    one = synthetic_run(
        tmp_path / "a", "a", asked=plan(precision=0.02),
        environment={"variables": {"NCCL_ALGO": "Ring"}, "nccl": "2.27.3", "boot_id": "1"},
    )  # fmt: skip
    two = synthetic_run(
        tmp_path / "b", "b", asked=plan(world_size=4, cpu_mode="plain"), num_nodes=2,
        gpu_shared=True, environment={"torch": "2.14.0", "boot_id": "2"},
    )  # fmt: skip
    found = compare(load(one), load(two))
    assert found.mismatches == (
        Difference("world_size", "2", "4"),
        Difference("num_nodes", "1", "2"),
        Difference("cpu_mode", "quiet", "plain"),
        Difference("gpu_shared", "0", "1"),
    )
    assert found.differences == (
        Difference("torch", "2.13.0", "2.14.0"),
        Difference("precision", "0.02", "0.05"),
        Difference("NCCL_ALGO", "Ring", "not set"),
    )
    assert compare(load(one), load(one)).differences == ()
    options = ("cta_policy=zero", "max_ctas=8")
    one, two = (
        synthetic_run(
            tmp_path / f"nccl-{len(own)}", "n",
            asked=plan(backend="nccl", device="cuda", nccl_options=own),
        )
        for own in ((), options)
    )  # fmt: skip
    found = compare(load(one), load(two))
    assert found.mismatches == ()
    assert found.differences == (Difference("nccl_options", "none", "cta_policy=zero, max_ctas=8"),)


def test_runs_compare_as_they_are_and_become_a_frame() -> None:
    a = in_memory("a", [steady(1e-3)] * 2, (1024, 4096))
    b = in_memory("b", [steady(2e-3)] * 2, (1024, 2048))
    frame = compare(a, b).frame()
    assert frame["verdict"].to_list() == ["slower", "only in A", "only in B"]
    assert frame["size_bytes"].to_list() == [1024, 4096, 2048]
    assert frame["ratio"].to_list()[0] == 2.0
    assert frame["ratio"].isna().to_list() == [False, True, True]
    assert (str(frame["size_bytes"].dtype), str(frame["ratio"].dtype)) == ("Int64", "Float64")


# Thirteen trials of the BCG vaccine (Colditz and others, JAMA 271, 1994): cases and others among
# the vaccinated, and among the controls.
BCG = (
    (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619),
    (33, 5036, 47, 5761), (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892),
    (29, 7470, 45, 7232), (17, 1699, 65, 1600), (186, 50448, 141, 27197), (5, 2493, 3, 2338),
    (27, 16886, 29, 17825),
)  # fmt: skip


def test_a_published_meta_analysis_comes_out() -> None:
    values = [log(a / (a + b) / (c / (c + d))) for a, b, c, d in BCG]
    variances = [1 / a - 1 / (a + b) + 1 / c - 1 / (c + d) for a, b, c, d in BCG]
    weights, mean, half, between = random_effects(values, variances)
    # DerSimonian and Laird, as the R package metafor prints it for these trials.
    assert (mean, between) == pytest.approx((-0.7141, 0.3088), abs=5e-5)
    assert sum(weights) == pytest.approx(1)
    # Hartung and Knapp's variance, t of 12 degrees of freedom.
    scatter = sum(w * (y - mean) ** 2 for w, y in zip(weights, values, strict=True)) / 12
    assert half == pytest.approx(2.1788 * sqrt(scatter), rel=1e-3)


def test_values_that_agree_better_than_chance_do_not_narrow_the_interval() -> None:
    weights, mean, half, between = random_effects([0.1, 0.1, 0.1], [0.01, 0.01, 0.01])
    assert (weights, mean, between) == (pytest.approx([1 / 3] * 3), pytest.approx(0.1), 0)
    assert half == pytest.approx(4.3027 * sqrt(0.01 / 3), rel=1e-4)


def test_a_row_is_known_better_with_its_range() -> None:
    # log ratio 0.2 with the standard deviation 0.1; B = 1/4, so 0.05 and 1.96 x sqrt(0.01 / 4).
    a, b = (
        SimpleNamespace(time=Estimate(*map(exp, (y, y - half, y + half))), launches=3)
        for y, half in ((0.0, 0.0), (0.2, 0.196))
    )
    row = ComparedRow("kind", a, b, None, "undecided", runs=(RunFacts(1, 0.1),) * 2)
    own = Estimate(1.0, exp(-0.03), exp(0.04))
    pooled = PooledRatio("kind", 1, 2, 2, own, "same", None, "", between=0.01 / 3)
    found = pooled.ratio_of(row)
    assert found and log(found.value) == pytest.approx(0.05, rel=1e-3)
    ends = 0.05 - hypot(0.03, 0.098), 0.05 + hypot(0.04, 0.098)
    assert [*map(log, found.ends)] == pytest.approx(ends, rel=1e-3)
    alike = pooled._replace(between=0.0).ratio_of(row)
    assert alike and (alike.value, *alike.ends) == pytest.approx((1.0, *own.ends))
    # 3 launches in a turn, then 6 in two: 2.262 / sqrt(6) over 2.447 / sqrt(3), t of 9 and 6.
    foreseen = pooled.foresee(row, 6)
    assert foreseen and log(1 + foreseen) == pytest.approx(0.035 * 0.6537, rel=1e-3)


@pytest.mark.parametrize("rows", [3, 5, 10, 20])
@pytest.mark.parametrize("spread", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("cases", [300, pytest.param(1000, marks=pytest.mark.full)])
def test_the_pooled_interval_covers_the_true_ratio(rows: int, spread: float, cases: int) -> None:
    chance = np.random.default_rng(rows)
    held = 0
    for _ in range(cases):
        errors = 0.03 * chance.uniform(0.5, 2, rows)
        found = chance.normal(0, spread, rows) + chance.normal(0, errors)
        _, mean, half, _ = random_effects(found.tolist(), (errors**2).tolist())
        held += abs(mean) <= half
    assert held / cases >= 0.93


def same_setting(
    seed: int, rows: int, own: float = 0.0, common: float = 0.0, factor: float = 1.0
) -> Run:
    """Rows of 10 batches of 20 samples with 5 % noise, a batch in each of 10 launches where these
    differ. Batches of a row differ by `own`, and launches by `common`."""
    chance = np.random.default_rng(seed)
    samples = factor * 1e-4 * chance.lognormal(0, 0.05, (rows, 10, 20))
    samples *= chance.lognormal(0, own, (rows, 10, 1)) * chance.lognormal(0, common, (1, 10, 1))
    return in_memory(f"seed {seed}", samples.tolist(), launches=10 if common else 1)


# What 150 pairs of runs gave: 95, 93, 91, 100, 98 and 100 %.
@pytest.mark.parametrize(
    ("rows", "own", "common"),
    [(10, 0, 0), (10, 0, 0.05), (10, 0.02, 0.1), (10, 0.05, 0), (4, 0, 0.1), (2, 0.02, 0.05)],
)
@pytest.mark.parametrize("pairs", [60, pytest.param(150, marks=pytest.mark.full)])
def test_two_runs_of_one_setting_hold_no_difference_even_where_launches_were_slow(
    rows: int, own: float, common: float, pairs: int
) -> None:
    held = cuts = 0
    for seed in range(pairs):
        found = compare(*(same_setting(2 * seed + i, rows, own, common) for i in (0, 1)))
        cuts += len(found.pooled) - 1
        for pooled in found.pooled:
            low, high = pooled.ratio.ends
            held += low <= 1 <= high
    assert held / (pairs + cuts) >= 0.9
    assert cuts <= 2


def test_errors_that_rows_have_in_common_do_not_average_out() -> None:
    apart = compare(same_setting(1, 20, own=0.05), same_setting(2, 20, own=0.05)).pooled
    together = compare(same_setting(1, 20, common=0.05), same_setting(2, 20, common=0.05)).pooled
    assert len(apart) == len(together) == 1
    noise = 1.05 * 1.03 - 1  # besides the tolerance
    assert (apart[0].smallest_difference or 0) < noise < (together[0].smallest_difference or 0)


def test_noise_alone_makes_no_ranges() -> None:
    found = compare(same_setting(1, 19, own=0.02), same_setting(2, 19, own=0.02))
    (pooled,) = found.pooled
    assert (pooled.verdict, pooled.rows) == ("same", 19)
    many = [[noisy(1e-4, 100 * side + i, 0.3) for i in range(40)] for side in (0, 1)]
    found = compare(*(in_memory(name, rows) for name, rows in zip("ab", many, strict=True)))
    assert len(found.pooled) == 1


def test_a_slowdown_that_few_rows_show_is_seen_by_all_rows_together() -> None:
    runs = same_setting(1, 30, own=0.03), same_setting(2, 30, own=0.03, factor=1.02)
    found = compare(*runs, tolerance=0.0)
    assert found.counts["undecided"] >= 20
    (pooled,) = found.pooled
    assert pooled.verdict == "slower"
    assert pooled.ratio.value == pytest.approx(1.02, abs=0.01)


def by_factors(tmp_path: Path, *factors: float) -> Comparison:
    sizes = tuple(1024 << i for i in range(len(factors)))
    asked = plan(sizes=sizes)
    known = dict(zip(sizes, factors, strict=True))
    a = synthetic_run(tmp_path / "a", "a", lambda _: steady(1e-3), asked)
    b = synthetic_run(tmp_path / "b", "b", lambda c: steady(1e-3 * known[c.size_bytes]), asked)
    return compare(load(a), load(b))


@pytest.mark.parametrize(
    ("factors", "ranges"),
    [
        ((1.0, 1.01, 0.99, 1.02), [("same", 4)]),
        ((0.8, 1.0, 1.04, 1.5), [("faster", 1), ("same", 2), ("slower", 1)]),
        ((1.5, 1.55, 1.6, 1.5), [("slower", 4)]),
        ((1.5, 1.5, 6.0, 6.1), [("slower", 2), ("slower", 2)]),
        ((1.0, 1.0, 1.3, 1.0, 1.0), [("same", 2), ("slower", 1), ("same", 2)]),
        ((0.7, 1.4), [("faster", 1), ("slower", 1)]),
        ((1.5,), [("slower", 1)]),
    ],
)
def test_a_range_ends_where_the_ratio_really_changes(
    tmp_path: Path, factors: tuple[float, ...], ranges: list[tuple[str, int]]
) -> None:
    found = by_factors(tmp_path, *factors)
    assert [(pooled.verdict, pooled.rows) for pooled in found.pooled] == ranges
    assert found.pooled[0].low_bytes == 1024
    assert found.pooled[-1].high_bytes == 1024 << len(factors) - 1
    for pooled in found.pooled:
        if pooled.rows == 1:  # one row alone keeps its ratio and interval
            (row,) = (row for row in found.rows if row.a.size_bytes == pooled.low_bytes)
            assert pooled.ratio == pytest.approx(row.ratio)


def test_a_range_whose_rows_surely_differ_says_from_where_to_where_and_one_by_chance_does_not() -> (
    None
):
    factors = (3.32, 3.2, 3.1, 3.0, 2.9, 2.8, 2.7, 2.68)
    told = 0
    for seed in range(20):
        a, b = (same_setting(2 * seed + n, 8, own=0.02, common=0.05) for n in (0, 1))
        samples = [m.batches for m in b.measurements]
        slower = in_memory(
            "slower",
            [
                [[factor * s for s in batch.samples_s] for batch in batches]
                for factor, batches in zip(factors, samples, strict=True)
            ],
            launches=10,
        )
        (alike,), (pooled,) = (compare(a, each, tolerance=0.0).pooled for each in (b, slower))
        assert not alike.by_size
        told += bool(pooled.by_size)
        assert by_size_text([pooled]).startswith(", 2.") == bool(pooled.by_size)
    assert told >= 19


def test_a_row_that_is_slower_by_itself_only_says_so_and_from_where_a_change_shows() -> None:
    found = Estimate(1.8, 1.2, 2.7)
    alone = PooledRatio("kind", 1, 1, 1, found, "slower", None, "", degrees=12, tolerance=0.05)
    assert alone.reason == "" and alone.smallest_difference < 0.8
    one = alone.among(11)
    assert (one.verdict, one.reason) == (
        "undecided", "slower by itself, but not with 95 % for all 11 rows together"
    )  # fmt: skip
    assert one.smallest_difference > 0.8


def disturbed(seed: int, slow: float) -> Run:
    """Calls of 100 us with 2 % noise; in a part of the batches the host is 1.5 times slower."""
    chance = np.random.default_rng(seed)
    samples = 1e-4 * chance.lognormal(0, 0.02, (8, 20, 30))
    samples *= np.where(chance.uniform(size=(8, 20, 1)) < slow, 1.5, 1.0)
    return in_memory(f"seed {seed}", samples.tolist())


@pytest.mark.parametrize(("slow", "verdict"), [(0.5, "undecided"), (0.8, "slower")])
def test_undisturbed_calls_tell_a_slow_host_from_a_slower_collective(
    slow: float, verdict: str
) -> None:
    found = compare(disturbed(1, 1 - slow), disturbed(2, slow))
    (pooled,) = found.pooled
    assert (pooled.verdict, pooled.undisturbed_verdict) == (verdict, "same")


def test_tables_without_journals_do_not_lose_that_runs_on_cpus_are_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        synthetic_run(tmp_path / name, name, launches=3)
    for names in (("a", "b/results.csv"), ("a/results.csv", "b/results.csv")):
        found = compare(*(load(tmp_path / name) for name in names))
        assert {row.times_as_wide for row in found.rows} == {2.0}
