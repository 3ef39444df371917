"""Tables, styles, and text made safe to print. Rich would take twice the start-up time of `show`.

Terminals execute control sequences, some characters reverse the direction of text, and GitHub's
runner executes lines that begin with `::` or contain `##[`. Everything printed passes through
`safe`; text for one line or one cell of a table passes through `clean` before.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple
from unicodedata import combining, east_asian_width

BOLD, RED, GREEN, PLAIN = STYLES = "\x1b[1m", "\x1b[31;1m", "\x1b[32m", "\x1b[0m"
_STYLE = re.compile("(" + "|".join(map(re.escape, STYLES)) + ")")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: str = "") -> list[str]:
    """Lines of a table: headings (`\\n` makes two lines of one), a rule, the rows.

    Columns are right-aligned, except those whose heading is in `left` (comma-separated).
    """
    depth = max(heading.count("\n") for heading in headings) + 1
    heads = [["", *heading.split("\n")][-depth:] for heading in headings]
    heads = [[""] * (depth - len(head)) + head for head in heads]
    lines = [list(line) for line in zip(*heads, strict=True)]
    body = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*lines, *body, strict=True)]
    to_left = [heading in left.split(",") for heading in headings]

    def line(cells: Sequence[str]) -> str:
        padded = []
        for cell, wide, is_left in zip(cells, widths, to_left, strict=True):
            gap = " " * (wide - width(cell))
            padded.append(cell + gap if is_left else gap + cell)
        return ("  " + "  ".join(padded)).rstrip()

    rule = "  " + "─" * (sum(widths) + 2 * len(widths) - 2)
    return [*(style(line(head), BOLD) for head in lines), rule, *(line(row) for row in body)]


class TableColumn(NamedTuple):
    """A column of a table whose rows are made of things of one kind."""

    heading: str
    cell: Callable[[Any], str]
    """The text for one of those things."""
    importance: int
    """Where a table is too wide, its columns of the lowest importance are left out, or wrapped."""
    is_decimal: bool = False
    """Whether the numbers are aligned at their decimal point."""
    is_left: bool = False
    """Whether it is aligned on the left."""
    is_wrapped: bool = False
    """Whether its cells take several lines, instead of being left out."""


WIDTH = 80
"""Columns of a terminal that a table takes, at most."""


def fill_columns(
    columns: Sequence[TableColumn], things: Sequence[Any]
) -> list[tuple[TableColumn, list[str]]]:
    """The columns that are not empty, each with its cells."""
    filled = [(column, [column.cell(thing) for thing in things]) for column in columns]
    filled = [(column, cells) for column, cells in filled if any(cells)]
    return [(c, align_decimals(cells) if c.is_decimal else cells) for c, cells in filled]


def fitting_table(columns: Sequence[TableColumn], things: Sequence[Any]) -> list[str]:
    """The lines of a table with a row for each thing. Columns whose cells are all empty are left
    out, and so are the least important ones where the table would be wider than WIDTH; a column
    with `is_wrapped` stays, and its cells take several lines."""
    filled = fill_columns(columns, things)
    room = 0
    while (excess := sum(2 + _widest(*found) for found in filled) - WIDTH) > 0 and len(filled) > 1:
        least = min(filled, key=lambda found: found[0].importance)
        if least[0].is_wrapped:
            room = max(_widest(*least) - excess, _NARROWEST)
            break
        filled.remove(least)
    headings = [column.heading for column, _ in filled]
    left = ",".join(column.heading for column, _ in filled if column.is_left)
    rows = list(zip(*(cells for _, cells in filled), strict=True))
    if room:
        at = next(index for index, (column, _) in enumerate(filled) if column.is_wrapped)
        rows = [line for row in rows for line in _wrap_cell(row, at, room)]
    return table(headings, rows, left)


def shared_columns(
    tables: Sequence[tuple[Sequence[TableColumn], Sequence[Any]]],
) -> list[list[TableColumn]]:
    """The columns of tables that follow one another, each with its things: one that has to be left
    out of a table, because it would be too wide, is left out of all, so that they look alike."""
    too_many: set[str] = set()
    for columns, things in tables:
        filled = fill_columns(columns, things)
        while sum(2 + _widest(*found) for found in filled) > WIDTH and len(filled) > 1:
            least = min(filled, key=lambda found: found[0].importance)
            if least[0].is_wrapped:
                break
            too_many.add(least[0].heading)
            filled.remove(least)
    return [[c for c in columns if c.heading not in too_many] for columns, _ in tables]


_NARROWEST = 16
"""Columns of a terminal for text that is wrapped, at least."""


def _wrap_cell(row: tuple[str, ...], at: int, room: int) -> list[tuple[str, ...]]:
    """The row with the cell `at` in lines of at most `room` columns; the other cells are in the
    first line."""
    import textwrap

    first, *rest = textwrap.wrap(
        clean(row[at]), room, subsequent_indent="  ", break_on_hyphens=False
    ) or [""]
    blank = ("",) * len(row)
    more = [(*blank[:at], text, *blank[at + 1 :]) for text in rest]
    return [(*row[:at], first, *row[at + 1 :]), *more]


def _widest(column: TableColumn, cells: Sequence[str]) -> int:
    return max(map(width, (*column.heading.split("\n"), *map(clean, cells))))


def align_decimals(cells: Sequence[str]) -> list[str]:
    """The numbers with blanks at their ends, so that right-aligned decimal points are in line."""
    places = [len(cell.partition(".")[2]) + ("." in cell) for cell in cells]
    most = max(places)
    return [cell + " " * (most - n) if cell else "" for cell, n in zip(cells, places, strict=True)]


def clean(text: str) -> str:
    """Text from a file on one line, safe to print: each control character becomes a blank."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def clip(text: str, most: int) -> str:
    """Text from a file, safe to print and of at most so many characters."""
    safe = clean(text)
    return safe if len(safe) <= most else safe[: most - 1] + "…"


def width(text: str) -> int:
    """Terminal columns that a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def is_terminal(stream: IO[str]) -> bool:
    """Whether a person reads the stream on a terminal. It is no terminal for ranks that mpirun or
    srun started: mpirun gives them one, but writes what they print to its own output."""
    return stream.isatty() and not _is_launched(os.environ)


def _is_launched(environment: Mapping[str, str]) -> bool:
    by_mpirun = "OMPI_COMM_WORLD_RANK" in environment or "PMI_RANK" in environment
    # `srun --pty bash` starts one task, for a person.
    return by_mpirun or environment.get("SLURM_STEP_NUM_TASKS", "1") != "1"


def uses_styles() -> bool:
    """Whether standard output gets colours and bold text. The variables NO_COLOR and FORCE_COLOR
    decide, if they are not empty (https://no-color.org, https://force-color.org); else a terminal
    gets them, unless it is a dumb one."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return os.environ["FORCE_COLOR"] != "0"
    return is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb"


def style(text: str, code: str) -> str:
    """The text in a terminal style; unchanged where standard output gets no styles."""
    return f"{code}{text}{PLAIN}" if uses_styles() else text


def safe(text: str) -> str:
    """Text of several lines that is safe to print. Control characters become blanks, but the styles
    of STYLES stay where standard output gets styles."""
    styled = "\x1b" in text and uses_styles()
    parts = _STYLE.split(text) if styled else [text]
    shown = "".join(part if index % 2 else _plain(part) for index, part in enumerate(parts))
    if runs_in_actions():
        return shown.replace("::", ": :").replace("##[", "## [")
    return shown


def runs_in_actions() -> bool:
    """Whether this process runs in a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _plain(text: str) -> str:
    lines = text.split("\n")
    return "\n".join("\t".join(map(clean, line.split("\t"))) for line in lines)
