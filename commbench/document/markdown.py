"""A report as Markdown in GitHub's dialect, for tickets: the same text and tables, no drawings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from commbench.document.blocks import (
    Block,
    Code,
    Document,
    Download,
    Drawing,
    Facts,
    Figures,
    Folded,
    Items,
    Section,
    Table,
    Text,
)
from commbench.output.markdown import details, escape, table
from commbench.output.table import clean

MOST_CHARACTERS = 65_536
"""What GitHub takes in a comment or the text of an issue."""


def markdown_text(document: Document) -> str:
    """The report as Markdown."""
    lines = [f"# {escape(document.title)}", "", escape(document.subtitle), ""]
    for sentence in document.verdict:
        lines += [f"**{escape(sentence)}**", ""]
    for section in document.sections:
        lines += _lines(section, level=2)
    return "\n".join([*lines, escape(document.footer)]) + "\n"


def _lines(block: Block, level: int) -> Iterator[str]:
    """The lines of a block, with an empty one at the end; none for what Markdown leaves out."""
    yield from (*found, "") if (found := list(_block(block, level))) else ()


def _block(block: Block, level: int) -> Iterable[str]:
    match block:
        case Section(title, blocks):
            inner = [line for each in blocks for line in _lines(each, level + 1)]
            return [f"{'#' * level} {escape(title)}", "", *inner[:-1]] if inner else []
        case Folded(title, blocks):
            inner = [line for each in blocks for line in _lines(each, level)]
            return details(title, inner[:-1]) if inner else []
        case Text(text):
            return [escape(text)]
        case Items(texts):
            return [f"* {escape(text)}" for text in texts]
        case Facts(pairs):
            return table(("what", "value"), pairs, left="what,value")
        case Figures(figures):
            return [
                f"* {escape(name)}: **{escape(value)}**{escape(f', {note}' if note else '')}"
                for name, value, note in figures
            ]
        case Table(title, headings, rows, left):
            texts = ",".join([headings[0], *left])
            return [f"**{escape(title)}**", "", *table(headings, rows, texts)]
        case Code(text, lines):
            return [escape(text), "", *_indented(lines)]
        case Drawing() | Download():
            return []


def _indented(lines: str) -> Iterator[str]:
    """Lines as code: indented, so that no mark in them can end it."""
    return (f"    {clean(line)}" for line in lines.split("\n"))
