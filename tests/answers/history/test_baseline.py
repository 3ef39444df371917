"""What a check against a history decides and says."""

from __future__ import annotations

import math
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from history_writer import RUNS, STEP, fill, made_run, noise
from synthetic import synthetic_run

import commbench
from commbench.analysis.load import LoadedRun
from commbench.answers.check.advice import advice
from commbench.answers.check.document import document
from commbench.answers.check.sentences import reasons_of, verdict
from commbench.answers.compare.ratio import CLOSE, hold_together
from commbench.answers.history.baseline import find_baseline
from commbench.answers.history.history import find_trend
from commbench.answers.history.level import near_of_few
from commbench.answers.history.noise import estimate_noise
from commbench.answers.history.store import History
from commbench.errors import RecordsError, UsageError

OLD, NEW = "2.27.5", "2.28.9"
TIMES = ("time_s", "time_ci_low_s", "time_ci_high_s")


def check(history: History, run: LoadedRun, **more: Any) -> Any:
    return commbench.check(run, against="history", db=history.path, **more)


@pytest.mark.usefixtures("launches_alike")
def test_a_run_is_compared_with_the_level_and_not_with_one_run(history: History) -> None:
    fill(history, lambda day: 2.0 if day == RUNS - 1 else 1.0)
    for factor, outcome, code in ((1.0, "pass", 0), (1.25, "fail", 1), (1.13, "no verdict", 7)):
        gate = check(history, made_run(RUNS, factor))
        assert (gate.outcome, gate.exit_code) == (outcome, code), gate


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize(
    ("slow", "factor", "outcome"),
    [
        ([9], 1.39, "no verdict"),  # run 10 took 1.4 times as long, and the next one did not
        ([9], 1.6, "fail"),
        ([9, 21], 1.39, "no verdict"),  # 2 of 30
        ([29], 1.39, "fail"),  # a slowdown may have begun there
    ],
)
def test_a_run_is_not_called_slower_than_one_before_that_was_slow_by_chance(
    history: History, slow: list[int], factor: float, outcome: str
) -> None:
    number = slow[-1] + 9 if slow[-1] < 29 else 30
    fill(history, lambda day: 1.4 if day in slow else 1.0, number=number)
    gate = check(history, made_run(number, factor))
    assert gate.outcome == outcome
    said = re.search(
        r"Run (10|22) took 1.[34]\d times as long as usual, and",
        " ".join(advice(gate)),
    )
    assert bool(said) == (outcome == "no verdict")


@pytest.mark.usefixtures("launches_alike")
def test_a_run_of_a_slower_level_before_is_not_named_as_slow_by_chance(history: History) -> None:
    fill(history, lambda day: 2.0 if day < 6 else 1.5 if day == 10 else 1.0, number=17)
    gate = check(history, made_run(17, 1.4))
    said = re.findall(r"Run (\d+) took (?:up to )?([\d.]+) times", " ".join(reasons_of(gate)))
    assert [(number, round(float(times), 1)) for number, times in said] == [("11", 1.5)]


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize("slow", [0, 1, 2])
def test_the_next_slow_runs_fail_too_where_an_earlier_one_was_fast(
    history: History, slow: int
) -> None:
    fill(history, lambda day: 0.68 if day == 0 else 1.45 if day > 5 else 1.0, number=6 + slow)
    assert check(history, made_run(6 + slow, 1.45)).outcome == "fail"


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize(
    ("minutes", "factor", "outcome"),
    [
        (1, 1.16, "no verdict"),
        (1, 1.18, "no verdict"),
        (10, 1.16, "fail"),
        (1, 1.4, "fail"),
        (1, 1.0, "pass"),
    ],
)
def test_runs_close_in_time_do_not_show_how_the_host_changes(
    history: History, minutes: float, factor: float, outcome: str
) -> None:
    for number, each in enumerate(noise(number=RUNS)):
        history.add(made_run(number * minutes / 24 / 60, each))
    gate = check(history, made_run(1, factor))
    assert gate.outcome == outcome
    assert (CLOSE in verdict(gate)) == (outcome == "no verdict")
    assert ("at 3 times or more" in " ".join(advice(gate))) == (outcome == "no verdict")


@pytest.mark.usefixtures("launches_alike")
def test_a_run_on_a_faster_host_that_takes_no_longer_than_usual_passes(history: History) -> None:
    fill(history, lambda _: 1.0, host=1.0)
    gate = check(history, made_run(RUNS, 0.7, host=0.6))
    assert (gate.outcome, "during made-up" in gate.text()) == ("pass", False)


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize(("host", "outcome"), [(None, "fail"), (1.0, "fail"), (1.5, "no verdict")])
def test_a_run_on_a_host_that_was_slower_is_not_called_slower(
    history: History, host: float | None, outcome: str
) -> None:
    fill(history, lambda _: 1.0, host=1.0)
    history.add(made_run(RUNS, 1.4, host=1.5))  # no usual run: its host does not count
    gate = check(history, made_run(RUNS + 1, 1.4, host=host))
    assert gate.outcome == outcome
    said = " ".join(gate.text().split())
    took = r"A message between processes took 1\.5\S* \(\S+ … \S+\) times as long during made-up: "
    assert bool(re.search(took, said)) == (host == 1.5)
    assert "host was slower" not in said  # the figure says what took longer, not why


@pytest.mark.usefixtures("launches_alike")
def test_every_answer_has_the_level_that_begins_with_the_accepted_run(history: History) -> None:
    fill(history, lambda day: 1.5 if 9 <= day < 13 else 1.0, number=13)
    commbench.history.accept(10, db=history.path)
    usual = 1.5e-3  # of the row of 1 KiB
    level = find_trend(history).series[0].last
    assert (level.first, level.number) == (9, 4)
    assert level.level and level.level.value == pytest.approx(usual, rel=0.03)
    assert check(history, made_run(13, 1.5)).outcome == "pass"
    for day in (13, 14, 15):  # as fast as before: usual again from the third run on
        assert check(history, made_run(day, 1.0)).outcome == "pass"
        history.add(made_run(day, 1.0))
    assert find_trend(history).series[0].last.first == 13
    gate = check(history, made_run(16, 1.5))
    assert gate.outcome == "fail"
    assert gate.worst.estimate.value == pytest.approx(1.5, rel=0.05)


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize("slow", [1, 2, 3, 4, 6, 10, 20])
def test_a_slowdown_that_lasts_fails_until_someone_accepts_it(
    history: History, slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = 14
    made = fill(history, lambda day: 1.3 if day >= first else 1.0, number=first + slow)
    gate = check(history, made_run(first + slow, 1.3))
    assert gate.outcome == "fail"
    said = " ".join(gate.text().split())
    names = "Usual for all_reduce 1K-5K is the level "
    begin = f"{names}before run 15 (2026-09-15 00:00 UTC): since then "
    times = rf"they took 1\.[23]\d?( to 1\.[23]\d?)? times as long in {slow} runs "
    accept = (
        "before this one(; nothing .* then)?. If that is to last, `commbench history accept 15 "
    )
    found = re.search(re.escape(begin) + times + accept, said)
    assert bool(found) == ("accept" in said) == (slow > 1)  # one may be slow by chance
    assert check(history, made_run(first + slow, 1.0)).outcome == "pass"
    accepted = commbench.history.accept(15, db=history.path)
    assert accepted.path == str(made[first].path.absolute())
    passed = check(history, made_run(first + slow, 1.3))
    known = (
        f"a level of {slow} run{'s' * (slow > 1)}, whose noise is known from {first + slow} runs."
    )
    assert passed.outcome == "pass"
    said = reasons_of(passed)[0]
    assert said.startswith(f"Compared with {known if slow < 6 else f'{slow} of'}")
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, passed.text().splitlines())) <= 80
    listed = commbench.history.list_(db=history.path)
    assert listed.accepted == {15}
    assert [*listed.frame()["id"]] == [*range(first + slow, 0, -1)]
    again = check(history, made_run(first + slow, 1.3 * 1.4))
    assert again.outcome == "fail" and "accept" not in again.text()
    commbench.history.accept(1, db=history.path)
    assert check(history, made_run(first + slow, 1.3)).outcome == "fail"


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize("number", [2, 3, 4, 6, 9])
@pytest.mark.parametrize("outlier", [0, -1], ids=["the first", "the last"])
def test_an_outlier_among_few_runs_since_one_was_accepted_does_not_move_the_level(
    history: History, number: int, outlier: int
) -> None:
    twice = [1.3] * number
    twice[outlier] = 2.6
    fill(history, lambda day: [*[1.0] * 30, *twice][day], number=30 + number)
    commbench.history.accept(31, db=history.path)
    for factor, outcome in ((1.0, "pass"), (1.3, "fail")):
        assert check(history, made_run(40, 1.3 * factor)).outcome == outcome


@pytest.mark.usefixtures("launches_alike")
def test_the_accepted_run_passes_and_one_before_it_is_compared_as_before(history: History) -> None:
    runs = fill(history, lambda day: 1.3 if day >= 14 else 1.0, number=17)
    assert [check(history, runs[day]).outcome for day in (13, 14, 16)] == ["pass", "fail", "fail"]
    commbench.history.accept(15, db=history.path)
    assert [check(history, runs[day]).outcome for day in (13, 14, 16)] == ["pass"] * 3
    own = check(history, runs[14])
    assert "FAIL" not in own.text()
    assert own.text().count("This run is the accepted level: it is compared with itself.") == 1
    assert "This run is the accepted" not in check(history, runs[16]).text()
    assert check(history, made_run(13, 1.3)).outcome == "fail"


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


def test_the_first_slow_run_names_what_differs_from_the_usual_runs(history: History) -> None:
    fill(history, lambda _: 1.0, lambda day: {"nccl": "2.26" if day == 3 else OLD}, number=12)
    gate = check(history, made_run(12, 1.5, environment={"nccl": NEW}))
    said = " ".join(gate.text().split())
    assert gate.outcome == "fail"
    assert f"nccl is {OLD} in most usual runs, {NEW} in made-up." in said
    same = check(history, made_run(12, 1.5, environment={"nccl": OLD}))
    assert same.comparison and not same.comparison.differences


@pytest.mark.usefixtures("launches_alike")
def test_a_check_names_the_rows_that_are_slower_and_none_between_them(history: History) -> None:
    for day, each in enumerate(noise(number=14)):
        run = made_run(day, each)
        rows = [
            row._replace(**{name: 1.5 * getattr(row, name) for name in TIMES})
            if day >= 10 and row.size_bytes != 2048 else row for row in run.rows
        ]  # fmt: skip
        history.add(run._replace(rows=rows))
    said = " ".join(check(history, made_run(14, 1.5)).text().split())
    assert re.search(r"Usual for all_reduce 1K, 3K-5K is .* since then they took 1\.", said), said


def test_a_check_that_fails_after_a_step_names_what_changed_then(history: History) -> None:
    fill(history, environment=lambda day: {"nccl": NEW if day >= STEP else OLD})
    gate = check(history, made_run(RUNS, 1.2 * 1.3))
    assert gate.outcome == "fail" and "commbench compare" not in " ".join(advice(gate))
    said = " ".join(gate.text().split())
    assert re.search(
        rf"since then they took 1\.2\d? times as long in 20 runs before this one; "
        rf"nccl went from {OLD} to {NEW} then\.",
        said,
    )


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
    assert verdict(gate).startswith("NO VERDICT: 1 of 1 row")
    assert reasons_of(gate)[0] == f"Compared with {number} earlier runs."
    (first, *_) = advice(gate)
    assert first.startswith(f"The history is the uncertain part: {number} earlier runs differ")
    assert ("With 30 runs the interval would be 0." in first) == (number == 6)
    assert f"{'with' if number == 6 else 'With'} any number of such runs" in first
    assert f"`commbench history show --db {history.path}` finds smaller ones that last." in first
    assert "versions of a call" not in gate.text()
    assert "--launches" not in gate.text() and "A, the usual level" in gate.text()


@pytest.mark.parametrize(("at", "factor"), [(3, 0.2), (9, 5.0)])
def test_a_check_says_that_an_outlier_does_not_count_for_the_noise(
    history: History, at: int, factor: float
) -> None:
    fill(history, lambda day: noise(3)[day] ** 6 * (factor if day == at else 1.0), number=14)
    gate = check(history, made_run(14, 1.05))
    said = " ".join(advice(gate))
    assert re.search(r"part: 13 of 14 earlier runs differ by [\d.]+ %, so a single", said), said


def test_a_check_of_an_own_call_says_how_to_compare_two_versions(history: History) -> None:
    def own(run: LoadedRun) -> LoadedRun:
        return run._replace(rows=[row._replace(call="Mine") for row in run.rows])

    for day in range(8):
        history.add(own(made_run(day, noise(3)[day] ** 10)))
    said = advice(check(history, own(made_run(8))))
    assert any(
        text.startswith(
            "To compare versions, measure two versions of a call in turns: `commbench sweep --vary "
            "call=OLD/FILE.py:NAME,NEW/FILE.py:NAME --op all_reduce --sizes "
        )
        for text in said
    ), said


def test_a_check_names_the_code_of_a_call_by_the_runs_of_its_own_level(history: History) -> None:
    """The rows of torch have one level, those of the call had a slower one."""

    def made(day: int, code: str, slow: float = 1.0) -> LoadedRun:
        run = made_run(day, noise()[day], environment={"code of Mine": code}, cases=4)
        own = made_run(day, slow * noise()[day], cases=4).rows
        return run._replace(rows=[*run.rows[:3], own[3]._replace(call="Mine")])

    for day in range(8):
        history.add(made(day, "old"))
    for day in range(8, 20):
        history.add(made(day, "new", 2.0))
    texts = [
        " ".join(check(history, made(20, code, slow)).text().split())
        for code, slow in (("new", 2.0), ("old", 1.0))
    ]
    assert ["code of Mine" in text.partition("What to do")[2] for text in texts] == [True, False]


def test_a_check_says_that_the_run_is_unsure(history: History) -> None:
    fill(history, lambda _: 1.0, number=8, cases=1)
    run = made_run(9, cases=1)
    wide = [row._replace(time_ci_low_s=row.time_s / 2, time_ci_high_s=2 * row.time_s)
            for row in run.rows]  # fmt: skip
    (first, *_) = advice(check(history, run._replace(rows=wide)))
    assert first.startswith("This run is the uncertain part: its time is known within 100 %, and ")
    assert "8 earlier runs differ by 1.2 %. For a clearer answer measure again with" in first


def test_the_run_itself_and_later_ones_do_not_count(history: History) -> None:
    runs = fill(history, lambda day: 1.0 if day < 10 else 3.0)
    assert check(history, runs[10]).outcome == "fail"


def test_a_slowdown_that_lasts_fails_after_five_runs_before_it(history: History) -> None:
    fill(history, lambda day: 2.0 if day >= 5 else 1.0, number=7)
    gate = check(history, made_run(8, 2.0))
    assert gate.outcome == "fail", gate
    assert "`commbench history accept 6" in " ".join(document(gate).answer)


@pytest.mark.usefixtures("launches_alike")
def test_runs_that_are_fast_again_are_not_called_slower(history: History) -> None:
    fill(history, lambda day: 1.3 if 14 <= day < 17 else 1.0, number=18)
    gate = check(history, made_run(18, 1.3))
    assert gate.outcome == "fail" and "since then" not in gate.text()


@pytest.mark.usefixtures("launches_alike")
def test_runs_after_a_slowdown_that_ended_are_usual_too(history: History) -> None:
    fill(history, lambda day: 3.0 if 6 <= day < 10 else 1.0, number=16)
    gate = check(history, made_run(16, 1.0))
    assert verdict(gate).startswith("PASS: ")
    assert reasons_of(gate)[0] == "Compared with 12 of 16 earlier runs."
    assert "since then" not in gate.text()


@pytest.mark.usefixtures("launches_alike")
def test_what_is_slower_now_is_told_from_its_own_begin(history: History) -> None:
    fill(history, lambda day: 3.0 if 6 <= day < 10 else 1.1 if day >= 10 else 1.0, number=18)
    text = " ".join(check(history, made_run(18, 1.1)).text().split())
    told = (
        r"before run 7 .*: runs from then on were slower; since run 11 they took "
        r"1\.\d+( to 1\.\d+)? times as long in 8"
    )
    assert re.search(told, text)
    assert "`commbench history accept 11 --db" in text


@pytest.mark.usefixtures("launches_alike")
def test_a_slowdown_that_scatters_and_ended_is_no_noise_of_the_usual_runs(history: History) -> None:
    slow = {7: 2.6, 8: 2.2, 9: 3.1, 10: 1.5, 11: 1.3, 12: 1.6}
    fill(history, lambda day: slow.get(day, 1.0), number=16)
    gate = check(history, made_run(16, 1.0))
    assert gate.outcome == "pass" and "since then" not in gate.text(), gate.text()
    assert check(history, made_run(16, 1.3)).outcome == "fail"


@pytest.mark.parametrize("outlier", [1.5, 2.2, 8.0])
def test_one_slow_run_of_seven_does_not_move_the_level(outlier: float) -> None:
    logs = [math.log(t) for t in (110.0, 107.0, 109.0, 106.0, 114.0, 108.0, 108.0 * outlier)]
    level = math.exp(fmean(logs[n] for n in near_of_few(logs, estimate_noise(np.array(logs)))))
    assert 107 < level < 111


def test_a_run_that_was_killed_before_its_first_row_fails(history: History, tmp_path: Path) -> None:
    fill(history, number=8)
    killed = synthetic_run(tmp_path / "killed", "killed", lambda _: None)
    journal = killed / "run.jsonl"
    journal.write_text(journal.read_text().splitlines(keepends=True)[0])
    gate = commbench.check(killed, against="history", db=history.path)
    assert (gate.outcome, gate.exit_code) == ("fail", 1)
    assert "commbench run --resume" in gate.text()


def test_an_empty_or_short_history_gives_no_verdict(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    missing = commbench.check(made_run(9), against="history")
    assert (missing.outcome, missing.exit_code) == ("no verdict", 7)
    assert "judged: there is no history yet at results/history.sqlite." in verdict(missing)
    assert "made-up-9` adds this run. `commbench run --history`, with the" in advice(missing)[0]
    for db in ("none.sqlite", "none/x.sqlite", "results/history.sqlite"):
        with pytest.raises(RecordsError, match=f"there is no history {db}"):
            commbench.check(made_run(9), against="history", db=db)
    runs = fill(history, number=5)
    gate = check(history, made_run(9))
    assert gate.exit_code == 7 and "adds this run" in advice(gate)[0]
    assert advice(check(history, runs[4]))[0].startswith("This run is in the history already; ")
    old = check(history, runs[1])
    assert "1 earlier run counts, and 6 are needed; 3 that started later do not" in verdict(old)
    assert advice(old)[0].startswith("Only runs before this one count: check a newer run.")
    assert "In 5 rows, fewer than 6 earlier runs count on node1" in " ".join(gate.text().split())


def test_a_run_that_is_not_known_well_does_not_count_for_the_noise(history: History) -> None:
    for day, each in enumerate(noise(number=8)):
        run = made_run(day, each * (2.0 if day in (3, 5) else 1.0))
        if day == 3:  # one outlier of eight runs is usual, two are not
            wide = {"time_ci_low_s": 0.4, "time_ci_high_s": 5.0}
            rows = [
                row._replace(**{name: row.time_s * by for name, by in wide.items()})
                for row in run.rows
            ]
            run = run._replace(rows=rows)
        history.add(run)
    gate = check(history, made_run(9, 0.6))
    assert gate.outcome == "pass"
    assert "all_reduce 1K-5K took 0.60 times as long as usual: faster." in gate.text()


def test_a_check_names_the_rows_that_the_run_before_has_and_this_one_lacks(
    history: History,
) -> None:
    fill(history, lambda _: 1.0, number=8)
    run = made_run(9)
    said = " ".join(check(history, run._replace(rows=run.rows[:3])).text().split())
    assert "Run 8, the last one before, also has all_reduce 4K-5K: this run does not" in said
    assert "the last one before" not in check(history, run).text()


def test_a_history_in_another_cpu_mode_is_not_compared(history: History) -> None:
    fill(history, number=10)
    run = made_run(20)
    rows = [row._replace(cpu_mode="plain") for row in run.rows]
    gate = check(history, run._replace(rows=rows))
    assert gate.exit_code == 7
    said = " ".join(gate.text().split())
    assert "cpu mode plain" in said
    assert "has 10 runs of node1, 2 gloo ranks (Made-up 9000; cpu mode quiet)" in said
    with pytest.raises(UsageError, match="belong to --against history"):
        commbench.check(run, max_time="1s", node="node1")


def test_runs_whose_ranks_waited_make_no_level_and_no_step(history: History) -> None:
    for day, each in enumerate(noise(number=16)):
        run = made_run(day, each * (1.5 if day >= 8 else 1.0))
        rows = [row._replace(queued_share=0.6 if day >= 5 else 0.4) for row in run.rows]
        assert history.add(run._replace(rows=rows)).waited == (5 if day >= 5 else 0)
    trend = find_trend(history)
    text = " ".join(trend.text().split())
    assert (
        not trend.changes
        and "Every row needs 1 more run before a step can show (a step needs 6 runs, a level 3)."
        in text
    )
    assert "Runs 6, 7, 8, 9, 10, 11, 12, 13 and 3 more: ranks waited for a core" in text
    assert "or --cpu-mode realtime (root or CAP_SYS_NICE); `commbench doctor` tries" in text
    assert all(each.last.number == 5 and each.last.level.low for each in trend.series)
    assert [point["queued_share"] for point in trend.series[0].as_json()["points"]] == (
        [0.4] * 5 + [0.6] * 11
    )
    assert find_baseline(history, made_run(20))[0].rows == []
    gate = check(history, made_run(20))
    why = "5 earlier runs count, and 6 are needed; 11 do not, their ranks waited for a core"
    assert f"5 of 5 rows cannot be judged: {why}." in verdict(gate)
    assert "--allow-unmatched" not in " ".join(advice(gate)) and "--history" in advice(gate)[0]
    assert "do not count. Use an idle host" in advice(gate)[1]


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


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize("slow", [3, 9, 15, 30])
def test_a_slowdown_on_a_noisy_host_does_not_become_usual(history: History, slow: int) -> None:
    rng = np.random.default_rng(slow)
    usual = [math.exp(0.13 * each) for each in rng.normal(size=8 + slow)]
    fill(history, lambda day: usual[day] * (1.64 if day >= 8 else 1.0), number=8 + slow)
    gate = check(history, made_run(8 + slow, 1.64))
    shown = find_trend(history).text()
    assert gate.outcome in ("fail", "no verdict")
    assert f"Compared with 8 of {8 + slow} earlier runs." in gate.text()
    told = rf"for all_reduce 1K-5K .* since then they took 1\.\d+ times as long in {slow} runs"
    assert re.search(told, " ".join(gate.text().split()))
    assert ("(run 9) all_reduce 1K-5K became slower" in shown) == (slow > 3)
    assert (f"Slower in the last {slow} runs" in shown) == (slow == 3)


@pytest.mark.usefixtures("launches_alike")
def test_one_outlier_does_not_hide_a_slowdown_for_ever(history: History) -> None:
    """The first two runs that are as slow as an outlier may be so by chance; the third is not."""
    codes, said = [], []
    for day, each in enumerate(noise(number=16)):
        run = made_run(day, each * (2.6 if day == 8 or day >= 12 else 1.0))
        if day >= 12:
            gate = check(history, run)
            codes.append(gate.exit_code)
            said.append(" ".join(gate.text().split()))
        history.add(run)
    assert codes == [7, 7, 1, 1]
    assert "so this run may be slow by chance, too" in said[0]
    assert f"`commbench history forget 9 --db {history.path}` leaves it out." in said[0]


def test_three_outliers_of_17_are_not_usual(history: History) -> None:
    fill(history, lambda day: 2.6 if day in (8, 13, 14) else 1.0, number=17)
    (level, *_) = [each.level for each in find_trend(history).series]
    assert level and level.counted == "14 of 17" and level.deviation < 0.04
    assert not {8, 13, 14} & level.places


def test_a_row_with_few_runs_before_a_slow_one_has_a_picture(
    history: History, tmp_path: Path
) -> None:
    fill(history, lambda day: 20.0 if day == 5 else 1.0, number=6)
    trend = find_trend(history)
    assert "0 more runs" not in trend.text()
    trend.plot(tmp_path / "history.png")
    assert (tmp_path / "history.png").stat().st_size > 1000
