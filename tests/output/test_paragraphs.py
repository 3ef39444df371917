"""Paragraphs, whole outputs compared."""

from __future__ import annotations

import pytest

from commbench.output.paragraphs import (
    Paragraph,
    fill,
    line_width,
    list_some,
    paragraphs,
    wrapped,
)


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


def test_text_to_print_has_no_control_characters() -> None:
    assert fill("two\nlines\x1b[1m") == "two lines [1m"


def test_a_number_stays_on_the_line_of_its_unit_and_of_its_option() -> None:
    for length in range(40, 100):
        for write in (wrapped, fill):
            text = write("x" * length + " 12 GB/s, 10 % slower; try --budget 2 and more")
            assert all(kept in text for kept in ("12 GB/s", "10 %", "--budget 2"))
            assert "\u00a0" not in text


def test_labels_stand_in_a_column_of_their_own() -> None:
    assert paragraphs([Paragraph("time", ["first", "second"]), Paragraph("size", ["third"])]) == (
        "time      first\n          second\nsize      third"
    )


def test_long_lists_say_how_many_more_there_are() -> None:
    assert list_some([], 2) == ""
    assert list_some(["a", "b"], 2) == "a, b"
    assert list_some(["a", "b", "c", "d"], 2) == "a, b and 2 more"
