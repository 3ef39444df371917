"""Tables, styles, and text made safe to print. Rich would take twice the start-up time of `show`.

Terminals execute control sequences, some characters reverse the direction of text, and GitHub's
runner executes lines that begin with `::` or contain `##[`. Everything printed passes through
`safe`; text for one line or one cell of a table passes through `clean` before.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import IO
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


WIDTH = 80
"""Columns of a terminal that a table takes, at most."""


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
