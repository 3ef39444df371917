"""The result of a gate for GitHub Actions: annotations on the output, and the step's summary.

A line that begins with `::`, also after blanks, is a command to the runner; so is `##[` within a
line. Text from files is therefore escaped in the commands; output.sanitize treats all other output.
Source: actions/toolkit, packages/core/src/command.ts; actions/runner, ActionCommand.cs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from commbench.errors import RecordsError
from commbench.gate.gate import GateResult
from commbench.gate.limits import FAIL, UNDECIDED
from commbench.gate.text import (
    gate_markdown,
    gate_summary,
    gate_title,
    row_cells,
    rows_to_show,
    rule_line,
)
from commbench.output.table import clean

_MOST_ROWS = 5
"""Rows named in one annotation. GitHub shows ten annotations of a step: one per rule is enough."""


def make_annotations(gate: GateResult, undecided_fails: bool) -> list[str]:
    """A command for each rule that failed or is undecided, and one for an incomplete run."""
    title = gate_title(gate)
    lines = []
    if gate.incomplete:
        lines.append(_command("error", title, f"the run is not whole: {gate.incomplete}"))
    levels = {FAIL: "error", UNDECIDED: "error" if undecided_fails else "warning"}
    for result in (r for r in gate.results if r.outcome in levels):
        rows = [" ".join(filter(None, row_cells(result, row))) for row in rows_to_show(result)]
        more = [f"and {len(rows) - _MOST_ROWS} more"] if len(rows) > _MOST_ROWS else []
        text = "\n".join([rule_line(result), *rows[:_MOST_ROWS], *more])
        lines.append(_command(levels[result.outcome], title, text))
    return lines or [_command("notice", title, gate_summary(gate))]


def add_summary(gate: GateResult, environment: Mapping[str, str] = os.environ) -> None:
    """Append the result as Markdown to the step's summary, where there is one."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(gate_markdown(gate))
    except OSError as error:
        raise RecordsError(
            f"cannot write the step's summary {path}: {error.strerror}",
            "GITHUB_STEP_SUMMARY names that file",
        ) from None


def _command(level: str, title: str, text: str) -> str:
    lines = "\n".join(clean(line) for line in text.split("\n"))
    name = _escaped(clean(title)).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{_escaped(lines)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
