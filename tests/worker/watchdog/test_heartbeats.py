"""Heartbeats that ranks publish in a folder, or in a real TCPStore."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from commbench.worker.watchdog.heartbeats import FileHeartbeats, Heartbeat, TcpStoreHeartbeats
from commbench.worker.watchdog.rank_state import (
    HEARTBEATS,
    MEASURING,
    PID,
    STEP,
    RankState,
    open_state,
    read_state,
)

IN_TORCH = ("/a/coordinator.py:9 run_cases", "/lib/torch/distributed/c10d.py:7 all_reduce")


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


def test_what_was_published_before_the_store_is_closed_can_be_read(
    ranks: list[TcpStoreHeartbeats],
) -> None:
    failed = Heartbeat("b", RankState(), failure="ValueError: lost")
    ranks[1].publish(failed)
    ranks[1].close()
    wait_for(lambda: ranks[0].read() == {1: failed})
