"""How tests run commbench: the real entry point in a process of its own, with real ranks."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

START_TIMEOUT_S = 120
"""Longer than any of these commands takes; a hang fails the test instead of blocking it."""


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str
    folder: Path
    """The run folder it was told to use."""

    def rows(self) -> list[dict[str, str]]:
        with (self.folder / "results.csv").open() as file:
            return list(csv.DictReader(file))

    def journal(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "run.jsonl").read_text().splitlines()]

    def cases(self) -> list[dict[str, Any]]:
        """The journal's lines of finished cases, in the order of the plan."""
        found = [line for line in self.journal() if line["kind"] == "case"]
        return sorted(found, key=lambda line: line["case"]["index"])

    def batches(self, case: int) -> list[dict[str, Any]]:
        """The journal's lines of batches of a case, in the order they were made."""
        return [line for line in self.journal() if line["kind"] == "batch" and line["case"] == case]


Commbench = Callable[..., Ended]


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's environment without what a launcher or a communication library left in it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMPI_", "PMI_"))}
    return kept | {"COLUMNS": "100"} | variables


def run_commbench(where: Path, *arguments: str, **variables: str) -> Ended:
    """Run `commbench ARGUMENTS` in the folder `where`; runs write into `where/run`."""
    output = ["--output", "run"] if arguments[:1] == ("run",) else []
    command = [sys.executable, "-m", "commbench", *arguments, *output]
    return _finish(command, where, variables)


def run_program(where: Path, program: str, *arguments: str) -> Ended:
    """Run a program that changes something, then runs `commbench run ARGUMENTS`.

    Ranks are forked from it, and find the change.
    """
    return run_program_as(where, program, "run", *arguments, "--output", "run")


def run_program_as(where: Path, program: str, *arguments: str) -> Ended:
    """Run a program that changes something, then runs `commbench ARGUMENTS`."""
    ending = "\nfrom commbench.cli.main import main\nmain()\n"
    command = [sys.executable, "-c", program + ending, *arguments]
    return _finish(command, where, {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})


def _finish(command: list[str], where: Path, variables: dict[str, str]) -> Ended:
    ended = subprocess.run(
        command,
        cwd=where,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr, where / "run")


@pytest.fixture
def commbench(tmp_path: Path) -> Commbench:
    return lambda *arguments, **variables: run_commbench(tmp_path, *arguments, **variables)


@pytest.fixture
def program(tmp_path: Path) -> Commbench:
    return lambda text, *arguments: run_program(tmp_path, text, *arguments)
