"""Progress of a run by a clock that the test sets."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from commbench.output.progress import Work, WorkBar, WorkLines


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


def test_the_time_left_follows_from_the_work_done() -> None:
    assert lines_of([(2, 0.25)]) == ["[25 %] about 6 s left; measuring case at 2 s"]
    assert lines_of([(60, 0.05)]) == ["[5 %] about 19 min left; measuring case at 60 s"]
    assert lines_of([(2, 0.0)]) == ["[0 %] measuring case at 2 s"]


def test_each_case_has_a_line_where_that_is_wanted() -> None:
    assert lines_of([(0.1, 0.5), (0.2, 1.0)], has_cases=True) == [
        "[50 %] a case  42.1 us", "[100 %] a case  42.1 us"
    ]  # fmt: skip


def test_earlier_and_later_launches_count() -> None:
    clock = Clock()
    work = Work(1, 4, clock)
    clock.now += 10
    work.advanced(0.5)
    assert (work.share, work.left_text) == (pytest.approx(0.375), "about 50 s left")


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
