"""What a report is made of. Everything here is plain text: the HTML and the Markdown escape it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias


class Text(NamedTuple):
    """A paragraph."""

    text: str


class Items(NamedTuple):
    """A list of sentences."""

    texts: Sequence[str]


class Facts(NamedTuple):
    """Names, each with its value."""

    pairs: Sequence[tuple[str, str]]


class Figures(NamedTuple):
    """A few summary figures: for each what it is, its value, and a note that may be empty."""

    figures: Sequence[tuple[str, str, str]]


class Table(NamedTuple):
    """A table. The first column names the row."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[str] = ()
    """The headings of columns of text; other columns hold numbers."""
    marked: Sequence[str] = ()
    """Cells that say that something is bad; they are printed in bold."""


class Drawing(NamedTuple):
    """A picture as an `svg` element, which has its title and its description."""

    title: str
    svg: str


class Code(NamedTuple):
    """Lines to type, and what they do."""

    text: str
    lines: str


class Download(NamedTuple):
    """A file within the report."""

    name: str
    text: str
    content: bytes


class Folded(NamedTuple):
    """Blocks that are shown when the reader asks for them, and printed on paper."""

    title: str
    blocks: Sequence[Block]


class Section(NamedTuple):
    """Blocks under a heading."""

    title: str
    blocks: Sequence[Block]


Block: TypeAlias = (
    Text | Items | Facts | Figures | Table | Drawing | Code | Download | Folded | Section
)


class Document(NamedTuple):
    """A whole report."""

    title: str
    subtitle: str
    verdict: Sequence[str]
    """The answer, in sentences."""
    is_bad: bool
    """Whether the answer is that something failed."""
    sections: Sequence[Section]
    footer: str
