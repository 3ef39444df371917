"""The state of a rank: what it says, and that it outlives the rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commbench.spec.plan import Plan
from commbench.worker.watchdog.rank_state import (
    CHECKING,
    HANDING_IN,
    ITERATION,
    JOINING,
    LEAVING,
    MEASURING,
    PROBING,
    WAITING,
    RankState,
    open_state,
    read_state,
    read_states,
    set_phase,
)

CASES = Plan(operations=("all_reduce",), sizes=(1024, 1 << 26), backend="gloo", device="cpu",
             world_size=3).cases()  # fmt: skip


def test_a_state_describes_what_its_rank_does(tmp_path: Path) -> None:
    state = open_state(tmp_path, 1)
    assert read_state(state).describe(CASES) == "starting"
    set_phase(state, JOINING)
    assert read_states(tmp_path)[1].describe(CASES) == "joining the others"
    set_phase(state, CHECKING, 1)
    assert read_state(state).describe(CASES) == "checking all_reduce float32 sum in_place 64 MiB"
    set_phase(state, MEASURING, 0, 5)
    state[ITERATION] = -2
    assert read_state(state).describe(CASES) == (
        "warming up all_reduce float32 sum in_place 1 KiB, 2 calls before iteration 1"
    )
    state[ITERATION] = 4
    expected = "measuring all_reduce float32 sum in_place 1 KiB, iteration 5 of 5"
    assert read_states(tmp_path)[1].describe(CASES) == expected


def test_a_state_outlives_its_rank(tmp_path: Path) -> None:
    dies = (
        "import os, sys; from pathlib import Path; from commbench.worker.watchdog.rank_state import *\n"  # noqa: E501
        "state = open_state(Path(sys.argv[1]), 3); state[STEP] = 8; state[PID] = os.getpid()\n"
        "set_phase(state, MEASURING, 1, 50); state[ITERATION] = 17; os.kill(os.getpid(), 9)"
    )
    process = subprocess.Popen([sys.executable, "-c", dies, str(tmp_path)])
    assert process.wait() == -9
    (found,) = read_states(tmp_path).values()
    assert found == RankState(process.pid, 0, 8, MEASURING, 1, 17, 50)


@pytest.mark.parametrize(("phase", "verb"), [(HANDING_IN, "measuring"), (CHECKING, "checking")])
def test_a_rank_between_batches_names_its_last_case(phase: int, verb: str) -> None:
    state = open_state(None, 0)
    set_phase(state, PROBING)
    set_phase(state, WAITING)
    assert read_state(state).describe(CASES) == "waiting for the next command of rank 0"
    set_phase(state, phase, 1)
    set_phase(state, WAITING)
    expected = f"between batches, after {verb} all_reduce float32 sum in_place 64 MiB"
    assert read_state(state).describe(CASES) == expected
    set_phase(state, LEAVING)
    assert read_state(state).describe(CASES) == "leaving"
