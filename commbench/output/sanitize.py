"""What may go to a terminal: text from files, hosts and other tools is shown, and never obeyed.

A terminal obeys control sequences, a text direction can be turned round, and GitHub's runner takes
a line that begins with `::`, or holds `##[`, for a command. Everything that is printed passes
through `safe`. What stands on one line of its own, or in a cell, is `layout.clean` before.
"""

from __future__ import annotations

import os
import re
import sys

from commbench.output.table import STYLES, clean

_STYLE = re.compile("(" + "|".join(map(re.escape, STYLES)) + ")")


def safe(text: str) -> str:
    """Text of any number of lines as it may be printed. Our own styles stay, where standard output
    is a terminal; other control characters become blanks."""
    styled = "\x1b" in text and sys.stdout.isatty()
    parts = _STYLE.split(text) if styled else [text]
    shown = "".join(part if index % 2 else _plain(part) for index, part in enumerate(parts))
    return defused(shown) if runs_in_actions() else shown


def runs_in_actions() -> bool:
    """Whether this is a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def defused(text: str) -> str:
    """Text in which nothing is a command to GitHub's runner."""
    return text.replace("::", ": :").replace("##[", "## [")


def _plain(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else _kept(line) for line in lines)


def _kept(line: str) -> str:
    """A line without what a terminal obeys, but for tabs."""
    return "\t".join(map(clean, line.split("\t")))
