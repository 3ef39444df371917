"""A disk that is full, a folder that goes away, no file left to open: two lines and an exit code,
and what was written before stays whole."""

from __future__ import annotations

import csv
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from commands import SHORT_DELAYS, START_TIMEOUT_S, Command, Ended, run_commbench, start_command
from synthetic import header, plan

from commbench.errors import RecordsError
from commbench.launch.devices import raise_nofile_limit
from commbench.results.journal import Journal, remove_if_empty
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import create_folder
from commbench.results.schema import Batch, Measurement, RunEnd

LONG = [
    "--sizes", "1K-64K", "--iters", "500", "--order", "ascending", "--no-plots", "--output", "run",
]  # fmt: skip


def assert_two_lines(ended: Ended, *codes: int) -> None:
    assert ended.code in codes, ended.err
    assert [line.split(":")[0] for line in ended.err.splitlines()[-2:]] == ["error", "hint"]


def assert_kept(where: Path, folder: Path) -> None:
    """Every line of the journal is whole, and what it holds can be shown."""
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    assert lines[0]["kind"] == "header"
    shown = run_commbench(where, "show", str(folder))
    assert shown.code == 0, shown.err
    with (folder / "results.csv").open() as file:
        assert all(row["status"] for row in csv.DictReader(file))


@contextmanager
def file_size(limit: int) -> Iterator[None]:
    """No file of this process can grow beyond so many bytes; a disk that is full does the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


def test_wherever_the_disk_is_full_the_journal_keeps_whole_lines_and_can_go_on(
    tmp_path: Path,
) -> None:
    asked = plan(sizes=(1024,))
    (case,) = asked.cases()

    def write(folder: Path) -> None:
        with closing(Journal(folder)) as journal:
            journal.add(header(asked, "x"))
            journal.batch(case, Batch((1e-4,) * 3))
            journal.add(Measurement(case, "ok"))

    write(create_folder(tmp_path / "whole"))
    whole = (tmp_path / "whole" / "run.jsonl").read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    for limit in sorted({1, *range(7, len(whole), 61), *(end - 1 for end in ends), *ends[:-1]}):
        folder = create_folder(tmp_path / str(limit))
        with file_size(limit), pytest.raises(RecordsError, match="File too large"):
            write(folder)
        left = (folder / "run.jsonl").read_bytes()
        assert left == whole[: max([0, *(end for end in ends if end <= limit)])]
        if left:
            Journal(folder).end(RunEnd("failed", "the disk is full", 1.0))
            run = read_run(folder)
            assert run.end == RunEnd("failed", "the disk is full", 1.0)
            assert len(run.measurements) == (limit >= ends[1])
        else:
            remove_if_empty(folder)
            assert not folder.exists()


def test_a_journal_that_holds_anything_is_never_removed(tmp_path: Path) -> None:
    folder = create_folder(tmp_path / "run")
    (folder / "run.jsonl").write_text("damaged\n")
    remove_if_empty(folder)
    assert (folder / "run.jsonl").read_text() == "damaged\n"


def test_a_run_on_a_full_disk_keeps_what_it_has(tmp_path: Path) -> None:
    began = time.monotonic()
    # The header, a batch of 300 samples (7 KiB) and the last line fit, but no second batch does.
    limits = {"RLIMIT_FSIZE": (12 << 10, 12 << 10)}
    asked = [word if word != "500" else "3000" for word in LONG]
    ended = start_command(tmp_path, "run", *asked, limits=limits, **SHORT_DELAYS).finish()
    assert_two_lines(ended, 6)
    assert ended.err.splitlines()[-2] == "error: cannot write run/run.jsonl: File too large"
    assert_kept(tmp_path, ended.folder)
    last = ended.journal()[-1]
    assert (last["kind"], last["status"]) == ("end", "failed")
    assert 0.1 < last["elapsed_s"] < time.monotonic() - began


def await_lines(journal: Path, process: Command) -> None:
    """Wait until the run has written something."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 2):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("is_lost", "message"),
    [
        (True, "error: cannot write run/run.jsonl: it was removed meanwhile"),
        (False, "error: cannot write run/results.csv: Is a directory"),
    ],
)
def test_a_folder_that_is_lost_or_blocked_in_mid_run_ends_it(
    tmp_path: Path, is_lost: bool, message: str
) -> None:
    process = start_command(tmp_path, "run", *LONG, **SHORT_DELAYS)
    await_lines(tmp_path / "run" / "run.jsonl", process)
    if is_lost:
        shutil.rmtree(tmp_path / "run")
    else:
        (tmp_path / "run" / "results.csv.new").mkdir()
    ended = process.finish()
    assert_two_lines(ended, 6)
    assert ended.err.splitlines()[-2] == message
    if not is_lost:
        assert_kept(tmp_path, ended.folder)


SHORT = ("run", "--sizes", "1K", "--iters", "2", "--no-plots", "--output", "run")


@pytest.mark.parametrize("files", [8, 13])
def test_too_few_files_end_it_with_two_lines(tmp_path: Path, files: int) -> None:
    limits = {"RLIMIT_NOFILE": (files, files)}
    ended = start_command(tmp_path, *SHORT, limits=limits).finish()
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.splitlines() == [  # nothing says that it measures
        f"error: 2 ranks need 42 open files, but only {files} are allowed",
        "hint: start fewer ranks (--nproc-per-node), or allow more open files: ulimit -n 4096",
    ]
    assert not ended.folder.exists()


@pytest.mark.parametrize("hard", [1024, 42])
def test_a_low_limit_of_files_that_may_be_raised_is_raised(tmp_path: Path, hard: int) -> None:
    limits = {"RLIMIT_NOFILE": (13, hard)}
    ended = start_command(tmp_path, *SHORT, limits=limits).finish()
    assert ended.code == 0, ended.err


def test_a_limit_of_files_is_never_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.append(new))
    many = plan(world_size=64)
    for now in ((352, 352), (1024, 4096), (-1, -1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, now=now: now)
        raise_nofile_limit(many, launched=64)
    assert not limits
    monkeypatch.setattr(resource, "getrlimit", lambda _: (351, -1))
    raise_nofile_limit(many, launched=64)
    raise_nofile_limit(many, launched=64, has_store=True)
    assert limits == [(352, -1), (480, -1)]


@pytest.mark.parametrize("command", [("ops",), ("run", "--dry-run")])
def test_output_that_cannot_be_written_is_an_error(tmp_path: Path, command: tuple[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = start_command(tmp_path, *command, stdout=full).finish()
    assert ended.code == 6
    assert ended.err.splitlines()[-2] == "error: No space left on device"


def test_any_text_goes_to_a_terminal_of_few_characters(tmp_path: Path) -> None:
    ended = run_commbench(tmp_path, "links", PYTHONIOENCODING="ascii")
    assert ended.code == 0, ended.err


@pytest.mark.full
def test_a_taken_port_is_told_in_two_lines(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = run_commbench(
            tmp_path, "run", "--sizes", "1K", "--nnodes", "2", "--nproc-per-node", "1",
            "--master-addr", "127.0.0.1", "--master-port", port,
        )  # fmt: skip
    assert_two_lines(ended, 3)
    assert "Address already in use" in ended.err
    assert not ended.folder.exists()


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("how", ["full", "immutable"])
def test_a_real_disk_that_is_full_or_takes_no_new_file(tmp_path: Path, how: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    size = "size=12k" if how == "full" else "size=1m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], check=True)
    try:
        process = start_command(
            tmp_path, "run", *(word.replace("run", "disk/run") for word in LONG)
        )
        if how == "immutable":
            await_lines(disk / "run" / "run.jsonl", process)
            subprocess.run(["chattr", "+i", str(disk / "run")], check=True)
        ended = process.finish()
        assert_two_lines(ended, 6)
        assert_kept(tmp_path, disk / "run")
        if how == "full":
            room = ["mount", "-o", "remount,size=1m", str(disk)]
            subprocess.run(room, check=True)
            again = run_commbench(tmp_path, "run", "--resume", "disk/run", "--no-plots")
            assert again.code == 0, again.err
            rows = again._replace(folder=disk / "run").rows()
            assert [row["iterations"] for row in rows] == ["500"] * 7
    finally:
        subprocess.run(["chattr", "-f", "-i", str(disk / "run")], check=False)
        subprocess.run(["umount", "-l", str(disk)], check=True)
