"""`commbench check`: whole outputs, outcomes, exit codes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from commands import Commbench
from synthetic import header, plan, steady, synthetic_run, two_runs

from commbench.results.journal import Journal
from commbench.results.schema import RunEnd
from commbench.spec.plan import Plan

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20)
LOG = Path(__file__).parents[1] / "data" / "nccl-tests" / "nccl_allreduce.log"


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
        ("--against old --max-slowdown 40%", 0),
        ("--against old --max-slowdown 20%", 1),
        ("--against old --max-slowdown -16K:2%", 0),
        ("--against old --max-slowdown 1M:10%", 7),
        ("--against old --max-slowdown 1M:10% --undecided pass", 0),
        ("--against old --max-slowdown 1M:10% --undecided fail", 1),
        ("--against old", 1),
        ("--against old --max-time 1s", 1),
        ("--max-time 1s", 0),
        ("--max-time 256K:120us", 1),
        ("--max-time 256K:130us", 7),
        ("--max-time 256K:130us --undecided pass", 0),
        ("--max-time 256K:130us --undecided fail", 1),
        ("--max-time 256K-1M:130us", 0),
        ("--max-time 256K-1M:129.9us", 7),
        ("--max-time 256K-1M:130us --undecided fail", 1),
        ("--min-busbw 1M:9GB/s", 0),
        ("--min-busbw 1M:11GB/s", 1),
        ("--min-busbw broadcast:1GB/s", 7),
        ("--min-busbw broadcast:1GB/s --allow-unmatched", 7),
        ("--min-busbw broadcast:1GB/s --max-time 1s", 7),
        ("--min-busbw broadcast:1GB/s --max-time 1s --allow-unmatched", 0),
        ("--min-busbw broadcast:1GB/s --max-time 1us", 1),
        ("--min-busbw 1G-:1GB/s", 7),
    ],
)
def test_exit_codes(commbench: Commbench, runs: Path, arguments: str, code: int) -> None:
    ended = commbench("check", "new", *arguments.split(), "--junit", "report.xml")
    assert (ended.code, ended.err) == (code, ""), ended.out
    assert max(map(len, ended.out.splitlines())) <= 100
    assert max((len(line) for line in ended.out.splitlines() if "─" in line), default=0) <= 80
    root = ElementTree.parse(runs / "report.xml").getroot()
    assert (root.get("failures") == "0") == (code == 0)


def test_the_answer_goes_to_a_new_file_in_the_format_of_its_ending(
    commbench: Commbench, runs: Path
) -> None:
    line = ("check", "new", "--max-time", "1us", "-o", "check.json")
    ended = commbench(*line)
    assert (ended.code, ended.out) == (1, "check.json\n")
    found = json.loads((runs / "check.json").read_text())
    assert (found["schema"], found["outcome"], found["exit_code"]) == (2, "fail", 1)
    assert {row["outcome"] for rule in found["rules"] for row in rule["rows"]} == {"fail"}
    assert commbench(*line).code == 6  # never overwritten
    assert commbench("check", "new", "--max-time", "1us", "--format", "csv").code == 2


def test_a_row_with_too_few_iterations_is_decided_by_its_median(
    commbench: Commbench, tmp_path: Path
) -> None:
    five = [[535e-6 + i * 1e-6 for i in range(-2, 3)]]
    synthetic_run(tmp_path / "five", "five", lambda _: five, plan(sizes=(1024,)))
    ended = commbench("check", "five", "--max-time", "1ns")
    assert ended.code == 1
    note = "1 row decided by the median or mean alone"
    assert note in flat(ended.out)
    passed = commbench("check", "five", "--max-time", "1s")
    assert (passed.code, note in flat(passed.out)) == (0, True)


def slower(log: str, factor: float) -> str:
    """A log of nccl-tests whose times are longer by a factor, and its bandwidths lower."""
    lines = []
    for line in log.splitlines():
        cells = line.split()
        if len(cells) == 12 and cells[0].isdigit():
            for first in (4, 8):
                time = round(float(cells[first]) * factor, 2)
                algbw = int(cells[0]) / time / 1e3
                cells[first : first + 3] = f"{time:.2f}", f"{algbw:.2f}", f"{algbw * 14 / 8:.2f}"
            line = "  ".join(cells)
        lines.append(line)
    return "\n".join(lines)


def test_results_of_another_tool_are_judged_by_their_means(
    commbench: Commbench, tmp_path: Path
) -> None:
    text = LOG.read_text()
    (tmp_path / "before.log").write_text(text)
    (tmp_path / "after.log").write_text(slower(text, 3))
    (tmp_path / "again.log").write_text(slower(text, 1.02))
    against = ("--against", "before.log", "--max-slowdown", "10%", "--op", "all_reduce")
    ended = commbench("check", "after.log", *against)
    assert ended.code == 1, ended.err
    assert "FAIL: 64 of 64 rows failed; worst: " in flat(ended.out)
    assert "64 rows decided by the median or mean alone" in flat(ended.out)
    assert commbench("check", "again.log", *against, "--allow-unchecked").code == 0
    assert commbench("check", "before.log", "--op", "all_reduce", "--max-time", "1us").code == 1


REFUSED = {
    "check new --max-slowdown 10%": (
        "error: 'all rows: at most 10 % slower than the baseline' needs a baseline\n"
        "hint: name the run to compare with: --against BASELINE\n"
    ),
    "check new --max-time 1s --undecided maybe": (
        "error: unknown --undecided 'maybe'\nhint: known: pass, fail\n"
    ),
    "check new --against ./new": (
        "error: new and new are the same run: new\nhint: name two different runs\n"
    ),
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_bad_request_is_two_lines_and_exit_code_two(
    commbench: Commbench, runs: Path, line: str
) -> None:
    synthetic_run(runs / "big", "big", lambda _: steady(1e-4), plan(world_size=4))
    ended = commbench(*line.split())
    assert (ended.code, ended.out, ended.err) == (2, "", REFUSED[line])


def test_wrong_results_fail_and_what_was_left_out_is_not_measured(
    commbench: Commbench, tmp_path: Path
) -> None:
    statuses = dict(zip(SIZES, ("wrong", "unsupported", "failed", "ok"), strict=True))
    several_launches(tmp_path / "new", statuses=statuses)
    ended = commbench("check", "new", "--max-time", "1s")
    assert ended.code == 1
    assert "FAIL  all rows: time at most 1 s: 2 fail, 1 not measured, 1 pass\n" in ended.out
    assert "Fail (wrong results), 1 row: " in flat(ended.out)
    several_launches(tmp_path / "old")
    ended = commbench("check", "new", "--against", "old")
    assert ended.code == 1
    assert " 3 fail, 1 pass\n" in ended.out
    assert "unsupported, not so in the baseline" in ended.out


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ((1024, 2048), (2048,), "only in the baseline), 1 row: all_reduce float32 sum in_place 1"),
        ((2048,), (2048, 4096), "not in the baseline), 1 row: all_reduce float32 sum in_place 4"),
    ],
)
def test_a_row_that_one_side_lacks_prevents_a_verdict(
    commbench: Commbench, tmp_path: Path, old: tuple[int], new: tuple[int], reason: str
) -> None:
    several_launches(tmp_path / "old", plan(sizes=old))
    several_launches(tmp_path / "new", plan(sizes=new))
    ended = commbench("check", "new", "--against", "old")
    assert ended.code == 7
    assert f"Not measured ({reason} KiB." in flat(ended.out)
    assert commbench("check", "new", "--against", "old", "--allow-unmatched").code == 0
    for choice in ("pass", "fail"):
        assert commbench("check", "new", "--against", "old", "--undecided", choice).code == 7


def test_a_run_without_rows_fails_as_incomplete(commbench: Commbench, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    journal = Journal(tmp_path / "new")
    journal.header(header(plan(), "new"))
    journal.end(RunEnd("complete"))
    ended = commbench("check", "new", "--max-time", "1s")
    assert ended.code == 1
    assert "FAIL: the run is incomplete, it has 0 of its 4 cases.\n" in ended.out
    assert "No row of new matches this rule." in ended.out
