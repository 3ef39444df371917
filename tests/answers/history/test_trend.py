"""What is said of a history: which rows changed together, when, by how much, and what else changed
then; and what a check against it decides."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from history_writer import BEGIN, made_run

import commbench
from commbench.analysis.load import LoadedRun
from commbench.answers.check.advice import advice
from commbench.answers.check.document import verdict
from commbench.answers.compare.ratio import hold_together
from commbench.answers.history.baseline import find_baseline
from commbench.answers.history.document import pictures, sentence
from commbench.answers.history.history import LINK, Trend, find_trend
from commbench.answers.history.store import History
from commbench.errors import RecordsError, UsageError
from commbench.results.records import LinkProbe

RUNS, STEP = 40, 20
OLD, NEW = "2.27.5", "2.28.9"
TIMES = ("time_s", "time_ci_low_s", "time_ci_high_s")


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history.sqlite", is_written=True) as made:
        yield made


def noise(seed: int = 0, number: int = RUNS) -> list[float]:
    found: list[float] = np.random.default_rng(seed).lognormal(0, 0.02, number).tolist()
    return found


def fill(
    history: History,
    factor: Callable[[int], float] = lambda number: 1.2 if number >= STEP else 1.0,
    environment: Callable[[int], dict[str, Any]] = lambda _: {},
    number: int = RUNS,
    **more: Any,
) -> list[LoadedRun]:
    """Daily runs, with 2 % noise, a factor and an environment of each."""
    runs = [
        made_run(day, each * factor(day), environment=environment(day), **more)
        for day, each in enumerate(noise(number=number))
    ]
    for day, run in enumerate(runs):
        history.add(run, now=BEGIN + timedelta(days=day, hours=1))
    return runs


def only_change(trend: Trend) -> Any:
    (change,) = trend.changes
    return change


@pytest.mark.parametrize(
    ("name", "old", "new", "causes"),
    [
        ("nccl", OLD, NEW, f"nccl went from {OLD} to {NEW} then"),
        # What hardly changes times is named only alone.
        ("python", "3.11", "3.12", "python went from 3.11 to 3.12 then"),
        ("python", "3.11", "3.11", "nothing that is recorded changed then"),
    ],
)
def test_rows_that_change_together_are_one_change_with_its_cause(
    history: History, name: str, old: str, new: str, causes: str
) -> None:
    fill(history, environment=lambda day: {name: new if day >= STEP else old})
    trend = find_trend(history)
    change = only_change(trend)
    assert len(change.steps) == 5 and change.is_current
    assert change.run.id == STEP + 1 and change.before.id <= STEP < change.latest.id
    assert change.ratio.ends[0] < 1.2 < change.ratio.ends[1]
    assert sentence(change, trend).startswith("At 2026-09-21 00:00 all_reduce 1K-5K became 1.2")
    assert sentence(change, trend).endswith(f"; {causes}.")


def test_only_what_changed_then_and_stayed_is_named(history: History) -> None:
    def facts(day: int) -> dict[str, Any]:
        return {
            "kernel": "6.2" if day >= STEP + 6 else "6.1",
            "governor": "performance" if day == STEP else "powersave",
            "nccl": NEW if day >= STEP - 6 else OLD,
            "variables": {"NCCL_ALGO": "Tree"} if day >= STEP else {},
        }

    fill(history, environment=facts)
    change = only_change(find_trend(history))
    assert [cause[:] for cause in change.causes] == [("NCCL_ALGO", "not set", "Tree")]


def test_a_slower_network_between_hosts_is_a_cause(history: History) -> None:
    for day, each in enumerate(noise()):
        slow = 1.2 if day >= STEP else 1.0
        run = made_run(day, each * slow)
        assert run.header
        probes = (LinkProbe(0, 1, 1 << 20, 0.01 * slow * each), LinkProbe(1, 0, 1 << 20, 0.005))
        history.add(run._replace(header=run.header._replace(link_probes=probes)))
    change = only_change(find_trend(history))
    assert [cause.name for cause in change.causes] == [LINK]
    assert change.causes[0].a == "0.11 GB/s" and change.causes[0].b == "0.087 GB/s"


def test_two_directions_are_two_changes_and_an_old_one_is_not_current(history: History) -> None:
    fill(history, lambda day: (1.0, 1.3, 0.8)[day // 20], number=60)
    newest, oldest = find_trend(history).changes
    assert (newest.run.id, oldest.run.id) == (41, 21)
    assert newest.ratio.value < 1 < oldest.ratio.value
    assert newest.is_current and not oldest.is_current
    assert "times as fast" in sentence(newest, find_trend(history))


def test_an_outlier_is_no_change(history: History) -> None:
    fill(history, lambda day: 2.0 if day == 20 else 1.0)
    trend = find_trend(history)
    assert not trend.changes
    assert trend.text().splitlines()[4] == "None of 5 rows became slower or faster."
    assert trend.text().splitlines()[5].startswith("A step of 8.7 % would show 6 runs")


def test_runs_whose_ranks_waited_make_no_level_and_no_step(history: History) -> None:
    for day, each in enumerate(noise(number=16)):
        run = made_run(day, each * (1.5 if day >= 8 else 1.0))
        rows = [row._replace(queued_share=0.6 if day >= 5 else 0.4) for row in run.rows]
        assert history.add(run._replace(rows=rows)).waited == (5 if day >= 5 else 0)
    trend = find_trend(history)
    text = " ".join(trend.text().split())
    assert not trend.changes and "No row has the 6 runs that a step needs: 1 more." in text
    assert "Runs 6, 7, 8, 9, 10, 11, 12, 13 and 3 more: ranks waited for a core" in text
    assert all(each.last.number == 5 and each.last.level.low for each in trend.series)
    assert [point["queued_share"] for point in trend.series[0].as_json()["points"]] == (
        [0.4] * 5 + [0.6] * 11
    )
    assert find_baseline(history, made_run(20))[0].rows == []
    gate = check(history, made_run(20))
    why = "fewer than 6 earlier runs count: 11 do not, their ranks waited for a core"
    assert f"5 of 5 rows cannot be judged ({why})" in verdict(gate)
    assert "--allow-unmatched" not in " ".join(advice(gate)) and "--history" in advice(gate)[0]


def test_rows_on_a_level_hold_together_with_the_degrees_of_its_few_runs(history: History) -> None:
    fill(history, number=7)
    run = made_run(8)
    level = find_baseline(history, run)[0]
    comparison = commbench.compare(level, run)
    assert {row.degrees for row in comparison.rows} == {6}
    assert {found.degrees for found in comparison.pooled} == {6}
    for row in comparison.rows:
        together = hold_together(row, 5)
        assert together and row.ratio and row.ratio.low
        # Student's t with 6 degrees of freedom: 3.7074 at 0.5 %, 2.4469 at 2.5 %; scipy.stats.t.ppf
        widened = math.log(together.ends[1] / row.ratio.value)
        alone = math.log(row.ratio.ends[1] / row.ratio.value)
        assert widened / alone == pytest.approx(3.7074 / 2.4469, rel=1e-3)


def test_the_document_tells_of_wrong_clocks_and_of_systems_under_one_name(history: History) -> None:
    fill(history, number=8)
    history.add(made_run(9), now=BEGIN)
    history.add(made_run(3, environment={"processor": "Another 1"}), now=BEGIN)
    text = " ".join(find_trend(history).text().split())
    assert "2 runs (such as 9) started later than they were added" in text
    assert "node1 has runs of 2 systems, which have rows of their own: node1, 2 gloo ranks" in text


def test_json_and_pictures_have_the_steps(history: History, tmp_path: Path) -> None:
    fill(history)
    trend = find_trend(history)
    found = json.loads(trend.text("json"))
    assert found["changes"][0]["ratio"]["value"] == pytest.approx(1.2, abs=0.05)
    assert [part["first"] for part in found["series"][0]["segments"]] == [0, STEP]
    assert len(found["series"][0]["points"]) == RUNS
    trend.plot(tmp_path / "history.svg")
    drawn = (tmp_path / "history.svg").read_text()
    assert "over its first level" in drawn and drawn.count("2026-09-01") >= 5


def test_runs_within_a_minute_have_times_of_their_own(history: History) -> None:
    for number in range(RUNS):
        history.add(made_run(number / 86400 * 25, 1.2 if number >= STEP else 1.0))
    trend = find_trend(history)
    (picture,) = pictures(trend)
    points = picture.panels[0].series[0].points
    labels = [picture.panels[0].across.text(place) for place, _ in points]
    assert len({*labels}) == RUNS and labels[:3] == ["00:00:00", "00:00:25", "00:00:50"]
    page = trend.text("html")
    assert sentence(only_change(trend), trend).startswith("At 2026-09-01 00:08:20 all_reduce")
    assert page.count(">2026-09-01 00:08:20<") >= 2


# check --against history


def check(history: History, run: LoadedRun, **more: Any) -> Any:
    return commbench.check(run, against="history", db=history.path, **more)


@pytest.mark.usefixtures("launches_alike")
def test_a_run_is_compared_with_the_level_and_not_with_one_run(history: History) -> None:
    fill(history, lambda day: 2.0 if day == RUNS - 1 else 1.0)
    for factor, outcome, code in ((1.0, "pass", 0), (1.25, "fail", 1), (1.13, "no verdict", 7)):
        gate = check(history, made_run(RUNS, factor))
        assert (gate.outcome, gate.exit_code) == (outcome, code), gate


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize("slow", [1, 2, 3, 4, 6, 10, 20])
def test_a_slowdown_that_lasts_fails_until_someone_accepts_it(history: History, slow: int) -> None:
    first = 14
    runs = fill(history, lambda day: 1.3 if day >= first else 1.0, number=first + slow)
    gate = check(history, made_run(first + slow, 1.3))
    assert gate.outcome == "fail"
    said = " ".join(gate.text().split())
    assert "Usual is what runs took before run 15 (2026-09-15 00:00 UTC): since then 5 rows" in said
    assert re.search(r"since then 5 rows took (2\d|30) %( to (2\d|30) %)? longer", said)
    assert "`commbench history accept 15 --db " in said
    assert check(history, made_run(first + slow, 1.0)).outcome == "pass"
    accepted = commbench.history.accept(15, db=history.path)
    assert accepted.path == str(runs[first].path.absolute())
    passed = check(history, made_run(first + slow, 1.3))
    of = "runs; their" if slow > 1 else "run; its"
    known = f"a level of {slow} {of} noise is known from {first + slow}:"
    assert passed.outcome == "pass"
    assert verdict(passed).startswith(f"PASS against {known if slow < 6 else f'{slow} earlier'}")
    assert commbench.history.list_(db=history.path).accepted == {15}
    again = check(history, made_run(first + slow, 1.3 * 1.4))
    assert again.outcome == "fail" and "accept" not in again.text()
    commbench.history.accept(1, db=history.path)
    assert check(history, made_run(first + slow, 1.3)).outcome == "fail"


@pytest.mark.usefixtures("launches_alike")
def test_the_accepted_run_passes_and_one_before_it_is_compared_as_before(history: History) -> None:
    runs = fill(history, lambda day: 1.3 if day >= 14 else 1.0, number=17)
    assert [check(history, runs[day]).outcome for day in (13, 14, 16)] == ["pass", "fail", "fail"]
    commbench.history.accept(15, db=history.path)
    assert [check(history, runs[day]).outcome for day in (13, 14, 16)] == ["pass"] * 3
    assert "FAIL" not in check(history, runs[14]).text()
    assert check(history, made_run(13, 1.3)).outcome == "fail"


def test_rows_that_are_slower_without_a_step_are_said(history: History) -> None:
    fill(history, lambda day: 1.3 if day >= 14 else 1.0, number=16)
    said = " ".join(find_trend(history).text().split())
    assert "Slower in the last 2 runs, too few or too noisy for a step: all_reduce 1K-5K." in said
    assert "None of" not in said
    commbench.history.accept(15, db=history.path)
    assert "for a step:" not in find_trend(history).text()
    commbench.history.accept(1, db=history.path)
    assert "for a step:" in find_trend(history).text()
    history.forget(history.runs()[14:])
    assert "for a step:" not in find_trend(history).text()


@pytest.mark.usefixtures("launches_alike")
def test_a_lower_level_is_usual_at_once(history: History) -> None:
    fill(history, lambda day: 1.3 if day < 20 else 1.0)
    assert check(history, made_run(RUNS, 1.0)).outcome == "pass"
    assert check(history, made_run(RUNS, 1.3)).outcome == "fail"
    fill(history, lambda day: 1.3 if 20 <= day < 27 else 1.0, label="week", number=RUNS)
    assert check(history, made_run(RUNS, 1.3)).outcome == "fail"


def test_a_run_whose_ranks_waited_is_not_accepted(history: History) -> None:
    run = made_run(0)
    history.add(run._replace(rows=[row._replace(queued_share=0.6) for row in run.rows]))
    with pytest.raises(UsageError, match="no row of run 1 counts"):
        commbench.history.accept(1, db=history.path)


def test_only_one_run_is_accepted_at_a_time(history: History) -> None:
    fill(history, label="daily")
    with pytest.raises(UsageError, match="40 runs are called 'daily'"):
        commbench.history.accept("daily", db=history.path)
    with pytest.raises(RecordsError, match="has no run '99'"):
        commbench.history.accept(99, db=history.path)


def test_runs_that_are_often_slow_make_no_failure(history: History) -> None:
    fill(history, lambda day: 1.6 if day in (2, 5) else 1.0, number=7)
    assert check(history, made_run(7, 1.5)).outcome == "no verdict"
    gate = check(history, made_run(7, 8.0))
    assert gate.outcome == "fail"
    assert f"`commbench history show --db {history.path}` says what became" in advice(gate)[0]


def test_what_launches_differ_by_counts_once(history: History) -> None:
    fill(history, lambda _: 1.0, number=11)
    run = made_run(11)
    assert run.rows[0].time.ends[1] > 1.1 * run.rows[0].time.value  # one launch of gloo
    assert check(history, run).outcome == "pass"
    wide = [row._replace(time_ci_low_s=row.time_s / 2, time_ci_high_s=2 * row.time_s)
            for row in run.rows]  # fmt: skip
    gate = check(history, run._replace(rows=wide))
    assert gate.outcome == "no verdict"
    for row in gate.comparison.rows:
        assert 1.9 < row.ratio.high / row.ratio.value < 2.1
    unknown = [row._replace(time_ci_low_s=0.0) for row in wide]
    assert check(history, run._replace(rows=unknown)).outcome == "no verdict"


@pytest.mark.parametrize("number", [6, 30])
def test_a_check_says_that_the_history_is_unsure(history: History, number: int) -> None:
    fill(history, lambda day: noise(3)[day] ** 10, number=number, cases=1)
    gate = check(history, made_run(number, cases=1))
    assert verdict(gate).startswith(f"NO VERDICT against {number} earlier runs: 1 of 1 row")
    (first, *_) = advice(gate)
    assert first.startswith(f"The history is the uncertain part: its {number} earlier runs differ")
    assert ("With 30 runs the interval would be 0." in first) == (number == 6)
    assert (
        f"{'with' if number == 6 else 'With'} any number of runs that differ as these do at best 0."
        in first
    )
    assert f"`commbench history show --db {history.path}`" in first
    assert "--launches" not in gate.text() and f"A, {number} earlier runs" in gate.text()


def test_a_check_says_that_the_run_is_unsure(history: History) -> None:
    fill(history, lambda _: 1.0, number=8, cases=1)
    run = made_run(9, cases=1)
    wide = [row._replace(time_ci_low_s=row.time_s / 2, time_ci_high_s=2 * row.time_s)
            for row in run.rows]  # fmt: skip
    (first, *_) = advice(check(history, run._replace(rows=wide)))
    assert first.startswith("This run is the uncertain part: it is known within 100 %, and the 8 ")
    assert "earlier runs differ by 1.2 %. For a clearer answer measure again with `--la" in first


def test_the_run_itself_and_later_ones_do_not_count(history: History) -> None:
    runs = fill(history, lambda day: 1.0 if day < 10 else 3.0)
    assert check(history, runs[10]).outcome == "fail"


def test_an_empty_or_short_history_gives_no_verdict(history: History, tmp_path: Path) -> None:
    missing = commbench.check(made_run(9), against="history", db=tmp_path / "none.sqlite")
    assert (missing.outcome, missing.exit_code) == ("no verdict", 7)
    assert f"cannot be judged (there is no history yet at {tmp_path / 'none.sqlite'})" in verdict(
        missing
    )
    assert f"/{tmp_path.name}/none.sqlite` adds this run" in advice(missing)[0]
    with pytest.raises(RecordsError, match="there is no folder"):
        commbench.check(made_run(9), against="history", db=tmp_path / "none" / "x.sqlite")
    runs = fill(history, number=5)
    gate = check(history, made_run(9))
    assert gate.exit_code == 7 and "adds this run" in advice(gate)[0]
    assert advice(check(history, runs[4]))[0].startswith("This run is in the history; ")
    assert "The history has fewer than 6 earlier runs of 5 rows on node1" in " ".join(
        gate.text().split()
    )


def test_a_history_in_another_cpu_mode_is_not_compared(history: History) -> None:
    fill(history, number=10)
    run = made_run(20)
    rows = [row._replace(cpu_mode="plain") for row in run.rows]
    gate = check(history, run._replace(rows=rows))
    assert gate.exit_code == 7
    assert "cpu mode plain" in " ".join(gate.text().split())
    with pytest.raises(UsageError, match="belong to --against history"):
        commbench.check(run, max_time="1s", node="node1")


@pytest.mark.parametrize(
    ("second", "said"),
    [(2.0, "became 1.95 times as slow ("), (4.0, "became 1.95 to 3.90 times as slow, by row")],
)
def test_rows_that_changed_by_other_factors_are_not_averaged(
    history: History, second: float, said: str
) -> None:
    for day, each in enumerate(noise(number=16)):
        run = made_run(day, each)
        factors = [2.0, second, 1.0, 1.0, 1.0] if day >= 8 else [1.0] * 5
        history.add(run._replace(rows=[
            row._replace(**{name: factor * getattr(row, name) for name in TIMES})
            for row, factor in zip(run.rows, factors, strict=True)
        ]))  # fmt: skip
    assert said in " ".join(find_trend(history).text().split())
