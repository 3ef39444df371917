"""Which ranks hang or are lost, diagnosed from synthetic heartbeats."""

from __future__ import annotations

import pytest

from commbench.spec.plan import Plan
from commbench.worker.watchdog.hang_analysis import (
    LostRanks,
    diagnose_hang,
    diagnose_lost_ranks,
    format_ranks,
    longest_check_s,
    longest_iteration_s,
    make_hang_error,
)
from commbench.worker.watchdog.heartbeats import Heartbeat
from commbench.worker.watchdog.rank_state import DONE, HANDING_IN, MEASURING, WAITING, RankState

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
        (
            (beat(12), beat(12, phase=HANDING_IN), beat(3, step=8, phase=WAITING)),
            (),
            ((0,), "is behind"),
        ),
        # A rank whose watchdog has stopped, wherever it is.
        ((beat(12), beat(12), beat(13)), (2,), ((2,), "does not answer")),
        ((beat(12), beat(12), beat(13)), (0, 2), ((0, 2), "do not answer")),
        # What a rank does where the others wait.
        ((beat(12), AWAY, beat(12)), (), ((1,), "is at mine.py:3 spin")),
        ((AWAY, AWAY, beat(12)), (), ((0, 1), "are at mine.py:3 spin")),
        ((beat(12), beat(12), beat(12)), (), ((), "all ranks wait")),
        ((OVER, OVER, beat(4)), (0, 1), ((2,), "is behind")),
    ],
)
def test_the_rank_that_holds_up_the_others_is_named_with_the_reason(
    beats: tuple[Heartbeat, ...],
    stopped: tuple[int, ...],
    expected: tuple[tuple[int, ...], str],
) -> None:
    heartbeats = dict(enumerate(beats))
    assert diagnose_hang(heartbeats, later(heartbeats, *stopped), 3) == expected


def test_a_rank_without_heartbeats_is_named_first() -> None:
    heartbeats = {0: beat(12), 1: beat(11)}
    assert diagnose_hang(heartbeats, later(heartbeats, 1), 4) == ((2, 3), "cannot be reached")


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


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([3], "3"), ([0, 1], "0, 1"), ([0, 1, 2, 5, 7, 8, 9], "0-2, 5, 7-9"), ([], "")],
)
def test_consecutive_ranks_are_written_as_a_range(numbers: list[int], text: str) -> None:
    assert format_ranks(numbers) == text


@pytest.mark.parametrize("checked_s", [20e-6, 1e-3, 0.5, 40.0])
@pytest.mark.parametrize("size", [8 << shift for shift in range(0, 32, 4)])
def test_a_hang_is_seen_after_the_timeout_and_three_times_what_the_check_took(
    size: int, checked_s: float
) -> None:
    assert longest_iteration_s(size, 1, checked_s) == pytest.approx(3 * checked_s)
    assert longest_iteration_s(size, 10, checked_s) == pytest.approx(30 * checked_s)


def test_without_a_check_the_bytes_tell_how_long_an_operation_may_take() -> None:
    assert longest_iteration_s(1 << 30, 1, 0.0) == pytest.approx(107.4, abs=0.1)
    assert longest_check_s(1 << 30) == pytest.approx(429.5, abs=0.1)


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


def test_a_rank_that_never_published_is_lost() -> None:
    heartbeats = {0: beat(12), 1: beat(12)}
    assert lost(heartbeats, later(heartbeats), rank=0) == ("rank 2 ended", True)


def test_where_the_store_of_rank_0_is_gone_rank_0_is_lost_and_rank_1_reports_it() -> None:
    message = "rank 0 on a ended, or cannot be reached"
    for rank in (1, 2):
        alone = {rank: beat(12)}
        assert lost(alone, later(alone), rank, store_host="a") == (message, rank == 1)
