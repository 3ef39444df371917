"""Journals that were cut off: every command that reads one says so."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from commands import run_commbench
from synthetic import plan, synthetic_run

from commbench.results.run_folder import JOURNAL

COMMANDS = (
    ("show", "run"), ("show", "run", "--format", "json"), ("show", "run", "--format", "nccl-tests"),
    ("show", "run", "--groups"), ("export", "run"), ("export", "run", "--format", "json"),
    ("compare", "whole", "run"), ("compare", "run", "whole"),
    ("check", "run", "--max-time", "100s"), ("plot", "run", "--output", "plots"),
    ("report", "run", "--output", "report.md"), ("explain", "run"),
)  # fmt: skip
SAID = re.compile("incomplete|not ended|interrupted|no complete header|no finished case")


@pytest.mark.parametrize(
    ("launches", "cuts"),
    [(2, 0), *(pytest.param(launches, 150, marks=pytest.mark.full) for launches in (1, 2))],
)
def test_no_command_is_silent_about_a_journal_that_was_cut_off(
    launches: int, cuts: int, tmp_path: Path
) -> None:
    asked = plan(launches=launches, sizes=(1024, 4096))
    for name in ("whole", "run"):
        synthetic_run(tmp_path / name, name, asked=asked, launches=launches)
    journal = tmp_path / "run" / JOURNAL
    content, chance = journal.read_bytes(), Random(cuts)
    ends = [found.end() for found in re.finditer(b"\n", content)][:-1]
    places = [ends[0], ends[len(ends) // 2], len(content) - 1]
    for length in [*places, *(chance.randrange(len(content)) for _ in range(cuts))]:
        journal.write_bytes(content[:length])
        for command in COMMANDS:
            for made in ("plots", "report.md"):
                _remove(tmp_path / made)
            ended = run_commbench(tmp_path, *command)
            text = " ".join((ended.out + ended.err).split())
            report = tmp_path / "report.md"
            text += report.read_text() if report.exists() else ""
            assert SAID.search(text), (command, length, ended)


def _remove(path: Path) -> None:
    for file in path.iterdir() if path.is_dir() else [path]:
        file.unlink(missing_ok=True)
