"""Every rank runs the commands that rank 0 schedules: check, warm up or time a batch of a case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from itertools import cycle, islice

import torch

from commbench.host.cpu import CpuCounters
from commbench.plan.case import Case
from commbench.plan.dimensions import GRAPH
from commbench.plan.operations import OPERATIONS
from commbench.plan.plan import Plan
from commbench.plan.replay import blocks_host
from commbench.results.records import Numerics, WrongElement
from commbench.results.schema import Batch
from commbench.worker import measure, numerics, overlap, sampling, verify
from commbench.worker.buffers import Arena, Pieces
from commbench.worker.call_forms import make_call
from commbench.worker.communicator import Communicator
from commbench.worker.device import Call
from commbench.worker.feasibility import is_out_of_memory, out_of_memory
from commbench.worker.groups import held_bytes
from commbench.worker.measure import LocalSamples, Timer
from commbench.worker.own_calls import Witness, blaming
from commbench.worker.reduction import HostSpeedProbe, reduce_batch, slowest_durations_s
from commbench.worker.sampling import Command
from commbench.worker.scheduler import Outcome, Scheduler
from commbench.worker.verify import PERIOD, CheckResult, verify_together
from commbench.worker.watchdog import rank_state
from commbench.worker.watchdog.hangs import longest_check_s, longest_iteration_s
from commbench.worker.watchdog.rank_state import set_phase

RATE_FROM = 1 << 20
"""Bytes of a case from which its check says something about the rate of larger ones."""
SHIFT_CHECK = 61
"""Elements by which the test data of a call are shifted against those of the one checked before."""
CALLS_OF_AN_ESTIMATE = 2
"""Calls of which the shortest is the first estimate of a device's calls."""


class CaseRunner:
    """Runs the cases on one rank; every rank notes in its state what it does."""

    def __init__(self, plan: Plan, comm: Communicator, arena: Arena, timer: Timer) -> None:
        self._plan, self._comm, self._arena, self._timer = plan, comm, arena, timer
        self._state, self._device = comm.state, comm.device
        self._counters = CpuCounters()
        self._overlaps = overlap.Overlaps(comm, timer, plan.overlap_ratio)
        self._shares_clock = timer.shares_clock and comm.shares_clock
        self._checks: dict[int, int] = {}
        """How many calls of each case were checked."""
        self._checked_s: dict[int, float] = {}
        """How long the checked call of each case took on the slowest rank."""
        self._slowest_bps = 0.0
        """The lowest rate of a check so far, in bytes per second; 0 before the first."""
        self._graphs: dict[tuple[int, ...], list[Call]] = {}
        """What replays the graphs of a case with so many calls, in these groups: its buffers never
        move."""
        self._turns: dict[tuple[int, int], int] = {}
        """How many iterations of so many calls of a case were run: which piece is the next."""

    def run_all(self, cases: tuple[Case, ...], scheduler: Scheduler | None) -> None:
        """Measure the cases. Rank 0 has the scheduler."""
        with closing(HostSpeedProbe()) if scheduler else nullcontext() as probe:
            while True:
                self._state[rank_state.STEP] += 1
                set_phase(self._state, rank_state.WAITING)
                command = (scheduler and scheduler.next()) or Command(sampling.END)
                is_timed = command.what == sampling.MEASURE
                host_speed = probe.measure_if_due() if probe and is_timed else {}
                command = command._replace(sent_ns=time.perf_counter_ns())
                command = Command(*self._comm.share(torch.tensor(command)).tolist())
                if command.what == sampling.END:
                    return
                with blaming(cases[command.case]):
                    result = self._run(command, cases[command.case])
                if scheduler:
                    if isinstance(result, Batch):
                        result = result._replace(**host_speed)
                    scheduler.record(result)

    def _run(self, command: Command, case: Case) -> Outcome:
        """Run a command, together with all other ranks; the result is valid on rank 0."""
        pieces = self._arena.pieces(case)
        group = pieces[0][0].group if case.group_ranks and pieces[0] else self._comm.group
        self._timer.align_over(group, (case.index, command.calls))
        if case.part and not self._overlaps.is_calibrated(case):
            set_phase(self._state, rank_state.MEASURING, command.case)
            self._fill(case, pieces[:1])
            self._overlaps.calibrate(case, pieces[0], self._takes_part(case, pieces))
        runs: dict[int, Callable[[Command, Case, Pieces], Outcome]]
        runs = {sampling.NUMERICS: self._find_numerics, sampling.CHECK: self._check}
        result = runs.get(command.what, self._time)(command, case, pieces)
        self._arena.mark_used(case)
        return result

    def _iterations(self, case: Case, pieces: Pieces, calls: int = 1) -> list[Call]:
        """The functions that run so many calls of a case (make_iterations), in each of the rank's
        groups; a graph is captured once."""
        if case.part:
            return [self._overlaps.make_call(case, parts) for parts in pieces]
        key = (case.index, calls, *(buffers.group_number for buffers in pieces[0]))
        if key not in self._graphs:
            made = [measure.back_to_back([*map(make_call, parts)]) for parts in pieces]
            iterations = measure.make_iterations(self._device, case, made, calls)
            if self._is_by_host(case):
                after = [self._device.synchronize] if self._device.is_async else []
                return [measure.back_to_back([call, *after]) for call in iterations]
            if case.launch_mode != GRAPH:
                return iterations
            self._graphs[key] = iterations
        return self._graphs[key]

    def _next_turns(self, case: Case, pieces: Pieces, calls: int, number: int) -> Call:
        """The function that runs the next iterations of a case, so many, by turns."""
        iterations = self._iterations(case, pieces, calls)
        turn = self._turns.get((case.index, calls), 0)
        self._turns[case.index, calls] = turn + number
        return measure.by_turns(iterations, turn % len(iterations))

    def _check(self, command: Command, case: Case, pieces: Pieces) -> CheckResult:
        """Check so many calls in each piece of memory that calls of the case use."""
        began, before = time.perf_counter(), self._checks.get(case.index, 0)
        self._checks[case.index] = before + command.iterations
        moved_bytes = case.size_bytes * case.parts
        calls = command.calls if case.launch_mode == GRAPH else 1
        checks = len(pieces) * command.iterations + 2 * (calls > 1) * (len(pieces) + calls)
        expected_s = checks * longest_check_s(moved_bytes, self._slowest_bps)
        set_phase(self._state, rank_state.CHECKING, command.case, expected_s=expected_s)
        try:
            numbers = range(before, before + command.iterations)
            each = [one for n in numbers for one in self._verify(case, pieces, n)]
            found = verify.combine([*each, *self._verify_graphs(case, pieces, calls)])
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            found = CheckResult(failed=out_of_memory(self._comm.rank, error))
        checked = combine_checks(self._comm, found)
        if self._device.is_async and not (checked.failed or checked.fault or before):
            checked = checked._replace(seconds=self._time_more(case, pieces))
        if checked.seconds and not checked.failed:
            self._checked_s[case.index] = checked.seconds
            if moved_bytes >= RATE_FROM:
                rate = moved_bytes / checked.seconds
                self._slowest_bps = min(self._slowest_bps or rate, rate)
        return checked._replace(calls=command.iterations, elapsed_s=time.perf_counter() - began)

    def _find_numerics(self, command: Command, case: Case, pieces: Pieces) -> Numerics:
        """Compare the numbers of a case with exact ones, in its first piece of memory."""
        expected_s = numerics.MOST_TIMES * longest_check_s(case.size_bytes, self._slowest_bps)
        set_phase(self._state, rank_state.CHECKING, command.case, expected_s=expected_s)
        call = self._iterations(case, pieces)[0]
        source = numerics.Source(self._plan.data, case.dtype, self._plan.seed, 0)
        return numerics.measure_case(case, pieces[0], call, self._comm, self._timer, source)

    def _time_more(self, case: Case, pieces: Pieces) -> float:
        """How long a call takes on the slowest rank, for a first estimate: the shorter of two more.
        In the checked call the backend may have made connections, and a busy host stops a call now
        and then."""
        spent = torch.zeros(CALLS_OF_AN_ESTIMATE, dtype=torch.int64)
        if self._takes_part(case, pieces):
            call = self._iterations(case, pieces)[0]
            for number in range(CALLS_OF_AN_ESTIMATE):
                self._timer.align()
                self._device.synchronize()
                began = time.perf_counter_ns()
                call()
                self._device.synchronize()
                spent[number] = time.perf_counter_ns() - began
        return float(self._comm.all_reduce_max(spent).min()) * 1e-9

    def _verify(self, case: Case, pieces: Pieces, before: int) -> Iterator[CheckResult]:
        """Check a call of each of the rank's groups, one after another: ranks that are in several
        are so in the same order. So many calls of the case were checked before."""
        offset = seed_offset(self._plan, case, before)
        for number in range(len(pieces[0])):
            own = [[parts[number]] for parts in pieces]
            calls = self._iterations(case, own)
            for piece, ((buffers,), call) in enumerate(zip(own, calls, strict=True)):
                checked = {0, before - 1} if before else ()
                earlier = [seed_offset(self._plan, case, n) + piece for n in checked]
                witness = Witness(buffers, self._comm, earlier) if buffers.own else None
                found = verify.verify(buffers, offset + piece, call, self._device, witness)
                yield found._replace(first_call=before + 1)

    def _verify_graphs(self, case: Case, pieces: Pieces, calls: int) -> Iterator[CheckResult]:
        """Check the graphs of several calls that were timed: the check of a call has replayed those
        of one call, which tell what the others must leave."""
        if calls == 1 or not pieces[0]:
            return
        offset, singles = seed_offset(self._plan, case), self._iterations(case, pieces)
        turns = cycle(range(len(pieces)))
        for graph in self._iterations(case, pieces, calls):
            used = list(islice(turns, calls))
            parts = [(part, offset + piece) for piece in {*used} for part in pieces[piece]]
            one_by_one = measure.back_to_back([singles[piece] for piece in used])
            yield verify_together(parts, calls, one_by_one, graph, self._device)

    def _takes_part(self, case: Case, pieces: Pieces) -> bool:
        """Whether this rank runs the timed loop. Where groups call together, a rank outside of them
        does nothing in it, because all ranks are aligned."""
        return bool(pieces[0]) or not case.group_ranks

    def _time(self, command: Command, case: Case, pieces: Pieces) -> tuple[float, ...] | Batch:
        if self._arena.is_stale(case):
            self._fill(case, pieces)
        checked_s = self._checked_s.get(case.index, 0.0)
        expected_s = longest_iteration_s(case.size_bytes * case.parts, command.calls, checked_s)
        set_phase(self._state, rank_state.MEASURING, command.case, command.iterations, expected_s)
        self._state[rank_state.ITERATION] = -command.untimed
        self._overlaps.ends.prepare()
        queues = self._device.is_async and not self._is_by_host(case)
        samples = measure.no_samples(command.iterations, queues)
        if self._takes_part(case, pieces):
            samples = self._take_samples(command, case, pieces)
        set_phase(self._state, rank_state.HANDING_IN, command.case)
        if command.what == sampling.WARM_UP:
            return slowest_durations_s(samples.durations, self._comm, command.calls)
        base_ns = command.sent_ns if self._shares_clock else None
        groups, views = self._plan.groups_of(case) if case.group else (), self._comm.views(case)
        parts = command.calls * case.parts
        batch = reduce_batch(samples, self._comm, parts, base_ns, views, groups)
        return self._overlaps.add_ends(batch, case) if case.part else batch

    def _fill(self, case: Case, pieces: Pieces) -> None:
        """Fill the buffers with test data."""
        for parts in pieces:
            for part in parts:
                verify.fill_inputs(part, seed_offset(self._plan, case))

    def _take_samples(self, command: Command, case: Case, pieces: Pieces) -> LocalSamples:
        timer = self._timer_of(case, pieces)
        if command.untimed:
            call = self._next_turns(case, pieces, 1, command.untimed)
            for number in range(-command.untimed, 0):
                self._state[rank_state.ITERATION] = number
                timer.align()
                call()
        number = command.iterations
        iteration = self._next_turns(case, pieces, command.calls, number)
        made = [b.new_groups for b in pieces[0]] if case.uses_new_group else []
        before = held_bytes(made, self._device, is_without=True)
        samples = measure.time_batch(timer, self._counters, iteration, number, self._state)
        after = held_bytes(made, self._device, is_without=False)
        if before is None or after is None:
            return samples
        return samples._replace(group_bytes=max(0, after - before) // sum(map(len, made)))

    def _is_by_host(self, case: Case) -> bool:
        """Whether the host's clock times a case also on a device: its calls run on the host, wait
        there for the device, or need a new group."""
        waits = self._device.is_async and blocks_host(self._plan, case)
        return waits or case.uses_new_group or OPERATIONS[case.operation].is_timed_by_host

    def _timer_of(self, case: Case, pieces: Pieces) -> Timer:
        """The timer of the device, or of the host: there all ranks begin when their devices have
        nothing left to do."""
        if not self._is_by_host(case):
            return self._timer
        new_groups = [b.new_groups for b in pieces[0]] if case.uses_new_group else []
        calls = [self._device.in_stream(make_call(part)) for part in pieces[0]]

        def align() -> None:
            self._arena.release_spare()
            for made, call in zip(new_groups, calls, strict=False):
                made.prepare(case.call_form.calls_before, call)
            self._device.synchronize()
            self._timer.aligner()
            self._device.synchronize()

        return measure.Timer(self._comm, align)


def seed_offset(plan: Plan, case: Case, checks: int = 0) -> int:
    """Where the test data of a case begin after so many checks, so that no call finds what another
    case or an earlier call has left."""
    return (plan.seed + 7919 * (case.index + 1) + SHIFT_CHECK * checks) % PERIOD


def combine_checks(comm: Communicator, own: CheckResult) -> CheckResult:
    """What all ranks found, or why the case failed on the lowest rank where it did."""
    # One reduction for all: the larger the number, the lower the rank.
    number = comm.ranks - comm.rank
    codes = [bool(text) * number for text in (own.failed, own.wrong, own.fault)]
    found_codes = comm.all_reduce_max(torch.tensor([*codes, round(own.seconds * 1e9)])).tolist()
    failing, wrong_first, at_fault, slowest_ns = found_codes
    if failing:
        return CheckResult(failed=comm.share_value(own.failed, comm.ranks - failing))
    fault = comm.share_value(own.fault, comm.ranks - at_fault) if at_fault else ""
    found = CheckResult(wrong=0, seconds=slowest_ns * 1e-9, fault=fault)
    if not wrong_first:
        return found
    counts = comm.gather(torch.tensor([own.wrong or 0])).flatten().tolist()
    ranks = [rank for rank, count in enumerate(counts) if count]
    lowest = comm.ranks - wrong_first
    call, first = comm.share_value((own.first_call, own.first), lowest)
    return found._replace(
        wrong=sum(counts), first=WrongElement(*first)._replace(rank=lowest), first_call=call,
        wrong_ranks=(*ranks,), wrong_elements=tuple(counts[rank] for rank in ranks),
    )  # fmt: skip
