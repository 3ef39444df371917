"""How ranks are started and how they end: forked, spawned, by other launchers, killed, hung."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import (
    SHORT_DELAYS,
    START_TIMEOUT_S,
    Commbench,
    Ended,
    clean_environment,
    free_port,
    journal_lines,
    run_commbench,
    start_command,
)
from scripted import quietest_cpu_mode
from synthetic_replay import WORKLOAD

from commbench.plan.workload import workload_values
from commbench.readers.trace_formats import read_trace
from commbench.results.files import write_workload
from commbench.results.journal_reader import read_run

RUN = ["run", "--no-plots"]
LONG = ["--sizes", "1K-1M", "--dtype", "float32,int16", "--iters", "1000", "--label", "long"]
"""Eleven cases that are refused, and eleven in ten rounds of batches, some seconds in all."""


def test_ranks_are_forked_from_a_single_thread(commbench: Commbench) -> None:
    ended = commbench("run", "--sizes", "1K", "--iters", "1", "--verbose")
    assert "ranks are forked by torchrun's agent: this process has a single thread" in ended.err


@pytest.mark.full
def test_with_another_thread_ranks_are_spawned_and_it_says_so(program: Commbench) -> None:
    thread = (
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    ended = program(thread, "--sizes", "1K", "--iters", "1", "--verbose", "--no-plots")
    assert ended.code == 0, ended.err
    assert "ranks are spawned by torchrun's agent: this process has 2 threads" in ended.err


def test_the_plain_torchrun_command_can_be_used(commbench: Commbench) -> None:
    ended = commbench("run", "--sizes", "1M,4M", "--launcher", "torchrun", "--precision", "0.1%",
                      "--budget", "1.2", "--launches", "2", "--no-plots")  # fmt: skip
    assert ended.code == 0, ended.err
    assert [row["status"] for row in ended.rows()] == ["ok"] * 2
    require_launches(ended.folder / "run.jsonl", 2, same_processes=True)
    assert ended.journal()[0]["launcher"] == "torchrun"
    assert " s left; measuring all_reduce" in ended.err
    assert "OMP_NUM_THREADS" not in ended.err


@pytest.mark.full
def test_the_line_that_dry_run_prints_does_the_same(commbench: Commbench, tmp_path: Path) -> None:
    header = under_torchrun(commbench, tmp_path, "--sizes", "1K,2K", "--iters", "3")
    assert header["plan"]["sizes"] == [1024, 2048] and header["plan"]["iterations"] == 3
    write_workload(tmp_path / "step.json", WORKLOAD)
    shutil.rmtree(tmp_path / "joined")
    options = ("--workload", "step.json", "--variant", "calls", "--iters", "2")
    header = under_torchrun(commbench, tmp_path, *options)
    assert header["plan"]["workload"] == workload_values(WORKLOAD)
    last = read_run(tmp_path / "joined").measurements[-1]
    assert (last.case.step, last.case.variant, last.status) == ("train", "calls", "ok")


def under_torchrun(commbench: Commbench, tmp_path: Path, *options: str) -> dict[str, Any]:
    """The header of the run that the line of a dry run with these options makes."""
    dry = commbench("run", *options, "--dry-run")
    line = dry.out.splitlines()[-1].replace(
        "torchrun", f"{sys.executable} -m torch.distributed.run"
    )
    ended = subprocess.run(
        [*line.split(), "--no-plots", "--output", "joined"], cwd=tmp_path, capture_output=True,
        env=clean_environment(OMP_NUM_THREADS="1"), text=True, timeout=START_TIMEOUT_S,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "joining torchrun's ranks" in ended.stderr
    return journal_lines(tmp_path / "joined" / "run.jsonl")[0]


def joined(tmp_path: Path, variables: list[dict[str, str]], *arguments: list[str]) -> list[tuple]:
    """Start one process per set of variables, as a launcher would; how each ended."""
    processes = [
        start_command(tmp_path, *RUN, "--output", "joined", *own, **mine)
        for mine, own in zip(variables, arguments, strict=True)
    ]
    return [process.finish()[:3] for process in processes]


def as_mpirun(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(ranks),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": str(ranks),
        "MASTER_PORT": str(port),
    }  # fmt: skip


def as_srun(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(ranks), "SLURM_LOCALID": str(rank),
        "SLURM_STEP_TASKS_PER_NODE": str(ranks), "SLURM_NODEID": "0",
        "SLURM_STEP_NODELIST": "localhost", "MASTER_PORT": str(port),
    }  # fmt: skip


@pytest.mark.parametrize(
    "launcher",
    [pytest.param(as_mpirun, marks=pytest.mark.full), as_srun],
    ids=["mpirun", "srun"],
)
def test_under_another_launcher_it_joins(tmp_path: Path, launcher: object) -> None:
    port = free_port()
    variables = [launcher(rank, 2, port) for rank in range(2)]  # type: ignore[operator]
    arguments = ["--op", "broadcast", "--sizes", "1K", "--iters", "2", "--launches", "3"]
    first, second = joined(tmp_path, variables, arguments, arguments)
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert "broadcast float32" in first[1]
    assert second[1] == second[2] == ""
    require_launches(tmp_path / "joined" / "run.jsonl", 3, same_processes=True)


def require_launches(journal: Path, number: int, *, same_processes: bool) -> None:
    """Two ranks took part in so many launches, each of which has a header, batches and an end."""
    lines = journal_lines(journal)
    headers = [line for line in lines if line["kind"] == "header"]
    assert [line["launch"] for line in headers] == list(range(number))
    assert {len(line["ranks"]) for line in headers} == {2}
    ends = [line["status"] for line in lines if line["kind"] == "end"]
    assert ends == ["complete"] * number
    batches = {line.get("launch", 0) for line in lines if line["kind"] == "batch"}
    assert batches == set(range(number))
    processes = {tuple(rank["pid"] for rank in line["ranks"]) for line in headers}
    assert (len(processes) == 1) is same_processes


def test_ranks_with_another_plan_are_refused(tmp_path: Path) -> None:
    port = free_port()
    variables = [as_mpirun(rank, 2, port) for rank in range(2)]
    first, second = joined(tmp_path, variables, ["--sizes", "1K"], ["--sizes", "2K"])
    assert (first[0], second[0]) == (2, 2)
    assert first[2].splitlines()[-2].startswith("error: rank 1 on ")
    assert " has a different plan: --sizes 2K instead of --sizes 1K" in first[2]


@pytest.fixture
def running(tmp_path: Path):
    """A run that has measured some cases and finished none of them."""
    process = start_command(tmp_path, *RUN, *LONG, "--output", "run", **SHORT_DELAYS)
    journal = tmp_path / "run" / "run.jsonl"
    deadline = time.monotonic() + START_TIMEOUT_S
    while not journal.exists() or journal.read_text().count('"kind": "batch"') < 3:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    yield process, journal
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def ranks_of(journal: Path) -> list[int]:
    header = journal_lines(journal)[0]
    return [rank["pid"] for rank in header["ranks"]]


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("number", "times"),
    [
        (signal.SIGTERM, 1),
        (signal.SIGINT, 2),  # the second one changes nothing
        pytest.param(signal.SIGHUP, 1, marks=pytest.mark.full),
    ],
)
def test_an_interrupted_run_keeps_what_was_measured(running, number: int, times: int) -> None:
    process, journal = running
    pids = ranks_of(journal)
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.1)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    assert not any(map(is_alive, pids))
    lines = journal_lines(journal)
    assert lines[-1]["kind"] == "end" and lines[-1]["status"] == "interrupted"
    measured_cases = {line["case"] for line in lines if line["kind"] == "batch"}
    refused = {line["case"]["index"] for line in lines if line["kind"] == "case"}
    assert len(measured_cases) >= 3 and len(refused) == 11
    assert "all_reduce float32 sum in_place" in out
    assert "This run was interrupted." in out
    rows = Ended(0, out, err, journal.parent).rows()
    assert len(rows) == len(measured_cases) + len(refused)
    measured = [row for row in rows if row["status"] == "ok"]
    assert {row["stop_reason"] for row in measured} == {"cut off"}
    assert all(float(row["time_us"]) > 0 and int(row["iterations"]) > 0 for row in measured)
    assert err.splitlines()[-2:] == [
        f"error: stopped by {signal.Signals(number).name}",
        "hint: `commbench run --resume run` continues the run.",
    ]


SIGNAL_WHILE_FORKING = """
import os, signal
from functools import partial
os.register_at_fork(after_in_parent=partial(os.kill, os.getpid(), signal.SIGTERM))
"""


SIGNAL_WHILE_PRINTING = """
import os, signal, typer
from contextlib import suppress
def echo(message, *, _echo=typer.echo, **options):
    if "measuring with" in str(message):
        with suppress(Exception):  # as in click
            os.kill(os.getpid(), signal.SIGTERM)
    _echo(message, **options)
typer.echo = echo
"""


@pytest.mark.parametrize("dropped", [SIGNAL_WHILE_FORKING, SIGNAL_WHILE_PRINTING])
def test_a_signal_whose_exception_is_dropped_ends_the_run(program: Commbench, dropped: str) -> None:
    ended = program(dropped, "--sizes", "1K", "--iters", "100000", "--no-plots")
    assert ended.code == 143
    assert ended.err.splitlines()[-2:] == [
        "error: stopped by SIGTERM", "hint: nothing was measured yet: run the same command again",
    ]  # fmt: skip


def test_the_ranks_of_a_launcher_that_is_killed_end_with_it(running) -> None:
    process, journal = running
    pids = ranks_of(journal)
    process.send_signal(signal.SIGKILL)
    assert process.finish().code == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, pids))
    shown = run_commbench(journal.parent, "show", ".")
    assert shown.code == 0 and "has not ended" in shown.out


def test_a_killed_rank_ends_the_run_and_is_named(running) -> None:
    process, journal = running
    pids = ranks_of(journal)
    os.kill(pids[1], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4, err
    assert not any(map(is_alive, pids))
    how = f"error: rank 1 on {socket.gethostname()} was killed by SIGKILL while "
    assert re.fullmatch(f"{how}({IN_A_CASE}|{BETWEEN_BATCHES})", err.splitlines()[-2])
    assert "Traceback" not in err
    assert json.loads(journal.read_text().splitlines()[-1])["status"] == "failed"


def crash(how: str, at: int = 30, rank: int = 1) -> str:
    """A program in which a rank runs `how` in its `at`th all_reduce."""
    return f"""
import os, signal, sys, time
from commbench.plan.operations import OPERATIONS
healthy, calls = OPERATIONS["all_reduce"].call, []
def crash(dist, b):
    calls.append(1)
    if b.rank == {rank} and len(calls) == {at}:
        {how}
    healthy(dist, b)
OPERATIONS["all_reduce"] = OPERATIONS["all_reduce"]._replace(call=crash)
"""


SMALL = ("--sizes", "1K", "--iters", "60", "--no-plots")
HANGS = ("--timeout", "2", "--nproc-per-node", "3")
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
ITERATION = (
    r"(measuring all_reduce float32 sum in_place 1 KiB, iteration \d+ of \d+"
    r"|warming up all_reduce float32 sum in_place 1 KiB, \d+ calls? before iteration 1)"
)
"""A slow host warms up with more calls."""
ANY_CASE = r"all_reduce float32 sum in_place \d+ [KM]iB"
IN_A_CASE = (
    rf"(checking|sending its times of) {ANY_CASE}|measuring {ANY_CASE}, iteration \d+ of \d+"
)
BETWEEN_BATCHES = rf"between batches, after (measuring|checking) {ANY_CASE}"


@pytest.mark.parametrize(
    ("how", "told", "words"),
    [
        ("raise ValueError('lost')", "ended with exit code 1 while {}: ValueError: lost", ""),
        ("os.write(2, b'so long'); os._exit(9)", "ended with exit code 9 while {}", "so long"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV while {}", "Segmentation"),
        ("os._exit(0)", "ended with exit code 0 while {}", ""),
        pytest.param(
            "sys.exit(0)", "ended with exit code 1 while {}: SystemExit: 0", "",
            marks=pytest.mark.full,
        ),
    ],
    ids=["exception", "exit", "segfault", "leaves", "leaves by sys.exit"],
)  # fmt: skip
def test_a_rank_that_fails_is_named_with_what_it_did_and_said(
    program: Commbench, how: str, told: str, words: str
) -> None:
    ended = program(crash(how), *SMALL, **SHORT_DELAYS)
    assert ended.code == 4
    *said, error, _ = ended.err.splitlines()
    assert re.fullmatch(f"error: rank 1 on {socket.gethostname()} {told.format(ITERATION)}", error)
    assert "most recent call" not in error
    assert any(words in line for line in said)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (STOP, "does not answer"),
        pytest.param("while True: pass", "is at <string>:8 crash", marks=pytest.mark.full),
        pytest.param("time.sleep(1000)", "is at <string>:8 crash", marks=pytest.mark.full),
    ],
    ids=["stopped", "loops", "never enters"],
)
def test_a_rank_that_hangs_is_named_with_where_all_are(
    program: Commbench, how: str, told: str
) -> None:
    ended = program(crash(how), *SMALL, *HANGS, **SHORT_DELAYS)
    assert ended.code == 4
    error, hint = ended.err.splitlines()[-2:]
    host = socket.gethostname()
    assert error.startswith(f"error: rank 1 on {host} {told}; rank 1 on {host} ")
    assert re.search(
        rf"; ranks 0, 2 on {host} have made no progress for \d+ s, {ITERATION}$", error
    ), error
    assert "--timeout (2 s)" in hint
    pids = ranks_of(ended.folder / "run.jsonl")
    assert not any(map(is_alive, pids))
    assert ("rank 1 on" in "\n".join(ended.err.splitlines()[:-2])) is ("answer" not in told)


needs_gloo_recorder = pytest.mark.skipif(
    not hasattr(torch._C._distributed_c10d, "_dump_fr_trace_json"),
    reason="this torch does not record gloo",
)


@needs_gloo_recorder
def test_each_rank_that_answers_dumps_its_flight_recorder(program: Commbench) -> None:
    ended = program(crash(STOP), *SMALL, *HANGS, **SHORT_DELAYS)
    assert ended.code == 4
    folder = ended.folder / "flight_recorder"
    assert sorted(path.name for path in folder.iterdir()) == ["rank_0.json", "rank_2.json"]
    trace = read_trace(folder / "rank_2.json")
    assert trace.rank == 2
    (hung,) = [call for call in trace.calls if not call.has_ended]
    said = " ".join(ended.err.split())
    # A rank on a busy host may be late.
    assert re.search(
        r"torch's flight recorder, dumped to \S+/flight_recorder: "
        rf"(ranks 0, 2|rank [02]) on {socket.gethostname()}: call {hung.sequence} of group "
        rf"{hung.group}, all_reduce float32 1 KiB, has not ended",
        said,
    ), said
    lines = ended.err.splitlines()
    assert lines[-2].startswith("error: rank 1 on ")


@needs_gloo_recorder
def test_a_flight_recorder_that_does_not_answer_delays_no_report(program: Commbench) -> None:
    silent = """
from commbench.worker.watchdog import hangs
import threading
hangs.FlightRecorderDump._ask = lambda self: threading.Event().wait()
"""
    ended = program(silent + crash(STOP), *SMALL, "--timeout", "2", **SHORT_DELAYS)
    assert ended.code == 4
    error = ended.err.splitlines()[-2]
    assert error.startswith("error: rank 1 on ")
    assert "made no progress" in error  # the watchdogs say so, and not the launcher 10 s later
    assert "flight recorder" not in ended.err
    assert not (ended.folder / "flight_recorder").exists()


@pytest.mark.full
def test_where_all_ranks_stop_the_launcher_says_so(tmp_path: Path) -> None:
    mode = quietest_cpu_mode()
    process = start_command(
        tmp_path, *RUN, *LONG, "--cpu-mode", mode, "--output", "run", "--timeout", "2",
        **SHORT_DELAYS,
    )  # fmt: skip
    journal = tmp_path / "run" / "run.jsonl"
    while not journal.exists() or not journal.read_text().count("\n"):
        time.sleep(0.05)
    pids = ranks_of(journal)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert re.match(
        r"error: rank [01] on \S+ does not answer: no heartbeat for", err.splitlines()[-2]
    )
    assert ("try --cpu-mode plain" in err.splitlines()[-1]) == (mode == "realtime")
    assert not any(map(is_alive, pids))


def test_an_interface_that_is_not_there_is_named(tmp_path: Path) -> None:
    process = start_command(tmp_path, *RUN, "--sizes", "1K", GLOO_SOCKET_IFNAME="eth77")
    ended = process.finish()
    assert ended.code == 3
    assert "GLOO_SOCKET_IFNAME: eth77 is no interface with an address; there are: lo" in ended.err


def test_nothing_is_left_in_shared_memory(tmp_path: Path) -> None:
    process = start_command(tmp_path, *RUN, "--sizes", "1K", "--iters", "1", "--output", "run")
    scratch_dirs = f"commbench-{process.pid}-*"
    seen = False
    while process.poll() is None:
        seen = seen or any(Path("/dev/shm").glob(scratch_dirs))
        time.sleep(0.01)
    assert process.returncode == 0 and seen
    assert not list(Path("/dev/shm").glob(scratch_dirs))
