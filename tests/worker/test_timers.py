"""How long a stand-in for a GPU spins before a call, and which calls the host's clock times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Commbench, Ended
from fake_device import Fake, FakeDevice, program_text

from commbench.results.workload_file import write_workload
from commbench.spec.workload import Call, Program, Step, Workload
from commbench.worker.communicator import Communicator
from commbench.worker.measure import timed_loop
from commbench.worker.timers import DeviceEventTimer
from commbench.worker.watchdog.rank_state import open_state

ON_FAKE = ("--backend", "gloo", "--device", "fake", "--no-plots", "--no-nccl-log")
BLOCKING = ("barrier", "all_gather_object", "broadcast_object_list")


def has_queued(ended: Ended, case: int) -> bool:
    """Whether iterations of a case were queued on the device, and timed there."""
    (found,) = {batch.get("enqueue_s") is not None for batch in ended.batches(case)}
    return found


@pytest.mark.parametrize(("timing", "iterations"), [("isolated", "60"), ("pipelined", "4")])
def test_what_the_host_does_in_a_call_counts_whatever_the_device_does_meanwhile(
    program: Commbench, timing: str, iterations: str
) -> None:
    fake = Fake(before_s=1e-3, after_s=0.2e-3)
    options = ("--op", ",".join(("all_reduce", *BLOCKING)), "--sizes", "1K", "--iters", iterations)
    ended = program(program_text(fake), *ON_FAKE, *options, "--timing", timing)
    assert ended.code == 0, ended.err
    for case, row in zip(ended.cases(), ended.rows(), strict=True):
        is_blocking = row["operation"] in BLOCKING
        assert has_queued(ended, case["case"]["index"]) != is_blocking
        if is_blocking:  # the stand-in sleeps for at least so long, in every call
            assert float(row["time_min_us"]) >= 1200, row["operation"]
            assert "launch_bound" not in row["warnings"]


def test_calls_that_block_the_host_are_timed_in_groups_that_call_alone(program: Commbench) -> None:
    fake = Fake(uuids=("GPU-0", "GPU-1", "GPU-2", "GPU-3"), before_s=1e-3)
    options = ("--op", "barrier", "--iters", "4", "--group-size", "2", "--concurrency", "both")
    ended = program(program_text(fake), *ON_FAKE, *options, "--nproc-per-node", "4")
    assert ended.code == 0, ended.err
    assert {(row["concurrency"], row["status"]) for row in ended.rows()} == {
        ("together", "ok"), ("alone", "ok")
    }  # fmt: skip
    assert all(float(row["time_min_us"]) >= 1000 for row in ended.rows())


@pytest.mark.parametrize("blocks", [True, False])
def test_a_step_with_a_call_that_blocks_the_host_is_timed_by_the_host(
    program: Commbench, tmp_path: Path, blocks: bool
) -> None:
    reduction = Call("all_reduce", "world", "float32", 1024, reduce_op="sum")
    calls = (reduction, Call("barrier", "world"), reduction) if blocks else (reduction,)
    step = Step("train", (Program((0, 1), calls),))
    everyone = {"world": ((0, 1),)}
    write_workload(tmp_path / "step.json", Workload("step", "a test", 2, everyone, (step,)))
    options = ("--workload", str(tmp_path / "step.json"), "--iters", "4")
    ended = program(program_text(Fake()), *ON_FAKE, *options)
    assert ended.code == 0, ended.err
    (index,) = (c["case"]["index"] for c in ended.cases() if c["case"].get("variant") == "calls")
    assert has_queued(ended, index) != blocks


class Spinning(FakeDevice):
    """Notes how long it spins."""

    def __init__(self, fake: Fake) -> None:
        super().__init__(0, fake)
        self.spins_s: list[float] = []

    def spin(self, seconds: float) -> None:
        self.spins_s.append(seconds)
        super().spin(seconds)


def timer_of(device: FakeDevice) -> DeviceEventTimer:
    timer = DeviceEventTimer(Communicator(0, 1, device))
    timer.aligner = device.in_stream(lambda: None)
    return timer


def late(timer: DeviceEventTimer, call: Callable[[], object], iterations: int = 4) -> int:
    """How many iterations of a batch of these calls are late."""
    timed_loop(call, timer.align, *timer.prepare(iterations), iterations, open_state(None, 0))
    timer.collect()
    host = timer.host_times()
    assert host
    return sum(host.is_late)


def test_a_call_that_is_late_makes_the_device_spin_longer_for_calls_of_its_kind_only() -> None:
    device = Spinning(Fake(enqueue_s=0.0))
    timer = timer_of(device)
    for kind in ("late", "other", "late"):
        timer.align_over(None, kind)
        late(timer, device.synchronize if kind == "late" else device.in_stream(lambda: None))
    first, other, again = device.spins_s[:4], device.spins_s[4:8], device.spins_s[8:]
    assert {*first} == {*other}
    assert min(again) >= 2 * max(first)


def test_the_device_spins_until_the_host_has_queued_even_a_long_iteration() -> None:
    device = Spinning(Fake(enqueue_s=1e-3))
    timer = timer_of(device)
    queue = device.in_stream(lambda: None)

    def call() -> None:
        for _ in range(9):
            queue()

    assert late(timer, call) > 0
    assert min(late(timer, call) for _ in range(5)) <= 1
    assert device.spins_s[-1] >= 18e-3  # twice what the host needs


def test_a_host_that_waits_for_the_device_does_not_make_it_spin_ever_longer() -> None:
    device = Spinning(Fake(enqueue_s=0.0))
    timer = timer_of(device)
    call = device.in_stream(lambda: None)
    for _ in range(12):
        late(timer, lambda: (call(), device.synchronize()), iterations=1)
    assert device.spins_s[-1] < 25e-3  # half of the most for any iteration
