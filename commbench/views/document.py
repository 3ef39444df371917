"""What a document is made of. Texts are plain: each format escapes them; the parts of a sentence
between backticks are code. And tables of so many rows that nobody reads all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from commbench.output.text import align_decimals
from commbench.stats import Estimate, collect
from commbench.views.cells import NUMBER, TEXT, Column

if TYPE_CHECKING:
    from commbench.views.pictures import Picture

GOOD, BAD, UNSURE = "good", "bad", "unsure"
"""Tones of an answer or a row; empty for none of them."""


class Text(NamedTuple):
    """A paragraph."""

    text: str


class Items(NamedTuple):
    """A list of sentences, under a title that may be empty."""

    texts: Sequence[str]
    title: str = ""


class Facts(NamedTuple):
    """Names, each with its value."""

    pairs: Sequence[tuple[str, str]]


class Table(NamedTuple):
    """A table with a row for each thing. Columns whose cells are all empty are left out."""

    title: str
    columns: Sequence[Column]
    rows: Collection[Any]
    label: Callable[[Any], str] | None = None
    """What a row is about, where rows have long names: a column of its own where there is room,
    else a line above the rows that have the same."""
    label_heading: str = "call"
    tone: Callable[[Any], str] | None = None
    """GOOD, BAD, UNSURE or empty for a row."""
    brief: Sequence[Any] | None = None
    """The rows that a terminal shows unless all are asked for; None for all."""
    is_long: bool = False
    """Whether files, too, have only these rows (views.long_tables)."""

    @property
    def listed(self) -> Collection[Any]:
        """The rows that a file has."""
        return self.rows if self.brief is None or not self.is_long else self.brief

    def cells(self) -> list[tuple[Column, list[str]]]:
        """The columns that are not empty, each with its cells."""
        filled = [(column, [*map(column.cell, self.listed)]) for column in self.columns]
        return [
            (column, align_decimals(cells) if column.unit.is_decimal else cells)
            for column, cells in filled
            if any(cells)
        ]

    def tones(self) -> list[str]:
        """The tone of each row."""
        return [self.tone(row) if self.tone else "" for row in self.listed]

    def texts(self) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
        """The headings, the rows, and the headings of columns of text, for a format where there is
        room for all; the label is a column."""
        filled = self.cells()
        if self.label:
            label = Column(self.label_heading, self.label, TEXT)
            filled.insert(0, (label, [*map(label.cell, self.listed)]))
        headings = [column.heading.replace("-\n", "").replace("\n", " ") for column, _ in filled]
        left = [h for h, (column, _) in zip(headings, filled, strict=True) if column.unit.is_left]
        return headings, list(zip(*(cells for _, cells in filled), strict=True)), left


def text_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of texts."""
    columns = [Column(heading, itemgetter(n), TEXT) for n, heading in enumerate(headings)]
    return Table(title, columns, rows)


def facts_table(facts: Sequence[tuple[str, str, str]], value: str = "value") -> Table:
    """A table of facts: what each is, its value, and how it is computed."""
    columns = (
        Column("", itemgetter(0), TEXT),
        Column(value, itemgetter(1), TEXT, is_wrapped=True),
        Column("how it is computed", itemgetter(2), TEXT, 1, is_wrapped=True),
    )
    return Table("", columns, facts)


def sources_section(sources: Sequence[str]) -> Section:
    """Sources, numbered from 1."""
    return Section("Sources", [Facts([(str(n), text) for n, text in enumerate(sources, 1)])])


class Pictures(NamedTuple):
    """Pictures; a format that has none does not draw them."""

    draw: Callable[[], Sequence[Picture]]


class Code(NamedTuple):
    """Lines to type, and what they do."""

    text: str
    lines: str


class Download(NamedTuple):
    """A file within an HTML page."""

    name: str
    text: str
    content: bytes


class Folded(NamedTuple):
    """Blocks that are shown when the reader asks for them, and printed on paper."""

    title: str
    blocks: Sequence[Block]
    hint: str = ""
    """What asks for them in a terminal, which then prints it and the title; empty: it prints
    nothing of them."""


class Section(NamedTuple):
    """Blocks under a heading."""

    title: str
    blocks: Sequence[Block]


Block: TypeAlias = Text | Items | Facts | Table | Pictures | Code | Download | Folded | Section


class Document(NamedTuple):
    """An answer, and what it rests on."""

    title: str
    subtitle: Sequence[str]
    """Lines below the title: what was measured, and where."""
    answer: Sequence[str]
    """The answer, in sentences; the first could be said on the telephone."""
    blocks: Sequence[Block]
    tone: str = ""
    """GOOD or BAD: whether the answer is that something succeeded or failed."""
    footer: str = ""
    verdict: int = 0
    """The index of the sentence of the answer with which its `repr` begins."""


MOST_LISTED = 32
"""Up to so many rows are all listed."""
WORST = 10
"""Rows that are shown of more."""
LEVELS = (
    ("least", 0.0, 7),
    ("5 %", 0.05, 2),
    ("median", 0.5, 8),
    ("95 %", 0.95, 3),
    ("most", 1.0, 9),
)
"""The quantiles of a distribution, and the importance of their columns."""


def summarise(
    table: Table,
    badness: Callable[[Any], float],
    figures: Sequence[Column],
    things: str,
    alike: Sequence[Column] = (),
) -> list[Table]:
    """A table as it is; one of more than MOST_LISTED rows as two: the WORST rows, those with the
    highest `badness`, and how the `figures` of all rows are distributed.

    `things` are what the rows are: `groups`. Rows with the same label are compared with each other
    if they have the same in the columns `alike`.
    """
    rows = [*table.rows]
    if len(rows) <= MOST_LISTED:
        return [table]
    worst = sorted(rows, key=badness, reverse=True)[:WORST]
    if table.label:  # a line for each label, not for each row
        worst.sort(key=rows.index)
    label_of = table.label or (lambda _: "")
    kinds = collect(((label_of(row), *(column.of(row) for column in alike)), row) for row in rows)
    columns = [column._replace(of=partial(_of_first, column.of)) for column in alike]
    columns.append(Column(things, len, NUMBER))
    columns += [
        Column(
            f"{figure.heading}\n{name}", partial(_quantile, figure.of, share), figure.unit, level
        )
        for figure in figures
        for name, share, level in LEVELS
    ]
    title = f"{table.title}: the {WORST} worst of {len(rows)}"
    label = table.label and partial(_of_first, table.label)
    return [
        table._replace(title=title, brief=worst, is_long=True),
        Table(f"{table.title}: how all are distributed", columns, [*kinds.values()], label),
    ]


def _of_first(of: Callable[[Any], Any], rows: Sequence[Any]) -> Any:
    return of(rows[0])


def _quantile(of: Callable[[Any], Any], share: float, rows: Sequence[Any]) -> Any:
    """Of the quantities that rows have, the one with this share of them below it."""
    known = [found for row in rows if (found := of(row)) is not None]
    known.sort(key=lambda found: found.value if isinstance(found, Estimate) else found)
    return known[round(share * (len(known) - 1))] if known else None
