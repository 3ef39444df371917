"""Paragraphs, whole outputs compared."""

from __future__ import annotations

from commbench.output.paragraphs import WIDTH, Paragraph, fill, list_some, paragraphs, wrapped


def test_lines_are_filled_up_to_the_width_after_their_indents() -> None:
    words = " ".join(["word"] * 40)
    first, *others = fill(words, "* ", "    ").splitlines()
    assert first == "* " + " ".join(["word"] * 19)
    assert others == ["    " + " ".join(["word"] * 19), "    word word"]
    assert max(map(len, (first, *others))) <= WIDTH
    assert fill("two\nlines\x1b[1m") == "two lines [1m"


def test_a_number_stays_on_the_line_of_its_unit() -> None:
    for length in range(80, 100):
        text = wrapped("x" * length + " 12 GB/s and more")
        assert "12 GB/s" in text
        assert "\u00a0" not in text


def test_labels_stand_in_a_column_of_their_own() -> None:
    assert paragraphs([Paragraph("time", ["first", "second"]), Paragraph("size", ["third"])]) == (
        "time      first\n          second\nsize      third"
    )


def test_long_lists_say_how_many_more_there_are() -> None:
    assert list_some([], 2) == ""
    assert list_some(["a", "b"], 2) == "a, b"
    assert list_some(["a", "b", "c", "d"], 2) == "a, b and 2 more"
