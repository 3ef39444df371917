"""A document as text: tables at most 80 columns wide, sentences and cells that are wrapped as wide
as the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, zip_longest
from operator import itemgetter

from commbench.output.text import (
    BOLD,
    GREEN,
    RED,
    WIDTH,
    YELLOW,
    clean,
    fill,
    line_width,
    style,
    width,
)
from commbench.units import format_count
from commbench.views import document as doc
from commbench.views.cells import TEXT, Column

STYLES = {doc.GOOD: GREEN, doc.BAD: RED, doc.UNSURE: YELLOW}
NARROWEST = 16
"""Columns of a terminal for text that is wrapped, at least."""
Filled = tuple[Column, list[str]]
"""A column that is not empty, with its cells."""


def write(document: doc.Document, is_verbose: bool = False) -> str:
    """The document as text. `is_verbose`: with what is folded, and all rows of tables."""
    head = [style(fill(document.title), BOLD), *map(fill, document.subtitle)]
    tone = STYLES.get(document.tone, "")
    answer = [fill(sentence, rest="  ") for sentence in document.answer]
    if tone and answer:
        answer[0] = style(answer[0], tone)
    parts = ["\n".join(filter(None, head)), "\n".join(answer)]
    parts += blocks_text(document.blocks, is_verbose)
    parts.append(document.footer and fill(document.footer))
    return "\n\n".join(filter(None, parts)) + "\n"


def blocks_text(blocks: Sequence[doc.Block], is_verbose: bool = False) -> Iterator[str]:
    """The text of each block that has some. Tables with the same headings leave out the same
    columns, so that they look alike."""
    tables = [block for block in blocks if isinstance(block, doc.Table)]
    filled = {id(table): _shown(table, is_verbose).cells() for table in tables}
    left_out = _left_out((table, filled[id(table)]) for table in tables)
    for block in blocks:
        match block:
            case doc.Text(text):
                yield fill(text, rest="  ")
            case doc.Items(texts, title):
                margin = "  " if title else ""
                lines = [fill(text, margin, f"{margin}  ") for text in texts]
                yield "\n".join([*([f"{clean(title)}:"] if title and lines else []), *lines])
            case doc.Facts(pairs):
                yield _facts(pairs)
            case doc.Table():
                kept = _fitting(filled[id(block)], left_out[_headings(block)])
                yield "\n".join(_table(block, _shown(block, is_verbose), kept))
            case doc.Code(text, code):
                yield "\n".join([fill(text), *(f"  {clean(line)}" for line in code.split("\n"))])
            case doc.Folded(title, _, hint) if not is_verbose:
                yield fill(f"{title}; {hint}.", rest="  ") if hint else ""
            case doc.Folded(_, inner, hint) if hint:  # the title is for who has not asked
                yield from blocks_text(inner, is_verbose)
            case doc.Section(title, inner) | doc.Folded(title, inner):
                if inner:
                    parts = filter(None, blocks_text(inner, is_verbose))
                    yield "\n".join([style(fill(title), BOLD), "\n\n".join(parts)])


def _facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Names, each with its value, which may take several lines."""
    margin = max((width(clean(name)) for name, _ in pairs), default=0) + 2
    return "\n".join(
        fill(value, clean(name).ljust(margin), " " * margin, break_long_words=False)
        for name, value in pairs
    )


def _headings(table: doc.Table) -> tuple[str, ...]:
    return tuple(column.heading for column in table.columns)


FEW_HIDDEN = 2
"""So few rows are shown, too: a line that names them would be as long."""


def _shown(table: doc.Table, is_verbose: bool) -> doc.Table:
    """The table with the rows and columns that are shown."""
    if is_verbose:
        return table._replace(is_long=False)
    columns = [column for column in table.columns if not column.is_detail]
    rows = table.rows if table.brief is None else table.brief
    is_nearly_all = rows and len(table.rows) - len(rows) <= FEW_HIDDEN
    return table._replace(rows=table.rows if is_nearly_all else rows, columns=columns)


def _left_out(
    tables: Iterable[tuple[doc.Table, Sequence[Filled]]],
) -> dict[tuple[str, ...], set[str]]:
    """By the headings of tables, the columns for which one of them is too wide."""
    found: dict[tuple[str, ...], set[str]] = {}
    for table, filled in tables:
        kept = _fitting(filled, set())
        names = {column.heading for column, _ in filled} - {column.heading for column, _ in kept}
        found.setdefault(_headings(table), set()).update(names)
    return found


def _fitting(filled: Sequence[Filled], left_out: set[str]) -> list[Filled]:
    """The columns that fit into WIDTH: the least important ones are left out, all with the same
    heading, until one that can be wrapped is the least important. After a wide one was left out,
    others may fit: they are added again, the most important ones first."""
    every = [found for found in filled if found[0].heading not in left_out]
    kept, out = every, list[Column]()
    while _width(kept) > WIDTH and len(kept) > 1:
        least, _ = min(kept, key=lambda found: found[0].importance)
        if least.is_wrapped:
            return kept
        kept, out = [found for found in kept if found[0].heading != least.heading], [*out, least]
    for importance in sorted({column.importance for column in out}, reverse=True):
        names = {column.heading for column in out if column.importance == importance}
        names |= {column.heading for column, _ in kept}
        more = [found for found in every if found[0].heading in names]
        kept = more if _width(more) <= WIDTH else kept
    return kept


def _width(filled: Sequence[Filled]) -> int:
    return sum(2 + _widest(*found) for found in filled)


def _widest(column: Column, cells: Sequence[str]) -> int:
    return max(map(width, (*column.heading.split("\n"), *map(clean, cells))))


def _table(table: doc.Table, shown: doc.Table, filled: Sequence[Filled]) -> list[str]:
    """The lines of a table: its title, headings, a rule, and the rows that are shown, in these
    columns; none without rows. One without a title goes on with that before it, so nothing says
    that it is not shown."""
    if not table.rows or not (shown.rows or table.title):
        return []
    title = [style(fill(table.title), BOLD)] if table.title else []
    rest = len(table.rows) - len(shown.rows)
    more = [f"  {format_count(rest, 'more row')}: --verbose prints all."] if rest else []
    if not shown.rows:
        of_title = f"all {rest}" if rest > 1 else "it"
        return [fill(f"{table.title}: --verbose prints {of_title}.", rest="  ")]
    labels = [clean(table.label(row)) for row in shown.rows] if table.label else []
    named = [(Column(table.label_heading, str, TEXT), labels), *filled]
    if labels and len({*labels}) == len(labels) and _width(named) <= WIDTH:
        filled, labels = named, []
    head, *body = _lines(filled)
    body = [
        [style(line, STYLES[tone]) if tone else line for line in lines]
        for lines, tone in zip(body, shown.tones(), strict=True)
    ]
    lines = [*title, *head]
    for label, rows in groupby(zip(labels or [""] * len(body), body, strict=True), itemgetter(0)):
        lines += [fill(label, "  ", "    ")] if label else []
        lines += [line for _, found in rows for line in found]
    return [*lines, *more]


def _lines(filled: Sequence[Filled]) -> list[list[str]]:
    """The lines of the headings, with a rule below, and those of each row. Columns are aligned on
    the right, unless their unit says otherwise."""
    headings = [column.heading.split("\n") for column, _ in filled]
    depth = max(map(len, headings))
    heads = [*zip(*([""] * (depth - len(head)) + head for head in headings), strict=True)]
    wrapped = [
        [_wrap(cell, room) if column.is_wrapped else [clean(cell)] for cell in cells]
        for (column, cells), room in zip(filled, _rooms(filled), strict=True)
    ]
    rows = [[*zip_longest(*row, fillvalue="")] for row in zip(*wrapped, strict=True)]
    texts = [*heads, *chain.from_iterable(rows)]
    widths = [max(map(width, cells)) for cells in zip(*texts, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = []
        for (column, _), cell, wide in zip(filled, cells, widths, strict=True):
            gap = " " * (wide - width(cell))
            padded.append(cell + gap if column.unit.is_left else gap + cell)
        return ("  " + "  ".join(padded)).rstrip()

    rule = "  " + "─" * (sum(widths) + 2 * len(widths) - 2)
    return [
        [*(style(line(head), BOLD) for head in heads), rule],
        *([*map(line, row)] for row in rows),
    ]


def _rooms(filled: Sequence[Filled]) -> list[int]:
    """The width of each column: where they are too wide together for the terminal, the widest of
    those that can be wrapped are narrower, and more so the less important ones."""
    rooms = [_widest(*found) for found in filled]
    for _ in range(_width(filled) - line_width()):
        wide = [n for n, (c, _) in enumerate(filled) if c.is_wrapped and rooms[n] > NARROWEST]
        if wide:
            rooms[max(wide, key=lambda n: rooms[n] - filled[n][0].importance)] -= 1
    return rooms


_PARTS = re.compile(r"([ ]+|(?<=\w[+/])(?<!GB/)(?=\w))")
_IN_NAMES = re.compile(_PARTS.pattern[:-1] + r"|(?<=\w_)(?=\w)|(?<=\w)(?==))")
"""Where a line may end: after "+" in a long name and after "/" in a path, but not in a unit; in a
word that is longer than a line also after "_" or a hyphen, and before "="."""


def _wrap(cell: str, room: int) -> list[str]:
    import textwrap

    wrapper = textwrap.TextWrapper(room, subsequent_indent="  ")
    is_long = max(map(width, _PARTS.split(clean(cell)))) > room - 2
    wrapper.wordsep_re = _IN_NAMES if is_long else _PARTS
    return wrapper.wrap(clean(cell)) or [""]
