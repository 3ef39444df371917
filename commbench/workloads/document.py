"""What a document of a workload says, or of an analysis of traces: a table of the calls of each
step, the overlap, who waits for whom, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, TypeAlias

from commbench.plan.workload import UNKNOWN_GROUP, Step, Workload
from commbench.units import format_about, format_count, format_GBps, format_share, format_time
from commbench.views.as_json import fields_of
from commbench.views.cells import NUMBER, TEXT, Column, Unit, short_time
from commbench.views.document import Block, Document, Facts, Folded, Items, Section, Table, Text
from commbench.views.formats import View
from commbench.workloads.totals import known_sum, workload_totals
from commbench.workloads.trace import TraceAnalysis
from commbench.workloads.trace_steps import WHOLE_TRACE

SLOW = 1e7
"""Bytes/s: a smaller bandwidth is that of a message so small that it says nothing."""
SHORTEST = 5e-9
"""Seconds: less is printed as nothing."""
MOST_STEPS = 4
"""Different steps that a terminal prints, the first ones, unless all are asked for."""
MOST_WAITING = 4
"""Ranks whose waiting is printed, those that wait longest."""
Found: TypeAlias = Workload | TraceAnalysis


def _bandwidth(busbw: float) -> str:
    return format_GBps(busbw) if busbw >= SLOW else f"<{SLOW / 1e9:g}"


def _calls(calls: float) -> str:
    return f"{calls:.0f}" if calls == round(calls) else f"{calls:.1f}"


_UNKNOWN = "?"
_SHORT_TIME = Unit(short_time)
_ABOUT = Unit(
    lambda size: _UNKNOWN if size is _UNKNOWN else format_about(size).replace(".0 B", " B")
)
COLUMNS = (
    Column("group", attrgetter("group"), TEXT, 10),
    Column("ranks", lambda row: row.ranks or _UNKNOWN, NUMBER, 1),
    Column("operation", attrgetter("operation"), TEXT, 10),
    Column("calls", attrgetter("calls"), Unit(_calls), 8),
    Column("bytes", lambda row: _UNKNOWN if row.size_bytes is None else row.size_bytes, _ABOUT, 7),
    Column("time", attrgetter("time_s"), _SHORT_TIME, 6),
    Column("transfer", attrgetter("transfer_s"), _SHORT_TIME, 3),
    Column("waiting", attrgetter("waiting_s"), _SHORT_TIME, 5),
    Column("busbw\nGB/s", lambda row: row.busbw or None, Unit(_bandwidth), 2),
    Column("step", attrgetter("step_share"), Unit(format_share), 4),
)
FIGURES = "sums over the calls of one step of one rank"
FIGURES_OF_TRACE = "sums over the calls of one rank"
MEANINGS = (
    ("program", "the calls of the ranks that make the same ones; figures are means over the ranks"),
    ("bytes", "the sizes S, by nccl-tests' convention"),
    ("time", "of each call the median over the steps and ranks"),
    ("transfer", "the shortest time on the ranks of the group"),
    ("waiting", "the rest of the time"),
    ("step", "the part of the step during which such a call was under way"),
)  # fmt: skip


def document(found: Found) -> Document:
    """The workload of a file or of a model, or the analysis of traces."""
    if isinstance(found, Workload):
        workload, answer = found, [*_summary(found, None)]
        ranks = max((sum(len(p.ranks) for p in s.programs) for s in found.steps), default=0)
        of = f"{ranks} of " if ranks < found.world_size else ""
        title = f"{found.name}: {of}{format_count(found.world_size, 'rank')}"
    else:
        workload, trace = found.workload, found.traces[0]
        answer = [*_summary(workload, found), *_details(found)]
        backend = f", {trace.backend}" if trace.backend else ""
        of = f"{len(found.traces)} of {format_count(found.world_size, 'rank')}"
        title = f"{trace.format}{backend}: {of}"
    steps = [block for step in workload.steps for block in _step(workload, step)]
    blocks: list[Block] = steps[:MOST_STEPS]
    if steps[MOST_STEPS:]:
        more = format_count(sum(step.count for step in workload.steps[MOST_STEPS:]), "step")
        blocks.append(Text(f"{more} more with other calls: --verbose prints all."))
        blocks.append(Folded("Other steps", steps[MOST_STEPS:]))
    return Document(
        title,
        (),
        answer,
        [
            *blocks,
            Items([f"{formula}." for formula in workload.formulas]),
            Items([f"Note: {note}." for note in workload.notes]),
            Folded("What the columns mean", [Facts(MEANINGS)]),
        ],
    )


def _step(workload: Workload, step: Step) -> Iterator[Block]:
    """Its calls, under its count and time."""
    title = [f"from {step.name}"] if len(workload.steps) > 1 else []
    time = format_time(step.time_s) if step.time_s is not None else ""
    if step.name == WHOLE_TRACE:
        title += ["no steps", time]
    elif step.count > 1 or len(workload.steps) > 1 or time:
        title.append(" of ".join(filter(None, [format_count(step.count, "step"), time])))
    if len(step.programs) > 1:
        title.append(format_count(len(step.programs), "program"))
    name = "; ".join(filter(None, title))
    rows = workload_totals(workload, step)
    if not rows:
        yield Section(name, [Text("no collective calls")])
    of = FIGURES if step.name != WHOLE_TRACE else FIGURES_OF_TRACE
    yield Table(f"{name}: {of}" if name else f"{of[0].upper()}{of[1:]}", COLUMNS, rows)


def _summary(workload: Workload, trace: TraceAnalysis | None) -> Iterator[str]:
    """What takes most of a step, how much is exposed, how much is waiting and for whom."""
    step = max(workload.steps, key=lambda s: (s.count, s.time_s or 0.0), default=None)
    if not (step and (rows := workload_totals(workload, step))):
        yield "No collective call is in a whole step."
        return
    first, of = rows[0], "the trace" if step.name == WHOLE_TRACE else "a step"
    most = f"{first.operation} over {first.group}".replace(UNKNOWN_GROUP, "an unknown group")
    took = f"{of} of {format_time(step.time_s)}" if step.time_s else of
    if trace and trace.overlap:
        total_s, exposed_s, _ = trace.overlap
        share = f" ({format_share(total_s / step.time_s)})" if step.time_s else ""
        part = "the largest part" if rows[1:] else "all of it"
        what = f"Communication takes {short_time(total_s)}{share} of {took}, {part} {most}: "
        what += f"{short_time(exposed_s)} while nothing computes (exposed)"
    elif first.step_share is not None:
        what = f"{most} is under way during {format_share(first.step_share)} of {took}"
    elif first.time_s is not None:
        what = f"{most} takes the most time in {of}: {short_time(first.time_s)}"
    else:
        total, calls = known_sum(row.size_bytes for row in rows), sum(row.calls for row in rows)
        size = "unknown size" if first.size_bytes is None else format_about(first.size_bytes)
        size += f" of {format_about(total)}" if total and rows[1:] else ""
        part = f"{size}, in {_calls(first.calls)} of {_calls(calls)} calls"
        yield f"The largest part of the data is {most}: {part} of a rank in {of}."
        return
    waits = trace.waits[0] if trace and trace.waits else None
    if waits and waits.waiting_s > SHORTEST:
        share = format_share(waits.for_rank_share).replace("100 %", "all")
        more = f"rank {waits.rank} waits {short_time(waits.waiting_s)}"
        more += f", {share} of it for rank {waits.for_rank}"
    elif first.waiting_s is not None and first.time_s:
        more = f"{format_share(first.waiting_s / first.time_s)} of its time is waiting"
    else:
        more = "no rank waits for another" if waits else "how much of it is waiting is not known"
    yield f"{what}; {more}."


def _details(analysis: TraceAnalysis) -> Iterator[str]:
    """How much of the communication is hidden, which other ranks wait, and which calls say nothing
    about that."""
    if overlap := analysis.overlap:
        what = "kernels" if any(trace.has_kernels for trace in analysis.traces) else "operators"
        total, hidden = overlap.communication_s, overlap.hidden_s
        share = f" ({format_share(hidden / total)})" if total else ""
        seen = f"{format_time(hidden)}{share}" if hidden > SHORTEST else "None"
        what += f", which take {format_time(overlap.computing_s)}"
        yield f"{seen} of the communication is hidden behind {what}."
    parts = [
        f"rank {each.rank} waits {format_time(each.waiting_s)} ({format_share(each.for_rank_share)}"
        f" for rank {each.for_rank})"
        for each in analysis.waits[1:MOST_WAITING]
        if each.waiting_s > SHORTEST
    ]
    yield from [f"Of the others, {', '.join(parts)}."] if parts else []
    rooted = {
        call.operation
        for call in analysis.calls
        if call.waiting_s is not None and call.last_rank is None
    }
    if rooted:
        names = ", ".join(sorted(rooted))
        yield f"Waiting leaves out {names}: ranks of an operation with a root end one by one."


def _data(found: Found) -> dict[str, Any]:
    """What JSON holds: the totals of the workload, and what the traces say."""
    workload = found if isinstance(found, Workload) else found.workload
    values = fields_of(workload) | {
        "steps": [fields_of(step, without=("programs",)) for step in workload.steps],
        "operations": workload_totals(workload),
    }
    if isinstance(found, TraceAnalysis):
        values |= {
            "format": found.traces[0].format,
            "ranks": [trace.rank for trace in found.traces],
            "waiting": found.waits,
            "overlap": found.overlap,
        }
    return values


def _table(found: Found) -> str:
    """The name that the text had when it was the only format beside JSON."""
    return VIEW.write(found)


VIEW = View(document, schema=1, data=_data, more={"table": _table})
