"""A watchdog in this process, the heartbeats of ranks, which of them hang or are lost, and what
NCCL's RAS is asked."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
from ras_server import RasServer
from torch.distributed import TCPStore

from commbench.errors import RankError
from commbench.plan.plan import Plan
from commbench.worker.entrypoint import LOCAL, RankContext
from commbench.worker.watchdog import hangs, heartbeats, rank_state
from commbench.worker.watchdog.heartbeats import HANGS, LOST, Diagnosis, Heartbeat, HostFolder
from commbench.worker.watchdog.rank_state import Delays, open_state, read_state, read_states
from commbench.worker.watchdog.shared_folder import SharedFolder
from commbench.worker.watchdog.watchdog import Watchdog

PLAN = Plan(operations=("all_reduce",), sizes=(1024, 1 << 26), backend="gloo", device="cpu",
            world_size=3)  # fmt: skip
IN_TORCH = ("/a/coordinator.py:9 run_cases", "/lib/torch/distributed/c10d.py:7 all_reduce")
ELSEWHERE = ("/a/coordinator.py:9 run_cases", "/b/mine.py:3 spin")


def beat(
    iteration: int, stack: tuple[str, ...] = IN_TORCH, *, phase: int = rank_state.MEASURING,
    step: int = 7, host: str = "a",
) -> Heartbeat:  # fmt: skip
    state = rank_state.RankState(1, 50, step, phase, 1, iteration, 50, 0, 30_000)
    return Heartbeat(host, state, stack)


def silenced(heartbeats: dict[int, Heartbeat], *stopped: int) -> dict[int, Heartbeat]:
    """The same, where the watchdogs of these ranks have stopped."""
    return {
        rank: p._replace(missed=rank_state.MISSED_BEATS if rank in stopped else 1)
        for rank, p in heartbeats.items()
    }


AWAY = beat(12, ELSEWHERE)
SENDING = beat(12, phase=rank_state.HANDING_IN)
NEXT = beat(3, step=8, phase=rank_state.WAITING)
OVER = beat(0, phase=rank_state.DONE, step=9)


@pytest.mark.parametrize(
    ("beats", "stopped", "expected"),
    [
        ((beat(12), beat(12), beat(11)), (), ((2,), "is behind")),
        ((beat(12), SENDING, NEXT), (), ((0,), "is behind")),
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
    known = dict(enumerate(beats))
    assert hangs.diagnose_hang(silenced(known, *stopped), 3) == expected


def test_the_error_names_what_each_rank_does_since_when_and_shows_the_stack() -> None:
    heartbeats = {0: beat(12), 1: beat(12), 2: beat(11, ELSEWHERE, host="b")}
    found = hangs.diagnose_hang(heartbeats, 3)
    error = hangs.make_hang_error(*found, heartbeats, replace(PLAN, timeout_s=20.0))
    name = "measuring all_reduce float32 sum in_place 64 MiB"
    assert error.message == (
        "rank 2 on b is at mine.py:3 spin; "
        f"rank 2 on b has made no progress for 30 s, {name}, iteration 12 of 50; "
        f"ranks 0, 1 on a have made no progress for 30 s, {name}, iteration 13 of 50"
    )
    assert "--timeout (20 s)" in error.hint
    assert error.details.splitlines() == ["rank 2 on b is at:", *(f"  {c}" for c in ELSEWHERE)]


@pytest.mark.parametrize(
    ("cpu_mode", "stopped", "is_named"),
    [("realtime", (2,), True), ("realtime", (), False), ("quiet", (2,), False)],
)
def test_where_a_rank_does_not_answer_its_realtime_mode_is_named(
    cpu_mode: str, stopped: tuple[int, ...], is_named: bool
) -> None:
    heartbeats = silenced({0: beat(12), 1: beat(12), 2: beat(11)}, *stopped)
    found = hangs.diagnose_hang(heartbeats, 3)
    error = hangs.make_hang_error(*found, heartbeats, replace(PLAN, cpu_mode=cpu_mode))
    assert error.hint.endswith("other threads: try --cpu-mode plain") == is_named


def test_a_call_may_take_three_times_its_check_and_a_check_ten_times_the_slowest() -> None:
    for size, checked_s in product((8, 1 << 20, 1 << 31), (20e-6, 0.5, 40.0)):
        assert hangs.longest_iteration_s(size, 10, checked_s) == pytest.approx(30 * checked_s)
    assert hangs.longest_check_s(16 << 30, slowest_bps=100e9) == pytest.approx(6.87, abs=0.01)
    assert hangs.longest_check_s(16 << 30, slowest_bps=1.0) == hangs.longest_check_s(16 << 30)


DOING = "last seen measuring all_reduce float32 sum in_place 64 MiB, iteration 13 of 50"


def diagnosed(
    heartbeats: dict[int, Heartbeat], rank: int = 0, why: str = LOST, is_store_lost: bool = False,
    world_size: int = 3,
) -> Diagnosis:  # fmt: skip
    context = RankContext(rank, world_size, 0, 1, "srun", "tcp://a:1")
    plan = replace(PLAN, timeout_s=20.0)
    return hangs.diagnose(context, plan, None, why, heartbeats, is_store_lost)


def test_a_rank_without_further_heartbeats_is_lost_and_the_lowest_that_is_left_reports_it() -> None:
    heartbeats = {rank: beat(12) for rank in range(3)}
    found = diagnosed(silenced(heartbeats, 0), rank=1)
    assert (found.message, found.reporter) == (f"rank 0 on a ended, {DOING}", 1)
    assert (found.ranks, found.silent) == ((0,), (0,))
    assert diagnosed(silenced(heartbeats), rank=2).message == ""


def test_a_rank_that_published_a_failure_is_lost_before_those_that_followed_it() -> None:
    heartbeats = {rank: beat(12) for rank in range(3)}
    heartbeats[2] = heartbeats[2]._replace(failure="ValueError: lost")
    message = f"rank 2 on a failed, {DOING}: ValueError: lost"
    for why in (LOST, HANGS):  # it did not end: what it has under way may wait
        assert diagnosed(silenced(heartbeats, 1), 0, why).message == message


@pytest.mark.parametrize("rank", [1, 2])
def test_where_the_store_of_rank_0_is_gone_rank_0_is_lost_and_rank_1_reports_it(rank: int) -> None:
    found = diagnosed({rank: beat(12)}, rank, is_store_lost=True)
    assert found.message == "rank 0 on a ended, or cannot be reached"
    assert (found.reporter == rank) is (rank == 1)


def test_many_ranks_that_are_lost_are_named_in_a_line() -> None:
    heartbeats = {rank: beat(12, host=f"n{rank // 8}") for rank in range(1000)}
    odd = diagnosed(silenced(heartbeats, *range(1, 1000, 2)), world_size=1000)
    assert len(odd.message) < 400
    assert "ranks 1, 3, 5, " in odd.message and " and more, 500 ranks in all ended" in odd.message
    away = {rank: beat(rank % 50, host=f"n{rank // 8}") for rank in range(1000)}
    hang = diagnosed(away, why=HANGS, world_size=1000)
    assert len(hang.message) < 4000 and " other ranks elsewhere" in hang.message
    assert len(hang.details.splitlines()) <= 30


def test_states_and_what_ranks_tell_are_heartbeats(tmp_path: Path) -> None:
    states = [open_state(tmp_path, rank) for rank in range(2)]
    for rank, state in enumerate(states):
        state[rank_state.PID], state[rank_state.HEARTBEATS] = 100 + rank, 5
    folder = HostFolder(tmp_path)
    folder.tell(0, IN_TORCH, "", "call 3")
    heartbeats = folder.heartbeats({1: 2})
    assert [heartbeats[rank].state.pid for rank in (0, 1)] == [100, 101]
    assert heartbeats[0].is_in_torch and heartbeats[0].stack == IN_TORCH
    assert (heartbeats[0].recorded, heartbeats[0].missed) == ("call 3", 0)
    assert (heartbeats[1].stack, heartbeats[1].missed) == ((), 2)


def test_a_record_of_a_host_has_what_its_ranks_tell_once() -> None:
    told = {rank: beat(rank)._replace(missed=rank) for rank in range(8)}
    told = {r: b._replace(state=b.state._replace(rank=r)) for r, b in told.items()}
    assert heartbeats.decode_record(heartbeats.encode_record(told)) == told
    silent = {rank: each._replace(stack=()) for rank, each in told.items()}
    assert len(heartbeats.encode_record(told)) < len(heartbeats.encode_record(silent)) + 200


def test_a_host_that_does_not_answer_is_silent() -> None:
    one, two = ({r: beat(1)._replace(state=rank_state.RankState(5, rank=r))} for r in (0, 1))
    first = {"a": heartbeats.encode_record(one), "b": heartbeats.encode_record(two)}
    found = heartbeats.join_records(first, {"a": heartbeats.encode_record(one), "b": b"!"})
    assert [found[rank].is_silent for rank in (0, 1)] == [False, True]


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=5))
    yield "127.0.0.1", server.port


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_message_replaces_a_record_and_is_returned_once(address: tuple[str, int]) -> None:
    clients = [
        TCPStore(*address, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=5))
        for _ in range(3)
    ]
    one, two, after = map(heartbeats.StoreRecords, clients, "abb")
    assert one.beat(b"x1") == two.beat(b"x2") == b""
    assert one.read() == {"a": b"x1", "b": b"x2"}
    assert one.claim(takes_over=False) and not two.claim(takes_over=False)
    one.send(b"!")
    assert two.read() == {"a": b"!", "b": b"!"}
    assert (two.beat(b"x3"), two.beat(b"x4")) == (b"!", b"")
    assert one.read() == {"a": b"!", "b": b"x4"}
    assert after.beat(b"x5") == b""  # by the leader that follows
    assert one.read()["b"] == b"x5"
    assert two.claim(takes_over=True)  # from one that has not come to an end
    two.release()
    assert one.claim(takes_over=False)


def test_ranks_of_a_host_find_a_folder_that_the_last_removes(address: tuple[str, int]) -> None:
    found = [SharedFolder(address, rank, 5.0) for rank in range(3)]
    (path,) = {each.path for each in found}
    assert path.stat().st_mode & 0o777 == 0o700
    for each in found:
        assert path.exists()
        each.close()
    assert not path.exists()


NO_PROCESS = 2**22 + 1
"""More than the highest pid that a kernel gives."""


@contextmanager
def leading(
    parent: Path, address: tuple[str, int], *hosts: Sequence[int], lost: int
) -> Iterator[list[HostFolder]]:
    """Hosts with these ranks, of which one has ended; the last rank of each host leads it."""
    folders, leaders = [], []
    for ranks in hosts:
        path = parent / f"host{ranks[0]}"
        path.mkdir()
        for rank in ranks:
            state = open_state(path, rank)
            state[rank_state.PID] = NO_PROCESS if rank == lost else os.getpid()
        context = RankContext(
            rank=rank, world_size=3, local_rank=0, local_world_size=len(ranks), launcher="srun",
            init_method=f"tcp://{address[0]}:{address[1]}",
        )  # fmt: skip
        folders.append(HostFolder(path))
        leaders.append(
            heartbeats.HostLeader(
                folders[-1], context, Delays().scaled(0.1),
                lambda why, beats, lost, rank=rank: diagnosed(beats, rank, why, lost),
            )
        )  # fmt: skip
    for leader in leaders:
        leader.look()
    yield folders
    for leader in leaders:
        leader.close()


def diagnosis_of(hosts: list[HostFolder]) -> Diagnosis:
    """The one diagnosis that reaches all hosts."""
    wait_for(lambda: all(host.read() for host in hosts))
    (found,) = {host.read() for host in hosts}
    assert found and not any(host.asked for host in hosts)
    return found


def test_one_diagnosis_is_made_and_reaches_every_host(
    address: tuple[str, int], tmp_path: Path
) -> None:
    with leading(tmp_path, address, [0], [1], [2], lost=1) as hosts:
        time.sleep(0.3)
        hosts[2].ask(LOST)
        hosts[0].ask(LOST)
        found = diagnosis_of(hosts)
    assert found.message.startswith("rank 1 on ")
    assert " ended, last seen starting" in found.message and found.reporter == 0


def test_where_rank_0_ended_with_the_store_its_host_opens_another_and_one_rank_reports(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with leading(tmp_path, address, [2], [0, 1], lost=0) as hosts:
        hosts[0].ask(LOST)
        found = diagnosis_of(hosts)
    assert found.message.startswith("rank 0 on ")
    assert " ended, last seen starting" in found.message and found.reporter == 1


CASES = PLAN.cases()


def test_a_state_describes_what_its_rank_does(tmp_path: Path) -> None:
    state = open_state(tmp_path, 1)
    assert read_state(state).describe(CASES) == "starting"
    rank_state.set_phase(state, rank_state.JOINING)
    assert read_states(tmp_path)[1].describe(CASES) == "joining the others"
    rank_state.set_phase(state, rank_state.MEASURING, 0, 5)
    state[rank_state.ITERATION] = -2
    assert read_state(state).describe(CASES) == (
        "warming up all_reduce float32 sum in_place 1 KiB, 2 calls before iteration 1"
    )
    state[rank_state.ITERATION] = 4
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

    def report(error: RankError) -> None:
        reports.append((error.message, error.is_reporter))

    watchdog = Watchdog(context, PAIR, report, SHORT)
    yield watchdog
    watchdog.stop()


def lose_rank_1(tmp_path: Path) -> None:
    state = open_state(tmp_path, 1)
    state[rank_state.PID], state[rank_state.HEARTBEATS] = NO_PROCESS, 1


def test_the_first_rank_of_a_host_that_lives_leads_it(tmp_path: Path) -> None:
    every = [rank_state.open_states(tmp_path, rank) for rank in (5, 3, 4)]
    first, second, third = (rank_state.own_state(states) for states in every)
    of_first, of_second, of_third = map(rank_state.Predecessors, every)
    for _ in range(2 * rank_state.MISSED_BEATS):
        first[rank_state.HEARTBEATS] += 1
        assert of_second.is_any_alive() and of_third.is_any_alive()
    assert not of_first.is_any_alive()
    found = [of_second.is_any_alive() for _ in range(2 * rank_state.MISSED_BEATS)]
    assert found == sorted(found, reverse=True) and found[0] and not found[-1]
    second[rank_state.HEARTBEATS] += 1
    first[rank_state.PHASE] = rank_state.DONE
    assert of_third.is_any_alive()
    second[rank_state.PID] = NO_PROCESS
    assert not of_third.is_any_alive()
    assert read_states(tmp_path).keys() == {5, 3, 4} and read_state(third).rank == 4


def test_heartbeats_are_published_until_the_end(tmp_path: Path, watchdog: Watchdog) -> None:
    assert read_states(tmp_path)[0].pid == os.getpid()
    wait_for(lambda: read_states(tmp_path)[0].heartbeats >= 4)
    watchdog.stop()
    heartbeats = read_states(tmp_path)[0].heartbeats
    time.sleep(3 * SHORT.heartbeat_s)
    assert read_states(tmp_path)[0].heartbeats == heartbeats


def test_after_a_lost_connection_the_rank_without_heartbeats_is_found_and_reported(
    tmp_path: Path, watchdog: Watchdog, reports: list[tuple[str, bool]]
) -> None:
    lose_rank_1(tmp_path)
    lost = watchdog.find_lost_ranks()
    assert lost.message.startswith("rank 1 on ") and lost.reporter == 0
    assert lost.message.endswith(" ended, last seen starting")
    watchdog.report_lost_ranks(lost)
    assert reports == [(lost.message, True)]


def test_at_sigterm_the_rank_whose_process_has_ended_is_reported_once_it_is_not_diagnosed(
    tmp_path: Path, watchdog: Watchdog, reports: list[tuple[str, bool]]
) -> None:
    watchdog.on_sigterm()
    assert not reports  # no rank is missing
    lose_rank_1(tmp_path)
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCCL_RAS_ADDR", address)
        return hangs.RasRequest(bound_s, pids).finish()


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
