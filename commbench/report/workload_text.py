"""The text and the JSON of workloads, and of an analysis of traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commbench.analysis.trace import TraceAnalysis, TraceOverlap
from commbench.analysis.trace_steps import WHOLE_TRACE
from commbench.analysis.workload import OperationTotals, workload_totals
from commbench.output.paragraphs import fill, wrapped
from commbench.output.table import (
    BOLD,
    TableColumn,
    clean,
    fill_columns,
    fitting_table,
    shared_columns,
    style,
)
from commbench.spec.workload import Workload
from commbench.units import (
    GB,
    format_about,
    format_count,
    format_GBps,
    format_share,
    format_time,
    seven_digits,
)

SLOW = 1e7
"""Bytes/s: a smaller bandwidth is that of a message so small that it says nothing."""
SHORTEST = 5e-9
"""Seconds: less is printed as nothing."""
MOST_STEPS = 4
"""Different steps that are printed, the first ones."""
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
MEANINGS = {
    "bytes": "bytes: the sizes S, by nccl-tests' convention.",
    "time": "time: of each call the median over the steps and ranks.",
    "waiting": "transfer: the shortest time on the ranks of the group; waiting: the rest.",
    "step": "step: the part of the step during which such a call was under way.",
}
"""What a column means, by its heading; only those of the columns that are there are printed."""


def _table(totals: Sequence[OperationTotals], what: str) -> list[str]:
    """The lines of a table of totals, and what its columns mean. `what` makes the calls."""
    ((*columns,),) = shared_columns([(COLUMNS, totals)])
    shown = {column.heading for column, _ in fill_columns(columns, totals)}
    meanings = [text for heading, text in MEANINGS.items() if heading in shown]
    text = " ".join([f"All figures are sums over the calls of {what}.", *meanings])
    return [*fitting_table(columns, totals), wrapped(text, margin=2)]


def _bytes(row: OperationTotals) -> str:
    if row.size_bytes is None:
        return "?"
    return format_about(row.size_bytes).replace(".0 B", " B")


def _bandwidth(busbw: float | None) -> str:
    if not busbw:
        return ""
    return format_GBps(busbw) if busbw >= SLOW else f"<{SLOW / 1e9:g}"


def trace_text(analysis: TraceAnalysis) -> str:
    """The tables of the steps, the overlap, who waits for whom, and what is not known."""
    trace, ranks = analysis.traces[0], len(analysis.traces)
    backend = f", {trace.backend}" if trace.backend else ""
    of = f"{ranks} of {format_count(analysis.world_size, 'rank')}"
    lines = _steps(f"{trace.format}{backend}: {of}", analysis.workload)
    paragraphs = []
    if analysis.overlap:
        paragraphs.append(overlap_sentence(analysis, analysis.overlap))
    if analysis.waits:
        paragraphs.append(waiting_sentence(analysis))
    paragraphs += [f"note: {note}." for note in analysis.notes]
    return "\n".join([*lines, *(wrapped(text, margin=2) for text in paragraphs)])


def _steps(title: str, workload: Workload) -> list[str]:
    """A title and a table for each step."""
    lines = [] if workload.steps else [style(clean(title), BOLD)]
    for step in workload.steps[:MOST_STEPS]:
        parts = [title]
        if len(step.programs) > 1:
            parts.append(format_count(len(step.programs), "program"))
        if len(workload.steps) > 1:
            parts.append(f"from {step.name}")
        time = format_time(step.time_s) if step.time_s is not None else ""
        if step.name == WHOLE_TRACE:
            parts += ["no steps"] + [time] * bool(time)
        elif step.count > 1 or len(workload.steps) > 1 or time:
            count = format_count(step.count, "step")
            parts.append(f"{count} of {time}" if time else count)
        lines += [style(line, BOLD) for line in fill("; ".join(parts), rest="  ").split("\n")]
        totals = workload_totals(workload, step)
        what = "one rank" if step.name == WHOLE_TRACE else "one step of one rank"
        if len(step.programs) > 1:
            what += ", means over the ranks"
        lines += _table(totals, what) if totals else ["  no collective calls"]
    if others := workload.steps[MOST_STEPS:]:
        count = format_count(sum(step.count for step in others), "step")
        lines.append(wrapped(f"{count} more with other calls: --format json prints all.", margin=2))
    return lines


def overlap_sentence(analysis: TraceAnalysis, overlap: TraceOverlap) -> str:
    """How much of the communication is exposed."""
    what = "kernels" if any(trace.has_kernels for trace in analysis.traces) else "operators"
    total = overlap.communication_s
    share = f" ({format_share(overlap.hidden_s / total)})" if total else ""
    is_seen = overlap.hidden_s > SHORTEST
    hidden = f"{format_time(overlap.hidden_s)}{share}" if is_seen else "none"
    return (
        f"Communication takes {format_time(total)} of a step: {format_time(overlap.exposed_s)} "
        f"exposed, and {hidden} hidden behind {what}. These "
        f"{what} take {format_time(overlap.computing_s)}."
    )


def waiting_sentence(analysis: TraceAnalysis) -> str:
    """Which ranks wait longest, and for whom; and which calls say nothing about that."""
    rooted = {one.call.operation for one in analysis.calls
              if one.call.waiting_s is not None and one.last_rank is None}  # fmt: skip
    without = (
        f" This leaves out {', '.join(sorted(rooted))}: ranks of an operation with a root do not "
        "end together."
        if rooted
        else ""
    )
    shown = [waiting for waiting in analysis.waits if waiting.waiting_s > 0][:MOST_WAITING]
    if not shown:
        return f"No rank waits for another one.{without}"
    parts = [
        f"rank {each.rank} waits {format_time(each.waiting_s)} ({format_share(each.share)} of it "
        f"for rank {each.for_rank})"
        for each in shown
    ]
    others = len(analysis.waits) - len(shown)
    more = f", and {format_count(others, 'other rank')} less" if others else ""
    begin = "" if analysis.steps == (WHOLE_TRACE,) else "In a step "
    sentence = f"{begin}{', '.join(parts)}{more}."
    return f"{sentence[0].upper()}{sentence[1:]}{without}"


def workload_text(workload: Workload) -> str:
    """A table for each step, the formulas, and what is not known."""
    ranks = max((sum(len(p.ranks) for p in step.programs) for step in workload.steps), default=0)
    of = f"{ranks} of " if ranks < workload.world_size else ""
    title = f"{workload.name}: {of}{format_count(workload.world_size, 'rank')}"
    lines = _steps(title, workload)
    notes = (wrapped(f"note: {note}.", margin=2) for note in workload.notes)
    formulas = (fill(f"{t}.", "  ", "    ", break_on_hyphens=False) for t in workload.formulas)
    return "\n".join([*lines, *formulas, *notes])


def trace_json(analysis: TraceAnalysis) -> dict[str, Any]:
    """The analysis as plain JSON values; the names of numbers end with their unit."""
    overlap = analysis.overlap
    return workload_json(analysis.workload) | {
        "format": analysis.traces[0].format,
        "ranks": [trace.rank for trace in analysis.traces],
        "waiting": [
            {
                "rank": each.rank, "waiting_s": _rounded(each.waiting_s),
                "for_rank": each.for_rank, "for_rank_share": _rounded(each.share),
            }
            for each in analysis.waits
        ],
        "overlap": overlap and {
            "communication_s": _rounded(overlap.communication_s),
            "exposed_s": _rounded(overlap.exposed_s),
            "hidden_s": _rounded(overlap.hidden_s),
            "computing_s": _rounded(overlap.computing_s),
        },
        "notes": list(analysis.notes),
    }  # fmt: skip


def workload_json(workload: Workload) -> dict[str, Any]:
    """The totals of a workload as plain JSON values; the names of numbers end with their unit."""
    return {
        "name": workload.name,
        "source": workload.source,
        "backend": workload.backend,
        "world_size": workload.world_size,
        "groups": {name: _lists(groups) for name, groups in workload.groups.items()},
        "steps": [
            {"name": step.name, "count": step.count, "time_s": step.time_s}
            for step in workload.steps
        ],
        "operations": [
            _operation_values(row)
            for step in workload.steps
            for row in workload_totals(workload, step)
        ],
        "formulas": list(workload.formulas),
        "notes": list(workload.notes),
    }


def _operation_values(row: OperationTotals) -> dict[str, Any]:
    values = row._asdict()
    busbw, share = values.pop("busbw"), values.pop("share")
    values |= {"busbw_GBps": None if busbw is None else busbw / GB, "step_share": share}
    return {name: _rounded(v) if isinstance(v, float) else v for name, v in values.items()}


def _rounded(number: float) -> float:
    """A whole number as it is, another one with seven digits, as in results.csv."""
    return int(number) if number == int(number) else seven_digits(number)


def _lists(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(group) for group in groups]
