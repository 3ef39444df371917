"""A soak: all cases again and again, in cycles, until its time is over.

In each cycle a case has one batch and then, as far as their part of the time allows, checks of
calls with new data. A wrong result ends nothing: it is recorded, and the soak goes on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from random import Random

from commbench.analysis.statistics import median
from commbench.plan.case import Case
from commbench.plan.plan import Plan
from commbench.results.records import Check
from commbench.results.schema import Batch
from commbench.worker import sampling, verify
from commbench.worker.recorder import RunCollector
from commbench.worker.scheduler import CaseProgress, Outcome, Scheduler

SHORT_S, LONG_S, LONG_SOAK_S = 20e-3, 100e-3, 3600.0
"""How long a batch takes about; longer in proportion where the soak is, up to that of an hour."""
SOAK_ITERATIONS = 50
"""Most timed iterations of a batch. Untimed calls before them fill its time: no journal could hold
all of them."""
MOST_CHECKS_S = 1.0
"""Further checks of a case at once take at most so long."""
TIME, CYCLES = "time", "cycles"
"""Stop reasons of the cases of a soak."""


def batch_s(plan: Plan) -> float:
    """How long a batch of a soak takes about."""
    return min(LONG_S, max(SHORT_S, LONG_S * (plan.soak_s or 0.0) / LONG_SOAK_S))


class SoakSchedule(sampling.SampleSchedule):
    """What one case does: it warms up, and then has one batch after another, without an end."""

    def record(self, result: Sequence[float] | Batch) -> None:
        super().record(result)
        if isinstance(result, Batch) and self._median_s:
            spare = batch_s(self._plan) / self._median_s - SOAK_ITERATIONS * self._calls
            self._untimed = max(self._untimed, int(spare))

    def _evaluate_batches(self) -> None:
        self._batches = self._batches[-1:]  # the journal has them all
        self._median_s = median(sorted(self._batches[0])) * self._parts

    def _next_iterations(self) -> int:
        iteration_s = self._estimate_s * self._calls
        fitting = batch_s(self._plan) / iteration_s if iteration_s else SOAK_ITERATIONS
        return max(sampling.MIN_BATCH_ITERATIONS, min(int(fitting), SOAK_ITERATIONS))


class SoakProgress(CaseProgress):
    """How far one case has come on rank 0."""

    def __init__(self, plan: Plan, case: Case, cycle: int) -> None:
        """`cycle` is the last one that the case has a batch of, 0 for none."""
        super().__init__(plan, case, ())
        self.cycle, self._checks_now = cycle, False
        self.busy_s = self.checking_s = 0.0
        """How long all that was done for the case took, and its checks."""
        self._later_s, self._later_calls = 0.0, 0
        """Of checks after the first, in which the backend may have made connections."""

    def record(self, result: Outcome) -> bool:
        is_first_check, is_batch = self._checked is None, isinstance(result, Batch)
        if isinstance(result, verify.CheckResult) and not is_first_check:
            self._later_s += result.elapsed_s
            self._later_calls += result.calls
        self._take(result)
        self._batches.clear()  # the journal has them
        self.cycle += is_batch
        self._checks_now = is_batch and self._checks_again and self._fitting_checks > 0
        is_warm_up = not isinstance(result, Batch | verify.CheckResult)
        return is_first_check or not (is_warm_up or self._checks_now)

    @property
    def _fitting_checks(self) -> int:
        """How many calls can be checked in the part of the time of the case that checks have, and
        within MOST_CHECKS_S."""
        share = self._plan.checks[0]
        check_s = self._later_s / self._later_calls if self._later_calls else self._check_s
        if not check_s:
            return 0
        fitting = (share * self.busy_s - self.checking_s) / (1 - share) / check_s
        return max(0, int(min(fitting, max(1.0, MOST_CHECKS_S / check_s))))

    def _make_schedule(self, checked_s: float) -> sampling.SampleSchedule:
        return SoakSchedule(self._plan, self.case, checked_s)

    def _record_check(self, checked: verify.CheckResult) -> None:
        before = self._checked
        super()._record_check(checked)
        self._checks_again = self._plan.check and self.case.has_result and not checked.failed
        if before and before.first and not (checked.failed or checked.fault):
            self._checked = before._replace(wrong=(before.wrong or 0) + (checked.wrong or 0))


class SoakScheduler(Scheduler):
    """Decides on rank 0 what all ranks of a soak do next, and hands the results on."""

    _unfinished: dict[int, SoakProgress]  # type: ignore[assignment]

    def __init__(
        self, plan: Plan, cases: tuple[Case, ...], sink: RunCollector, launch: int
    ) -> None:
        super().__init__(plan, cases, sink, launch)
        self._cycle, self._round = 0, deque[int]()
        """The cycle, and the cases that are still to be measured in it, in order."""
        self._began = time.monotonic() - sink.soaked_s
        self._sent_s = self._elapsed_s

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def _last_cycle(self) -> int:
        """The last one of which all cases have a batch."""
        return min((made.cycle for made in self._unfinished.values()), default=0)

    def next(self) -> sampling.Command | None:
        command = super().next()
        self._sent_s = self._elapsed_s
        return command

    def record(self, result: Outcome) -> None:
        current, took_s = self._current, self._elapsed_s - self._sent_s
        assert isinstance(current, SoakProgress)
        current.busy_s += took_s
        start_s = round(self._sent_s, 6)
        if isinstance(result, Batch):
            result = result._replace(cycle=self._cycle, start_s=start_s)
        elif isinstance(result, verify.CheckResult):
            current.checking_s += took_s
            found = result.wrong_ranks, result.wrong_elements, result.first, result.first_call
            when = current.case.index, self._cycle, start_s, round(took_s, 6)
            if not result.failed:
                self._sink.checked(Check(*when, result.calls, *found))
        super().record(result)

    def _make(self, case: Case, before: tuple[Batch, ...], _: bool) -> CaseProgress:
        return SoakProgress(self._plan, case, before[-1].cycle if before else 0)

    def _next_in_order(self) -> int | None:
        plan, made, last = self._plan, self._unfinished, self._last_cycle
        is_over = last > 0 and plan.soak_s is not None and self._elapsed_s >= plan.soak_s
        if not self._round and not is_over and last < (plan.cycles or last + 1):
            self._cycle = last + 1
            self._round.extend(case for case in sorted(made) if made[case].cycle <= last)
            Random(f"{plan.seed} {self._cycle}").shuffle(self._round)
        if self._round and not is_over:
            return self._round.popleft()
        for ended in made.values():
            reason = TIME if is_over else CYCLES
            self._sink.finished(ended.measurement()._replace(stop_reason=reason))
        made.clear()
        return None

    def _add_done(self, _: float) -> None:
        shares = self._last_cycle / (self._plan.cycles or 1e9), 0.0
        if self._plan.soak_s:
            shares = shares[0], self._elapsed_s / self._plan.soak_s
        self._sink.advanced(min(1.0, max(shares)))
