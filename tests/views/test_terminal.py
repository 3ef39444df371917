"""Documents as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pytest

from commbench.output.text import GREEN, RED, width
from commbench.views.cells import NUMBER, TEXT, Column
from commbench.views.document import (
    BAD,
    GOOD,
    Block,
    Code,
    Document,
    Facts,
    Folded,
    Items,
    Section,
    Table,
    Text,
)
from commbench.views.terminal import blocks_text, write

NAME = Column("name", itemgetter(0), TEXT)
VALUE = Column("value", itemgetter(1), NUMBER)


@pytest.fixture(autouse=True)
def _narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def lines_of(*blocks: Block, is_verbose: bool = False) -> list[str]:
    return "\n\n".join(blocks_text(blocks, is_verbose)).splitlines()


def test_every_kind_of_block_has_its_text() -> None:
    blocks = [
        Text("a < b"), Items(["one", "two"], "Both"), Items([], "None"),
        Facts([("ranks", "2"), ("operation", "all_reduce")]),
        Code("Type:", "commbench run \\\n  --op x"), Section("S", [Text("inside")]),
    ]  # fmt: skip
    text = write(Document("T", ["now"], ["It is so."], blocks, footer="end"))
    assert text.split("\n\n") == [
        "T\nnow", "It is so.", "a < b", "Both:\n  one\n  two",
        "ranks      2\noperation  all_reduce",
        "Type:\n  commbench run \\\n    --op x", "S\ninside", "end\n",
    ]  # fmt: skip


def test_the_least_important_columns_are_left_out_of_all_tables_with_the_same_headings() -> None:
    columns = [NAME, *(Column(f"c{k}", itemgetter(1), NUMBER, importance=k) for k in range(4))]
    wide, narrow = (Table(t, columns, [("x", t[0] * k)]) for t, k in (("wide", 30), ("thin", 3)))
    lines = lines_of(wide, narrow)
    assert max(map(width, lines)) <= 80
    assert [line.split() for line in lines if " c3" in line] == [["name", "c2", "c3"]] * 2


def test_labels_are_a_column_where_there_is_room_and_else_lines_above_the_rows() -> None:
    def text(rows: Sequence[Any]) -> list[str]:
        return lines_of(Table("", [VALUE], rows, itemgetter(0), "what"))

    assert text([("a", "1"), ("b", "2")])[2:] == ["  a         1", "  b         2"]
    same = [("a", "1"), ("a", "2"), ("b", "3")]
    assert text(same)[2:] == ["  a", "      1", "      2", "  b", "      3"]
    assert text([("a" * 75, "1")])[2:] == [f"  {'a' * 75}", "      1"]


def test_long_cells_are_wrapped_and_share_the_room() -> None:
    columns = [NAME, *(Column(h, itemgetter(k), TEXT, 8, True) for k, h in ((1, "A"), (2, "B")))]
    rows = [("x", "word " * 30, "v" * 100), ("y", "short", "")]
    lines = lines_of(Table("", columns, rows))
    assert 70 < max(map(width, lines)) <= 80
    assert sum(line.count("word") for line in lines) == 30
    assert sum(line.count("v") for line in lines) == 100
    assert lines[-1].split() == ["y", "short"]


def test_of_many_rows_some_are_shown_and_the_others_counted() -> None:
    rows = [("a", "1"), ("b", "2"), ("c", "3")]
    table = Table("T", [NAME, VALUE, VALUE._replace(heading="more", is_detail=True)], rows)
    assert lines_of(table._replace(brief=rows[:1]))[3:] == [
        "  a         1", "  2 more rows: --verbose prints all.",
    ]  # fmt: skip
    assert lines_of(table._replace(brief=[])) == ["T: --verbose prints 3 rows."]
    verbose = lines_of(table._replace(brief=[]), is_verbose=True)
    assert [line.split() for line in verbose] == [
        ["T"], ["name", "value", "more"], [verbose[2].strip()],
        ["a", "1", "1"], ["b", "2", "2"], ["c", "3", "3"],
    ]  # fmt: skip
    assert lines_of(table._replace(rows=[])) == []


def test_tones_are_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    tones = {"1": GOOD, "2": BAD, "3": ""}
    rows = [("a", "1"), ("b", "2"), ("c", "3")]
    good, bad, plain = lines_of(Table("", [NAME, VALUE], rows, tone=lambda row: tones[row[1]]))[2:]
    assert (good.count(GREEN), bad.count(RED), "\x1b" in plain) == (1, 1, False)
    text = write(Document("T", (), ["No.", "Because."], (), tone=BAD))
    assert f"{RED}No." in text
    assert f"{RED}Because." not in text


def test_what_is_folded_is_there_where_everything_is_asked_for() -> None:
    folded = Folded("more", [Text("inside")])
    assert lines_of(Text("a"), folded) == ["a"]
    assert lines_of(Text("a"), folded, is_verbose=True) == ["a", "", "more", "inside"]


def test_control_characters_are_made_safe() -> None:
    bad = "x\x1b[31m\u202e\n::error::y"
    row = (bad, bad)
    blocks = [
        Text(bad), Items([bad], bad), Facts([row]), Code(bad, bad),
        Table(bad, [NAME, VALUE._replace(is_wrapped=True)], [row], itemgetter(0)),
        Section(bad, []), Folded(bad, []),
    ]  # fmt: skip
    text = write(Document(bad, [bad], [bad], blocks, footer=bad), is_verbose=True)
    assert "\x1b[31m" not in text
    assert "\u202e" not in text
    assert not [line for line in text.splitlines() if line.startswith("::")]
