"""The text and the JSON of workloads, and of an analysis of traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commbench.analysis.trace import OperationTotals, TraceAnalysis, TraceOverlap
from commbench.analysis.workload import workload_totals
from commbench.output.paragraphs import fill
from commbench.output.table import BOLD, TableColumn, clean, fitting_table, style
from commbench.spec.workload import Step, Workload
from commbench.units import format_about, format_count, format_GBps, format_share, format_time

SLOW = 1e7
"""Bytes/s: a smaller bandwidth is that of a message so small that it says nothing."""
MOST_WAITING = 4
"""Ranks whose waiting is printed, those that wait longest."""


def short_time(seconds: float | None) -> str:
    """A time with three digits, which leaves room for the other columns."""
    if not seconds:
        return "" if seconds is None else "0"
    number, unit = format_time(seconds).split()
    return f"{float(number):.0f} {unit}" if float(number) >= 100 else f"{number} {unit}"


def _calls(calls: float) -> str:
    return f"{calls:.0f}" if calls == round(calls) else f"{calls:.1f}"


COLUMNS = (
    TableColumn("group", lambda row: row.group, 10, is_left=True),
    TableColumn("ranks", lambda row: str(row.ranks or "?"), 1),
    TableColumn("operation", lambda row: row.operation, 10, is_left=True),
    TableColumn("calls", lambda row: _calls(row.calls), 8),
    TableColumn("bytes", lambda row: _bytes(row), 7),
    TableColumn("time", lambda row: short_time(row.time_s), 6),
    TableColumn("transfer", lambda row: short_time(row.transfer_s), 3),
    TableColumn("waiting", lambda row: short_time(row.waiting_s), 5),
    TableColumn("busbw\nGB/s", lambda row: _bandwidth(row.busbw), 2),
    TableColumn(
        "step", lambda row: "" if row.share is None else format_share(row.share), 4
    ),
)  # fmt: skip
MEANINGS = (
    "All figures are means of one step of one rank. bytes: the sizes S of the calls together, by "
    "nccl-tests' convention. transfer: the shortest time of each call on the ranks of its group; "
    "waiting: the rest. step: the part of the step during which such a call was under way."
)
WORKLOAD_MEANINGS = MEANINGS.partition(" step:")[0]
SIZE_MEANING = (
    "All figures are means of one step of one rank. bytes: the sizes S of the calls together, by "
    "nccl-tests' convention."
)


def _bytes(row: OperationTotals) -> str:
    if row.size_bytes is None:
        return "?"
    return format_about(row.size_bytes).replace(".0 B", " B")


def _bandwidth(busbw: float | None) -> str:
    if not busbw:
        return ""
    return format_GBps(busbw) if busbw >= SLOW else f"<{SLOW / 1e9:g}"


def trace_text(analysis: TraceAnalysis) -> str:
    """The table of operations, the overlap, who waits for whom, and what is not known."""
    lines = [style(clean(_title(analysis)), BOLD), *fitting_table(COLUMNS, analysis.totals)]
    paragraphs = [MEANINGS] if any(row.time_s is not None for row in analysis.totals) else []
    if analysis.overlap:
        paragraphs.append(overlap_sentence(analysis, analysis.overlap))
    if analysis.waits:
        paragraphs.append(waiting_sentence(analysis))
    paragraphs += [f"note: {note}." for note in analysis.notes]
    return "\n".join([*lines, *(fill(clean(text), "  ", "  ") for text in paragraphs)])


def _title(analysis: TraceAnalysis) -> str:
    first = analysis.traces[0]
    backend = f", {first.backend}" if first.backend else ""
    steps = ""
    if analysis.step_s is not None:
        marked = any(trace.steps for trace in analysis.traces)
        count = format_count(len(analysis.steps), "step") if marked else "no steps;"
        steps = f"; {count}{' of' if marked else ''} {format_time(analysis.step_s)}"
    of = f"{len(analysis.traces)} of {format_count(analysis.world_size, 'rank')}"
    return f"{first.format}{backend}: {of}{steps}"


def overlap_sentence(analysis: TraceAnalysis, overlap: TraceOverlap) -> str:
    """How much of the communication is exposed."""
    what = "kernels" if any(trace.has_kernels for trace in analysis.traces) else "operators"
    total = overlap.communication_s
    share = f" ({format_share(overlap.hidden_s / total)})" if total else ""
    return (
        f"Communication takes {format_time(total)} of a step: {format_time(overlap.exposed_s)} "
        f"exposed, and {format_time(overlap.hidden_s)}{share} hidden behind {what}. These "
        f"{what} take {format_time(overlap.computing_s)}."
    )


def waiting_sentence(analysis: TraceAnalysis) -> str:
    """Which ranks wait longest, and for whom."""
    shown = [waiting for waiting in analysis.waits if waiting.waiting_s > 0][:MOST_WAITING]
    if not shown:
        return "No rank waits for another one."
    parts = [
        f"rank {each.rank} waits {format_time(each.waiting_s)} ({format_share(each.share)} of it "
        f"for rank {each.for_rank})"
        for each in shown
    ]
    others = len(analysis.waits) - len(shown)
    more = f", and {format_count(others, 'other rank')} less" if others else ""
    return (
        f"In each step {', '.join(parts)}{more}. Waits of calls that overlap are added up, so the "
        "step loses less."
    )


def workload_text(workload: Workload) -> str:
    """A table for each step, and what is not known."""
    lines = []
    for step in workload.steps:
        totals = workload_totals(workload, step)
        if not totals:
            lines += [style(clean(_step_title(workload, step)), BOLD), "  no collective calls"]
            continue
        lines += [style(clean(_step_title(workload, step)), BOLD), *fitting_table(COLUMNS, totals)]
        timed = any(row.time_s is not None for row in totals)
        lines += [fill(WORKLOAD_MEANINGS if timed else SIZE_MEANING, "  ", "  ")]
    notes = (fill(clean(f"note: {note}."), "  ", "  ") for note in workload.notes)
    formulas = (fill(clean(f"{text}."), "  ", "    ") for text in workload.formulas)
    return "\n".join([*lines, *formulas, *notes])


def _step_title(workload: Workload, step: Step) -> str:
    ranks = sum(len(program.ranks) for program in step.programs)
    parts = [f"{workload.name}: {ranks} of {format_count(workload.world_size, 'rank')}"]
    if len(step.programs) > 1:
        parts.append(format_count(len(step.programs), "program"))
    if step.count > 1 or len(workload.steps) > 1:
        parts.append(f"{step.name}, made {format_count(step.count, 'time')}")
    if step.time_s is not None:
        parts.append(format_time(step.time_s))
    return "; ".join(parts)


def trace_json(analysis: TraceAnalysis) -> dict[str, Any]:
    """The analysis as plain JSON values; times in seconds, sizes in bytes."""
    overlap = analysis.overlap
    return {
        "format": analysis.traces[0].format,
        "backend": analysis.traces[0].backend,
        "ranks": [trace.rank for trace in analysis.traces],
        "world_size": analysis.world_size,
        "steps": list(analysis.steps),
        "step_s": analysis.step_s,
        "groups": {name: _lists(groups) for name, groups in analysis.sets.sets.items()},
        "operations": [row._asdict() for row in analysis.totals],
        "waiting": [each._asdict() for each in analysis.waits],
        "overlap": overlap and overlap._asdict() | {"hidden_s": overlap.hidden_s},
        "notes": list(analysis.notes),
    }


def _lists(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(group) for group in groups]
