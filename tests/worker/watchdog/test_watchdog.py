"""Who keeps everybody waiting: judged from states made by hand, and seen by a real watch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commbench.spec.plan import Plan
from commbench.worker.watchdog.hang_analysis import (
    allowed_s,
    diagnose_hang,
    format_ranks,
    make_hang_error,
)
from commbench.worker.watchdog.heartbeats import FileHeartbeats, Heartbeat
from commbench.worker.watchdog.rank_state import (
    CHECKING,
    DONE,
    HANDING_IN,
    HEARTBEATS,
    ITERATION,
    JOINING,
    MEASURING,
    PID,
    STEP,
    WAITING,
    RankState,
    open_state,
    read_state,
    read_states,
    set_phase,
)

PLAN = Plan(operations=("all_reduce",), sizes=(1024, 1 << 26), backend="gloo", device="cpu",
            world_size=3)  # fmt: skip
IN_TORCH = ("/a/conductor.py:9 perform", "/lib/torch/distributed/c10d.py:7 all_reduce")
ELSEWHERE = ("/a/conductor.py:9 perform", "/b/mine.py:3 spin")


def beat(
    iteration: int, stack: tuple[str, ...] = IN_TORCH, *, phase: int = MEASURING, step: int = 7,
    beats: int = 50, host: str = "a",
) -> Heartbeat:  # fmt: skip
    state = RankState(1, beats, step, phase, 1, iteration, 50, 0, 30_000)
    return Heartbeat(host, state, stack)


def later(heartbeats: dict[int, Heartbeat], *but: int) -> dict[int, Heartbeat]:
    """The same some beats later, but those whose watch has stopped."""
    return {
        rank: p if rank in but else p._replace(state=p.state._replace(heartbeats=99))
        for rank, p in heartbeats.items()
    }


def test_a_rank_that_has_not_come_as_far_as_the_others_is_behind() -> None:
    heartbeats = {0: beat(12), 1: beat(12), 2: beat(11)}
    assert diagnose_hang(heartbeats, later(heartbeats), 3) == ((2,), "is behind")
    heartbeats = {0: beat(12), 1: beat(12, phase=HANDING_IN), 2: beat(3, step=8, phase=WAITING)}
    assert diagnose_hang(heartbeats, later(heartbeats), 3) == ((0,), "is behind")


def test_a_rank_whose_watch_has_stopped_answers_no_more_wherever_it_is() -> None:
    heartbeats = {0: beat(12), 1: beat(12), 2: beat(13)}
    assert diagnose_hang(heartbeats, later(heartbeats, 2), 3) == ((2,), "answers no more")
    assert diagnose_hang(heartbeats, later(heartbeats, 0, 2), 3) == ((0, 2), "answer no more")


def test_a_rank_that_nobody_hears_of_comes_first() -> None:
    heartbeats = {0: beat(12), 1: beat(11)}
    assert diagnose_hang(heartbeats, later(heartbeats, 1), 4) == ((2, 3), "cannot be heard of")


def test_a_rank_that_does_something_else_where_others_wait_is_named_with_it() -> None:
    heartbeats = {0: beat(12), 1: beat(12, ELSEWHERE), 2: beat(12)}
    assert diagnose_hang(heartbeats, later(heartbeats), 3) == ((1,), "is at mine.py:3 spin")
    heartbeats = {0: beat(12, ELSEWHERE), 1: beat(12, ELSEWHERE), 2: beat(12)}
    assert diagnose_hang(heartbeats, later(heartbeats), 3) == ((0, 1), "are at mine.py:3 spin")


def test_where_all_wait_nobody_is_blamed() -> None:
    heartbeats = {rank: beat(12) for rank in range(3)}
    assert diagnose_hang(heartbeats, later(heartbeats), 3) == ((), "all ranks wait")


def test_ranks_that_are_done_keep_nobody_waiting() -> None:
    heartbeats = {0: beat(0, phase=DONE, step=9), 1: beat(0, phase=DONE, step=9), 2: beat(4)}
    assert diagnose_hang(heartbeats, later(heartbeats, 0, 1), 3).culprits == (2,)


def test_the_report_says_who_is_where_since_when_and_shows_the_stack() -> None:
    heartbeats = {0: beat(12), 1: beat(12), 2: beat(11, ELSEWHERE, host="b")}
    told = make_hang_error(
        diagnose_hang(heartbeats, later(heartbeats), 3), heartbeats, PLAN.cases(), 20.0
    )
    name = "measuring all_reduce float32 sum in_place 64 MiB"
    assert told.message == (
        "rank 2 on b is at mine.py:3 spin; "
        f"rank 2 on b moved last 30 s ago, {name}, iteration 12 of 50; "
        f"ranks 0, 1 on a moved last 30 s ago, {name}, iteration 13 of 50"
    )
    assert "--timeout (20 s)" in told.hint
    assert told.details.splitlines() == ["rank 2 on b is at:", *(f"  {c}" for c in ELSEWHERE)]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([3], "3"), ([0, 1], "0, 1"), ([0, 1, 2, 5, 7, 8, 9], "0-2, 5, 7-9"), ([], "")],
)
def test_runs_of_ranks_are_put_together(numbers: list[int], text: str) -> None:
    assert format_ranks(numbers) == text


def test_large_operations_may_take_longer() -> None:
    assert allowed_s(2.0, 0) == 2.0
    assert allowed_s(2.0, 1 << 30) == pytest.approx(109.4, abs=0.1)


def test_states_tell_what_a_rank_does(tmp_path: Path) -> None:
    row = open_state(tmp_path, 1)
    assert read_state(row).describe(PLAN.cases()) == "starting"
    set_phase(row, JOINING)
    assert read_states(tmp_path)[1].describe(PLAN.cases()) == "joining the others"
    set_phase(row, CHECKING, 1)
    assert (
        read_state(row).describe(PLAN.cases()) == "checking all_reduce float32 sum in_place 64 MiB"
    )
    set_phase(row, MEASURING, 0, 5)
    row[ITERATION] = 4
    told = "measuring all_reduce float32 sum in_place 1 KiB, iteration 5 of 5"
    assert read_states(tmp_path)[1].describe(PLAN.cases()) == told


def test_a_state_outlives_its_rank(tmp_path: Path) -> None:
    dies = (
        "import os, sys; from pathlib import Path; from commbench.worker.watchdog.rank_state import *\n"  # noqa: E501
        "row = open_state(Path(sys.argv[1]), 3); row[STEP] = 8; row[PID] = os.getpid()\n"
        "set_phase(row, MEASURING, 1, 50); row[ITERATION] = 17; os.kill(os.getpid(), 9)"
    )
    process = subprocess.Popen([sys.executable, "-c", dies, str(tmp_path)])
    assert process.wait() == -9
    (state,) = read_states(tmp_path).values()
    assert state == RankState(process.pid, 0, 8, MEASURING, 1, 17, 50)


def test_what_lies_on_the_desk_is_on_the_board(tmp_path: Path) -> None:
    rows = [open_state(tmp_path, rank) for rank in range(2)]
    for rank, row in enumerate(rows):
        row[PID], row[HEARTBEATS], row[STEP] = 100 + rank, 5, 2
    store = FileHeartbeats(tmp_path, 0)
    store.publish(Heartbeat("here", read_state(rows[0]), IN_TORCH))
    heartbeats = store.read()
    assert [heartbeats[rank].state.pid for rank in (0, 1)] == [100, 101]
    assert heartbeats[0].is_in_torch and heartbeats[0].stack == IN_TORCH
    assert not heartbeats[1].stack
