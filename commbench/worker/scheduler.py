"""Decides on rank 0 what all ranks do next: check, warm up or time a batch of a case."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TypeAlias

from commbench.plan.case import FINISHED, READY, Case
from commbench.plan.cases import has_numerics
from commbench.plan.plan import Plan
from commbench.results import records, samples
from commbench.results.schema import FAILED, OK, WRONG, Batch, Measurement
from commbench.worker import sampling
from commbench.worker.recorder import RunCollector
from commbench.worker.sampling import CHECK, NUMERICS, Command, QuickSearch, SampleSchedule
from commbench.worker.verify import CheckResult

LOOKED = "looked"
"""Stop reason of a case that a quick search did not choose after its first look."""


Outcome: TypeAlias = CheckResult | records.Numerics | tuple[float, ...] | Batch
"""The result of a command."""


class Scheduler:
    """Decides on rank 0 what all ranks do next, and hands the results on.

    `next` gives a command, `record` takes its result: of CHECK a CheckResult, of NUMERICS Numerics,
    of WARM_UP the slowest rank's durations in seconds, of MEASURE a Batch. With a quick search, the
    cases that it does not choose are not measured.
    """

    def __init__(
        self, plan: Plan, cases: tuple[Case, ...], sink: RunCollector, launch: int,
        search: QuickSearch | None = None,
    ) -> None:  # fmt: skip
        self._plan, self._sink, self._launch = plan, sink, launch
        self._is_last = launch + 1 >= plan.launches
        self._order = sampling.CaseOrder(plan.order, plan.seed + launch)
        self._search = search
        """What chooses cases after its first look; None once it has chosen, and without one."""
        self._later: dict[int, CaseProgress] = {}
        """The cases that go on only if they are chosen: with a first look that has ended, or with
        none."""
        self._unfinished: dict[int, CaseProgress] = {}
        for case in cases:
            before = sink.batches_before(case) if case.status in (READY, FINISHED) else ()
            if search:
                search.record(case, *before)
            if case.status == READY:
                is_look = search is not None and case.index in search.looks
                # What was read again of a look that had begun has no times of ranks.
                made = self._make(case, () if is_look else before, is_look)
                is_later = search is not None and case.index in search.others
                (self._later if is_later else self._unfinished)[case.index] = made
            elif case.status != FINISHED:
                sink.finished(Measurement(case=case, status=case.status, reason=case.reason))
        self._cases, self._done = len(self._unfinished) + (search.most_chosen if search else 0), 0.0
        """How many cases there are to measure, and how much of them is done."""
        checked = [m.case for m in self._unfinished.values() if plan.check and m.case.has_result]
        checked.sort(key=lambda case: case.size_bytes, reverse=True)
        self._unchecked = [case.index for case in checked]
        """The cases to check before any is timed, the smallest last: it is the first, since the
        rates of small cases bound how long the checks of large ones may take."""
        self._current: CaseProgress | None = None
        """The case that is being measured until its batch has ended."""

    def _make(self, case: Case, before: tuple[Batch, ...], is_look: bool) -> CaseProgress:
        return CaseProgress(self._plan, case, before, self._is_last, is_look)

    def next(self) -> Command | None:
        """The next command for all ranks; None: everything is done."""
        while True:
            if self._current is None:
                index = self._unchecked.pop() if self._unchecked else self._next_in_order()
                if index is None and self._search:
                    self._continue_with(self._search.choose())
                    continue
                if index is None:
                    return None
                self._current = self._unfinished[index]
                self._sink.started(self._current.case)
            if command := self._current.next():
                return command
            ended = self._unfinished.pop(self._current.case.index)
            self._current = None
            self._add_done(1.0 - ended.progress)
            if self._search and ended.is_look:
                self._later[ended.case.index] = ended
            else:
                self._sink.finished(ended.measurement())

    def _next_in_order(self) -> int | None:
        return self._order.next(self._unfinished, lambda i: self._unfinished[i].progress)

    def _continue_with(self, chosen: set[int]) -> None:
        """After the first look, go on with these cases; the others have ended."""
        for index, made in self._later.items():
            if index in chosen and made.go_on(self._plan):
                self._unfinished[index] = made
            elif made.is_look:
                self._sink.finished(made.measurement()._replace(stop_reason=LOOKED))
        self._search, self._cases = None, max(1, round(self._done) + len(self._unfinished))

    def record(self, result: Outcome) -> None:
        """Take the result of the last command."""
        current = self._current
        assert current is not None
        if isinstance(result, Batch):
            result = result._replace(warmup=current.warmup, launch=self._launch)
            self._sink.batch_done(current.case, result)
            if self._search:
                self._search.record(current.case, result)
        before = current.progress
        if current.record(result):
            self._current = None
        self._add_done(current.progress - before)

    def _add_done(self, part: float) -> None:
        self._done += part
        self._sink.advanced(min(1.0, self._done / self._cases))


class CaseProgress:
    """How far one case has come on rank 0."""

    def __init__(
        self, plan: Plan, case: Case, before: tuple[Batch, ...], is_last_launch: bool = True,
        is_look: bool = False,
    ) -> None:  # fmt: skip
        """`is_look`: of the case one short batch is measured, and more only if it is to go on."""
        self.case, self._is_last_launch, self.is_look = case, is_last_launch, is_look
        if is_look:  # the first of two batches
            plan = replace(plan, iterations=2 * sampling.LOOK_ITERATIONS, warmup=0)
        self._warmup = 0
        """Calls to warm up since the last batch."""
        self._plan, self._batches = plan, [*before]
        self._checked: CheckResult | None = None
        """None until a call was checked, if one is to be."""
        self._schedule: SampleSchedule | None = None
        self._request: Command | None = None
        is_checked = plan.check and case.has_result
        self._checks_again = self._checks_now = is_checked
        """Whether calls are checked once more before the case ends: what goes wrong now and then,
        or under load, shows only then; and whether they may be checked before the next batch."""
        self._check_s = self._checking_s = self._timed_s = 0.0
        """How long the check of a call takes, all further checks took, and all batches took."""
        self._random = Random(plan.seed + case.index)
        self._needs_numerics = has_numerics(plan, case)
        self._numerics: tuple[records.Numerics, ...] = ()
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
            return Command(CHECK, self.case.index, 1)
        if self._schedule is None or (self.is_look and self._batches):
            return None
        if self._needs_numerics:
            return Command(NUMERICS, self.case.index)
        self._request = request = self._schedule.next()
        checks = max(self._fitting_checks, request is None and self._is_last_launch)
        if self._checks_again and checks > 0 and (self._checks_now or request is None):
            calls = 1 if request else self._batches[-1].calls // self.case.parts
            return Command(CHECK, self.case.index, checks, calls)
        return request

    def go_on(self, plan: Plan) -> bool:
        """Go on, after a look until the case has what this plan wants; whether it can: memory has
        not run out."""
        if self.is_look and self._schedule:
            self.is_look, self._plan = False, plan
            self._schedule = SampleSchedule(plan, self.case, before=self._batches)
        return not self.is_look

    @property
    def _fitting_checks(self) -> int:
        """How many further calls there is time to check: in a part of the time of the case's
        batches, or of half its budget where that is more. One call at least is checked after the
        last batch of the last launch."""
        least_s = self._plan.budget_s / 2 / self._plan.launches
        allowed_s = self._plan.checks[0] * max(least_s, self._timed_s)
        return int((allowed_s - self._checking_s) / self._check_s) if self._check_s else 0

    def record(self, result: Outcome) -> bool:
        """Take the result of the last command; whether other cases have their turn first."""
        is_first_check = self._checked is None
        self._take(result)
        return (is_first_check or isinstance(result, Batch)) and self.next() is not None

    def _take(self, result: Outcome) -> None:
        if isinstance(result, CheckResult):
            self._record_check(result)
            return
        if isinstance(result, records.Numerics):
            self._needs_numerics, self._numerics = False, (result,)
            return
        assert self._schedule is not None and self._request is not None
        if isinstance(result, Batch):
            self._warmup = 0
            self._timed_s += sum(result.samples_s) * result.calls
            self._checks_now = self._random.random() < self._plan.checks[1]
            self._batches.append(result)
        else:
            self._warmup += len(result)
        self._schedule.record(result)

    def measurement(self) -> Measurement:
        """What the case gave, without its batches."""
        checked = self._checked or CheckResult()
        if checked.failed:
            return Measurement(case=self.case, status=FAILED, reason=checked.failed)
        texts = [checked.fault, samples.describe_wrong(checked.first, checked.first_call)]
        return Measurement(
            case=self.case,
            status=WRONG if any(texts) else OK,
            reason="; ".join(filter(None, texts)),
            stop_reason=self._schedule.stop_reason if self._schedule else "",
            wrong=checked.wrong,
            first_wrong=checked.first,
            numerics=self._numerics,
        )

    def _make_schedule(self, checked_s: float) -> SampleSchedule:
        return SampleSchedule(self._plan, self.case, checked_s, self._batches)

    def _record_check(self, checked: CheckResult) -> None:
        is_first = self._checked is None
        if is_first or checked.failed or checked.wrong or checked.fault:
            self._checked = checked
        if checked.fault:
            self._schedule = None  # times of a call that is wrong mean nothing
        elif not is_first:
            self._checking_s += checked.elapsed_s
        elif not checked.failed:  # without memory the case ends here; the others go on
            self._schedule = self._make_schedule(checked.seconds)
        call_s = checked.elapsed_s / checked.calls
        self._check_s = min(self._check_s or call_s, call_s)
        if checked.failed or checked.wrong or (self._schedule and self._schedule.stop_reason):
            self._checks_again = False
