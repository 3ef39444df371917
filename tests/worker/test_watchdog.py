"""A watchdog in this process, the heartbeats of ranks, which of them hang or are lost, and what
NCCL's RAS is asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from ras_server import RasServer
from torch.distributed import TCPStore

from commbench.errors import RankError
from commbench.plan.plan import Plan
from commbench.worker.entrypoint import LOCAL, RankContext
from commbench.worker.watchdog.hang_analysis import (
    FileHeartbeats,
    Heartbeat,
    LostRanks,
    TcpStoreHeartbeats,
    diagnose_hang,
    diagnose_lost_ranks,
    longest_check_s,
    longest_iteration_s,
    make_hang_error,
)
from commbench.worker.watchdog.hang_evidence import RasRequest
from commbench.worker.watchdog.rank_state import (
    DONE,
    HANDING_IN,
    HEARTBEATS,
    ITERATION,
    JOINING,
    MEASURING,
    PID,
    STEP,
    WAITING,
    Delays,
    RankState,
    StateBuffer,
    open_state,
    read_state,
    read_states,
    set_phase,
)
from commbench.worker.watchdog.watchdog import Watchdog

PLAN = Plan(operations=("all_reduce",), sizes=(1024, 1 << 26), backend="gloo", device="cpu",
            world_size=3)  # fmt: skip
IN_TORCH = ("/a/coordinator.py:9 run_cases", "/lib/torch/distributed/c10d.py:7 all_reduce")
ELSEWHERE = ("/a/coordinator.py:9 run_cases", "/b/mine.py:3 spin")


def beat(
    iteration: int, stack: tuple[str, ...] = IN_TORCH, *, phase: int = MEASURING, step: int = 7,
    beats: int = 50, host: str = "a",
) -> Heartbeat:  # fmt: skip
    state = RankState(1, beats, step, phase, 1, iteration, 50, 0, 30_000)
    return Heartbeat(host, state, stack)


def later(heartbeats: dict[int, Heartbeat], *stopped: int) -> dict[int, Heartbeat]:
    """The same some heartbeats later, but for those ranks whose watchdogs have stopped."""
    return {
        rank: p if rank in stopped else p._replace(state=p.state._replace(heartbeats=99))
        for rank, p in heartbeats.items()
    }


AWAY = beat(12, ELSEWHERE)
OVER = beat(0, phase=DONE, step=9)


@pytest.mark.parametrize(
    ("beats", "stopped", "expected"),
    [
        ((beat(12), beat(12), beat(11)), (), ((2,), "is behind")),
        ((beat(12), beat(12, phase=HANDING_IN), beat(3, step=8, phase=WAITING)), (),
         ((0,), "is behind")),
        # A rank whose watchdog has stopped, wherever it is.
        ((beat(12), beat(12), beat(13)), (2,), ((2,), "does not answer")),
        ((beat(12), beat(12), beat(13)), (0, 2), ((0, 2), "do not answer")),
        # What a rank does where the others wait.
        ((beat(12), AWAY, beat(12)), (), ((1,), "is at mine.py:3 spin")),
        ((AWAY, AWAY, beat(12)), (), ((0, 1), "are at mine.py:3 spin")),
        ((beat(12), beat(12), beat(12)), (), ((), "all ranks wait")),
        ((OVER, OVER, beat(4)), (0, 1), ((2,), "is behind")),
    ],
)  # fmt: skip
def test_the_rank_that_holds_up_the_others_is_named_with_the_reason(
    beats: tuple[Heartbeat, ...], stopped: tuple[int, ...], expected: tuple[tuple[int, ...], str]
) -> None:
    heartbeats = dict(enumerate(beats))
    assert diagnose_hang(heartbeats, later(heartbeats, *stopped), 3) == expected


def test_the_error_names_what_each_rank_does_since_when_and_shows_the_stack() -> None:
    heartbeats = {0: beat(12), 1: beat(12), 2: beat(11, ELSEWHERE, host="b")}
    error = make_hang_error(
        diagnose_hang(heartbeats, later(heartbeats), 3), heartbeats, PLAN.cases(), 20.0
    )
    name = "measuring all_reduce float32 sum in_place 64 MiB"
    assert error.message == (
        "rank 2 on b is at mine.py:3 spin; "
        f"rank 2 on b made progress 30 s ago, {name}, iteration 12 of 50; "
        f"ranks 0, 1 on a made progress 30 s ago, {name}, iteration 13 of 50"
    )
    assert "--timeout (20 s)" in error.hint
    assert error.details.splitlines() == ["rank 2 on b is at:", *(f"  {c}" for c in ELSEWHERE)]


@pytest.mark.parametrize("checked_s", [20e-6, 1e-3, 0.5, 40.0])
@pytest.mark.parametrize("size", [8 << shift for shift in range(0, 32, 4)])
def test_a_hang_is_seen_after_three_times_the_check(size: int, checked_s: float) -> None:
    assert longest_iteration_s(size, 1, checked_s) == pytest.approx(3 * checked_s)
    assert longest_iteration_s(size, 10, checked_s) == pytest.approx(30 * checked_s)


def test_a_check_may_be_ten_times_slower_than_the_slowest_before() -> None:
    assert longest_check_s(16 << 30, slowest_bps=100e9) == pytest.approx(6.87, abs=0.01)
    assert longest_check_s(16 << 30, slowest_bps=1.0) == longest_check_s(16 << 30)


DOING = "last seen measuring all_reduce float32 sum in_place 64 MiB, iteration 13 of 50"


def lost(
    first: dict[int, Heartbeat], second: dict[int, Heartbeat], rank: int, store_host: str = ""
) -> LostRanks:
    return diagnose_lost_ranks(first, second, rank, 3, store_host, PLAN.cases())


def test_a_rank_without_further_heartbeats_is_lost_and_the_lowest_that_is_left_reports_it() -> None:
    heartbeats = {rank: beat(12) for rank in range(3)}
    message = f"rank 0 on a ended, {DOING}"
    assert lost(heartbeats, later(heartbeats, 0), rank=1) == (message, True)
    assert lost(heartbeats, later(heartbeats, 0), rank=2) == (message, False)
    assert lost(heartbeats, later(heartbeats), rank=2) == ("", True)


def test_a_rank_that_published_a_failure_is_lost_before_those_that_followed_it() -> None:
    heartbeats = {rank: beat(12) for rank in range(3)}
    heartbeats[2] = heartbeats[2]._replace(failure="ValueError: lost")
    message = f"rank 2 on a failed, {DOING}: ValueError: lost"
    assert lost(heartbeats, later(heartbeats, 1), rank=0) == (message, True)


def test_where_the_store_of_rank_0_is_gone_rank_0_is_lost_and_rank_1_reports_it() -> None:
    message = "rank 0 on a ended, or cannot be reached"
    for rank in (1, 2):
        alone = {rank: beat(12)}
        assert lost(alone, later(alone), rank, store_host="a") == (message, rank == 1)


def test_states_in_the_scratch_folder_are_heartbeats(tmp_path: Path) -> None:
    states = [open_state(tmp_path, rank) for rank in range(2)]
    for rank, state in enumerate(states):
        state[PID], state[HEARTBEATS], state[STEP] = 100 + rank, 5, 2
    store = FileHeartbeats(tmp_path, 0)
    store.publish(Heartbeat("here", read_state(states[0]), IN_TORCH))
    heartbeats = store.read()
    assert [heartbeats[rank].state.pid for rank in (0, 1)] == [100, 101]
    assert heartbeats[0].is_in_torch and heartbeats[0].stack == IN_TORCH
    assert not heartbeats[1].stack


@pytest.fixture
def ranks() -> Iterator[list[TcpStoreHeartbeats]]:
    """Three ranks with one store."""
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=5))
    stores = [TcpStoreHeartbeats(("127.0.0.1", server.port), rank, 3, 5.0) for rank in range(3)]
    yield stores
    for store in stores:
        store.close()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ranks_read_in_the_store_what_others_published(ranks: list[TcpStoreHeartbeats]) -> None:
    state = RankState(pid=7, phase=MEASURING, iteration=3)
    ranks[1].publish(Heartbeat("b", state, IN_TORCH, "ValueError: lost", "call 3"))
    ranks[0].publish(Heartbeat("a", RankState()))
    expected = {
        0: ("a", RankState(), (), "", ""),
        1: ("b", state, IN_TORCH, "ValueError: lost", "call 3"),
    }
    wait_for(lambda: ranks[0].read() == expected)  # rank 2 has published nothing


def test_a_lost_rank_that_one_reports_all_notice(ranks: list[TcpStoreHeartbeats]) -> None:
    for rank in ranks:
        rank.publish(Heartbeat("a", RankState()))
    assert not ranks[2].has_lost_rank
    ranks[0].report_lost_rank()

    def is_noticed() -> bool:
        ranks[2].publish(Heartbeat("a", RankState()))
        return ranks[2].has_lost_rank

    wait_for(is_noticed)


def test_what_was_published_before_the_end_can_be_read(ranks: list[TcpStoreHeartbeats]) -> None:
    failed = Heartbeat("b", RankState(), failure="ValueError: lost")
    ranks[1].publish(failed)
    ranks[1].close()
    wait_for(lambda: ranks[0].read() == {1: failed})


CASES = PLAN.cases()


def test_a_state_describes_what_its_rank_does(tmp_path: Path) -> None:
    state = open_state(tmp_path, 1)
    assert read_state(state).describe(CASES) == "starting"
    set_phase(state, JOINING)
    assert read_states(tmp_path)[1].describe(CASES) == "joining the others"
    set_phase(state, MEASURING, 0, 5)
    state[ITERATION] = -2
    assert read_state(state).describe(CASES) == (
        "warming up all_reduce float32 sum in_place 1 KiB, 2 calls before iteration 1"
    )
    state[ITERATION] = 4
    expected = "measuring all_reduce float32 sum in_place 1 KiB, iteration 5 of 5"
    assert read_states(tmp_path)[1].describe(CASES) == expected


PAIR = Plan(operations=("all_reduce",), sizes=(1024,), backend="gloo", device="cpu", world_size=2)
SHORT = Delays().scaled(0.02)


@pytest.fixture
def reports() -> list[tuple[str, bool]]:
    return []


@pytest.fixture
def watchdog(tmp_path: Path, reports: list[tuple[str, bool]]) -> Iterator[Watchdog]:
    """Of rank 0 of two in a scratch folder."""
    context = RankContext(
        rank=0, world_size=2, local_rank=0, local_world_size=2, launcher=LOCAL,
        init_method=f"file:{tmp_path / 'ranks'}", scratch_dir=tmp_path,
    )  # fmt: skip

    def report(error: RankError, is_reporter: bool) -> None:
        reports.append((error.message, is_reporter))

    state, store = open_state(tmp_path, 0), FileHeartbeats(tmp_path, 0)
    watchdog = Watchdog(state, store, context, PAIR, report, SHORT)
    yield watchdog
    watchdog.stop()


def other_rank(tmp_path: Path) -> StateBuffer:
    state = open_state(tmp_path, 1)
    state[PID], state[HEARTBEATS] = 2**22 + 1, 1  # no such process
    return state


def test_heartbeats_are_published_until_the_end(tmp_path: Path, watchdog: Watchdog) -> None:
    assert read_states(tmp_path)[0].pid == os.getpid()
    deadline = time.monotonic() + 10
    while read_states(tmp_path)[0].heartbeats < 4:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    watchdog.stop()
    heartbeats = read_states(tmp_path)[0].heartbeats
    time.sleep(3 * SHORT.heartbeat_s)
    assert read_states(tmp_path)[0].heartbeats == heartbeats


def test_after_a_lost_connection_the_rank_without_heartbeats_is_found_and_reported(
    tmp_path: Path, watchdog: Watchdog, reports: list[tuple[str, bool]]
) -> None:
    other_rank(tmp_path)
    lost = watchdog.find_lost_ranks()
    assert lost.message.startswith("rank 1 on ") and lost.is_reporter
    assert lost.message.endswith(" ended, last seen starting")
    watchdog.report_lost_ranks(lost)
    assert reports == [(lost.message, True)]


def test_at_sigterm_the_rank_whose_process_has_ended_is_reported_once_it_is_not_diagnosed(
    tmp_path: Path, watchdog: Watchdog, reports: list[tuple[str, bool]]
) -> None:
    watchdog.on_sigterm()
    assert not reports  # the ranks of this host are not known yet
    watchdog.local_pids = {0: os.getpid(), 1: other_rank(tmp_path)[PID]}
    watchdog.on_sigterm()
    ((message, is_reporter),) = reports
    assert message.startswith("rank 1 on ") and is_reporter
    watchdog.find_lost_ranks()
    watchdog.on_sigterm()
    assert len(reports) == 1


TERMINATED = """
import os, signal, sys, threading, time
from commbench.worker.watchdog.watchdog import TerminationThread, block_sigterm
block_sigterm()
thread = TerminationThread(lambda: os.write(1, b"reported"), 0.3)
if sys.argv[1] == "closed":
    thread.close()
os.kill(os.getpid(), signal.SIGTERM)
threading.Event().wait(20)
"""


@pytest.mark.parametrize(
    ("when", "printed", "after_s"), [("open", "reported", 0.3), ("closed", "", 0)]
)
def test_sigterm_ends_a_rank_after_its_report_and_at_once_where_it_is_closed(
    when: str, printed: str, after_s: float
) -> None:
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", TERMINATED, when], capture_output=True, text=True, timeout=60,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGTERM, printed, "")
    assert time.monotonic() - began >= after_s


REPORT = b"""\
NCCL version 2.28.9 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          2            1          2        2
"""


def ask(address: str, bound_s: float = 5.0, pids: tuple[int, ...] = ()) -> str:
    return RasRequest(bound_s, {"NCCL_RAS_ADDR": address}, pids).finish()


def test_the_status_is_asked_for_and_its_lines_are_kept() -> None:
    with RasServer(REPORT) as server:
        answer = ask(server.address)
    assert server.requests == [b"timeout 1\n", b"verbose status\n"]
    heading, first, *rest = answer.splitlines()
    assert heading == f"NCCL's RAS at {server.address} says:"
    assert first == "  NCCL version 2.28.9 compiled with CUDA 12.9"
    assert len(rest) == 6
    assert all(line.strip() not in ("", "OK") for line in rest)


def test_what_has_come_when_the_time_is_up_is_kept() -> None:
    began = time.monotonic()
    with RasServer(REPORT, closes=False) as server:
        answer = ask(server.address, 0.4)
    assert 0.35 < time.monotonic() - began < 3
    assert "NCCL version 2.28.9" in answer


def test_only_a_process_of_this_job_is_asked() -> None:
    text = (
        "from ras_server import RasServer\n"
        "with RasServer(b'NCCL version 2.28.9\\n') as server:\n"
        "    print(server.address, flush=True)\n"
        "    input()\n"
        "print(len(server.requests))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[1],
    ) as other:  # fmt: skip
        assert other.stdin and other.stdout
        address = other.stdout.readline().strip()
        assert ask(address, 0.5) == ""
        assert "NCCL version" in ask(address, pids=(other.pid,))
        assert other.communicate("\n")[0] == "2\n"  # the lines of the second request
