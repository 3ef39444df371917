"""Text that is safe to print and fits the terminal: styles, paragraphs, lists in a
sentence. Rich would take twice the start-up time of `show`.

Terminals execute control sequences, some characters reverse the direction of text, and GitHub's
runner executes lines that begin with `::` or contain `##[`. Everything printed passes through
`safe`; text for one line or one cell of a table passes through `clean` before.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, TypeVar
from unicodedata import combining, east_asian_width

T = TypeVar("T")

STYLES = "\x1b[1m", "\x1b[31;1m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
BOLD, RED, GREEN, YELLOW, PLAIN = STYLES
_STYLE = re.compile("(" + "|".join(map(re.escape, STYLES)) + ")")


def as_sentence(text: str) -> str:
    """The text with a capital letter, unless it begins with a name, such as `nccl`."""
    is_word = text.partition(" ")[0] in ("the", "code", "run", "runs", "a", "an")
    return text[:1].upper() + text[1:] if is_word else text


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
    by_mpirun = "OMPI_COMM_WORLD_RANK" in os.environ or "PMI_RANK" in os.environ
    # `srun --pty bash` starts one task, for a person.
    by_srun = os.environ.get("SLURM_STEP_NUM_TASKS", "1") != "1"
    return stream.isatty() and not (by_mpirun or by_srun)


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


WIDEST = 120
"""Columns of a paragraph, at most. Longer lines are hard to read."""
_UNIT = re.compile(
    r"(?:(?<=\d)|(?<=[±=…])|(?<=\b[Sntk])(?= =)) "
    r"(?=\d|= |… |(?:GB/s|bytes|[KMG]iB|[mu]s|[sB%])(?!\w))"
)
"""A blank at which no line ends: before a unit, in an interval, and in `S = 8`."""
_VALUE = re.compile(r"(--[a-z][a-z-]*) (?=\d)")
"""A blank between an option and its number, such as `--budget 2`: no line ends there either."""


NARROWEST = 40
"""Columns of a message, at least."""


def line_width(least: int = WIDTH) -> int:
    """Columns of a line of text: those of the terminal (or of the variable COLUMNS), from `least`
    to WIDEST; WIDTH where there is no terminal."""
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, least), WIDEST)


def fill(text: str, first: str = "", rest: str = "", least: int = WIDTH, **options: Any) -> str:
    """The text in lines of at most line_width(least) columns, safe to print; the first line begins
    with `first`, the others with `rest`. A number stays on the line of its unit and of its option,
    and a name is not broken at its hyphens. Options are those of textwrap.fill."""
    import textwrap

    if "://" in text:  # an address stays whole
        options["break_long_words"] = False
    # A no-break space is not printable, so it must come after clean; textwrap keeps it.
    kept = _VALUE.sub("\\1\u00a0", _UNIT.sub("\u00a0", clean(text)))
    filled = textwrap.fill(
        kept, line_width(least), initial_indent=first, subsequent_indent=rest,
        break_on_hyphens=False, **options,
    )  # fmt: skip
    return filled.replace("\u00a0", " ")


def list_some(names: Sequence[str], most: int) -> str:
    """At most so many names, and how many more there are: `a, b and 3 more`. One more is named,
    but beside a single one."""
    most += len(names) == most + 1 > 2
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def join_words(words: Sequence[str], last: str = "and") -> str:
    """The words in a sentence: `a, b and c`."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def span(write: Callable[[Any], str], values: Collection[Any]) -> str:
    """The least and the greatest value: `2 to 5`; one text where both are written alike."""
    return " to ".join(dict.fromkeys(map(write, (min(values), max(values)))))


def read_sections(path: Path) -> dict[str, str]:
    """The sections of a file of texts, each below a line `[name]`, by their names."""
    _, *parts = re.split(r"^\[(.+)\]\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def exact(number: float) -> str:
    """A number rounded to an integer, with commas between thousands: `1,073,741,824`."""
    return f"{number:,.0f}"


def about(duration: float) -> str:
    """A duration in whole seconds, minutes or hours: `about 12 s`, `about 3 min`."""
    for least, unit, factor in ((5400.0, "h", 3600.0), (90.0, "min", 60.0)):
        if duration >= least:
            return f"about {duration / factor:.0f} {unit}"
    return f"about {max(1, round(duration))} s"


def seconds(duration: float, digits: int = 5) -> str:
    """A duration with five digits, or as many: `4.2 ms`, `208.77 us`."""
    for limit, unit, factor in ((1e-3, "us", 1e6), (1.0, "ms", 1e3)):
        if duration < limit:
            return f"{duration * factor:.{digits}g} {unit}"
    return f"{duration:.{digits}g} s"


def short_repr(*names: str) -> Callable[[type[T]], type[T]]:
    """Gives a class a `__repr__` with these attributes: `<RowCheck: all_reduce 1 MiB, fail>`."""

    def show(self: Any) -> str:
        shown = ", ".join(str(attrgetter(name)(self)) for name in names)
        return f"<{type(self).__name__}: {shown}>"

    def decorate(of: type[T]) -> type[T]:
        of.__repr__ = show  # type: ignore[method-assign]
        return of

    return decorate
