"""What the time of a replayed step of a workload is made of, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from commbench.analysis.overlap import Estimate
from commbench.analysis.rows import ResultRow, interference
from commbench.output.paragraphs import list_some
from commbench.output.table import clean
from commbench.spec.replay import ReplayedCall, replayed_step, replayed_workload
from commbench.spec.workload_variants import AS_TRACED, BUCKET, VARIANTS
from commbench.units import format_about, format_count, format_time

_MOST_OPERATIONS = 6


def step_sentences(row: ResultRow, rows: Sequence[ResultRow]) -> Iterator[str]:
    """Which calls a rank makes in the step, how long they take one by one and in the trace, and
    what the variant changes; by all rows of the run."""
    case, plan = row.measurement.case, row.header.plan
    workload = replayed_workload(plan)
    step = next(step for step in workload.steps if step.name == case.step)
    rank = step.programs[0].ranks[0]
    replayed = replayed_step(plan, case, rank)
    name, _, size = case.variant.partition(":")
    what = VARIANTS[name]
    if name == BUCKET:
        what = what.partition(": ")[2].replace("SIZE bytes", size)
    yield (
        f"Step {clean(step.name)} of the workload {clean(workload.name)}; variant "
        f"{case.variant.replace(':', ' ')}: {what}. Rank {rank} makes "
        f"{_calls_text(replayed.calls)}."
    )
    yield from _computation(replayed.calls, replayed.compute_s)
    yield from _one_by_one(row, rows, replayed.calls)
    yield from _own_calls(row, rows)
    if step.time_s:
        yield f"In the trace the step took {format_time(step.time_s)}."


def _calls_text(calls: Sequence[ReplayedCall]) -> str:
    counts = Counter(f"{one.call.operation} over {one.call.group}" for one in calls).most_common()
    named = [f"{number} {operation}" for operation, number in counts]
    moved = format_about(sum(one.call.size_bytes or 0 for one in calls))
    listed = list_some(named, _MOST_OPERATIONS)
    return f"{format_count(len(calls), 'call')} of {moved} together: {clean(listed)}"


def _computation(calls: Sequence[ReplayedCall], after_s: float) -> Iterator[str]:
    if seconds := sum(one.compute_s for one in calls) + after_s:
        yield f"Between the calls it computes, {format_time(seconds)} in all."


def _one_by_one(
    row: ResultRow, rows: Sequence[ResultRow], calls: Sequence[ReplayedCall]
) -> Iterator[str]:
    """The times of the same calls, each measured alone; nothing where one was not measured."""
    times = {each.measurement.case.key(): each.time.median for each in rows if each.time}
    found = [times.get(one.case.key()) for one in calls]
    alone = sum(time for time in found if time is not None)
    if not row.time or not alone or None in found:
        return
    yield (
        f"Each of these calls alone takes {format_time(alone)} in all; the step takes "
        f"{row.time.median / alone:.2g} times that."
    )


def _own_calls(row: ResultRow, rows: Sequence[ResultRow]) -> Iterator[str]:
    """The ratio to the step with its own calls, of a variant with other calls."""
    case = row.measurement.case
    if case.variant in AS_TRACED or not row.time:
        return
    steps = {
        each.measurement.case.variant: each.time
        for each in rows
        if each.time and each.measurement.case.step == case.step
    }
    own = next((steps[variant] for variant in AS_TRACED if variant in steps), None)
    if own:
        first, second = (Estimate(time.median, time.low, time.high) for time in (own, row.time))
        ratio = interference(second, first)
        ends = "" if ratio.low is None else f" ({ratio.low:.2f}-{ratio.high:.2f})"
        yield f"It takes {ratio.value:.2f} times as long{ends} as the step with its own calls."
