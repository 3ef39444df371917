"""Each command once in a process that starts from nothing, as people start it. All other tests fork
commands from a server that has imported everything, which must make no difference."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import START_TIMEOUT_S, Ended, run_commbench, start_command
from synthetic import steady, synthetic_run

from commbench.cli.commands import COMMANDS

DATA = Path(__file__).parent / "data"
LOG = str(DATA / "nccl-tests" / "nccl_allreduce.log")
LINES = {
    "": 2, "shwo": 2, "run --resume absent": 6, "show a": 0, "plot a": 0, "compare a b": 0,
    "check b --against a --junit report.xml": 1, "fleet a b": 7,
    "advise a b --params 1M": 0,
    "explain a --size 1K": 0, "report a -o a.html": 0, "export a --format json": 0,
    f"import {LOG} --op all_reduce --output new": 0,
    "sweep --vary cpu-mode=quiet,plain --rounds 0": 2, "pairs --timeout 0": 2, "replay absent": 6,
    "init --ranks 0": 2, "job slurm --nodes 2 --nproc-per-node 8": 0, "model fit absent": 6,
    "model predict absent --ranks 2": 6, "workload show absent": 6,
    "workload ddp --model resnet-50 --mesh dp=2": 0, "smoke --timeout 0": 2, "doctor --rounds 0": 2,
    "links nvlink4": 0, "expect --gpu h100 --busbw 480GB/s": 0, "ops": 0, "list": 0, "env": 0,
    "history list": 6, "preflight --need 0": 2, "soak --for 0": 2,
}  # fmt: skip
_RARE = {
    "shwo", "advise", "explain", "report", "export", "sweep", "job", "model", "doctor", "ops",
    "links", "expect", "pairs", "workload", "fleet", "history", "preflight", "soak",
    "replay",
}  # fmt: skip
RARE = [line for line in LINES if line.split(" ")[0] in _RARE]
"""Those that only the full tests start from nothing."""


def test_every_command_is_among_them() -> None:
    assert {line.split(" ")[0] for line in LINES} == {"", "shwo", *COMMANDS}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs `a` and `b`."""
    folder = tmp_path_factory.mktemp("runs")
    for run, seconds in (("a", 1e-4), ("b", 2e-4)):
        synthetic_run(folder / run, run, lambda _, s=seconds: steady(s))
    return folder


@pytest.mark.parametrize(
    "line", [pytest.param(each, marks=[pytest.mark.full] if each in RARE else []) for each in LINES]
)
def test_a_command_ends_and_prints_alike_from_nothing_and_forked(
    runs: Path, tmp_path: Path, line: str
) -> None:
    ended: list[Ended] = []
    for name in ("fresh", "forked"):
        folder = Path(shutil.copytree(runs, tmp_path / name))
        ended.append(run_commbench(folder, *line.split(), is_fresh=name == "fresh"))
    fresh, forked = ended
    assert fresh.code == LINES[line]
    assert fresh[:3] == forked[:3]


def test_a_run_that_is_interrupted_ends_with_the_code_of_its_signal(tmp_path: Path) -> None:
    command = start_command(
        tmp_path, "run", "--sizes", "1K-1M", "--iters", "3000", "--output", "run", is_fresh=True
    )
    journal, deadline = tmp_path / "run" / "run.jsonl", time.monotonic() + START_TIMEOUT_S
    while not journal.exists():
        assert command.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    command.send_signal(signal.SIGINT)
    ended = command.finish()
    assert (ended.code, ended.err.splitlines()[-2]) == (130, "error: stopped by SIGINT")


INTERRUPTED_IMPORT = """
import os, sys
from commbench.__main__ import main
sys.addaudithook(
    lambda event, found: event == "import" and found[0] == "typer" and os.kill(os.getpid(), 2)
)
main()
"""


INTERRUPTED_TORCH = INTERRUPTED_IMPORT.replace('"typer"', '"torch"').replace(
    "main()", 'sys.argv = ["commbench", "run", "--dry-run"]\nmain()'
)


INTERRUPTED_CLASS = """
import os, sys
from commbench.__main__ import main

class Named:
    def __set_name__(self, *_):
        os.kill(os.getpid(), 2)

sys.addaudithook(
    lambda event, found: event == "import" and found[0] == "torch" and type("A", (), {"a": Named()})
)
sys.argv = ["commbench", "run", "--dry-run"]
main()
"""


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        (INTERRUPTED_IMPORT, "run the same command again"),
        (INTERRUPTED_TORCH, "nothing was finished: run the same command again"),
        (INTERRUPTED_CLASS, "nothing was finished: run the same command again"),
    ],
)
def test_an_interruption_while_it_imports_is_two_lines(program: str, hint: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    said = f"error: stopped by SIGINT\nhint: {hint}\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", said)


@pytest.mark.parametrize("command", ["ops", "--help", "run --help"])
@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_reader_that_has_gone_is_no_error(tmp_path: Path, is_fresh: bool, command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        ended = start_command(tmp_path, *command.split(), is_fresh=is_fresh, stdout=gone).finish()
    assert (ended.code, ended.err) == (128 + signal.SIGPIPE, "")


def test_a_run_goes_on_where_the_reader_of_its_messages_has_gone(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "commbench", "run", "--sizes", "1K", "--iters", "6"]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        ended = subprocess.run(
            [*program, "--launches", "2", "--no-plots", "--verbose", "--output", "run"],
            cwd=tmp_path, stderr=gone, stdout=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert ended.returncode == 0
    assert "1 of 1 case was measured; its results are correct." in ended.stdout
