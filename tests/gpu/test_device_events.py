"""What the timer of a GPU says, against durations that are known otherwise: spins of a calibrated
length, and copies timed by the host's clock. One rank, in this process.

Run by scripts/gpu_check, with whatever torch the machine has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import pytest
import torch
import torch.distributed as dist

from commbench.worker.communicator import Communicator, connect
from commbench.worker.device import Accelerator
from commbench.worker.measure import DeviceEventTimer, by_turns, loop_overhead_s, timed_loop
from commbench.worker.watchdog.rank_state import open_state

pytestmark = pytest.mark.gpu

ITERATIONS = 20
FASTEST_MEMORY_BPS = 8e12
"""Bytes per second that the memory of no GPU of today reaches."""


@pytest.fixture(scope="module")
def comm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Communicator]:
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "ranks"), 1)
    device = Accelerator("cuda", 0)
    dist.init_process_group("nccl", rank=0, world_size=1, store=store)
    comm = Communicator(0, 1, device, dist.group.WORLD)
    connect(comm)
    yield comm
    dist.destroy_process_group()


def measured(timer: DeviceEventTimer, call: Callable[[], object]) -> float:
    """Seconds of a call by the timer: the median of the last of three batches."""
    for _ in range(3):
        start, stop = timer.prepare(ITERATIONS)
        timed_loop(call, timer.align, start, stop, ITERATIONS, open_state(None, 0))
        durations, _starts = timer.collect()
    return median(durations) * 1e-9


def by_wall_clock(call: Callable[[], object], calls: int) -> float:
    """Seconds of a call, from so many back to back: the median of five such rows."""
    rows = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        rows.append((time.perf_counter() - began) / calls)
    return median(rows)


@pytest.mark.parametrize("seconds", [20e-6, 1e-3, 50e-3])
def test_timing_of_a_known_duration_is_within_two_percent(
    comm: Communicator, seconds: float, record_property: Callable[[str, object], None]
) -> None:
    by_wall_clock(lambda: torch.cuda._sleep(10_000_000), 10)  # raises the clock of an idle GPU
    cycles = round(seconds * 1e6 / by_wall_clock(lambda: torch.cuda._sleep(1_000_000), 50))
    known = by_wall_clock(lambda: torch.cuda._sleep(cycles), max(5, int(0.05 / seconds)))
    timer = DeviceEventTimer(comm)
    found = measured(timer, lambda: torch.cuda._sleep(cycles))
    # Two events take about 1.3 us, and two kernels of a row follow each other after about as long.
    record_property("found_us", round(found * 1e6, 2))
    record_property("known_us", round(known * 1e6, 2))
    assert abs(found - known) < 0.02 * known + loop_overhead_s(timer) + timer.resolution_s


def test_timing_leaves_out_what_the_host_needs_to_queue_a_call(comm: Communicator) -> None:
    def call() -> None:
        time.sleep(1e-3)
        torch.cuda._sleep(400_000)

    alone = measured(DeviceEventTimer(comm), lambda: torch.cuda._sleep(400_000))
    patient, hasty = DeviceEventTimer(comm), DeviceEventTimer(comm)
    patient._spin_s = 5e-3
    assert measured(patient, call) == pytest.approx(alone, rel=0.05)
    assert sum(patient.late) == 0
    hasty._spin_s = 0.0
    start, stop = hasty.prepare(ITERATIONS)
    timed_loop(call, hasty.align, start, stop, ITERATIONS, open_state(None, 0))
    assert median(hasty.collect()[0]) * 1e-9 > alone + 0.5e-3
    assert sum(hasty.late) > ITERATIONS / 2


def test_timing_two_events_in_a_row_takes_a_few_microseconds(comm: Communicator) -> None:
    assert 0 <= loop_overhead_s(DeviceEventTimer(comm)) < 5e-6


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("size", [1 << 20, 1 << 26, 1 << 30, 16 << 30])
def test_copies_of_one_rank_take_as_long_as_torchs(
    comm: Communicator, operation: str, size: int
) -> None:
    if torch.cuda.mem_get_info()[0] < 2.2 * size:
        pytest.skip("too little memory")
    send, receive = (torch.ones(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    calls = {
        "all_gather": lambda: dist.all_gather_into_tensor(receive, send),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(receive, send),
    }
    found = measured(DeviceEventTimer(comm), calls[operation])
    known = by_wall_clock(lambda: receive.copy_(send), 20)
    assert 2 * size / found < FASTEST_MEMORY_BPS
    # Below some tens of microseconds the host's clock sees launches.
    assert found <= 1.05 * known + 5e-6
    if size >= 1 << 26:
        assert found == pytest.approx(known, rel=0.05)


def test_timing_of_the_waits_between_two_streams_is_short(
    comm: Communicator, record_property: Callable[[str, object], None]
) -> None:
    """What send_recv has in its window besides the transfer."""
    side = torch.cuda.Stream()

    def call() -> None:
        side.wait_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(side)

    waits_s = measured(DeviceEventTimer(comm), call)
    record_property("waits_us", round(waits_s * 1e6, 2))
    assert 0 <= waits_s < 50e-6


def test_copies_within_a_cache_are_no_slower_than_those_that_rotate(
    comm: Communicator, record_property: Callable[[str, object], None]
) -> None:
    size, pieces = 8 << 20, 64
    send, receive = (torch.ones(size * pieces, dtype=torch.uint8, device="cuda") for _ in range(2))
    calls = [
        partial(dist.all_gather_into_tensor, receive[at : at + size], send[at : at + size])
        for at in range(0, size * pieces, size)
    ]
    hot, rotating = (
        measured(DeviceEventTimer(comm), by_turns(used, 0)) for used in (calls[:1], calls)
    )
    record_property("hot_us", round(hot * 1e6, 2))
    record_property("rotating_us", round(rotating * 1e6, 2))
    assert rotating >= 0.95 * hot


def test_clock_power_and_temperature_are_read_where_the_package_is_installed(
    comm: Communicator,
) -> None:
    pytest.importorskip("pynvml")
    began = time.perf_counter()
    state = comm.device.read_state()
    assert time.perf_counter() - began < 0.1
    assert state
    assert 100 < (state.clock_mhz or 0) < 5000
    assert 1 < (state.power_w or 0) < 5000
    assert 0 < (state.temperature_c or 0) < 120
