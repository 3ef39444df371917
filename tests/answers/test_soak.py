"""What a soak found, of made-up journals whose truth is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp
from random import Random
from typing import Any

import pytest
from synthetic_rows import plan

from commbench.analysis.diagnostics import WAITED_SENTENCE
from commbench.analysis.rows import make_rows
from commbench.answers.show.run_notes import find_warnings
from commbench.answers.soak.document import VIEW, soak_answer, soak_pictures
from commbench.answers.soak.soak import (
    SoakResult,
    analyse_soak,
    clock_at,
    find_drift,
    find_quorum,
)
from commbench.errors import UsageError
from commbench.results.records import Check, RankInfo, WrongElement
from commbench.results.samples import with_checks
from commbench.results.schema import Batch, Measurement, Run, RunEnd, RunHeader
from commbench.stats import UNDECIDED

STARTED = "2026-11-21T23:50:00+00:00"


def made_up(
    factor: Callable[[int, float], float] = lambda _cycle, _minute: 1.0,
    cycles: int = 300,
    minutes: float = 20.0,
    checks: tuple[Check, ...] = (),
    seed: int = 0,
    **more: Any,
) -> Run:
    """A soak of two cases on eight ranks; `factor` multiplies times, by cycle and minute."""
    chance, asked = (
        Random(seed),
        plan(sizes=(1024, 1 << 20), world_size=8, soak_s=60 * minutes, **more),
    )
    measurements = []
    for case in asked.cases():
        batches = []
        for cycle in range(1, cycles + 1):
            start_s = 60 * minutes * (cycle - 1) / cycles
            base = 1e-3 * (1 + case.index) * factor(cycle, start_s / 60)
            samples = tuple(base * exp(chance.gauss(0, 0.05)) for _ in range(5))
            batches.append(Batch(samples, elapsed_s=0.01, cycle=cycle, start_s=start_s))
        own = [check for check in checks if check.case == case.index]
        found = Measurement(case, "ok", stop_reason="time", batches=tuple(batches))
        measurements.append(with_checks(found, own))
    ranks = tuple(RankInfo(rank, f"node{rank // 4}", 1, "cpu") for rank in range(8))
    header = RunHeader(asked, "made-up", STARTED, "local", ranks=ranks)
    return Run("", header, tuple(measurements), RunEnd("complete"), launches=1, checks=checks)


def text(result: SoakResult) -> str:
    """What is printed, in one line."""
    shown = VIEW.write(result, "text")
    assert max(map(len, shown.splitlines())) <= 100  # as wide as COLUMNS
    return " ".join(shown.split())


def test_a_steady_soak_is_steady() -> None:
    verdicts = []
    for seed in range(10):
        found = analyse_soak(made_up(seed=seed, cycles=120))
        verdicts.append((found.exit_code, [row.two_speeds_s for row in found.rows]))
        assert all(row.drift and row.drift.ends[0] < 1 < row.drift.ends[1] for row in found.rows)
    assert verdicts == [(0, [(), ()])] * 10


def test_a_drift_is_found_with_its_size() -> None:
    found = analyse_soak(made_up(lambda cycle, _: 1 + 0.3 * cycle / 300))
    assert found.exit_code == 1 and len(found.drifting) == 2
    for row in found.rows:
        assert row.drift and row.drift.ends[0] < 1.285 / 1.015 < row.drift.ends[1]
    assert "Times rose from the first tenth of the cycles to the last: all_reduce" in text(found)
    assert not analyse_soak(made_up(lambda cycle, _: 1 + 0.3 * cycle / 300), 0.5).exit_code


def test_no_warning_contradicts_the_verdict_on_drift() -> None:
    rising = made_up(lambda cycle, _: 1 + 0.3 * cycle / 300)
    assert "drift" not in {each.name for each in find_warnings(make_rows(rising))}
    once = rising.header._replace(plan=replace(rising.header.plan, soak_s=None))
    rows = make_rows(rising._replace(header=once))
    assert "drift" in {each.name for each in find_warnings(rows)}


def test_that_ranks_waited_for_a_core_comes_first_and_decides_nothing() -> None:
    rising = made_up(lambda cycle, _: 1 + 0.3 * cycle / 300)
    found = [
        m._replace(batches=tuple(b._replace(queued_s=0.9 * b.elapsed_s) for b in m.batches))
        for m in rising.measurements
    ]
    result = analyse_soak(rising._replace(measurements=tuple(found)))
    assert soak_answer(result)[0].startswith(WAITED_SENTENCE)
    assert not result.exit_code and {row.drift_verdict for row in result.rows} == {UNDECIDED}


def test_what_goes_up_and_down_is_no_drift() -> None:
    waves = [1.0, 1.2, 0.9, 1.15, 1.0, 0.85, 1.1, 1.25, 0.9, 1.15]
    found = analyse_soak(made_up(lambda cycle, _: waves[(cycle - 1) * 10 // 300]))
    assert not found.drifting
    assert "is undecided in 2 of 2 cases." in text(found)


def test_few_cycles_tell_no_drift() -> None:
    assert find_drift([1.0] * 11) == (None, None, None)
    first, last, drift = find_drift([1.0] * 6 + [1.3] * 6)
    assert (first and first.value, last and last.value) == (1.0, 1.3)
    assert drift and drift.ends == pytest.approx((1.3, 1.3))
    assert "11 cycles are too few to see a drift." in text(analyse_soak(made_up(cycles=11)))


def test_slow_minutes_are_named_with_their_clock() -> None:
    found = analyse_soak(made_up(lambda _, minute: 1.5 if 12 <= minute < 14 else 1.0))
    assert [minute.clock for minute in found.slow_minutes] == [
        "2026-11-22T00:02:00+00:00", "2026-11-22T00:03:00+00:00"
    ]  # fmt: skip
    for minute in found.slow_minutes:
        assert minute.ratio.ends[0] > 1.05 and minute.ratio.value == pytest.approx(1.5, rel=0.05)
    assert found.exit_code == 1
    assert "2 minutes were slow; the worst began at 00:0" in text(found)


def test_minutes_that_always_differ_are_not_slow() -> None:
    found = analyse_soak(made_up(lambda _, minute: 1.0 + 0.3 * (int(minute) % 2)))
    assert not found.slow_minutes


def test_two_speeds_are_told_from_one_that_scatters() -> None:
    found = analyse_soak(made_up(lambda cycle, _: 1.4 if cycle % 3 == 0 else 1.0))
    for row in found.rows:
        low, high = row.two_speeds_s
        assert high / low == pytest.approx(1.4, rel=0.03)
    assert "Cycles form two groups of different speed" in text(found)


def check(cycle: int, ranks: tuple[int, ...] = (), calls: int = 4, case: int = 0) -> Check:
    first = WrongElement(ranks[0], 7, "3.0", "5.0") if ranks else None
    return Check(case, cycle, 4.0 * cycle, 0.5, calls, ranks, (2,) * len(ranks), first, cycle)


@pytest.mark.parametrize(
    ("wrong", "quorum"),
    [
        ([(3,)], "rank 3 differs from the other 7"),
        ([(3,), (3,), (6,)], "ranks 3, 6 differ from the other 6"),
        ([(0, 1, 2, 3)], "ranks 0, 1, 2, 3 of 8 differ from what is right"),
        ([tuple(range(8))], "ranks 0, 1, 2, 3, 4, 5, 6, 7 of 8 differ from what is right"),
        ([()], ""),
    ],
)
def test_the_quorum_names_the_minority(wrong: list[tuple[int, ...]], quorum: str) -> None:
    assert find_quorum(made_up(cycles=1, checks=tuple(check(1, own) for own in wrong))) == quorum


def test_wrong_elements_are_counted_by_rank_and_win_over_all_else() -> None:
    checks = (check(1), check(2, (3,)), check(3, (3,)), check(4, (3,), case=1))
    run = made_up(lambda cycle, _: 1 + cycle / 300, checks=checks)
    found = analyse_soak(run)
    assert [(each.rank, each.host, each.elements, each.checks) for each in found.wrong] == [
        (3, "node0", 4, 2), (3, "node0", 2, 1)
    ]  # fmt: skip
    assert found.wrong[0].clock == "2026-11-21T23:50:08+00:00"
    assert found.exit_code == 5 and found.checked_calls == 16
    assert found.seen_probability == pytest.approx(1 - 0.999**16)
    assert [m.wrong for m in run.measurements] == [4, 2]
    shown = text(found)
    assert "Results are wrong: rank 3 differs from the other 7." in shown
    assert "6 elements of 16 checked calls are wrong" in shown
    assert run.measurements[0].reason.startswith("rank 3, element 7: expected 3.0, got 5.0")


def test_clocks_do_not_count_the_time_in_which_the_soak_was_cut_off() -> None:
    run = made_up(cycles=1)._replace(restarts=((100.0, "2026-11-22T08:00:00+00:00"),))
    assert clock_at(run, 99.0) == "2026-11-21T23:51:39+00:00"
    assert clock_at(run, 130.0) == "2026-11-22T08:00:30+00:00"


def test_a_run_that_is_no_soak_is_refused() -> None:
    run = made_up()
    with pytest.raises(UsageError, match="made-up is no soak"):
        analyse_soak(run._replace(header=run.header._replace(plan=plan())))


def test_a_picture_has_few_points_and_marks_slow_minutes() -> None:
    (picture,) = soak_pictures([made_up(lambda _, minute: 1.5 if 12 <= minute < 14 else 1.0)])
    (panel,) = picture.panels
    assert [len(series.points) for series in panel.series] == [100, 100]  # type: ignore[union-attr]
    assert [mark.low for mark in panel.marks] == [720, 780]  # type: ignore[union-attr]
