"""A document as Markdown in GitHub's dialect, for tickets: text and tables, no pictures."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from commbench.output.text import clean
from commbench.views import document as doc

MOST_CHARACTERS = 65_536
"""What GitHub takes in a comment or the text of an issue."""
MOST_ROWS = (1000, 100, 30)
"""Rows of one table: the first number with which the text is short enough; else tables have
LEAST_ROWS, and what is folded is left out."""
LEAST_ROWS = 10

MARKS = {doc.GOOD: "🟢 ", doc.UNSURE: "🟡 ", doc.BAD: "🔴 "}
"""Before the title of a document with that tone."""


_ESCAPES = {character: f"&#{ord(character)};" for character in "&<>|`*[]\\~$"}
# With a zero-width space after them, GitHub mentions nobody and links nothing.
_ENTITIES = str.maketrans(_ESCAPES | {"@": "@&#8203;", "#": "#&#8203;"})
_LINK = re.compile(r"(?i)(://|www\.)")
"""GitHub turns bare addresses into links."""
_LOOSE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""An underscore that is not within a word may begin emphasis."""


def escape(text: str) -> str:
    """Text on one line, escaped so that Markdown shows it literally."""
    unlinked = _LINK.sub(
        lambda found: f"{found[0][:-1]}&#{ord(found[0][-1])};", clean(text).translate(_ENTITIES)
    )
    return _LOOSE_UNDERSCORE.sub("&#95;", unlinked)


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str],
    is_escaped: bool = False,
) -> list[str]:  # fmt: skip
    """Lines of a table; columns whose heading is in `left` are left-aligned.
    `is_escaped`: the cells are Markdown already."""
    return [
        _line([escape(heading.replace("\n", " ")) for heading in headings]),
        _line([":--" if heading in left else "--:" for heading in headings]),
        *(_line(row if is_escaped else [*map(escape, row)]) for row in rows),
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write(document: doc.Document, _: bool = False) -> str:
    """The document as Markdown; of a long one, the tables have fewer rows."""
    texts = (_text(document, most_rows) for most_rows in MOST_ROWS)
    short = (text for text in texts if len(text) <= MOST_CHARACTERS)
    return next(short, "") or _text(document, LEAST_ROWS)


def _text(document: doc.Document, most_rows: int) -> str:
    lines = [f"# {MARKS.get(document.tone, '')}{escape(document.title)}", ""]
    for sentence in document.subtitle:
        lines += [escape(sentence), ""]
    for sentence in document.answer:
        lines += [f"**{_prose(sentence)}**", ""]
    for block in document.blocks:
        lines += _lines(block, 2, most_rows)
    return "\n".join([*lines, escape(document.footer)]).rstrip("\n") + "\n"


def _lines(block: doc.Block, level: int, most_rows: int) -> Iterator[str]:
    """The lines of a block, with an empty one at the end; none for what Markdown leaves out."""
    yield from (*found, "") if (found := list(_block(block, level, most_rows))) else ()


def _block(block: doc.Block, level: int, most_rows: int) -> Iterable[str]:
    match block:
        case doc.Section(title, blocks):
            inner = [line for each in blocks for line in _lines(each, level + 1, most_rows)]
            return [f"{'#' * level} {escape(title)}", "", *inner[:-1]] if inner else []
        case doc.Folded(title, blocks) if most_rows == LEAST_ROWS:
            return [f"* {_prose(title)}"]
        case doc.Folded(title, blocks):
            inner = [line for each in blocks for line in _lines(each, level, most_rows)]
            summary = f"<details><summary>{escape(title)}</summary>"
            return [summary, "", *inner, "</details>"] if inner else []
        case doc.Text(text):
            return [_prose(text)]
        case doc.Items(texts, title):
            items = [f"* {_prose(text)}" for text in texts]
            return [f"**{escape(title)}**", "", *items] if title and items else items
        case doc.Facts(pairs):
            return table(("what", "value"), pairs, left=("what", "value"))
        case doc.Table():
            return _table(block, most_rows)
        case doc.Code(text, lines):
            # Indented, so that no mark in the lines can end the code.
            return [escape(text), "", *(f"    {clean(line)}" for line in lines.split("\n"))]
    return []


def _table(block: doc.Table, most_rows: int) -> list[str]:
    shown = block._replace(rows=[*islice(block.rows, most_rows)])
    if not shown.rows:
        return []
    headings, cells, left = shown.texts()
    rows = [
        [f"**{cell.strip()}**" if cell and tone == doc.BAD else cell for cell in map(escape, row)]
        for row, tone in zip(cells, shown.tones(), strict=True)
    ]
    lines = [f"**{escape(block.title)}**", ""] if block.title else []
    lines += table(headings, rows, left, is_escaped=True)
    if len(block.rows) > len(shown.rows):
        lines += ["", f"{len(block.rows) - len(shown.rows)} more rows are in the HTML report."]
    return lines


def _prose(text: str) -> str:
    """A paragraph, in which the parts between backticks are code."""
    parts = [escape(part) for part in text.split("`")]
    return "".join(f"<code>{p}</code>" if index % 2 else p for index, p in enumerate(parts))
