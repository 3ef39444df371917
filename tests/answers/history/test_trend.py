"""What is said of a history: which rows changed together, when, by how much, and what else changed
then."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from history_writer import BEGIN, RUNS, STEP, fill, made_run, noise

import commbench
from commbench.analysis.environment import Difference
from commbench.answers.compare.causes import known_causes
from commbench.answers.history.document import document, pictures, sentence
from commbench.answers.history.history import Trend, find_trend
from commbench.answers.history.records import LINK
from commbench.answers.history.store import History
from commbench.results.records import LinkProbe

OLD, NEW = "2.27.5", "2.28.9"
TIMES = ("time_s", "time_ci_low_s", "time_ci_high_s")


def only_change(trend: Trend) -> Any:
    (change,) = trend.changes
    return change


@pytest.mark.parametrize(
    ("name", "old", "new", "causes"),
    [
        ("nccl", OLD, NEW, f"nccl went from {OLD} to {NEW} then"),
        # What hardly changes times is named only alone.
        ("python", "3.11", "3.12", "python went from 3.11 to 3.12 then"),
        ("python", "3.11", "3.11", "nothing recorded surely changed then"),
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
    assert sentence(change, trend).startswith("At 2026-09-21 00:00 (run 21) all_reduce 1K-5K")
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


@pytest.mark.parametrize("slow", [8, 2])
@pytest.mark.parametrize("call", ["", "Mine"])
def test_the_code_of_an_own_call_is_a_cause_for_its_rows_only(
    history: History, slow: int, call: str
) -> None:
    for day, each in enumerate(noise(number=16)):
        is_new = day >= 16 - slow
        code = {"code of Mine": "new" if is_new else "old"}
        run = made_run(day, each * (1.5 if is_new else 1.0), environment=code)
        history.add(run._replace(rows=[row._replace(call=call) for row in run.rows]))
    said = " ".join(document(find_trend(history)).answer)
    assert ("became slower" if slow == 8 else "for a step") in said
    assert ("ode of Mine" in said) == (call == "Mine")


def test_rows_of_an_own_call_change_by_themselves(history: History) -> None:
    for day, each in enumerate(noise(number=16)):
        code = {"code of Mine": "new" if day >= 8 else "old"}
        run = made_run(day, each * (1.5 if day >= 8 else 1.0), environment=code, cases=2)
        history.add(run._replace(rows=[run.rows[0], run.rows[1]._replace(call="Mine")]))
    trend = find_trend(history)
    said = "\n".join(sentence(change, trend) for change in trend.changes)
    assert re.search("all_reduce 1K became slower: .*; nothing recorded surely changed then", said)
    assert re.search("all_reduce Mine 2K became .*; code of Mine went from old to new then", said)


def test_an_accepted_run_is_no_step_if_it_may_be_as_fast_as_before(history: History) -> None:
    fill(history, lambda day: 0.928 if day >= 4 else 1.0, number=9)
    commbench.history.accept(5, db=history.path)
    trend = find_trend(history)
    (step,) = trend.series[0].fit.steps
    assert 0.995 < step.ratio.ends[1] < 1
    said = document(trend).answer
    assert said[0] == "No lasting change shows in 5 rows."
    assert said[1].startswith("Run 5 (")


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


@pytest.mark.parametrize(("host", "is_named"), [(1.3, True), (0.7, False), (1.0, False)])
def test_what_the_hosts_did_slower_at_that_time_is_a_cause(
    history: History, host: float, is_named: bool
) -> None:
    for day, each in enumerate(noise()):
        is_later = day >= STEP
        history.add(made_run(day, each * (1.2 if is_later else 1), host=host if is_later else 1))
    named = [
        Difference("a message between processes", "20.0 us", "26.0 us"),
        Difference("a copy in memory", "1.00 ms", "1.30 ms"),
    ]
    assert [*only_change(find_trend(history)).causes] == named * is_named


def test_two_directions_are_two_changes_and_an_old_one_is_not_current(history: History) -> None:
    fill(history, lambda day: (1.0, 1.3, 0.8)[day // 20], number=60)
    newest, oldest = find_trend(history).changes
    assert (newest.run.id, oldest.run.id) == (41, 21)
    assert newest.ratio.value < 1 < oldest.ratio.value
    assert newest.is_current and not oldest.is_current
    found = sentence(newest, find_trend(history))
    assert re.search(r"became faster: 0\.6\d \(\S+ … \S+\) times as long; ", found)


def test_an_outlier_is_no_change(history: History) -> None:
    fill(history, lambda day: 2.0 if day == 20 else 1.0)
    trend = find_trend(history)
    assert not trend.changes
    assert trend.text().splitlines()[4] == "No lasting change shows in 5 rows."
    assert not any(each.slower for each in trend.series)


def test_the_document_tells_of_wrong_clocks_and_of_systems_under_one_name(history: History) -> None:
    fill(history, number=8)
    history.add(made_run(9), now=BEGIN)
    history.add(made_run(3, environment={"processor": "Another 1"}), now=BEGIN)
    text = " ".join(find_trend(history).text().split())
    assert "2 runs (such as 4) started later than they were added" in text
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
    assert "over its usual level" in drawn and drawn.count("run 40") >= 5


def test_a_picture_without_a_step_says_so(history: History) -> None:
    fill(history, lambda _: 1.0, number=9)
    (picture,) = pictures(find_trend(history))
    assert picture.notes == ["No lasting change shows in 5 rows."]


@pytest.mark.parametrize(
    ("apart_s", "labels", "years"),
    [
        (25, ["run 1\n09-01 00:00:00", "run 3\n09-01 00:00:25"], "2026"),
        (3600, ["run 1\n09-01 00:00", "run 3\n09-01 01:00"], "2026"),
        (86400, ["run 1\n09-01", "run 3\n09-02"], "2026"),
        (10 * 86400, ["run 1\n2026-09-01", "run 3\n2026-09-11"], "2026 to 2027"),
    ],
)
def test_a_picture_has_the_runs_of_a_system_in_order_and_equally_spaced(
    history: History, apart_s: int, labels: list[str], years: str
) -> None:
    now = BEGIN + timedelta(days=1000)
    for number in range(14):  # the last one comes late
        for later_s, node in enumerate("ab"):
            at_s = (number + (number == 13)) * apart_s + later_s
            history.add(made_run(at_s / 86400, cases=1), node, now)
    (picture,) = pictures(find_trend(history))
    first, second = picture.panels
    assert [place for place, _ in first.series[0].points] == [*range(14)]
    assert [place for place, _ in second.series[0].points] == [*range(14)]
    assert [first.across.text(place) for place in (0, 1)] == labels
    assert second.across.text(13).startswith("run 28\n")
    assert first.across.name == f"runs in their order, {years} (UTC)"


def test_runs_within_a_minute_have_times_of_their_own(history: History) -> None:
    for number in range(RUNS):
        history.add(made_run(number / 86400 * 25, 1.2 if number >= STEP else 1.0))
    trend = find_trend(history)
    page = trend.text("html")
    assert sentence(only_change(trend), trend).startswith("At 2026-09-01 00:08:20 (run 21) ")
    assert page.count("2026-09-01 00:08:20<") >= 2


@pytest.mark.parametrize("back", [1, 2, 3])
def test_runs_that_are_fast_again_hide_no_slowdown(history: History, back: int) -> None:
    fill(history, lambda day: 6.0 if 6 <= day < 9 else 1.0, number=9 + back)
    trend = find_trend(history)
    text = " ".join(trend.text().split())
    *last, first = trend.changes
    low, high = first.ratio.ends
    assert first.run.id == 7 and 5 < low < 6 < high < 7 and len(first.steps) == 5
    assert [change.run.id for change in last] == [10] * (back == 3)
    said = {1: "The last run is as fast", 2: "The last 2 runs are as fast"}.get(back, "as fast")
    assert f"{said} as before run 7 again, too few for a level: all_reduce 1K-5K." in text or last
    assert not first.is_current and "until" not in text


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (1.02, "The last run is as fast as before run 7 again, too few for a level: all_reduce"),
        (
            1.5,
            r"The last run is faster again, but took up to 1\.4\d* times as long as before run 7,",
        ),
    ],
)
def test_how_fast_the_last_run_is_again(history: History, last: float, said: str) -> None:
    fill(history, lambda day: 4.0 if 6 <= day < 9 else last if day == 9 else 1.0, number=10)
    assert re.search(said, " ".join(find_trend(history).text().split()))


@pytest.mark.parametrize("slow", [1.0, 4.0])
def test_no_run_is_as_fast_again_where_none_was_slower(history: History, slow: float) -> None:
    fill(history, lambda day: slow if 4 <= day < 8 else 1.0, number=9)
    commbench.history.accept(5, db=history.path)
    said = document(find_trend(history)).answer
    assert ("No lasting change shows in 5 rows." in said) == (slow == 1)
    assert ("as fast as before run 5 again" in said[1]) == (slow > 1)
    assert "again" not in said[0]


def test_rows_that_are_slower_without_a_step_are_said(history: History) -> None:
    fill(history, lambda day: 1.3 if day >= 14 else 1.0, number=16)
    said = " ".join(find_trend(history).text().split())
    began = "Slower in the last 2 runs, too few or too noisy for a step: all_reduce 1K-5K took "
    found = re.search(rf"{began}(.*) \((.*) … (.*)\) times as long as before\. If", said)
    assert found, said
    ratio, low, high = map(float, found.groups())
    assert 1.2 < low < 1.3 < high < 1.4 and low < ratio < high
    assert "`commbench history accept 15 --db" in said
    commbench.history.accept(15, db=history.path)
    assert "for a step:" not in find_trend(history).text()
    commbench.history.accept(1, db=history.path)
    assert "for a step:" in find_trend(history).text()
    history.forget(history.runs()[14:])
    assert "for a step:" not in find_trend(history).text()


@pytest.mark.parametrize(("slow", "place"), [(8, "became"), (2, "for a step: all_reduce")])
def test_ranks_that_waited_longer_are_a_cause(history: History, slow: int, place: str) -> None:
    for day, each in enumerate(noise(number=16)):
        late = day >= 16 - slow
        run = made_run(day, 1.5 * each if late else each)
        share = 0.35 if late else 0.03
        history.add(run._replace(rows=[row._replace(queued_share=share) for row in run.rows]))
    trend = find_trend(history)
    (said,) = [line for line in document(trend).answer if place in line]
    assert "; the time that ranks waited for a core went from 3 % to 35 % then." in said
    # Levels are of the runs before those that are slower.
    assert {each.last.number for each in trend.series} == {8 if slow == 8 else 14}
    new = made_run(17, 1.5)
    new = new._replace(rows=[row._replace(queued_share=0.35) for row in new.rows])
    comparison = commbench.check(new, against="history", db=history.path).comparison
    assert comparison and any(
        "its ranks waited for a core 35 % of the time, those of history of node1 3 %: what" in line
        for line in known_causes(comparison)
    )


def test_what_the_newest_slow_run_has_of_its_own_is_named(history: History) -> None:
    for day, each in enumerate(noise(number=16)):
        of_run = {"nccl": "2.28.9" if day == 15 else "2.27.5"}
        history.add(made_run(day, each * (1.5 if day >= 14 else 1.0), environment=of_run))
    (said,) = [line for line in document(find_trend(history)).answer if "nccl" in line]
    assert said == "nccl is 2.27.5 in the runs before, 2.28.9 in run 16."


@pytest.mark.parametrize(
    ("order", "named"),
    [
        ([0, 1], "runs 15 to 16"),
        ([1, 0], "runs 15 to 16"),
        ([0, None, 1], "runs 15 and 17"),
    ],
)
def test_runs_that_were_added_in_another_order_are_named_by_number(
    history: History, order: list[int | None], named: str
) -> None:
    fill(history, lambda _: 1.0, lambda _: {"nccl": OLD}, number=14)
    for day in order:  # None: of another node
        run = made_run(14 + (0.5 if day is None else day), 1.5, environment={"nccl": NEW})
        history.add(run, node="other" if day is None else "")
    (said,) = [line for line in document(find_trend(history)).answer if f"{NEW} in" in line]
    assert f"nccl is {OLD} in the runs before, {NEW} in {named}." == said


def test_a_host_that_was_slower_in_the_last_runs_is_named(history: History) -> None:
    for day, each in enumerate(noise(number=16)):
        slower = 1.5 if day >= 14 else 1.0
        history.add(made_run(day, slower * each, host=slower * each))
    said = " ".join(find_trend(history).text().split())
    went = r"a message between processes went from \S+ us to \S+ us and a "
    assert re.search(rf"long as before; {went}", said)


def test_rows_with_few_runs_are_not_in_the_ranges_of_names(history: History) -> None:
    fill(history, lambda day: (1.0, 1.3)[day >= 8] if day < 14 else 1.8, number=16)
    sizes = [1536, 2560, 3584]
    run = made_run(17, cases=3)
    history.add(run._replace(rows=[
        row._replace(size_bytes=size) for row, size in zip(run.rows, sizes, strict=True)
    ]))  # fmt: skip
    said = " ".join(find_trend(history).text().split())
    assert "all_reduce 1K-5K became slower: 1.27 (" in said
    assert "in the last 2 runs, too few or too noisy for a step: all_reduce 1K-5K took 1." in said


def test_a_table_names_all_rows(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for day, each in enumerate(noise(number=24)):
        run = made_run(day, each, cases=40)
        history.add(run._replace(rows=[
            row._replace(**{name: 2 * getattr(row, name) for name in TIMES})
            if day >= 12 and number % 2 else row for number, row in enumerate(run.rows)
        ]))  # fmt: skip
    brief, full = (find_trend(history).text(verbose=each) for each in (False, True))
    assert "more rows became" in " ".join(brief.split())
    assert "Changes by row: --verbose prints all 20." in brief
    table = full[full.index("Changes by row") : full.index("Times of runs")]
    assert all(f"all_reduce {size}K " in table for size in range(2, 41, 2))
    assert max(map(len, full.splitlines())) <= 80


def test_verbose_prints_the_times_of_all_rows_of_the_picture(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    fill(history, lambda day: 3.0 if day == 5 else 1.0, number=14, cases=9)
    brief, full = (find_trend(history).text(verbose=each) for each in (False, True))
    brief = " ".join(brief.split())
    assert brief.count("--verbose prints") == 1
    times = full[full.index("Times of runs (6 of 9 rows; in brackets") :]
    assert len(re.findall(r"\(\S+ ms\)", times)) == 6  # of run 6
    assert len(re.findall(r" [um]s\b", times)) == 6 * 14
    assert max(map(len, full.splitlines())) <= 80
    assert re.search(r"Run 6 took 3\.\d+ times as long as usual", brief), brief
    assert "`commbench history forget 6 --db " in brief and "` leaves that run out." in brief


def test_a_picture_tells_usual_runs_from_others(history: History) -> None:
    fill(history, lambda day: 3.0 if day == 5 else 1.0, number=14, cases=1)
    (picture,) = pictures(find_trend(history))
    panel = picture.panels[0]
    assert {series.name: series.places for series in panel.series if series.has_band} == {
        "run": [n for n in range(14) if n != 5],
        "not in the usual level": [5],
    }
    (band,) = (mark for mark in panel.marks if not mark.is_upright)
    usual = find_trend(history).series[0].level
    assert usual and (band.low, band.high) == tuple(
        end / usual.time for end in usual.prediction.ends
    )


def test_older_changes_come_after_the_newest(history: History) -> None:
    fill(history, lambda day: 1.44 if day >= 28 else 1.2 if day >= 14 else 1.0)
    first, second, *_ = document(find_trend(history)).answer
    assert first.startswith("At 2026-09-29 00:00 (run 29)")
    assert second.startswith("Before that, at 2026-09-15 00:00 (run 15)")


def test_the_list_of_runs_fits_80_columns(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for day in range(3):
        run = made_run(day, label="nightly-of-the-large-cluster")
        rows = [row._replace(queued_share=0.6 if day == 2 else 0.1) for row in run.rows]
        history.add(run._replace(rows=rows), node="vm.internal.example")
    commbench.history.accept(2, db=history.path)
    lines = commbench.history.list_(db=history.path).text().splitlines()
    assert "yes" in "".join(lines) and max(map(len, lines)) <= 80


def test_rows_that_cannot_have_a_step_do_not_hide_one(history: History) -> None:
    times = [244, 251, 246, 249, 245, 247, 250, 244, 445, 453, 447, 450]
    for day, time in enumerate(times):
        history.add(made_run(day, time / 1000, cases=1))
    (alone,) = find_trend(history).series
    history.add(made_run(30, cases=1001)._replace(rows=made_run(30, cases=1001).rows[1:]))
    beside = find_trend(history)
    assert len(beside.series) == 1001
    assert only_change(beside).steps[0].found.fit == alone.fit


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (2.0, "became slower: 1.95 ("),
        (4.0, "became slower: 1.95 to 3.90 times as long, by row"),
    ],
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
    text = " ".join(find_trend(history).text(verbose=True).split())
    assert said in text
    table = text[text.index("Changes by row") : text.index("Times of runs")]
    of_first = r"all_reduce 1K 1\.00\d ms 1\.96\d ms 1\.95 1\.\d+ … 1\.\d+"
    of_second = rf"all_reduce 2K \S+ ms \S+ ms {0.975 * second:.2f} "
    assert re.search(f"{of_first} {of_second}", table), table


def test_how_times_differ_since_an_accepted_run_is_said_where_no_step_tells_it(
    history: History,
) -> None:
    """Two runs are too few for a step."""
    fill(history, lambda day: 1.5 if day >= 10 else 1.0, number=12)
    commbench.history.accept(11, db=history.path)
    said = document(find_trend(history)).answer
    assert said[0].startswith("Run 11 (")
    assert re.match(r"Since then, all_reduce 1K-5K took 1\.[45].* times as long as before", said[1])
