"""A soak: all cases again and again, in cycles, until its time is over.

In each cycle a case has one batch and then, as far as their part of the time allows, checks of
calls with new data. A wrong result ends nothing: it is recorded, and the soak goes on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from random import Random

from commbench.analysis.statistics import median
from commbench.plan.case import Case
from commbench.plan.plan import Plan
from commbench.results.checks import Check
from commbench.results.schema import Batch
from commbench.worker.sampling import MIN_BATCH_ITERATIONS, SampleRequest, SampleSchedule
from commbench.worker.scheduler import (
    CHECK,
    MEASURE,
    WARM_UP,
    CaseProgress,
    Command,
    ResultSink,
    Scheduler,
)
from commbench.worker.verify import CheckResult

SHORT_S, LONG_S, LONG_SOAK_S = 20e-3, 100e-3, 3600.0
"""How long a batch takes about; longer in proportion where the soak is, up to that of an hour."""
SOAK_ITERATIONS = 50
"""Most timed iterations of a batch. Before them others load the ranks: no journal could hold all
of them."""
TIME, CYCLES = "time", "cycles"
"""Stop reasons of the cases of a soak."""


def batch_s(plan: Plan) -> float:
    """How long a batch of a soak takes about."""
    longer = LONG_S * (plan.soak_s or 0.0) / LONG_SOAK_S
    return min(LONG_S, max(SHORT_S, longer))


class SoakSchedule(SampleSchedule):
    """What one case does: it warms up, and then has one batch after another, without an end."""

    def record(self, request: SampleRequest, durations: Sequence[float]) -> None:
        super().record(request, durations)
        if request.timed and self._median_s:
            spare = batch_s(self._plan) / self._median_s - SOAK_ITERATIONS * self._calls
            self._untimed = max(self._untimed, int(spare))

    def _evaluate_batches(self) -> None:
        self._batches = self._batches[-1:]  # the journal has them all
        self._median_s = median(sorted(self._batches[0])) * self._parts

    def _next_iterations(self) -> int:
        iteration_s = self._estimate_s * self._calls
        fitting = batch_s(self._plan) / iteration_s if iteration_s else SOAK_ITERATIONS
        return max(MIN_BATCH_ITERATIONS, min(int(fitting), SOAK_ITERATIONS))


class SoakProgress(CaseProgress):
    """How far one case has come on rank 0."""

    def __init__(self, plan: Plan, case: Case, cycle: int) -> None:
        """`cycle` is the last one that the case has a batch of, 0 for none."""
        super().__init__(plan, case, ())
        self.cycle = cycle
        self._checks_now = False
        self._busy_s = 0.0
        """How long all that was done for the case took, with its checks."""

    def next(self) -> Command | None:
        """The next command for this case; None: nothing can be measured."""
        if self._checked is None:
            return Command(CHECK, self.case.index, 1)
        if not isinstance(self._schedule, SoakSchedule):
            return None
        if self._checks_now:
            return Command(CHECK, self.case.index, self._fitting_checks)
        self._request = request = self._schedule.next()
        assert request
        what = MEASURE if request.timed else WARM_UP
        return Command(what, self.case.index, *request[:2], untimed=request.untimed)

    def took(self, result: CheckResult | tuple[float, ...] | Batch, seconds: float) -> None:
        """Note how long the last command took, the result of which is recorded next."""
        self._busy_s += seconds
        if isinstance(result, CheckResult):
            self._checking_s += seconds

    def record(self, result: CheckResult | tuple[float, ...] | Batch) -> bool:
        is_first_check = not self.is_checked
        self._take(result)
        is_batch = isinstance(result, Batch)
        self.cycle += is_batch
        self._checks_now = is_batch and self._checks_again and self._fitting_checks > 0
        is_warm_up = not isinstance(result, Batch | CheckResult)
        return is_first_check or not (is_warm_up or self._checks_now)

    @property
    def _fitting_checks(self) -> int:
        share, check_s = self._plan.checks[0], self._check_s
        if not check_s:
            return 0
        fitting = (share * self._busy_s - self._checking_s) / (1 - share) / check_s
        return max(0, int(min(fitting, max(1.0, batch_s(self._plan) / check_s))))

    def _make_schedule(self, checked_s: float) -> SampleSchedule:
        return SoakSchedule(self._plan, self.case, checked_s)

    def _record_check(self, checked: CheckResult) -> None:
        before, spent_s = self._checked, self._checking_s
        super()._record_check(checked)
        self._checking_s = spent_s  # it counts in `took`
        is_checked = self._plan.check and self.case.has_result
        self._checks_again = is_checked and not checked.failed
        if before and before.first and not checked.failed:
            more = (before.wrong or 0) + (checked.wrong or 0)
            self._checked = before._replace(wrong=more)


class SoakOrder:
    """Which case is next: cycles of all cases, each in an order of its own."""

    def __init__(self, seed: int) -> None:
        self.cycle = 0
        self._seed = seed
        self._round: deque[int] = deque()

    def next(
        self, unfinished: Collection[int], cycle_of: Callable[[int], int], is_last: bool
    ) -> int | None:
        """The case to measure next; None where a cycle is over and `is_last` says that no other
        begins. `cycle_of` gives the last cycle of a case."""
        while self._round:
            if (case := self._round.popleft()) in unfinished:
                return case
        if is_last or not unfinished:
            return None
        self.cycle = min(map(cycle_of, unfinished)) + 1
        self._round.extend(case for case in sorted(unfinished) if cycle_of(case) < self.cycle)
        Random(f"{self._seed} {self.cycle}").shuffle(self._round)
        return self._round.popleft()


class SoakScheduler(Scheduler):
    """Decides on rank 0 what all ranks of a soak do next, and hands the results on."""

    def __init__(self, plan: Plan, cases: tuple[Case, ...], sink: ResultSink, launch: int) -> None:
        super().__init__(plan, cases, sink, launch)
        self._cycles = SoakOrder(plan.seed + launch)
        self._began = time.monotonic() - sink.soaked_s
        self._sent_s = self._elapsed_s

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def next(self) -> Command | None:
        command = super().next()
        self._sent_s = self._elapsed_s
        return command

    def record(self, result: CheckResult | tuple[float, ...] | Batch) -> None:
        current, began_s, took_s = self._current, self._sent_s, self._elapsed_s - self._sent_s
        assert isinstance(current, SoakProgress)
        current.took(result, took_s)
        if isinstance(result, Batch):
            result = result._replace(cycle=self._cycles.cycle, start_s=round(began_s, 6))
        elif isinstance(result, CheckResult) and not result.failed and result.wrong is not None:
            self._sink.checked(
                Check(
                    current.case.index, self._cycles.cycle, round(began_s, 6), round(took_s, 6),
                    result.calls, result.wrong_ranks, result.wrong_elements, result.first,
                    result.first_call,
                )
            )  # fmt: skip
        super().record(result)

    def _make(self, case: Case, before: tuple[Batch, ...], is_look: bool) -> CaseProgress:  # noqa: ARG002
        return SoakProgress(self._plan, case, before[-1].cycle if before else 0)

    def _next_in_order(self) -> int | None:
        made: dict[int, SoakProgress] = self._unfinished  # type: ignore[assignment]
        last = min((each.cycle for each in made.values()), default=0)
        most, time_s = self._plan.cycles, self._plan.soak_s
        is_over = time_s is not None and self._elapsed_s >= time_s and last > 0
        is_last = is_over or (most is not None and last >= most)
        found = None
        if not is_over:
            found = self._cycles.next(made, lambda index: made[index].cycle, is_last)
        if found is None:
            for ended in made.values():
                stopped = ended.measurement()._replace(stop_reason=TIME if is_over else CYCLES)
                self._sink.finished(stopped)
            made.clear()
        return found

    def _add_done(self, part: float) -> None:  # noqa: ARG002
        made: dict[int, SoakProgress] = self._unfinished  # type: ignore[assignment]
        last = min((each.cycle for each in made.values()), default=0)
        shares = [last / self._plan.cycles] if self._plan.cycles else []
        shares += [self._elapsed_s / self._plan.soak_s] if self._plan.soak_s else []
        self._sink.advanced(min(1.0, max(shares)))


def make_scheduler(
    plan: Plan, cases: tuple[Case, ...], sink: ResultSink, launch: int, search: object = None
) -> Scheduler:
    """The scheduler of a launch."""
    if plan.is_soak:
        return SoakScheduler(plan, cases, sink, launch)
    return Scheduler(plan, cases, sink, launch, search)  # type: ignore[arg-type]
