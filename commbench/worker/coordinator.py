"""Rank 0 schedules, and every rank runs, the next command: check, warm up or time a batch of a
case."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from commbench.host.cpu_counters import CpuCounters
from commbench.results.schema import FAILED, OK, WRONG, Batch, Measurement, WrongElement
from commbench.spec.case import FINISHED, READY, Case
from commbench.spec.operations import OPERATIONS
from commbench.spec.plan import Plan
from commbench.spec.timing_modes import GRAPH
from commbench.worker.buffers import Arena, Buffers, make_call
from commbench.worker.communicator import Communicator
from commbench.worker.feasibility import is_out_of_memory, out_of_memory
from commbench.worker.measure import Call, by_turns, make_iterations, time_batch
from commbench.worker.overlap import Overlaps
from commbench.worker.reduction import reduce_batch, slowest_durations_s
from commbench.worker.sampling import CaseOrder, SampleRequest, SampleSchedule
from commbench.worker.timers import HostTimer, Timer
from commbench.worker.verification_data import PERIOD
from commbench.worker.verify import VerifyResult, combine, fill_inputs, verify
from commbench.worker.watchdog import rank_state
from commbench.worker.watchdog.hang_analysis import longest_check_s, longest_iteration_s
from commbench.worker.watchdog.rank_state import StateBuffer, set_phase

END, CHECK, WARM_UP, MEASURE = range(4)
RATE_FROM = 1 << 20
"""Bytes of a case from which its check says something about the rate of larger ones."""


class Command(NamedTuple):
    """What every rank does next."""

    what: int
    case: int = 0
    iterations: int = 0
    calls: int = 1
    """Per iteration."""
    untimed: int = 0
    """Calls before the first iteration."""
    sent_ns: int = 0
    """When rank 0 sent it, by its own clock."""


class CheckResult(NamedTuple):
    """What checking a case found over all ranks."""

    failed: str = ""
    """Why the case cannot go on: on which rank memory ran out."""
    wrong: int | None = None
    first: WrongElement | None = None
    """The first wrong element of the lowest rank that has any."""
    seconds: float = 0.0
    """How long a call took on the slowest rank; 0 without a check."""


class ResultSink(Protocol):
    """What rank 0 hands its results to."""

    def batches_before(self, case: Case) -> tuple[Batch, ...]:
        """Batches of a case from before this launch was resumed."""

    def started(self, case: Case) -> None:
        """A batch of a case starts."""

    def batch_done(self, case: Case, batch: Batch) -> None:
        """A batch of a case has ended."""

    def advanced(self, done: float) -> None:
        """So much of all cases is done, 0 to 1."""

    def finished(self, measurement: Measurement) -> None:
        """A case has ended; its batches were handed over before."""


def run_cases(
    plan: Plan,
    cases: tuple[Case, ...],
    comm: Communicator,
    arena: Arena,
    timer: Timer,
    scheduler: Scheduler | None,
    state: StateBuffer,
) -> None:
    """Measure the cases. Rank 0 has the scheduler; every rank notes in its state what it does."""
    worker = _CaseRunner(plan, comm, arena, timer, state)
    while True:
        state[rank_state.STEP] += 1
        set_phase(state, rank_state.WAITING)
        command = Command(END)
        if scheduler:
            following = scheduler.next() or command
            command = following._replace(sent_ns=time.perf_counter_ns())
        command = Command(*comm.share(torch.tensor(command)).tolist())
        if command.what == END:
            return
        result = worker.run(command, cases[command.case])
        if scheduler:
            scheduler.record(result)


class Scheduler:
    """Decides on rank 0 what all ranks do next, and hands the results on.

    `next` gives a command, `record` takes its result: of CHECK a CheckResult, of WARM_UP the
    slowest rank's durations in seconds, of MEASURE a Batch.
    """

    def __init__(self, plan: Plan, cases: tuple[Case, ...], sink: ResultSink, launch: int) -> None:
        self._plan, self._sink, self._launch = plan, sink, launch
        self._order = CaseOrder(plan.order, plan.seed + launch)
        self._unfinished: dict[int, CaseProgress] = {}
        for case in cases:
            if case.status == READY:
                self._unfinished[case.index] = CaseProgress(plan, case, sink.batches_before(case))
            elif case.status != FINISHED:
                sink.finished(Measurement(case=case, status=case.status, reason=case.reason))
        self._cases, self._done = len(self._unfinished), 0.0
        """How many cases there are to measure, and how much of them is done."""
        self._current: CaseProgress | None = None
        """The case that is being measured until its batch has ended."""

    def next(self) -> Command | None:
        """The next command for all ranks; None: everything is done."""
        while True:
            if self._current is None:
                index = self._order.next(self._unfinished, lambda i: self._unfinished[i].progress)
                if index is None:
                    return None
                self._current = self._unfinished[index]
                self._sink.started(self._current.case)
            if command := self._current.next():
                return command
            del self._unfinished[self._current.case.index]
            self._add_done(1.0 - self._current.progress)
            self._sink.finished(self._current.measurement())
            self._current = None

    def record(self, result: CheckResult | tuple[float, ...] | Batch) -> None:
        """Take the result of the last command."""
        current = self._current
        assert current is not None
        if isinstance(result, Batch):
            result = result._replace(warmup=current.warmup, launch=self._launch)
            self._sink.batch_done(current.case, result)
        before = current.progress
        current.record(result)
        self._add_done(current.progress - before)
        if isinstance(result, Batch) and current.next():
            self._current = None  # other cases have their turn first

    def _add_done(self, part: float) -> None:
        self._done += part
        self._sink.advanced(min(1.0, self._done / self._cases))


class CaseProgress:
    """How far one case has come on rank 0."""

    def __init__(self, plan: Plan, case: Case, before: tuple[Batch, ...]) -> None:
        self.case = case
        self._warmup = 0
        """Calls to warm up since the last batch."""
        self._plan, self._before = plan, before
        self._checked: CheckResult | None = None
        self._schedule: SampleSchedule | None = None
        self._request: SampleRequest | None = None
        is_checked = plan.check and case.has_result
        self._checks_again = is_checked and plan.device != "cpu"
        """An accelerator's results are checked once more after the timed calls, as nccl-tests does:
        what goes wrong under load shows only then."""
        if not is_checked:
            self._record_check(CheckResult())

    @property
    def warmup(self) -> int:
        """Untimed calls between the last batch and the one that was requested."""
        return self._warmup + (self._request.untimed if self._request else 0)

    @property
    def progress(self) -> float:
        """Which part of what the case needs has been measured, 0 to 1."""
        return self._schedule.progress if self._schedule else 0.0

    def next(self) -> Command | None:
        """The next command for this case; None: nothing more."""
        if self._checked is None:
            return Command(CHECK, self.case.index)
        if self._schedule is None:
            return None
        self._request = request = self._schedule.next()
        if request is None:
            return Command(CHECK, self.case.index) if self._checks_again else None
        what = MEASURE if request.timed else WARM_UP
        return Command(what, self.case.index, *request[:2], untimed=request.untimed)

    def record(self, result: CheckResult | tuple[float, ...] | Batch) -> None:
        if isinstance(result, CheckResult):
            self._record_check(result)
            return
        assert self._schedule is not None and self._request is not None
        if isinstance(result, Batch):
            self._warmup = 0
            self._schedule.record(self._request, result.samples_s)
        else:
            self._warmup += len(result)
            self._schedule.record(self._request, result)

    def measurement(self) -> Measurement:
        """What the case gave, without its batches."""
        checked = self._checked or CheckResult()
        if checked.failed:
            return Measurement(case=self.case, status=FAILED, reason=checked.failed)
        return Measurement(
            case=self.case,
            status=WRONG if checked.first else OK,
            reason=_describe(checked.first) if checked.first else "",
            stop_reason=self._schedule.stop_reason if self._schedule else "",
            wrong=checked.wrong,
            first_wrong=checked.first,
        )

    def _record_check(self, checked: CheckResult) -> None:
        if self._schedule is not None:
            self._checks_again = False
            if not checked.failed and not checked.wrong:
                return
        self._checked = checked
        if (
            not checked.failed and self._schedule is None
        ):  # without memory the case ends here; the others go on
            self._schedule = SampleSchedule(self._plan, self.case, checked.seconds, self._before)


class _CaseRunner:
    """Runs commands on one rank."""

    def __init__(
        self, plan: Plan, comm: Communicator, arena: Arena, timer: Timer, state: StateBuffer
    ) -> None:
        self._plan, self._comm, self._arena, self._timer = plan, comm, arena, timer
        self._state = state
        self._counters = CpuCounters()
        self._overlaps = Overlaps(comm, timer, state, plan.overlap_ratio)
        self._shares_clock = timer.shares_clock and comm.shares_clock
        self._checked_s: dict[int, float] = {}
        """How long the checked call of each case took on the slowest rank."""
        self._slowest_bps = 0.0
        """The lowest rate of a check so far, in bytes per second; 0 before the first."""
        self._graphs: dict[tuple[int, int], list[Call]] = {}
        """What replays the graphs of a case with so many calls: its buffers never move."""
        self._turns: dict[tuple[int, int], int] = {}
        """How many iterations of so many calls of a case were run: which piece is the next."""

    def run(self, command: Command, case: Case) -> CheckResult | tuple[float, ...] | Batch:
        """Run a command, together with all other ranks; the result is valid on rank 0."""
        pieces = self._arena.pieces(case)
        if case.part and not self._overlaps.is_calibrated(case):
            set_phase(self._state, rank_state.MEASURING, command.case)
            fill_inputs(case, pieces[0], seed_offset(self._plan, case))
            self._overlaps.calibrate(case, pieces[0])
        run = self._check if command.what == CHECK else self._time
        result = run(command, case, pieces)
        self._arena.mark_used(case)
        return result

    def _iterations(self, case: Case, pieces: list[Buffers], calls: int = 1) -> list[Call]:
        """The functions that run so many calls of a case (make_iterations); a graph is captured
        once."""
        if case.part:
            return [self._overlaps.make_call(case, buffers) for buffers in pieces]
        key = case.index, calls
        if key not in self._graphs:
            made = [make_call(case, buffers) for buffers in pieces]
            iterations = make_iterations(self._comm.device, case, made, calls)
            if case.launch_mode != GRAPH:
                return iterations
            self._graphs[key] = iterations
        return self._graphs[key]

    def _next_turns(self, case: Case, pieces: list[Buffers], calls: int, number: int) -> Call:
        """The function that runs the next iterations of a case, so many, by turns."""
        iterations = self._iterations(case, pieces, calls)
        turn = self._turns.get((case.index, calls), 0)
        self._turns[case.index, calls] = turn + number
        return by_turns(iterations, turn % len(iterations))

    def _check(self, command: Command, case: Case, pieces: list[Buffers]) -> CheckResult:
        """Check a call in each piece of memory that calls of the case use."""
        moved_bytes = case.size_bytes * case.parts
        expected_s = len(pieces) * longest_check_s(moved_bytes, self._slowest_bps)
        set_phase(self._state, rank_state.CHECKING, command.case, expected_s=expected_s)
        device = self._comm.device
        found: VerifyResult | str
        try:
            calls = self._iterations(case, pieces)
            found = combine(
                [
                    verify(case, buffers, seed_offset(self._plan, case) + piece, call, device)
                    for piece, (buffers, call) in enumerate(zip(pieces, calls, strict=True))
                ]
            )
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            found = out_of_memory(self._comm.rank, error)
        checked = combine_checks(self._comm, found)
        if device.is_async and not checked.failed:
            checked = checked._replace(seconds=self._time_once(calls[0]))
        if checked.seconds and not checked.failed:
            self._checked_s[case.index] = checked.seconds
            if moved_bytes >= RATE_FROM:
                rate = moved_bytes / checked.seconds
                self._slowest_bps = min(self._slowest_bps or rate, rate)
        return checked

    def _time_once(self, call: Callable[[], object]) -> float:
        """How long one more call takes on the slowest rank, for a first estimate: in the checked
        one the backend may have made connections."""
        device = self._comm.device
        self._timer.align()
        device.synchronize()
        began = time.perf_counter_ns()
        call()
        device.synchronize()
        spent = torch.tensor([time.perf_counter_ns() - began])
        return float(self._comm.all_reduce_max(spent)) * 1e-9

    def _time(
        self, command: Command, case: Case, pieces: list[Buffers]
    ) -> tuple[float, ...] | Batch:
        if self._arena.is_stale(case):
            for buffers in pieces:
                fill_inputs(case, buffers, seed_offset(self._plan, case))
        expected_s = longest_iteration_s(
            case.size_bytes * case.parts, command.calls, self._checked_s.get(case.index, 0.0)
        )
        set_phase(self._state, rank_state.MEASURING, command.case, command.iterations, expected_s)
        timer = self._timer_of(case)
        if command.untimed:
            call = self._next_turns(case, pieces, 1, command.untimed)
            for _ in range(command.untimed):
                timer.align()
                call()
        iteration = self._next_turns(case, pieces, command.calls, command.iterations)
        self._overlaps.prepare()
        samples = time_batch(
            timer,
            self._counters,
            iteration,
            command.iterations,
            self._state,
            self._comm.device.read_state,
        )
        set_phase(self._state, rank_state.HANDING_IN, command.case)
        if command.what == WARM_UP:
            return slowest_durations_s(samples.durations, self._comm, command.calls)
        base_ns = command.sent_ns if self._shares_clock else None
        batch = reduce_batch(samples, self._comm, command.calls * case.parts, base_ns)
        if case.part:
            communication_s, computation_s = self._overlaps.slowest_ends_s(case)
            batch = batch._replace(
                communication_s=communication_s,
                computation_s=computation_s,
                work=self._overlaps.work(case).text,
            )
        return batch

    def _timer_of(self, case: Case) -> Timer:
        """The timer of the device, or of the host for an operation that runs there."""
        if not OPERATIONS[case.operation].registers:
            return self._timer

        def align() -> None:
            self._arena.release_spare()
            self._timer.align()
            self._comm.device.synchronize()

        return HostTimer(self._comm, align)


def seed_offset(plan: Plan, case: Case) -> int:
    """Where the test data of a case begin, so that no case finds those of the last one."""
    return (plan.seed + 7919 * (case.index + 1)) % PERIOD


def combine_checks(comm: Communicator, found: VerifyResult | str) -> CheckResult:
    """What all ranks found, or why the case failed on the lowest rank where it did."""
    failed = isinstance(found, str)
    result = VerifyResult(0, None, 0.0) if isinstance(found, str) else found
    # One reduction for all: the larger the number, the lower the rank.
    number = comm.ranks - comm.rank
    codes = [failed * number, bool(result.wrong) * number, round(result.seconds * 1e9)]
    failing, wrong_first, slowest_ns = comm.all_reduce_max(torch.tensor(codes)).tolist()
    if failing:
        return CheckResult(failed=comm.share_value(found if failed else "", comm.ranks - failing))
    wrong, first = 0, None
    if wrong_first:
        wrong = int(comm.gather(torch.tensor(result.wrong)).sum())
        own = result.first._asdict() if result.first else None
        first = WrongElement(**comm.share_value(own, comm.ranks - wrong_first))
    return CheckResult(wrong=wrong, first=first, seconds=slowest_ns * 1e-9)


def _describe(first: WrongElement) -> str:
    return f"rank {first.rank}, element {first.element}: expected {first.expected}, got {first.got}"
