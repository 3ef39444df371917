"""What the replay of a workload says: each operation of a step, and the step in its variants, as it
was in the trace and as it is here.

    replayed time of an operation    sum over its calls in the step of the medians of their cases
    time in the trace                union of the intervals of all calls of a rank, mean over ranks
    the same without waiting         of each call only [end - transfer, end]
    the same without computation     calls_only_s

The medians of a sum are those of different cases, so its interval follows from theirs by the
method of worker.overlap. A trace has one value for each call, the median over its steps, and no
interval.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from commbench.analysis.diagnostics import has_waited
from commbench.analysis.figures import find_peak_fraction
from commbench.analysis.rows import ResultRow, make_rows
from commbench.plan.links import Peak
from commbench.plan.plan import Plan
from commbench.plan.replay import replayed_workload, step_calls
from commbench.plan.workload import Call, Step, waited
from commbench.plan.workload_variants import AS_TRACED, CALLS, GAPS, calls_only_s
from commbench.results.schema import OK, Run
from commbench.stats import Estimate, combine, known, ratio
from commbench.views.formats import Result, fields_of
from commbench.workloads.trace import OperationTotals, communication_of, workload_totals


class OperationReplay(NamedTuple):
    """An operation of a set of groups in a step: means of one rank."""

    traced: OperationTotals
    """Its calls and bytes, and its times in the trace where there is one."""
    replayed: Estimate | None
    """Seconds of all its calls here; None where one of them was not measured."""
    peak_s: float | None
    """Seconds of all its calls at the peak; None without a peak, and where it bounds nothing."""

    @property
    def here_s(self) -> float | None:
        """Seconds here."""
        return self.replayed.value if self.replayed else None

    @property
    def busbw(self) -> Estimate | None:
        """The bus bandwidth of the replay in bytes/s; None for an operation without one."""
        if (time := self.replayed) is None:
            return None
        return known(*map(self.traced.busbw_in, (time.value, time.high, time.low)))

    def as_json(self) -> dict[str, Any]:
        """The calls, and their times in the trace, here and at the peak."""
        calls = fields_of(self.traced, "waiting_s", without=("step", "step_share"))
        times = ("time_s", "transfer_s", "waiting_s")
        return {
            **{f"traced_{name}" if name in times else name: v for name, v in calls.items()},
            "size_bytes": self.traced.size_bytes and round(self.traced.size_bytes),
            "replayed_s": self.replayed,
            "busbw_bytes_per_s": self.busbw,
            "at_peak_s": self.peak_s,
        }


class VariantReplay(NamedTuple):
    """A step in one variant."""

    variant: str
    time_s: Estimate | None
    """Of the slowest rank; None where it was not measured."""
    over_baseline: Estimate | None
    """Its time over that of the baseline; None for the baseline, and where one is not known."""
    why_not_measured: str = ""
    has_waited: bool = False
    """Whether ranks waited for a core in it, or in the baseline: then nothing is decided."""


class StepReplay(NamedTuple):
    """A step, in the trace and here."""

    step: Step
    operations: tuple[OperationReplay, ...]
    """Those that take most of the trace first; without a trace, those that take most here."""
    variants: tuple[VariantReplay, ...]
    baseline: str
    """The variant with which others are compared: with gaps where that was measured."""
    communication_s: float | None
    """Seconds of a step in the trace during which a call was under way, mean over ranks."""
    transfer_s: float | None
    """The same without waiting; None where the trace does not say how long calls waited."""
    calls_only_s: float | None
    """Seconds that the calls of the trace take where no rank computes or waits for one that does;
    None where their times are not known."""

    def __repr__(self) -> str:
        names = ", ".join(each.variant for each in self.variants)
        return f"<StepReplay: {self.step.name}: {names}>"

    def as_json(self) -> dict[str, Any]:
        """The name of the step, its times in the trace, its operations, and its variants."""
        step = {"name": self.step.name, "count": self.step.count, "traced_s": self.step.time_s}
        ratios = fields_of(self, "waiting_s", "over_trace", "step_over_trace", without=("step",))
        return step | ratios | {"alone_s": self.alone}

    @property
    def alone(self) -> Estimate | None:
        """Seconds of all calls here, each measured alone; None where one was not measured."""
        times = [one.replayed for one in self.operations if one.replayed]
        return _sum(times) if times and len(times) == len(self.operations) else None

    @property
    def over_trace(self) -> Estimate | None:
        """The time of the calls one after another here over that in the trace, where no rank
        computes; None where one of both is not known."""
        return _over(self.variant(CALLS), self.calls_only_s)

    @property
    def step_over_trace(self) -> Estimate | None:
        """The time of the step with gaps here over that in the trace."""
        return _over(self.variant(GAPS), self.step.time_s)

    @property
    def waiting_s(self) -> float | None:
        """Seconds by which the communication of the trace is shorter without waiting."""
        return waited(self.communication_s, self.transfer_s)

    def variant(self, name: str) -> VariantReplay | None:
        """The variant of this name that was measured."""
        return next((each for each in self.variants if each.variant == name and each.time_s), None)


class ReplayResult(
    Result, tuple[StepReplay, ...], view="answers.replay.document", rows="steps operations"
):
    """The steps of a replay, beside their trace; empty for a run without a workload."""

    run: Run
    """The run that replayed them."""

    def __new__(cls, steps: Iterable[StepReplay], run: Run) -> ReplayResult:
        made = super().__new__(cls, steps)
        made.run = run
        return made

    def __reduce__(self) -> Any:
        return ReplayResult, (tuple(self), self.run)


def analyse_replay(
    run: Run, rows: Sequence[ResultRow] | None = None, peak: Peak | None = None
) -> ReplayResult:
    """The steps that a run replays, without those that make no call; none for a run without a
    workload. `rows` are those of the run, where they are known already."""
    plan = run.header.plan
    if not plan.workload:
        return ReplayResult((), run)
    by_key = {r.case.key(): r for r in (make_rows(run) if rows is None else rows)}
    steps = [
        _analyse_step(plan, step, by_key, peak)
        for step in replayed_workload(plan).steps
        if any(program.calls for program in step.programs)
    ]
    return ReplayResult(steps, run)


_Key: TypeAlias = tuple[object, ...]
_Rows: TypeAlias = dict[_Key, ResultRow]
_Weighted: TypeAlias = Sequence[tuple[float, ResultRow | None]]
"""Rows, and how often a rank makes the call of each, on average."""


def _analyse_step(plan: Plan, step: Step, rows: _Rows, peak: Peak | None) -> StepReplay:
    workload = replayed_workload(plan)
    ranks = sum(len(program.ranks) for program in step.programs) or 1
    made: dict[tuple[str, str], dict[_Key, float]] = defaultdict(lambda: defaultdict(float))
    for call, case, weight in step_calls(plan, step):
        made[call.group, call.operation][case.key()] += weight / ranks
    operations = []
    for traced in workload_totals(workload, step):
        own = [(w, rows.get(key)) for key, w in made[traced.group, traced.operation].items()]
        operations.append(OperationReplay(traced, _sum_times(own), _sum_at_peak(own, peak)))
    operations.sort(key=lambda one: (one.traced.seconds or 0.0, one.here_s or 0.0), reverse=True)
    variants, baseline = _find_variants(step, rows)
    return StepReplay(
        step, tuple(operations), variants, baseline, *_find_communication(step),
        calls_only_s(workload, step),
    )  # fmt: skip


def _sum_times(weighted: _Weighted) -> Estimate | None:
    """The sum of medians, each times its weight; None where one is not known."""
    terms = [row.time.estimate.scaled(weight) for weight, row in weighted if row and row.time]
    return _sum(terms) if len(terms) == len(weighted) else None


def _sum(terms: Sequence[Estimate]) -> Estimate:
    found = combine(lambda *values: sum(values), *terms)
    return found if found.low is None else found._replace(low=max(0.0, found.low))


def _sum_at_peak(weighted: _Weighted, peak: Peak | None) -> float | None:
    """The time of the calls if each reached the peak; None where it bounds one of them not."""
    total = 0.0
    for weight, row in weighted:
        share = find_peak_fraction(row, peak) if row and row.time and peak else None
        if not (share and row and row.time):
            return None
        total += weight * row.time.median * share.fraction
    return total


def _find_variants(step: Step, rows: _Rows) -> tuple[tuple[VariantReplay, ...], str]:
    """The variants of a step, and which is the baseline."""
    own = [row for row in rows.values() if row.case.step == step.name]
    times = {
        row.case.variant: row.time.estimate
        for row in own
        if row.time and row.measurement.status == OK
    }
    baseline = GAPS if GAPS in times else CALLS
    waited = {row.case.variant for row in own if has_waited(row.queued_share)}
    found = []
    for row in own:
        variant = row.case.variant
        time = times.get(variant)
        over = None if variant in AS_TRACED else ratio(time, times.get(baseline))
        why = "" if time else row.measurement.outcome
        has_both = not waited.isdisjoint((variant, baseline))
        found.append(VariantReplay(variant, time, over, why, has_both))
    return tuple(found), baseline


def _find_communication(step: Step) -> tuple[float | None, float | None]:
    """How long calls were under way in the trace, with waiting and without; means over ranks."""
    calls = [call for program in step.programs for call in program.calls]
    if any(call.end_s is None for call in calls):
        return None, None
    is_known = all(call.transfer_s is not None for call in calls)
    return communication_of(step), communication_of(step, _transfer) if is_known else None


def _transfer(call: Call) -> tuple[float, float]:
    start, end = call.interval_s
    return max(start, end - (call.transfer_s or 0.0)), end


def _over(here: VariantReplay | None, traced: float | None) -> Estimate | None:
    """The ratio of a time here and one of the trace, which has no interval."""
    return ratio(here.time_s, Estimate(traced, traced, traced)) if here and traced else None
