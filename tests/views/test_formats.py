"""Documents as text for a terminal, results as JSON, and where an answer goes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from commbench.errors import CommbenchError, UsageError
from commbench.output.text import GREEN, RED, width
from commbench.stats import Estimate
from commbench.views import document as doc
from commbench.views.cells import NUMBER, TEXT, TIME, Column
from commbench.views.document import Document, Folded, Items, Section, Table, Text
from commbench.views.formats import (
    ENDINGS,
    VIEW_OF_DOCUMENT,
    View,
    as_json,
    choose_format,
    fields_of,
    json_text,
    show,
)
from commbench.views.terminal import blocks_text, write

VIEW = View(lambda name: Document(name, (), (), ()), schema=2, more={"csv": "a,{}\n".format})
NAME, VALUE = Column("name", itemgetter(0), TEXT), Column("value", itemgetter(1), NUMBER)
ROWS = [("a", "1"), ("b", "2"), ("c", "3")]


@pytest.fixture(autouse=True)
def _narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("name", ["table", "jsn", ""])
def test_an_unknown_format_is_refused_with_those_that_are_known(name: str) -> None:
    for ask in (VIEW.require, lambda name: VIEW.write("T", name)):
        with pytest.raises(UsageError, match="unknown format") as refused:
            ask(name)
        assert "known: text, markdown, html, json, csv" in (refused.value.hint or "")
    assert [*VIEW_OF_DOCUMENT.formats] == ["text", "markdown", "html"]


def test_the_ending_of_a_file_says_its_format() -> None:
    assert {choose_format(None, f"x{ending.upper()}") for ending in ENDINGS} <= {*VIEW.formats}
    assert choose_format(None, Path("a.b/x.md")) == "markdown"
    assert choose_format("json", "x.log") == choose_format("json", "x.txt") == "json"
    with pytest.raises(UsageError, match="json contradicts the ending of --output x"):
        choose_format("json", "x.md")
    assert choose_format(None, None) == "text"
    for name, problem in (("x.pdf", "'.pdf' is no ending of a format"), ("x", "x has no ending")):
        with pytest.raises(UsageError, match=problem):
            choose_format(None, name)


def test_a_file_is_written_once_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.md"
    show(VIEW, "T", output=file)
    assert capsys.readouterr().out == f"{file}\n"
    with pytest.raises(CommbenchError, match="exists"):
        show(VIEW, "U", output=file)
    assert file.read_text() == "# T\n"
    show(VIEW, "U")
    assert capsys.readouterr().out == "U\n"


@dataclass(frozen=True)
class Row:
    size_bytes: int
    time_s: Estimate | None
    _private: int = 0


class Own(NamedTuple):
    a: int
    b: int

    def as_json(self) -> dict[str, Any]:
        return fields_of(self, "double", without=["a"])

    @property
    def double(self) -> Row:
        return Row(2 * self.b, None)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (Row(8, Estimate(1e-3, 0.9e-3, 1.1e-3)),
         {"size_bytes": 8, "time_s": {"value": 1e-3, "low": 0.9e-3, "high": 1.1e-3}}),
        ([Row(8, Estimate(2e-3))],
         [{"size_bytes": 8, "time_s": {"value": 2e-3, "low": None, "high": None}}]),
        ([Own(1, 3)], [{"b": 3, "double": {"size_bytes": 6, "time_s": None}}]),
        ((1 / 3, 123456789, 12345678.9, inf, -inf, nan, None, True),
         [0.3333333, 123456789, 12345680.0, None, None, None, None, True]),
        ({8: Path("a") / "b"}, {"8": "a/b"}),
    ],
)  # fmt: skip
def test_fields_become_objects_and_what_is_no_number_null(value: Any, found: Any) -> None:
    assert as_json(value) == found
    text = json_text(3, {"rows": value})
    assert list(json.loads(text).items()) == [("schema", 3), ("rows", found)]
    assert text.endswith("}\n")


def lines_of(*blocks: doc.Block, is_verbose: bool = False) -> list[str]:
    return "\n\n".join(blocks_text(blocks, is_verbose)).splitlines()


def test_the_least_important_columns_are_left_out_of_all_tables_with_the_same_headings() -> None:
    columns = [NAME, *(Column(f"c{k}", itemgetter(1), NUMBER, importance=k) for k in range(4))]
    wide, narrow = (Table(t, columns, [("x", t[0] * k)]) for t, k in (("wide", 30), ("thin", 3)))
    lines = lines_of(wide, narrow)
    assert max(map(width, lines)) <= 80
    assert [line.split() for line in lines if " c3" in line] == [["name", "c2", "c3"]] * 2


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        (ROWS[:2], ["  a         1", "  b         2"]),
        ([("a", "1"), ("a", "2"), ("b", "3")], ["  a", "      1", "      2", "  b", "      3"]),
        ([("a" * 75, "1")], [f"  {'a' * 75}", "      1"]),
    ],
)
def test_labels_are_a_column_where_there_is_room_and_else_lines_above_the_rows(
    rows: Sequence[Any], lines: list[str]
) -> None:
    assert lines_of(Table("", [VALUE], rows, itemgetter(0), "what"))[2:] == lines


def test_long_cells_are_wrapped_and_share_the_room() -> None:
    columns = [NAME, *(Column(h, itemgetter(k), TEXT, 8, True) for k, h in ((1, "A"), (2, "B")))]
    lines = lines_of(Table("", columns, [("x", "word " * 30, "v" * 100), ("y", "short", "")]))
    assert 70 < max(map(width, lines)) <= 80
    assert sum(line.count("word") for line in lines) == 30
    assert sum(line.count("v") for line in lines) == 100
    assert lines[-1].split() == ["y", "short"]


def test_of_many_rows_some_are_shown_and_the_others_counted() -> None:
    table = Table("T", [NAME, VALUE, VALUE._replace(heading="more", is_detail=True)], ROWS)
    assert lines_of(table._replace(rows=[*ROWS, ROWS[0]], brief=ROWS[:1]))[3:] == [
        "  a         1", "  3 more rows: --verbose prints all.",
    ]  # fmt: skip
    # A line about two would save only one.
    assert len(lines_of(table._replace(brief=ROWS[:1]))[3:]) == 3
    assert lines_of(table._replace(brief=[])) == ["T: --verbose prints all 3."]
    verbose = lines_of(table._replace(brief=[]), is_verbose=True)
    assert [line.split() for line in verbose] == [
        ["T"], ["name", "value", "more"], [verbose[2].strip()],
        ["a", "1", "1"], ["b", "2", "2"], ["c", "3", "3"],
    ]  # fmt: skip
    assert lines_of(table._replace(rows=[])) == []


def test_tones_are_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    tones = {"1": doc.GOOD, "2": doc.BAD, "3": ""}
    good, bad, plain = lines_of(Table("", [NAME, VALUE], ROWS, tone=lambda row: tones[row[1]]))[2:]
    assert (good.count(GREEN), bad.count(RED), "\x1b" in plain) == (1, 1, False)
    text = write(Document("T", (), ["No.", "Because."], (), tone=doc.BAD))
    assert f"{RED}No." in text
    assert f"{RED}Because." not in text


def test_control_characters_are_made_safe() -> None:
    bad = "x\x1b[31m\u202e\n::error::y"
    row = (bad, bad)
    blocks = [
        Text(bad), Items([bad], bad), doc.Facts([row]), doc.Code(bad, bad),
        Table(bad, [NAME, VALUE._replace(is_wrapped=True)], [row], itemgetter(0)),
        Section(bad, []), Folded(bad, []),
    ]  # fmt: skip
    text = write(Document(bad, [bad], [bad], blocks, footer=bad), is_verbose=True)
    assert "\x1b[31m" not in text
    assert "\u202e" not in text
    assert not [line for line in text.splitlines() if line.startswith("::")]


def summarised_ranks(number: int) -> list[Table]:
    """Ranks of two kinds, of which rank R took R us; every seventh has no time."""
    kind, took = Column("kind", itemgetter(1), TEXT), Column("took", itemgetter(2), TIME)
    rows = [
        (rank, "odd" if rank % 2 else "even", Estimate(rank * 1e-6) if rank % 7 else None)
        for rank in range(number)
    ]
    table = Table("Ranks", [Column("rank", itemgetter(0), NUMBER), kind, took], rows)
    return doc.summarise(
        table, lambda row: row[2].value if row[2] else 0.0, [took], "ranks", [kind]
    )


def test_of_many_rows_a_file_has_the_worst_and_the_distribution_of_each_kind() -> None:
    worst, spread = summarised_ranks(1000)
    _, rows, _ = worst.texts()
    ranks = [rank for rank in range(999, 980, -1) if rank % 7][: doc.WORST]
    assert [int(row[0]) for row in rows] == ranks
    assert worst.title == "Ranks: the 10 worst of 1000"
    headings, rows, _ = spread.texts()
    assert headings == [
        "kind", "ranks", "took least", "took 5 %", "took median", "took 95 %", "took most",
    ]  # fmt: skip
    for (kind, number, *found), first in zip(rows, (0, 1), strict=True):
        known = [rank for rank in range(first, 1000, 2) if rank % 7]
        wanted = [known[round(at * (len(known) - 1))] for at in (0, 0.05, 0.5, 0.95, 1)]
        assert (kind, number) == ("odd" if first else "even", "500")
        assert [float(text.split()[0]) for text in found] == wanted


def test_a_terminal_lists_few_rows_and_all_where_all_are_asked_for() -> None:
    (whole,) = summarised_ranks(doc.MOST_LISTED)
    assert len(whole.listed) == doc.MOST_LISTED
    tables = summarised_ranks(100)
    (brief, _), (every, _) = ([*blocks_text(tables, is_verbose)] for is_verbose in (False, True))
    assert len(brief.splitlines()) == 3 + doc.WORST + 1
    assert brief.endswith("90 more rows: --verbose prints all.")
    assert len(every.splitlines()) == 3 + 100


def test_of_two_wrapped_columns_the_less_important_one_is_narrower() -> None:
    rate = "2.08 GB/s (1.69 … 2.30 GB/s)"
    how = "as long as it takes to say " * 4
    (text,) = blocks_text([doc.facts_table([("t of twice the ranks", rate, how)])])
    lines = text.splitlines()
    assert len(lines) == 2 + 5 and rate in text and max(map(len, lines)) <= 80


def test_wrapped_cells_are_as_wide_as_the_terminal_and_no_unit_is_divided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = doc.facts_table([("a", "b", "12 GB/s or more of it " * 12)])
    for columns in (80, 110):
        monkeypatch.setenv("COLUMNS", str(columns))
        (text,) = blocks_text([facts])
        assert columns - 8 < max(map(len, text.splitlines())) <= columns
        assert "GB/\n" not in text and " GB/ " not in text
