"""Explains a run: chosen rows in full, else how to read the table and the largest of each kind."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.analysis.nccl_log import (
    INIT_MODE,
    describe_communicator,
    describe_init,
    describe_start_up,
)
from commbench.analysis.peak import find_peak_fraction, why_no_peak_fraction
from commbench.analysis.row_names import named_bytes
from commbench.analysis.rows import ResultRow, make_rows, worst_alone
from commbench.errors import UsageError
from commbench.explain.row_text import (
    count_iterations,
    describe_time,
    explain_row,
    is_of_size,
)
from commbench.explain.step_text import step_sentences
from commbench.explain.why import why_in_short, why_sentences
from commbench.models.machine import Machine
from commbench.output.paragraphs import Paragraph, gbps, paragraphs, seconds, wrapped
from commbench.results.schema import Run, RunHeader
from commbench.spec.links import Peak
from commbench.spec.operations import OPERATIONS, Operation
from commbench.units import format_bytes, format_known_time, format_percent, format_sizes

_COLUMNS = (
    ("size", "S: the larger of what one rank sends and what it receives in a call."),
    ("count", "Elements of the tensor, or of one rank's block where S consists of blocks."),
    ("time", "t: the slowest rank of each iteration, then the median of the iterations."),
    ("interval", "The 95 % confidence interval of this median. A wide interval means noise."),
    ("p5", "The 5th percentile: 5 % of the iterations took less. It is hardly disturbed."),
    ("n", "Number of timed iterations."),
    ("algbw", "S / t: how fast one call moves its data."),
    ("busbw", "algbw x factor: at least one rank's link was this fast. Compare it with a link."),
    ("wrong", "Wrong elements of the results. An empty cell: they were not checked."),
)
UNBROKEN = "\u00a0"
"""A blank at which no line ends."""
_NOT_IMPORTED = ("interval", "p5")
"""Columns that a run of another tool's printed figures does not have."""


_OF_GROUPS = {
    "slowest group": "The ranks of the group with the longest time.",
    "interference": "The time of that group, all groups of the dimension together, over its time "
    "alone. 1: the groups do not slow each other.",
}


def column_meanings(rows: Sequence[ResultRow]) -> dict[str, str]:
    """What each column of the table of these rows means."""
    columns = dict(_COLUMNS)
    if all(row.measurement.wrong is None for row in rows):
        del columns["wrong"]
    if all(row.time is None or row.time.p5 is None for row in rows):
        del columns["p5"]
    if any(row.worst_group for row in rows):
        columns |= _OF_GROUPS
    if rows and all(row.measurement.reported for row in rows):
        columns["time"] = f"t: {describe_time(rows[0])}"
        columns = {name: text for name, text in columns.items() if name not in _NOT_IMPORTED}
    return columns


def explain_run(
    run: Run,
    operation: Operation | None = None,
    size_bytes: int | None = None,
    peak: Peak | None = None,
    machine: Machine | None = None,
) -> str:
    """The chosen rows in full; without a choice, the table and the largest size of each kind. With
    a `machine`, its models say what bounds each row."""
    every = rows = worst_alone(make_rows(run))
    chosen = _choose(rows, run.name, operation, size_bytes)
    kinds = _group_by_kind(chosen)
    largest = [
        max(rows, key=lambda row: (row.time is not None, row.measurement.case.size_bytes))
        for rows in kinds.values()
    ]
    others = ""
    if size_bytes is None and len(chosen) > len(kinds):
        others = "\n\n" + wrapped(
            "Only the largest size of each kind is explained here. For another size: "
            f"commbench explain {run.path} --op {operation.name if operation else 'OP'} --size SIZE"
        )
    if operation or size_bytes or len(rows) == 1:
        where = _where(run.header)
        texts = (
            explain_row(
                row, peak, where, list(why_sentences(row, every, machine)), _step(row, every)
            )
            for row in largest
        )
        return "\n\n\n".join(texts) + others
    timings = {row.measurement.case.timing: describe_time(row) for row in largest}
    columns = column_meanings(rows)
    if all(row.measurement.reported for row in largest):
        columns["time"] = "t: as explained below."
    parts = [
        Paragraph("where", [_where(run.header)]),
        *(Paragraph(label, [text]) for label, text in columns.items()),
        *(Paragraph("timing", [f"{name}: {text}"]) for name, text in timings.items()),
    ]
    blocks = [
        wrapped(" ".join(filter(None, _in_short(row, every, peak, machine)))) for row in largest
    ]
    blocks = [block.replace(UNBROKEN, " ") for block in blocks]
    return "\n\n".join((wrapped(run.name), paragraphs(parts), *blocks)) + others


def _in_short(
    row: ResultRow, every: Sequence[ResultRow], peak: Peak | None, machine: Machine | None
) -> list[str]:
    """The sentences about a row among others."""
    return [_compact(row, peak), why_in_short(row, every, machine), *_step(row, every)]


def _step(row: ResultRow, every: Sequence[ResultRow]) -> list[str]:
    """The sentences about the step of a workload; none for a single call."""
    return list(step_sentences(row, every)) if row.measurement.case.step else []


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


def _group_by_kind(rows: Sequence[ResultRow]) -> dict[tuple[str, str], list[ResultRow]]:
    kinds: dict[tuple[str, str], list[ResultRow]] = {}
    for row in rows:
        case = row.measurement.case
        kinds.setdefault((case.title, case.timing), []).append(row)
    return kinds


def _where(header: RunHeader) -> str:
    facts = header.environment
    parts = [header.describe_ranks()]
    parts += [f"torch {facts['torch']}"] if facts.get("torch") else []
    if source := facts.get("imported_from"):
        parts.append(f"measured by {facts.get('tool', 'another tool')}, imported from {source}")
    parts += [header.started] if header.started else []
    log = facts.get("nccl_log")
    parts += filter(None, [describe_communicator(log)])
    parts += [f"{mode} init of communicators"] if (mode := facts.get(INIT_MODE)) else []
    parts += [f"communicator made in {init}"] if (init := describe_init(log)) else []
    parts += filter(None, [describe_start_up(header)])
    shared = "Ranks share a GPU: these times do not measure performance."
    return f"{'; '.join(parts)}.{f' {shared}' if header.gpu_shared else ''}"


def _compact(row: ResultRow, peak: Peak | None) -> str:
    """The figures of a row with their formulas, in a few lines."""
    case, time, ranks = row.measurement.case, row.time, row.measurement.case.ranks
    operation = OPERATIONS[case.operation]
    if time is None:
        return f"{case.title}: {row.measurement.outcome}"
    _, ends = format_known_time(time.median, time.low, time.high)
    interval = f" (95 % interval {ends})" if ends else ""
    took = (
        f"t = {seconds(time.median)}{interval}, {case.timing}, {count_iterations(time.iterations)}"
    )
    if row.algbw is None or row.busbw is None or case.busbw_factor is None:
        return f"{case.title}: {operation.summary}. {took}. There is no bandwidth."
    size = f"S = {format_bytes(case.size_bytes)}"
    formula, factor = operation.busbw_formula, case.busbw_factor
    product = f"algbw x {formula} = {gbps(row.algbw)} x {factor:.5g} = {gbps(row.busbw)} GB/s"
    busbw = "algbw" if formula == "1" else f"{product} (n = {ranks})"
    return (
        f"{case.title}: {operation.summary}. {size}, {took}. "
        f"algbw = S / t = {gbps(row.algbw)} GB/s".replace(" ", UNBROKEN)
        + f". busbw = {busbw}.{_peak_sentence(row, peak)}"
    )


def _peak_sentence(row: ResultRow, peak: Peak | None) -> str:
    if peak is None:
        return ""
    found = find_peak_fraction(row, peak)
    if found is None:
        return f" No percentage of {peak.name}: {why_no_peak_fraction(row, peak)}."
    return f" That is {format_percent(found.fraction)} of {peak.name} ({found.bound} bound)."
