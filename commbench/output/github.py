"""What GitHub Actions shows of a step: annotations and the step's summary.

A line that begins with `::`, also after blanks, is a command to GitHub's runner; so is `##[` within
a line. Text from files is therefore escaped in the commands; table.safe treats all other output.
Source: actions/toolkit, packages/core/src/command.ts; actions/runner, ActionCommand.cs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from commbench.errors import RecordsError
from commbench.output.table import clean

ERROR, WARNING, NOTICE = "error", "warning", "notice"
"""The levels of an annotation."""


def annotation(level: str, title: str, text: str) -> str:
    """The command that makes an annotation; `text` may have several lines."""
    lines = "\n".join(clean(line) for line in text.split("\n"))
    name = _escaped(clean(title)).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{_escaped(lines)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def add_to_summary(markdown: str, environment: Mapping[str, str] = os.environ) -> None:
    """Append Markdown to the step's summary, where there is one; RecordsError where that fails."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(markdown)
    except OSError as error:
        raise RecordsError(
            f"cannot write the step's summary {path}: {error.strerror}",
            "GITHUB_STEP_SUMMARY names that file",
        ) from None
