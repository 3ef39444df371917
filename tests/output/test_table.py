"""Text in columns, whole outputs compared."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.output.table import (
    BOLD,
    PLAIN,
    RED,
    TableColumn,
    clean,
    fitting_table,
    safe,
    shared_columns,
    style,
    table,
    width,
)


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_columns_are_as_wide_as_their_widest_cell_and_aligned_right() -> None:
    assert table(
        ("size", "time", "algbw\nGB/s"),
        [("1 KiB", "42.1 us", "0.02"), ("64 MiB", "1.00 ms", "67.1")],
    ) == [
        "                   algbw",
        "    size     time   GB/s",
        "  ──────────────────────",
        "   1 KiB  42.1 us   0.02",
        "  64 MiB  1.00 ms   67.1",
    ]


def test_columns_named_left_are_aligned_left_and_lines_end_without_blanks() -> None:
    assert table(
        ("case", "n", ""), [("all_reduce", "10", "why"), ("barrier", "8", "")], left="case,"
    ) == [
        "  case         n",
        "  ───────────────────",
        "  all_reduce  10  why",
        "  barrier      8",
    ]


def test_a_column_of_names_is_wrapped_where_the_table_is_too_wide_and_others_are_left_out() -> None:
    columns = (
        TableColumn("case", lambda row: row[0], 2, is_left=True, is_wrapped=True),
        TableColumn("count", lambda row: row[1], 1),
        TableColumn("size", lambda row: row[2], 3),
    )
    lines = fitting_table(columns, [("all_reduce " + "in_place " * 8, "7", "1 KiB")])
    assert lines == [
        "  case                                                               size",
        "  ───────────────────────────────────────────────────────────────────────",
        "  all_reduce in_place in_place in_place in_place in_place in_place  1 KiB",
        "    in_place in_place",
    ]


def test_a_table_without_rows_has_its_headings() -> None:
    assert table(("a", "bb"), []) == ["  a  bb", "  ─────"]


def test_wide_characters_take_two_cells_and_columns_stay_aligned() -> None:
    assert table(("host", "n"), [("東京", "1"), ("node", "22")]) == [
        "  host   n",
        "  ────────",
        "  東京   1",
        "  node  22",
    ]


@pytest.mark.parametrize(
    ("text", "cells"),
    [("", 0), ("abc", 3), ("…", 1), ("é", 1), ("東京", 4), ("ＧＢ", 4), ("한국", 4), ("🚀", 2)],
)
def test_a_text_is_as_wide_as_a_terminal_shows_it(text: str, cells: int) -> None:
    assert width(text) == cells


def test_a_combining_accent_takes_no_cell_of_its_own() -> None:
    assert width("e\u0301") == 1


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


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=5))
def test_a_table_of_any_text_has_one_line_per_row_and_nothing_to_obey(
    rows: list[tuple[str, str]],
) -> None:
    lines = table(("one", "two"), rows)
    assert len(lines) == 2 + len(rows)
    assert all(line.isprintable() for line in lines)
    rule = lines[1]
    assert all(width(line) <= width(rule) for line in lines)


def test_styles_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert style("wrong", RED) == "wrong"
    assert table(("a",), [("1",)])[0] == "  a"
    monkeypatch.setattr(sys, "stdout", Terminal())
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert style("wrong", RED) == f"{RED}wrong{PLAIN}"
    assert table(("a",), [("1",)]) == [f"{BOLD}  a{PLAIN}", "  ─", "  1"]


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
    assert (style("wrong", RED) != "wrong") is is_styled
    assert ("\x1b" in safe(f"{RED}wrong{PLAIN}")) is is_styled


def test_a_column_that_is_too_wide_for_one_table_is_left_out_of_all() -> None:
    columns = [
        TableColumn("name", lambda text: text, 9),
        TableColumn("more", lambda text: text, 1),
        TableColumn("empty", lambda text: text[:0], 5),
    ]
    wide, short = ["x" * 39], ["y"]
    for tables, left in (([short, wide], ["name", "empty"]), ([short], ["name", "more", "empty"])):
        for found in shared_columns([(columns, things) for things in tables]):
            assert [column.heading for column in found] == left
