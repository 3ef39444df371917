"""Text in columns, whole outputs compared."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from operator import itemgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from commbench.output.ci import FAILURE, SKIPPED, UNJUDGED, JUnitCase, JUnitSuite, junit_xml
from commbench.output.console import print_error, print_status
from commbench.output.progress import Work, WorkBar, WorkLines
from commbench.output.text import (
    BOLD,
    PLAIN,
    RED,
    clean,
    fill,
    line_width,
    safe,
    style,
    width,
)
from commbench.views.cells import NUMBER, Column
from commbench.views.document import Table
from commbench.views.terminal import blocks_text


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in a terminal."""
    columns = [Column(heading, itemgetter(n), NUMBER) for n, heading in enumerate(headings)]
    return "\n".join(blocks_text([Table("", columns, rows)])).split("\n")


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_message_is_as_narrow_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns, widest in (("20", 40), ("50", 50)):
        monkeypatch.setenv("COLUMNS", columns)
        print_error("word " * 40, "do " * 40)
        print_status("word " * 40)
        lines = capsys.readouterr().err.splitlines()
        assert widest - 5 <= max(map(len, lines)) <= widest


def test_wide_characters_take_two_cells_and_columns_stay_aligned() -> None:
    assert table(("host", "n"), [("東京", "1"), ("node", "22")]) == [
        "  host   n",
        "  ────────",
        "  東京   1",
        "  node  22",
    ]


@pytest.mark.parametrize(
    ("text", "cells"),
    [("", 0), ("abc", 3), ("…", 1), ("é", 1), ("e\u0301", 1), ("東京", 4), ("ＧＢ", 4), ("한국", 4),
     ("🚀", 2)],
)  # fmt: skip
def test_a_text_is_as_wide_as_a_terminal_shows_it(text: str, cells: int) -> None:
    assert width(text) == cells


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain text, ünïcode 東京", "plain text, ünïcode 東京"),
        ("\x1b[31mred", " [31mred"),
        ("one\ntwo\r\tthree", "one two  three"),
        ("bell\x07 null\x00 delete\x7f", "bell  null  delete "),
        ("right\u202eleft", "right left"),
        ("csi\x9b31m", "csi 31m"),
    ],
)
def test_control_characters_become_blanks(text: str, printed: str) -> None:
    assert clean(text) == printed


cells = st.text(min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=5))
def test_a_table_of_any_text_has_one_line_per_row_and_nothing_to_obey(
    rows: list[tuple[str, str]],
) -> None:
    lines = table(("one", "two"), rows)
    assert len(lines) == 2 + len(rows)
    assert all(line.isprintable() for line in lines)
    rule = lines[1]
    assert all(width(line) <= width(rule) for line in lines)


LAUNCHED = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_NUM_TASKS")


@pytest.mark.parametrize(
    ("stream", "variables", "is_styled"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": "", "FORCE_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {"OMPI_COMM_WORLD_RANK": "0"}, False),
        (Terminal(), {"PMI_RANK": "0"}, False),
        (Terminal(), {"SLURM_STEP_NUM_TASKS": "2"}, False),
        (Terminal(), {"SLURM_STEP_NUM_TASKS": "1"}, True),
        (Terminal(), {"OMPI_COMM_WORLD_RANK": "0", "FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "0"}, False),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_styles_follow_the_terminal_the_launcher_and_the_variables(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, variables: dict[str, str], is_styled: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", *LAUNCHED):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", stream)
    wrong, heading = (f"{RED}wrong{PLAIN}", f"{BOLD}  a{PLAIN}") if is_styled else ("wrong", "  a")
    assert style("wrong", RED) == wrong
    assert ("\x1b" in safe(f"{RED}wrong{PLAIN}")) is is_styled
    assert table(("a",), [("1",)]) == [heading, "  ─", "  1"]


@pytest.mark.parametrize(("terminal", "wide"), [("40", 80), ("80", 80), ("93", 93), ("200", 120)])
def test_lines_are_as_wide_as_the_terminal_within_limits(
    monkeypatch: pytest.MonkeyPatch, terminal: str, wide: int
) -> None:
    monkeypatch.setenv("COLUMNS", terminal)
    lines = fill(" ".join(["x"] * 400), "* ", "    ").splitlines()
    assert line_width() == wide
    assert wide - 1 <= max(map(len, lines)) <= wide
    assert lines[0].startswith("* x")
    assert all(line.startswith("    x") for line in lines[1:])


def test_a_number_stays_on_the_line_of_its_unit_and_of_its_option() -> None:
    assert fill("two\nlines\x1b[1m") == "two lines [1m"
    for length in range(40, 100):
        text = fill("x" * length + " 12 GB/s, 10 % slower; try --budget 2 and more")
        assert all(kept in text for kept in ("12 GB/s", "10 %", "--budget 2"))
        assert "\u00a0" not in text


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lines_of(events: list[tuple[float, float]], has_cases: bool = False) -> list[str]:
    """The lines that are printed where so much is done after so many seconds."""
    clock, written = Clock(), io.StringIO()
    lines = WorkLines(Console(file=written, width=80), Work(0, 1, clock), has_cases, "measuring")
    for second, done in events:
        clock.now = 100 + second
        lines.started(f"case at {second:g} s")
        lines.advanced(done)
        lines.finished("a case", "42.1 us")
    return written.getvalue().splitlines()


def test_the_first_line_comes_after_a_second_and_then_few() -> None:
    events = [(0.1 * i, i / 3000) for i in range(1, 3001)]
    lines = lines_of(events)
    assert lines[0] == "[0 %] about 5 min left; measuring case at 1 s"
    assert len(lines) == 7 + 3  # one every 10 s until 61 s, then one a minute
    assert lines_of([(0.5, 0.5), (0.9, 1.0)]) == []


@pytest.mark.parametrize(
    ("second", "done", "line"),
    [
        (2, 0.25, "[25 %] about 6 s left; measuring case at 2 s"),
        (60, 0.05, "[5 %] about 19 min left; measuring case at 60 s"),
        (2, 0.0, "[0 %] measuring case at 2 s"),
        (60, 0.999, "[99 %] about 1 s left; measuring case at 60 s"),
        (60, 1.0, "[100 %] measuring case at 60 s"),
    ],
)
def test_the_time_left_follows_from_the_work_done(second: float, done: float, line: str) -> None:
    assert lines_of([(second, done)]) == [line]
    assert lines_of([(0.1, 0.5), (0.2, 1.0)], has_cases=True) == [
        "[50 %] a case  42.1 us", "[100 %] a case  42.1 us"
    ]  # fmt: skip


def test_no_time_left_is_told_before_the_least_part_is_done() -> None:
    clock = Clock()
    work = Work(0, 1, clock, done_before=0.25, least=0.25)
    clock.now += 10
    found = []
    for done in (0.3, 0.49, 0.5):
        work.advanced(done)
        found.append(work.left_text)
    assert found == ["", "", "about 20 s left"]


def test_a_long_line_of_progress_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    written = io.StringIO()
    lines = WorkLines(Console(file=written, width=80), Work(0, 1, Clock()), True, "measuring")
    lines.finished("all_reduce float32 " * 6, "42.1 us")
    first, *others = written.getvalue().splitlines()
    assert first.startswith("[0 %] all_reduce") and others
    assert max(map(len, (first, *others))) <= 80


def test_earlier_and_later_launches_count() -> None:
    clock = Clock()
    work = Work(1, 4, clock)
    clock.now += 10
    work.advanced(0.5)
    assert (work.share, work.left_text) == (0.37, "about 50 s left")


def test_the_bar_shows_share_time_left_and_case() -> None:
    clock, written = Clock(), io.StringIO()
    console = Console(file=written, width=100, force_terminal=True)
    bar = WorkBar(console, Work(0, 1, clock))
    clock.now += 3
    bar.started("all_reduce float32 sum in_place 1 KiB")
    bar.advanced(0.75)
    bar.close()
    shown = written.getvalue()
    assert " 75 %" in shown
    assert "about 1 s left" in shown
    assert "all_reduce float32 sum in_place 1 KiB" in shown


def test_a_document_counts_its_cases_and_holds_their_messages() -> None:
    cases = [
        JUnitCase("good", seconds=0.25), JUnitCase("said", message="1.0 < 2.0"),
        JUnitCase("bad", FAILURE, "3.0 > \x1b2.0", "fail", 0.5),
        JUnitCase("unclear", UNJUDGED, "noise", "no verdict"),
        JUnitCase("left out", SKIPPED, "no baseline"),
    ]  # fmt: skip
    suites = [JUnitSuite("first", cases), JUnitSuite("second", [], "all\x1b bad")]
    assert junit_xml(suites, "all").decode() == (
        "<?xml version='1.0' encoding='utf-8'?>\n"
        '<testsuites name="all" tests="5" failures="1" errors="1" skipped="1" time="0.750">\n'
        '  <testsuite name="first" tests="5" failures="1" errors="1" skipped="1" time="0.750">\n'
        '    <testcase name="good" classname="first" time="0.250" />\n'
        '    <testcase name="said" classname="first">\n'
        "      <system-out>1.0 &lt; 2.0</system-out>\n"
        "    </testcase>\n"
        '    <testcase name="bad" classname="first" time="0.500">\n'
        '      <failure message="3.0 &gt;  2.0" type="fail">3.0 &gt;  2.0</failure>\n'
        "    </testcase>\n"
        '    <testcase name="unclear" classname="first">\n'
        '      <error message="noise" type="no verdict">noise</error>\n'
        "    </testcase>\n"
        '    <testcase name="left out" classname="first">\n'
        '      <skipped message="no baseline" />\n'
        "    </testcase>\n"
        "  </testsuite>\n"
        '  <testsuite name="second" tests="0" failures="0" errors="0" skipped="0">\n'
        "    <system-out>all  bad</system-out>\n"
        "  </testsuite>\n"
        "</testsuites>\n"
    )
