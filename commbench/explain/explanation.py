"""What `commbench explain` finds about rows: what bounds them, the part of a peak that they reach,
what others measured, and what the step of a workload is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from commbench.analysis.peak import PeakFraction, find_peak_fraction
from commbench.analysis.row_names import named_bytes
from commbench.analysis.rows import ResultRow, interference, make_rows, worst_alone
from commbench.errors import UsageError
from commbench.expect.expectation import Judgement
from commbench.expect.rows import judge_row
from commbench.explain.why import Why, find_why
from commbench.models.machine import Machine
from commbench.results.schema import Run
from commbench.spec.call_forms import choose_forms, size_step
from commbench.spec.dtypes import DTYPES
from commbench.spec.links import Peak
from commbench.spec.operations import OPERATIONS, Operation
from commbench.spec.replay import replayed_step, replayed_workload
from commbench.spec.workload_variants import AS_TRACED
from commbench.stats.estimate import Estimate
from commbench.units import format_bytes, format_sizes
from commbench.views.as_json import fields_of


class StepParts(NamedTuple):
    """What a rank does in the replayed step of a workload; times in seconds."""

    workload: str
    rank: int
    calls: dict[str, int]
    """How often it makes each call: `all_reduce over dp`."""
    size_bytes: int
    """Of all calls together."""
    alone_s: float | None
    """The time of these calls, each measured alone; None where one was not measured."""
    computing_s: float
    """For how long it computes between them."""
    traced_s: float | None
    """The time of the step in the trace."""
    over_own: Estimate | None
    """Of a variant with other calls: its time over that of the step with its own."""


class RowExplanation(NamedTuple):
    """A row with what explains it; None for what is not known or was not asked."""

    row: ResultRow
    requested_bytes: int | None = None
    """The size that was asked for, where it was rounded down to this one."""
    why: Why | None = None
    peak: Peak | None = None
    share: PeakFraction | None = None
    """The part of the peak."""
    others: Judgement | None = None
    """Whether its bandwidth is plausible, by what others measured."""
    step: StepParts | None = None

    @property
    def operation(self) -> Operation:
        """What the row calls."""
        return OPERATIONS[self.row.measurement.case.operation]

    def as_json(self) -> dict[str, Any]:
        """The figures of the row, and the other fields."""
        row, case, operation = self.row, self.row.measurement.case, self.operation
        return {
            "call": case.title,
            "ranks": case.ranks,
            "nodes": row.header.num_nodes,
            "size_bytes": named_bytes(case) if case.dtype else None,
            "count": case.count if case.dtype else None,
            "time_s": row.time and row.time.estimate,
            "timing": case.timing,
            "iterations": row.time and row.time.iterations,
            "not_timed": None if row.time else row.measurement.outcome,
            "stop_reason": row.stop_reason or None,
            "wrong": row.measurement.wrong,
            "algbw_bytes_per_s": row.algbw,
            "busbw_factor": case.busbw_factor,
            "busbw_formula": operation.busbw_formula or None,
            "busbw_bytes_per_s": row.busbw,
            "fewest_messages": operation.fewest_messages(case.ranks),
            "load": row.load,
            "form_ratio": row.form_ratio,
            "overlap": row.overlap,
            "nccl": row.nccl_selection,
        } | fields_of(self, without=("row",))


class Explanation(NamedTuple):
    """Rows of a run, or a call that a user quotes, explained."""

    name: str
    """The run's name; empty for a call."""
    rows: tuple[RowExplanation, ...]
    """The largest size of each kind among those that were asked for."""
    every: tuple[ResultRow, ...]
    """All rows of the run."""
    is_overview: bool
    """Whether no row was asked for."""
    more: str = ""
    """The command that explains another size; empty where there is none."""

    def as_json(self) -> dict[str, Any]:
        """The fields without the other rows."""
        return fields_of(self, without=("every", "more", "is_overview"))


def explain_row(
    row: ResultRow, every: Sequence[ResultRow] = (), peak: Peak | None = None,
    machine: Machine | None = None,
) -> RowExplanation:  # fmt: skip
    """Everything about a row, by all rows of its run and the models of a machine."""
    case = row.measurement.case
    requested = [size for size in row.header.plan.sizes if is_of_size(row, size)]
    return RowExplanation(
        row,
        min(requested) if requested and min(requested) != case.size_bytes else None,
        find_why(row, every, machine) if every or machine else None,
        peak,
        find_peak_fraction(row, peak) if peak else None,
        judge_row(row),
        find_step(row, every) if case.step else None,
    )


def explain_run(
    run: Run,
    operation: Operation | None = None,
    size_bytes: int | None = None,
    peak: Peak | None = None,
    machine: Machine | None = None,
) -> Explanation:
    """The largest size of each kind of call, of the chosen rows. With a `machine`, its models say
    what bounds each row."""
    every = worst_alone(make_rows(run))
    chosen = _choose(every, run.name, operation, size_bytes)
    largest: dict[tuple[str, str], ResultRow] = {}
    for row in chosen:
        kind = row.measurement.case.title, row.measurement.case.timing
        if kind not in largest or _order(row) > _order(largest[kind]):
            largest[kind] = row
    name = operation.name if operation else "OP"
    has_more = size_bytes is None and len(chosen) > len(largest)
    return Explanation(
        run.name,
        tuple(explain_row(row, every, peak, machine) for row in largest.values()),
        every,
        not (operation or size_bytes or len(every) == 1),
        f"commbench explain {run.path} --op {name} --size SIZE" if has_more else "",
    )


def _order(row: ResultRow) -> tuple[bool, int]:
    return row.time is not None, row.measurement.case.size_bytes


def _choose(
    rows: Sequence[ResultRow], name: str, operation: Operation | None, size: int | None
) -> Sequence[ResultRow]:
    """The rows of this operation and size; UsageError where the run `name` has none."""
    if not rows:
        raise UsageError(f"{name} has no finished case yet", "wait, or give another run")
    names = dict.fromkeys(row.measurement.case.operation for row in rows)
    if operation:
        rows = [row for row in rows if row.measurement.case.operation == operation.name]
        if not rows:
            raise UsageError(f"{name} has no {operation.name}", f"it has {', '.join(names)}")
    if size is None:
        return rows
    sizes = sorted({named_bytes(row.measurement.case) for row in rows} - {0})
    rows = [row for row in rows if is_of_size(row, size)]
    if not rows:
        has = f"it has {format_sizes(tuple(sizes))}" if sizes else "none of its rows has a size"
        raise UsageError(f"{name} has no row of {format_bytes(size)}", has)
    return rows


def is_of_size(row: ResultRow, requested: int) -> bool:
    """Whether the row's size is `requested` bytes rounded down to whole blocks of each tensor.

    Blocks are whole elements, or as in nccl-tests multiples of 16 bytes.
    """
    case = row.measurement.case
    if not case.dtype:
        return False
    element, operation = DTYPES[case.dtype].size_bytes, OPERATIONS[case.operation]
    step = case.ranks * max(element, 16) if operation.blocks else element
    forms = choose_forms(row.header.plan.forms, operation, case.tensors)
    step *= size_step(operation, forms, case.tensors, case.ranks)
    return 0 <= requested - case.size_bytes < step


def find_step(row: ResultRow, rows: Sequence[ResultRow]) -> StepParts:
    """What a replayed step is made of, by all rows of its run."""
    case, plan = row.measurement.case, row.header.plan
    workload = replayed_workload(plan)
    step = next(step for step in workload.steps if step.name == case.step)
    rank = step.programs[0].ranks[0]
    replayed = replayed_step(plan, case, rank)
    calls = [one.call for one in replayed.calls]
    times = {each.measurement.case.key(): each.time.median for each in rows if each.time}
    alone = [times.get(one.case.key()) for one in replayed.calls]
    steps = {
        each.measurement.case.variant: each.time.estimate
        for each in rows
        if each.time and each.measurement.case.step == case.step
    }
    own = next((steps[variant] for variant in AS_TRACED if variant in steps), None)
    is_other = own and row.time and case.variant not in AS_TRACED
    return StepParts(
        workload.name,
        rank,
        dict(Counter(f"{call.operation} over {call.group}" for call in calls).most_common()),
        sum(call.size_bytes or 0 for call in calls),
        None if None in alone else sum(time for time in alone if time is not None),
        sum(one.compute_s for one in replayed.calls) + replayed.compute_s,
        step.time_s or None,
        interference(row.time.estimate, own) if is_other and row.time and own else None,
    )
