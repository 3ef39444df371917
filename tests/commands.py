"""How tests run commbench: as a process with real streams, exit codes, signals and ranks.

Most commands are forked from a server that has imported torch once (`fork_server.py`). The others
are started as a person starts them: `is_fresh=True`, or a variable is given that Python or torch
reads when it starts.
"""

from __future__ import annotations

import csv
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from commbench.results.schema import Batch
from commbench.worker.watchdog.rank_state import SCALE

START_TIMEOUT_S = 120
"""Longer than any of these commands takes; a hang fails the test instead of blocking it."""

READ_AT_START = re.compile("PYTHON|OMP_|OPENBLAS_|MKL_|TORCH_|LD_|MALLOC_|LC_|LANG|MPL")
"""Variables that Python, torch and other libraries read once, when they start."""

FORK_SERVER = Path(__file__).with_name("fork_server.py")

SERVER = "COMMBENCH_TEST_FORK_SERVER"
"""Variable with the address of a fork server that another process has started."""

SHORT_DELAYS = {SCALE: "0.25"}
"""Variables with which failures are detected in a quarter of the usual time."""

Limits = Mapping[str, tuple[int, int]]
"""Resource limits by their names in `resource`, each soft and hard."""


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str
    folder: Path
    """The run folder that it wrote to."""

    def good(self) -> Ended:
        """This command, which has ended well."""
        assert self.code == 0, self.err
        return self

    def rows(self) -> list[dict[str, str]]:
        with (self.folder / "results.csv").open() as file:
            return list(csv.DictReader(file))

    def journal(self) -> list[dict[str, Any]]:
        """The lines of the journal; those of batches with the defaults that they leave out, headers
        with the list of their ranks."""
        lines = journal_lines(self.folder / "run.jsonl")
        defaults = json.loads(json.dumps(Batch._field_defaults))
        return [defaults | line if line["kind"] == "batch" else line for line in lines]

    def cases(self) -> list[dict[str, Any]]:
        """The journal's lines of finished cases, in the order of the plan."""
        found = [line for line in self.journal() if line["kind"] == "case"]
        return sorted(found, key=lambda line: line["case"]["index"])

    def batches(self, case: int) -> list[dict[str, Any]]:
        """The journal's lines of batches of a case, in the order they were made."""
        return [line for line in self.journal() if line["kind"] == "batch" and line["case"] == case]


def journal_lines(journal: Path) -> list[dict[str, Any]]:
    """The complete lines of a journal; headers with the list of their ranks."""
    lines = [json.loads(line) for line in journal.read_text().split("\n")[:-1]]
    for line in lines:
        if isinstance(ranks := line.get("ranks"), dict):
            each = [dict(zip(ranks["each"], row, strict=True))
                    for row in zip(*ranks["each"].values(), strict=True)]  # fmt: skip
            line["ranks"] = [ranks["same"] | own for own in each or [{}] * ranks["number"]]
    return lines


Commbench = Callable[..., Ended]


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's environment without what a launcher or these tests left in it."""
    left = ("SLURM_", "OMPI_", "PMI_", SERVER)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(left)}
    return kept | {"COLUMNS": "100"} | variables


def free_port() -> int:
    """A TCP port of this host that nothing uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Command:
    """A running command: what the tests need of `subprocess.Popen`, with its output in files."""

    pid: int

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._out: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as this
        self._err: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._printed = ("", "")
        self.returncode: int | None = None

    def _await_exit(self, timeout: float) -> int | None:
        """The exit code, or None if the command does not end in time."""
        raise NotImplementedError

    def poll(self) -> int | None:
        """The exit code, or None while the command runs."""
        if self.returncode is None and (code := self._await_exit(0)) is not None:
            # An error and its hint, each on one line.
            err = re.sub(r"\n {6,7}(?=\S)", " ", _take(self._err))
            self._printed = _take(self._out), err
            self.returncode = code
        return self.returncode

    def communicate(self, timeout: float = START_TIMEOUT_S) -> tuple[str, str]:
        """What the command printed to stdout and to stderr, when it has ended. A command that does
        not end in time is killed, and TimeoutExpired raised."""
        is_late = self.returncode is None and self._await_exit(timeout) is None
        if is_late:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._await_exit(START_TIMEOUT_S)
        self.poll()
        if is_late:
            raise subprocess.TimeoutExpired(f"commbench in {self._folder}", timeout, *self._printed)
        return self._printed

    def finish(self) -> Ended:
        """How the command ended."""
        out, err = self.communicate()
        assert self.returncode is not None
        return Ended(self.returncode, out, err, self._folder / "run")

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _take(file: IO[str]) -> str:
    with file:
        file.seek(0)
        return file.read()


class StartedCommand(Command):
    """A command in a process that starts from nothing."""

    def __init__(
        self, folder: Path, line: list[str], environment: dict[str, str], stdout: IO[str] | None
    ) -> None:
        super().__init__(folder)
        self._process = subprocess.Popen(
            line, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=stdout or self._out,
            stderr=self._err, start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid

    def _await_exit(self, timeout: float) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout)
        return None


class ForkedCommand(Command):
    """A command that the fork server has forked."""

    def __init__(self, folder: Path, request: dict[str, Any], stdout: IO[str] | None) -> None:
        super().__init__(folder)
        answers, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile("w+") as file, Path(os.devnull).open() as stdin:
            json.dump(request, file)
            file.seek(0)
            sent = (theirs, file, stdin, stdout or self._out, self._err)
            with socket.socket(socket.AF_UNIX) as server:
                server.connect(fork_server())
                socket.send_fds(server, [b"!"], [each.fileno() for each in sent])
        self._answers = answers.makefile("r")
        answers.close()  # the file keeps it open
        self.pid = int(self._answers.readline())
        self._code: int | None = None

    def _await_exit(self, timeout: float) -> int | None:
        if self._code is None and select.select([self._answers], [], [], timeout)[0]:
            with self._answers:
                self._code = int(self._answers.readline())
        return self._code


@cache
def fork_server() -> str:
    """The address of the fork server, which this process starts at the first call, unless the
    process that has started this one did. It ends when the process that started it does."""
    if SERVER in os.environ:
        return os.environ[SERVER]
    address = f"{tempfile.mkdtemp()}/socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        line = [sys.executable, str(FORK_SERVER), str(listening.fileno()), address]
        _servers.append(
            subprocess.Popen(
                line, env=clean_environment(), stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
            )
        )  # fmt: skip
    return address


def forked_python() -> Path:
    """A Python for programs that start commbench: the fork server forks what it is given."""
    path, deadline = Path(fork_server()).with_name("python"), time.monotonic() + START_TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return path


_servers: list[subprocess.Popen[bytes]] = []


def end_fork_server() -> None:
    """End the fork server, if this process started it."""
    while _servers:
        _servers.pop().communicate()
    fork_server.cache_clear()


def start_command(
    folder: Path,
    *arguments: str,
    program: str | None = None,
    is_fresh: bool = False,
    forks_ranks: bool = False,
    limits: Limits | None = None,
    stdout: IO[str] | None = None,
    **variables: str,
) -> Command:
    """Start `commbench ARGUMENTS` in a folder, or the text of a program with these arguments.

    `forks_ranks`: ranks that it would spawn, each with an import of torch, are forked from a copy
    of the fork server; they do not find what the program changes.
    """
    environment = clean_environment(**variables)
    if is_fresh or any(map(READ_AT_START.match, variables)):
        assert not limits
        how = ["-m", "commbench"] if program is None else ["-c", program]
        return StartedCommand(folder, [sys.executable, *how, *arguments], environment, stdout)
    request = {
        "arguments": arguments, "environment": environment, "folder": str(folder),
        "limits": limits or {}, "program": program, "forks_ranks": forks_ranks,
    }  # fmt: skip
    return ForkedCommand(folder, request, stdout)


def run_commbench(folder: Path, *arguments: str, is_fresh: bool = False, **variables: str) -> Ended:
    """Run `commbench ARGUMENTS` in a folder; runs write into its subfolder `run`, if the arguments
    name no other."""
    is_new_run = arguments[:1] == ("run",) and not {"--output", "--resume"} & set(arguments)
    output = ["--output", "run"] if is_new_run else []
    return start_command(folder, *arguments, *output, is_fresh=is_fresh, **variables).finish()


def run_program(folder: Path, program: str, *arguments: str, **variables: str) -> Ended:
    """Run a program that changes something, then runs `commbench run ARGUMENTS`.

    Ranks are forked from it, and find the change.
    """
    return run_program_as(folder, program, "run", *arguments, "--output", "run", **variables)


def run_program_as(folder: Path, program: str, *arguments: str, **variables: str) -> Ended:
    """Run a program that changes something, then runs `commbench ARGUMENTS`."""
    text = program + "\nfrom commbench.cli.main import main\nmain()\n"
    return start_command(folder, *arguments, program=text, **variables).finish()
