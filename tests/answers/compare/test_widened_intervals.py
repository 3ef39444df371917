"""What launches and the host leave unsure: comparisons of runs whose launches differ by 4 %, as
those of gloo usually do, and of runs whose hosts were not equally fast."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import header, in_memory, plan, steady, synthetic_run

from commbench import __version__
from commbench.analysis.load import load
from commbench.answers.compare.causes import known_causes
from commbench.answers.compare.comparison import Comparison, compare
from commbench.answers.compare.document import RANGE_COLUMNS, document, pooled_sentences
from commbench.answers.compare.turns import find_facts
from commbench.results.schema import Run
from commbench.stats import Estimate
from commbench.views import cells
from commbench.views.formats import as_json

ROWS = 8


def run(seed: int, launches: int, factor: float = 1.0, spread: float = 0.04) -> Run:
    """Rows of 12 batches of 10 samples with 5 % noise. Launches differ in all rows alike, and runs
    as much."""
    chance = np.random.default_rng(seed)
    samples = factor * 1e-4 * chance.lognormal(0, 0.05, (ROWS, 12, 10))
    samples *= chance.lognormal(0, spread)
    of_launch = np.repeat(chance.lognormal(0, spread, launches), 12 // launches)
    return in_memory(f"seed {seed}", (samples * of_launch[:, None]).tolist(), launches=launches)


def pairs(number: int, launches: int, factor: float = 1.0) -> list[Comparison]:
    return [
        compare(run(2 * seed, launches), run(2 * seed + 1, launches, factor))
        for seed in range(number)
    ]


def share(found: Sequence[Any], *verdicts: str) -> float:
    return sum(each.verdict in verdicts for each in found) / len(found)


@pytest.mark.parametrize("number", [60, pytest.param(600, marks=pytest.mark.full)])
@pytest.mark.parametrize("launches", [1, 3, 6])
def test_equal_runs_are_called_different_in_at_most_5_percent(number: int, launches: int) -> None:
    found = pairs(number, launches)
    assert share([row for each in found for row in each.rows], "faster", "slower") <= 0.05
    assert share([range_ for each in found for range_ in each.pooled], "faster", "slower") <= 0.05


@pytest.mark.parametrize("number", [30, pytest.param(300, marks=pytest.mark.full)])
@pytest.mark.parametrize(("launches", "factor"), [(1, 2.1), (3, 1.8)])
def test_a_large_slowdown_is_found(number: int, launches: int, factor: float) -> None:
    found = pairs(number, launches, factor)
    assert sum(share(each.pooled, "slower") == 1 for each in found) >= 0.9 * number


def test_single_launches_are_undecided_within_what_launches_usually_differ_by() -> None:
    # A time is known within t(4) x 4 % = 11.1 %, and runs differ by as much: a ratio is known
    # within exp(0.222). Not in turns, it is slower where twice that is beyond 5 %: from 1.64 on.
    for factor, verdict in ((0.8, "undecided"), (1.0, "undecided"), (1.2, "undecided"),
                            (1.6, "undecided"), (1.7, "slower"), (1 / 1.7, "faster")):  # fmt: skip
        a, b = (in_memory(name, [steady(1e-4 * f)] * 3) for name, f in (("a", 1), ("b", factor)))
        found = compare(a, b)
        assert {each.verdict for each in (*found.rows, *found.pooled)} == {verdict}, factor


def steady_run(name: str, seconds: float, **seen: Any) -> Run:
    return in_memory(name, [steady(seconds, 24)] * 3, launches=3, **seen)


def host(factor: float) -> dict[str, float]:
    return {"host_round_trip_s": 20e-6 * factor, "host_copy_s": 1e-3 * factor}


def compared(times: float, a: dict[str, Any], b: dict[str, Any]) -> Comparison:
    """A comparison of A with B, which takes so many times as long."""
    return compare(steady_run("old", 1e-4, **a), steady_run("new", 1e-4 * times, **b))


def verdicts(found: Comparison) -> set[str]:
    return {each.verdict for each in (*found.rows, *found.pooled)}


def test_a_host_that_was_slower_is_named_and_not_the_setting() -> None:
    found = compared(1.2, host(1), host(1.3))
    assert verdicts(found) == {"undecided"}
    assert [change.takes for change in found.host_changes] == [
        "a message between processes", "a copy in memory",
    ]  # fmt: skip
    for change in as_json(found)["host_changes"]:
        ratio = change["ratio"]
        assert ratio["low"] < ratio["value"] == 1.3 < ratio["high"]


def test_the_interval_reaches_as_much_farther_as_the_host_was_slower() -> None:
    equal, slower = compared(1.2, host(1), host(1)), compared(1.2, host(1), host(1.3))
    for before, after in ((equal.rows[0], slower.rows[0]), (equal.pooled[0], slower.pooled[0])):
        value, low, high = before.ratio
        assert after.ratio == pytest.approx((value, low / 1.3, high))
    (pooled,) = slower.pooled
    assert pooled.undisturbed_verdict == "undecided"


# 1 KiB in 0.1 ms, 1 MiB in 0.4 ms: latency is all and at most a quarter of the time, and a 256th
# of the bandwidth is used and all of it.
@pytest.mark.parametrize(
    ("figure", "shares"), [("host_round_trip_s", (1, 0.25)), ("host_copy_s", (1 / 256, 1))]
)
def test_a_figure_of_the_host_counts_for_the_part_of_the_time_that_it_changes(
    figure: str, shares: tuple[float, float]
) -> None:
    def measured(name: str, seconds: float, more: float = 0.0) -> Run:
        both = [
            usual * (1 + share * more) for usual, share in zip((1e-4, 4e-4), shares, strict=True)
        ]
        samples = [steady(time, 24) for time in both]
        return in_memory(name, samples, (1 << 10, 1 << 20), launches=3, **{figure: seconds})

    # Calls follow the host.
    equal, slower = (compare(measured("a", 1.0), measured("b", s, 0.5)) for s in (1.0, 1.5))
    for before, after, share in zip(equal.rows, slower.rows, shares, strict=True):
        for own in ("ratio", "undisturbed"):
            value, low, high = getattr(before, own)
            assert getattr(after, own) == pytest.approx((value, low / (1 + share / 2), high))


def test_calls_that_are_not_slower_show_that_the_host_is_not_why() -> None:
    def measured(name: str, second: float, **seen: float) -> Run:
        samples = [steady(1e-4, 24), steady(second, 24)]
        return in_memory(name, samples, (1 << 10, 2 << 10), launches=3, **seen)

    a, b = measured("old", 1e-4, **host(1)), measured("new", 4e-4, **host(2.5))
    found = compare(a, b)
    assert [row.verdict for row in found.rows] == ["undecided", "slower"]
    assert all(1 < change.allowed < 1.9 < change.ratio.value for change in found.host_changes)
    assert "calls hardly followed, so intervals allow for 1." in " ".join(known_causes(found))
    both = compare(measured("old", 1e-4, **host(1)), in_memory(
        "new", [steady(2.2e-4, 24)] * 2, (1 << 10, 2 << 10), launches=3, **host(2.5)
    ))  # fmt: skip
    assert {row.verdict for row in both.rows} == {"undecided"}


def test_what_the_same_host_would_decide_is_said() -> None:
    text = " ".join(compared(1.5, host(1), host(1.5)).text().split())
    assert "undecided, the host itself differs; without that it would be 1.50 (1.32" in text
    assert ": slower." in text


def test_a_host_that_was_faster_is_allowed_for_in_the_other_direction() -> None:
    found = compared(1 / 1.5, host(1.5), host(1))
    assert verdicts(found) == {"undecided"}
    assert all(change.ratio.value == pytest.approx(1 / 1.5) for change in found.host_changes)
    # What became slower beside a faster host is slower.
    assert verdicts(compared(1.5, host(1.5), host(1))) == {"slower"}


@pytest.mark.parametrize(
    ("a", "b"),
    [(host(1), host(1)), ({}, host(1.3)), (host(1), {}), ({}, {}), (host(1), host(1.04))],
    ids=["equal", "not in A", "not in B", "in neither", "within chance"],
)
def test_without_a_change_of_the_host_the_setting_is_slower(
    a: dict[str, Any], b: dict[str, Any]
) -> None:
    found = compared(1.5, a, b)
    assert verdicts(found) == {"slower"}
    assert found.host_changes == ()


def test_a_clock_of_the_gpus_that_was_slower_is_a_slower_host() -> None:
    found = compared(1.2, {"clock_mhz": 1980}, {"clock_mhz": 1600})
    assert verdicts(found) == {"undecided"}
    ((takes, ratio, *_),) = found.host_changes
    assert (takes, ratio.value) == ("a clock of the GPUs", pytest.approx(1980 / 1600))


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"cpu_mode": "plain"}, "old ran in CPU mode quiet, new ran in CPU mode plain."),
        ({"world_size": 4}, "old has 2 ranks, new has 4."),
        ({"processor": "Made-up 1"}, "old ran on Made-up 9000, new ran on Made-up 1."),
        ({"cores": 1}, "old had 2 cores, new had 1."),
    ],
)
def test_what_differs_is_said_first_and_is_not_called_a_slower_host(
    changed: dict[str, Any], word: str
) -> None:
    environment = {key: fact for key, fact in changed.items() if key in ("processor", "cores")}
    of_plan = {key: value for key, value in changed.items() if key not in environment}
    old, new = steady_run("old", 1e-4, **host(1)), steady_run("new", 1.5e-4, **host(1.3))
    asked = plan(sizes=new.header.plan.sizes, launches=3, **of_plan)
    new = new._replace(header=header(asked, "new", environment=environment))
    old = old._replace(header=header(old.header.plan, "old", environment={"cores": 2}))
    found = compare(old, new)
    first, answer = document(found).answer
    assert (first, verdicts(found), found.host_changes) == (word, {"slower"}, ())
    assert found.is_across_machines == ("processor" in changed)
    assert found.setting == {"processor": "across machines", "cores": "on fewer cores"}.get(
        next(iter(changed)), ""
    )
    assert answer.partition(": ")[2].startswith(f"{found.setting}, " * bool(environment) + "new ")


def test_versions_of_commbench_and_launches_that_differ_are_said_first() -> None:
    old, new = steady_run("old", 1e-4), in_memory("new", [steady(1e-4, 24)] * 3)
    asked = plan(sizes=new.header.plan.sizes)
    new = new._replace(header=header(asked, "new", commbench="0.0.9"))
    words = f"commbench is {__version__} in old, 0.0.9 in new; old has 3 launches, new has 1."
    assert document(compare(old, new)).answer[0] == words
    assert document(compare(old, old)).answer[0].startswith("all_reduce")


def test_launches_that_began_within_one_second_make_no_turns() -> None:
    a, b = steady_run("a", 1e-4), steady_run("b", 1e-4)
    a, b = a._replace(starts=("1", "2", "5", "6")), b._replace(starts=("2", "3", "6", "7"))
    assert [facts.turns for facts in find_facts(a, b)] == [2, 2]
    assert [facts.turns for facts in find_facts(b, a)] == [2, 2]
    assert [facts.turns for facts in find_facts(a, b._replace(starts=("7",)))] == [1, 1]
    assert [facts.turns for facts in find_facts(a, b._replace(starts=()))] == [1, 1]


@pytest.mark.parametrize(
    ("interval", "number", "cell"),
    [
        ((0.71, 0.0002, 2132.0), "an unknown number of", "too noisy"),
        ((0.71, 0.0, inf), "an unknown number of", "too noisy"),
        ((53.0, 2.04, 1432.0), "over 2.04", "over 2.04"),
        ((0.02, 0.0001, 0.5), "under 0.5", "under 0.5"),
        ((1.5, 0.15, 14.9), "1.5 (0.15 … 15)", "1.5"),
        ((19.0, 0.97, 60.7), "19 (0.97 … 61)", "19"),
        ((1.61, 1.04, 2.31), "1.6 (1.04 … 2.3)", "1.6"),
    ],
)
def test_an_interval_of_more_than_a_factor_of_100_says_nothing_or_one_side_of_1(
    interval: tuple[float, float, float], number: str, cell: str
) -> None:
    found = Estimate(*interval)
    assert (cells.ratio_with_interval_text(found), cells.ratio_text(found)) == (number, cell)
    times = cells.times_text(found, "as long").replace(" times as long", "")
    assert times == (f"{cell} to compare" if cells.is_too_noisy(found) else number)
    assert bool(cells.ratio_interval_text(found)) is not found.is_unknown


def test_runs_that_are_too_noisy_are_compared_without_digits() -> None:
    a, b = (
        in_memory(name, [steady(1e-4, 8) + steady(4e-2, 8)] * 3, launches=3) for name in ("a", "b")
    )
    found = compare(a, b)
    (pooled,) = found.pooled
    assert pooled.ratio.is_unknown and pooled.reason == "too noisy to compare"
    ((_, said),) = pooled_sentences(found, known_causes(found))
    assert said.endswith(": undecided, too noisy to compare.") and "times" not in said
    assert RANGE_COLUMNS[0].cell(pooled) == "too noisy" and not RANGE_COLUMNS[1].cell(pooled)
    assert as_json(found)["pooled"][0]["ratio"]["high"] > 1


def test_one_row_whose_launches_agree_by_chance_does_not_speak_for_its_range() -> None:
    # The last launch was disturbed in all rows but one, which has nearly all of the weight.
    chance = np.random.default_rng(4)
    old, new = 1e-4 * chance.lognormal(0, 0.03, (2, 5, 12, 10))
    new *= 1.5
    new[1:, 8:] *= 30.0
    found = compare(*(in_memory(n, s.tolist(), launches=3) for n, s in (("a", old), ("b", new))))
    assert [pooled.verdict for pooled in found.pooled] == ["undecided"] and not found.is_slower
    new[1:, 8:] /= 30.0
    found = compare(*(in_memory(n, s.tolist(), launches=3) for n, s in (("a", old), ("b", new))))
    assert found.is_slower


def test_a_file_without_samples_is_not_surer_than_the_run(tmp_path: Path) -> None:
    asked, launches = plan(sizes=(1024, 4096), launches=4), 4
    paths = []
    for name, factors in (("a", (1.0, 1.2, 0.9, 1.1)), ("b", (1.1, 0.9, 1.0, 1.2))):
        durations = (steady(1e-4 * factor) for factor in factors for _ in asked.cases())
        paths.append(
            synthetic_run(
                tmp_path / name, name, lambda _, d=durations: next(d), asked, launches=launches
            )
        )
    a, b = paths
    (whole,), (bare,) = (compare(load(path), load(b)).pooled for path in (a, a / "results.csv"))
    # The launches were in turns, which the file does not say.
    assert log(bare.ratio.high / bare.ratio.low) > 1.9 * log(whole.ratio.high / whole.ratio.low)
