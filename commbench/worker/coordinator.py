"""Rank 0 says what comes next, every rank does it: check a case, warm it up, time a block of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from commbench.host.cpu_counters import CpuCounters
from commbench.results.schema import FAILED, OK, WRONG, Batch, Measurement, WrongElement
from commbench.spec.case import FINISHED, READY, Case
from commbench.spec.operations import OPERATIONS
from commbench.spec.plan import Plan
from commbench.worker.buffers import Arena, Buffers
from commbench.worker.communicator import Communicator
from commbench.worker.measure import GatheredSamples, back_to_back, time_block
from commbench.worker.memory_check import is_out_of_memory, out_of_memory
from commbench.worker.recorder import Recorder
from commbench.worker.sampling import SampleRequest, SampleSchedule, schedule, visit_order
from commbench.worker.timers import Timer
from commbench.worker.verification_data import PERIOD
from commbench.worker.verify import VerifyResult, fill_inputs, verify
from commbench.worker.watchdog.rank_state import (
    CHECKING,
    HANDING_IN,
    MEASURING,
    STEP,
    WAITING,
    StateBuffer,
    set_phase,
)

END, CHECK, TIME = 0, 1, 2
CHECKED_TIMES = 4
"""How often a check goes through the bytes of a case: fill, spoil, call, compare."""


class Command(NamedTuple):
    """What every rank does next."""

    what: int
    case: int = 0
    iterations: int = 0
    calls: int = 1


class CheckResult(NamedTuple):
    """What checking a case found over all ranks."""

    failed: str = ""
    """Why the case cannot go on: on which rank memory ran out."""

    wrong: int | None = None
    first: WrongElement | None = None
    seconds: float = 0.0


Steps = Generator[Command, Any, None]
"""Yields steps, is sent what came of each: CheckResult, or a GatheredSamples block."""


def run_cases(
    plan: Plan,
    cases: tuple[Case, ...],
    comm: Communicator,
    arena: Arena,
    timer: Timer,
    recorder: Recorder | None,
    launch: int,
    row: StateBuffer,
) -> None:
    """Measure the cases; rank 0 has a recorder, and every rank notes its position in its row."""
    strain = CpuCounters()
    shares_clock = timer.shares_clock and comm.shares_clock
    steps = plan_steps(plan, cases, recorder, launch) if recorder else None
    step = next(steps, Command(END)) if steps else Command(END)
    while True:
        row[STEP] += 1
        set_phase(row, WAITING)
        step = Command(*comm.share(torch.tensor(step)).tolist())
        if step.what == END:
            return
        case = cases[step.case]
        buffers = arena.buffers(case)
        call = call_of(case, buffers)
        came: Any
        if step.what == CHECK:
            set_phase(row, CHECKING, step.case, bytes_=CHECKED_TIMES * case.size_bytes)
            came = _total(comm, _verdict(plan, case, buffers, call, comm))
        else:
            if arena.is_stale(case):
                fill_inputs(case, buffers, salt(plan, case))
            set_phase(row, MEASURING, step.case, step.iterations, _unseen_bytes(case, step, timer))
            several = back_to_back(call, step.calls)
            block = time_block(timer, strain, several, step.iterations, row)
            set_phase(row, HANDING_IN, step.case)
            gathered = comm.gather(block)
            came = (
                GatheredSamples(torch.stack(gathered), step.calls, shares_clock) if steps else None
            )
        arena.used_by(case)
        if steps:
            step = _send(steps, came)


def _send(steps: Steps, came: Any) -> Command:
    try:
        return steps.send(came)
    except StopIteration:
        return Command(END)


def plan_steps(plan: Plan, cases: tuple[Case, ...], recorder: Recorder, launch: int) -> Steps:
    """Rank 0's part: which case comes next, what it needs, and writing down what it gave."""
    for case in cases:
        if case.status not in (READY, FINISHED):
            recorder.finished(Measurement(case=case, status=case.status, reason=case.reason))
    unsettled = {
        case.index: CaseProgress(plan, case, recorder.batches_before(case))
        for case in cases
        if case.status == READY
    }

    def done(index: int) -> float:
        block = unsettled[index].block
        return block.done if block else 0.0

    for index in visit_order(plan.order, plan.seed + launch, unsettled, done):
        progress = unsettled[index]
        recorder.started(progress.case)
        if progress.schedule is None:
            progress.begin((yield Command(CHECK, index)) if progress.needs_check else CheckResult())
        # A case for which there is no memory ends here; the others go on.
        while progress.block is not None:
            block = progress.block
            gathered = yield Command(TIME, index, block.iterations, block.calls)
            if block.timed:
                recorder.batch_done(progress.case, gathered.batch(progress.warmup, launch))
            progress.take(gathered.slowest_s)
            if block.timed:
                break
        if progress.block is None:
            del unsettled[index]
            recorder.finished(progress.measurement())


class CaseProgress:
    """How far one case has come."""

    def __init__(self, plan: Plan, case: Case, before: tuple[Batch, ...]) -> None:
        self.case = case
        self.schedule: SampleSchedule | None = None
        self.block: SampleRequest | None = None
        """What it needs next; None: nothing more."""
        self.warmup = 0
        """Untimed calls since the last timed block."""
        self.needs_check = plan.check and bool(case.dtype)
        self._plan = plan
        self._before = before
        self._checked = CheckResult()
        self._stop_reason = ""

    def begin(self, checked: CheckResult) -> None:
        self._checked = checked
        self.schedule = schedule(self._plan, self.case, checked.seconds, self._before)
        if not checked.failed:
            self._go_on(None)

    def take(self, durations: tuple[float, ...]) -> None:
        """Go on after the block that took these durations."""
        assert self.block is not None
        self.warmup = 0 if self.block.timed else self.warmup + self.block.iterations
        self._go_on(durations)

    def _go_on(self, durations: tuple[float, ...] | None) -> None:
        assert self.schedule is not None
        try:
            if durations is None:
                self.block = next(self.schedule)
            else:
                self.block = self.schedule.send(durations)
        except StopIteration as end:
            self.block, self._stop_reason = None, end.value

    def measurement(self) -> Measurement:
        first, failed = self._checked.first, self._checked.failed
        if failed:
            return Measurement(case=self.case, status=FAILED, reason=failed)
        return Measurement(
            case=self.case,
            status=WRONG if first else OK,
            reason=_describe(first) if first else "",
            stop_reason=self._stop_reason,
            wrong=self._checked.wrong,
            first_wrong=first,
        )


def _unseen_bytes(case: Case, step: Command, timer: Timer) -> int:
    """What a rank moves in a block without its position showing it: an iteration's bytes where it
    waits for each, all of them where it only queues them on a device."""
    iterations = 1 if timer.shares_clock else step.iterations
    return case.size_bytes * step.calls * iterations


def call_of(case: Case, buffers: Buffers) -> Callable[[], object]:
    """The call that performs the operation of a case once."""
    return partial(OPERATIONS[case.operation].call, dist, buffers)


def salt(plan: Plan, case: Case) -> int:
    """Where the test data of a case begin, so that no case finds the last one's still there."""
    return (plan.seed + 7919 * (case.index + 1)) % PERIOD


def _verdict(
    plan: Plan, case: Case, buffers: Buffers, call: Callable[[], object], comm: Communicator
) -> VerifyResult | str:
    """What checking the case found on this rank, or the words of an exhausted memory."""
    try:
        return verify(case, buffers, salt(plan, case), call, comm.synchronize)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return out_of_memory(comm.rank, error)


def _total(comm: Communicator, verdict: VerifyResult | str) -> CheckResult:
    """Wrong elements over all ranks, the first of the lowest rank that has any, and the seconds
    of the slowest rank; or why it failed on the lowest rank where it did."""
    part: dict[str, Any]

    def add(parts: list[dict[str, Any]]) -> dict[str, Any]:
        failed = [part["failed"] for part in parts if "failed" in part]
        if failed:
            return {"failed": failed[0], "wrong": None, "first": None, "seconds": 0.0}
        firsts = [part["first"] for part in parts if part["first"]]
        return {
            "failed": "",
            "wrong": sum(part["wrong"] for part in parts),
            "first": firsts[0] if firsts else None,
            "seconds": max(part["seconds"] for part in parts),
        }

    if isinstance(verdict, str):
        part = {"failed": verdict}
    else:
        first = verdict.first._asdict() if verdict.first else None
        part = {"wrong": verdict.wrong, "first": first, "seconds": verdict.seconds}
    total = comm.agree(part, add)
    return CheckResult(
        failed=total["failed"],
        wrong=total["wrong"],
        first=WrongElement(**total["first"]) if total["first"] else None,
        seconds=total["seconds"],
    )


def _describe(first: WrongElement) -> str:
    return f"rank {first.rank}, element {first.element}: expected {first.expected}, got {first.got}"
