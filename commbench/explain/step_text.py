"""What the time of a replayed step of a workload is made of, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

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
    computing_s = sum(one.call.compute_s or 0.0 for one in replayed.calls) + replayed.compute_s
    yield from _one_by_one(row, rows, replayed.calls, computing_s)
    yield from _own_calls(row, rows)
    if step.time_s:
        yield f"In the trace the step took {format_time(step.time_s)}."


def _calls_text(calls: Sequence[ReplayedCall]) -> str:
    counts = Counter(f"{one.call.operation} over {one.call.group}" for one in calls).most_common()
    named = [f"{number} {operation}" for operation, number in counts]
    moved = format_about(sum(one.call.size_bytes or 0 for one in calls))
    listed = list_some(named, _MOST_OPERATIONS)
    return f"{format_count(len(calls), 'call')} of {moved} together: {clean(listed)}"


def _one_by_one(
    row: ResultRow, rows: Sequence[ResultRow], calls: Sequence[ReplayedCall], computing_s: float
) -> Iterator[str]:
    """How long the rank computes, and the times of the same calls, each measured alone; without
    these where one was not measured."""
    computes = f"the rank computes for {format_time(computing_s)} between them"
    times = {each.measurement.case.key(): each.time.median for each in rows if each.time}
    found = [times.get(one.case.key()) for one in calls]
    alone = sum(time for time in found if time is not None)
    if not row.time or not alone or None in found:
        if computing_s:
            yield f"{computes[0].upper()}{computes[1:]}."
        return
    beside = f", and {computes}" if computing_s else ""
    ratio, what = row.time.median / (alone + computing_s), "the sum" if beside else "that"
    yield (
        f"One by one, these calls take {format_time(alone)} together{beside}; the step takes "
        f"{ratio:.2f} times {what}."
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
        ratio = interference(row.time.estimate, own.estimate)
        ends = "" if ratio.low is None else f" ({ratio.low:.2f}-{ratio.high:.2f})"
        yield f"It takes {ratio.value:.2f} times as long{ends} as the step with its own calls."
