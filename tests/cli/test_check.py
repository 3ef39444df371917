"""`commbench check`: whole outputs, outcomes, exit codes, and what is refused."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from commands import Commbench
from synthetic import plan, steady, synthetic_run, two_runs

import commbench as cb
from commbench.plan.plan import Plan

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20)


def flat(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split())


def several_launches(folder: Path, asked: Plan | None = None, **more: Any) -> Path:
    """A run of 12 launches, 100 us in each: the ratio of two is known to 1.8 %."""
    return synthetic_run(folder, folder.name, lambda _: steady(1e-4, 2), asked, 12, **more)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return two_runs(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--against old --max-slowdown 40%", 0), ("--against old --max-slowdown 20%", 1),
        ("--against old --max-slowdown -16K:2%", 0), ("--against old --max-slowdown 1M:10%", 7),
        ("--against old --max-slowdown 1M:10% --undecided pass", 0),
        ("--against old --max-slowdown 1M:10% --undecided fail", 1), ("--against old", 1),
        ("--against old --max-time 1s", 1), ("--max-time 1s", 0), ("--max-time 256K:120us", 1),
        ("--max-time 256K:130us", 7), ("--max-time 256K:130us --undecided pass", 0),
        ("--max-time 256K:130us --undecided fail", 1), ("--max-time 256K-1M:130us", 0),
        ("--max-time 256K-1M:129.9us", 7), ("--max-time 256K-1M:130us --undecided fail", 1),
        ("--min-busbw 1M:9GB/s", 0), ("--min-busbw 1M:11GB/s", 1),
        ("--min-busbw broadcast:1GB/s --allow-unmatched", 7),
        ("--min-busbw broadcast:1GB/s --max-time 1s", 7),
        ("--min-busbw broadcast:1GB/s --max-time 1s --allow-unmatched", 0),
        ("--min-busbw broadcast:1GB/s --max-time 1us", 1),
    ],
)  # fmt: skip
def test_exit_codes(commbench: Commbench, runs: Path, arguments: str, code: int) -> None:
    ended = commbench("check", "new", *arguments.split(), "--junit", "report.xml")
    assert (ended.code, ended.err) == (code, ""), ended.out
    assert max(map(len, ended.out.splitlines())) <= 100
    assert max((len(line) for line in ended.out.splitlines() if "─" in line), default=0) <= 80
    root = ElementTree.parse(runs / "report.xml").getroot()
    failures, errors = int(root.get("failures", "")), int(root.get("errors", ""))
    assert (failures + errors > 0) == (code != 0)
    assert (failures > 0) == (code == 1)
    assert {0: "PASS: ", 1: "FAIL: ", 7: "NO VERDICT: "}[code] in "".join(root.itertext())


@pytest.mark.parametrize("rule", ["broadcast:1GB/s", "1G-:1GB/s"])
def test_a_check_whose_rules_match_no_row_is_refused(
    commbench: Commbench, runs: Path, rule: str
) -> None:
    ended = commbench("check", "new", "--min-busbw", rule, "--junit", "report.xml")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: no row of new matches the rule '")
    assert ended.err.endswith("'\nhint: the run has all_reduce 1K-1M\n"), ended.err
    assert b' errors="1" ' in (runs / "report.xml").read_bytes()
    partly = commbench("check", "new", "--min-busbw", rule, "--max-time", "1s")
    assert (partly.code, partly.err) == (7, "")
    assert "no row matches: the run has all_reduce 1K-1M." in flat(partly.out)
    assert "measuring again does not help" in flat(partly.out)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("check new --min-busbw broadcast:1GB/s", 2),
        ("check new --max-time 1s --undecided maybe", 2),
        ("check new --max-time 1s --no-such-option", 2), ("check --max-time 1s", 2),
        ("check missing --max-time 1s", 6), ("check new --against new", 2),
        ("check new --against other", 2), ("check damaged.csv --max-time 1s", 6),
        ("check new --max-time 1s --output old/run.jsonl", 2),
        ("check new --max-time 1s --output there.txt", 6), ("smoke --backend none", 3),
    ],
)  # fmt: skip
def test_no_older_report_stays_where_a_check_is_refused(
    commbench: Commbench, runs: Path, arguments: str, code: int
) -> None:
    synthetic_run(runs / "other", "other", asked=plan(operations=("broadcast",)))
    (runs / "damaged.csv").write_text("size,time\n1,x\n")
    (runs / "there.txt").write_text("precious")
    report, others = "report.xml", sorted(runs.iterdir())
    for older in (True, False):
        if older:
            assert commbench("check", "new", "--max-time", "1s", "--junit", report).code == 0
        given = ("--junit", report) if older else (f"--junit={report}",)
        ended = commbench(*arguments.split(), *given)
        assert (ended.code, ended.out) == (code, ""), ended.err
        (case,) = ElementTree.parse(runs / report).getroot().findall(".//testcase")
        assert (case[0].tag, f"{case[0].text}\n") == ("error", ended.err)
        assert f"error: {case[0].get('message')}" == ended.err.splitlines()[0]
        assert sorted(runs.iterdir()) == sorted([*others, runs / report])
        (runs / report).unlink()


def test_csv_has_the_columns_of_the_frame(commbench: Commbench, runs: Path) -> None:
    wanted = cb.check(runs / "new", against=runs / "old", max_time="1M:1us").frame()
    given = ("--against", "old", "--max-time", "1M:1us", "--format", "csv")
    ended = commbench("check", "new", *given)
    found = list(csv.DictReader(ended.out.splitlines()))
    assert [*found[0]] == [*wanted.columns] and len(found) == len(wanted) == 5
    assert [float(row["value.low"]) for row in found] == [*wanted["value.low"]]


@pytest.mark.parametrize("line", ["check cut.csv --against old", "compare old cut.csv"])
def test_a_table_without_rows_is_named(commbench: Commbench, runs: Path, line: str) -> None:
    head = (runs / "new" / "results.csv").read_text().splitlines(keepends=True)[0]
    (runs / "cut.csv").write_text(head)
    ended = commbench(*line.split())
    wanted = "error: cut has no rows\nhint: name a run that measured something\n"
    assert (ended.code, ended.err) == (2, wanted)


@pytest.mark.parametrize("line", ["check new --max-time", "run --sizes 1Q", "compare old"])
def test_a_refused_command_leaves_other_files_alone(
    commbench: Commbench, runs: Path, line: str
) -> None:
    """Those of other tools, and of other commands than the one that is refused."""
    report = runs / "report.xml"
    assert commbench("check", "new", "--max-time", "1s", "--junit", "report.xml").code == 0
    passed = report.read_bytes()
    content = passed.replace(b"commbench", b"pytest") if "check" in line else passed
    report.write_bytes(content)
    assert commbench(*line.split(), "--junit", report.name).code in (2, 6)
    assert report.read_bytes() == content


def test_wrong_results_fail_and_what_was_left_out_is_not_measured(
    commbench: Commbench, tmp_path: Path
) -> None:
    statuses = dict(zip(SIZES, ("wrong", "unsupported", "failed", "ok"), strict=True))
    several_launches(tmp_path / "new", statuses=statuses)
    ended = commbench("check", "new", "--max-time", "1s")
    assert ended.code == 1
    counts = "Rows: 2 failed, 1 passed, 1 cannot be judged."
    assert f"FAIL: 2 of 4 rows failed; 1 of them: wrong results. {counts}" in flat(ended.out)
    several_launches(tmp_path / "old")
    ended = commbench("check", "new", "--against", "old")
    assert ended.code == 1
    assert "1 failed (unsupported, not so in the baseline)" in flat(ended.out)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ((1024, 2048), (2048,), "only in the baseline"),
        ((2048,), (2048, 4096), "not in the baseline"),
    ],
)
def test_a_row_that_one_side_lacks_prevents_a_verdict(
    commbench: Commbench, tmp_path: Path, old: tuple[int], new: tuple[int], reason: str
) -> None:
    several_launches(tmp_path / "old", plan(sizes=old))
    several_launches(tmp_path / "new", plan(sizes=new))
    ended = commbench("check", "new", "--against", "old", "--junit", "j.xml")
    assert ended.code == 7
    said = (
        f"NO VERDICT: 1 of 2 rows cannot be judged: {reason}.\nRows: 1 passed, 1 cannot be judged."
    )
    assert said in ended.out
    told = (tmp_path / "j.xml").read_text()
    assert re.search(rf"KiB takes \S+ \(.*\) us \({reason}\); limit: at most", told), told
    assert commbench("check", "new", "--against", "old", "--allow-unmatched").code == 0
    for choice in ("pass", "fail"):
        assert commbench("check", "new", "--against", "old", "--undecided", choice).code == 7
