"""Makes text from files, hosts and other tools safe to print: nothing in it acts as a command.

Terminals execute control sequences, some characters reverse the direction of text, and GitHub's
runner executes lines that begin with `::` or contain `##[`. Everything printed passes through
`safe`; text for one line or one cell of a table passes through `table.clean` before.
"""

from __future__ import annotations

import os
import re
import sys

from commbench.output.table import STYLES, clean

_STYLE = re.compile("(" + "|".join(map(re.escape, STYLES)) + ")")


def safe(text: str) -> str:
    """Text of several lines that is safe to print. Control characters become blanks, but the styles
    of table.STYLES stay where standard output is a terminal."""
    styled = "\x1b" in text and sys.stdout.isatty()
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
