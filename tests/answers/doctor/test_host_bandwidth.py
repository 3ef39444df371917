"""Ceilings measured for real, in very little time; and processes that die while they measure."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from commbench.answers.doctor.host_bandwidth import (
    measure_copy_rate,
    measure_host_bandwidth,
    measure_loopback,
    measure_round_trip,
    run_parallel,
)
from commbench.host.facts import HostFacts

# pytest's own threads do not matter to what is forked here.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")

Ready = Callable[[], None]


def children() -> list[str]:
    return Path("/proc/self/task").joinpath(str(os.getpid()), "children").read_text().split()


def test_a_job_that_dies_is_an_error_and_takes_the_others_along() -> None:
    def sound(ready: Ready) -> list[float]:
        ready()
        return [1.0]

    def dies(ready: Ready) -> list[float]:  # noqa: ARG001
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    before = children()  # such as the server that tests fork commands from
    with pytest.raises(ChildProcessError):
        run_parallel([sound, dies])
    assert children() == before


def test_loopback_carries_bytes_and_answers() -> None:
    for found in (measure_loopback(0.01), measure_round_trip(0.01)):
        assert found is not None
        assert 0 < found.ends[0] <= found.value <= found.ends[1]


def test_memory_is_copied_by_one_and_by_two() -> None:
    for cores in (1, 2):
        found = measure_copy_rate(cores, 1 << 20, seconds=0.01)
        assert found is not None and 0 < found.ends[0] <= found.value <= found.ends[1]


def test_all_ceilings_are_measured_and_no_process_is_left() -> None:
    before = children()
    found = measure_host_bandwidth(
        HostFacts("host", (0, 1), 2, cache_bytes=1 << 20, fifo_permitted=None), seconds=1.0
    )
    assert all(found[:4])
    assert (found.cores, found.undisturbed) == (2, False)
    assert children() == before
