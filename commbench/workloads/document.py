"""What a document of a workload says, or of an analysis of traces: a table of the calls of each
step, the overlap, who waits for whom, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from operator import attrgetter
from typing import Any, TypeAlias

from commbench.output.text import list_some
from commbench.plan.workload import TOTALS, UNKNOWN_GROUP, Step, Workload, most_often
from commbench.units import format_about, format_count, format_GBps, format_share, format_time
from commbench.views.cells import NUMBER, TEXT, Column, Unit
from commbench.views.document import Block, Document, Facts, Folded, Items, Section, Table, Text
from commbench.views.formats import View, fields_of
from commbench.workloads.trace import TraceAnalysis, TraceOverlap, known_sum, workload_totals
from commbench.workloads.trace_steps import WHOLE_TRACE

SLOW = 1e7
"""Bytes/s: a smaller bandwidth is that of a message so small that it says nothing."""
SHORTEST = 5e-9
"""Seconds: less is printed as nothing."""
MOST_STEPS = 4
"""Different steps that a terminal prints, the first ones, unless all are asked for."""
MOST_CALLS = 3
"""Kinds of calls that a sentence names."""
MOST_WAITING = 4
"""Ranks whose waiting is printed, those that wait longest, unless all are asked for."""
Found: TypeAlias = Workload | TraceAnalysis


def _bandwidth(busbw: float) -> str:
    return format_GBps(busbw) if busbw >= SLOW else f"<{SLOW / 1e9:g}"


def _calls(calls: float) -> str:
    return f"{calls:.1f}".removesuffix(".0")


_UNKNOWN = "?"
_TIME = Unit(format_time)
_ABOUT = Unit(
    lambda size: _UNKNOWN if size is _UNKNOWN else format_about(size).replace(".0 B", " B")
)
COLUMNS = (
    Column("group", attrgetter("group"), TEXT, 10),
    Column("ranks", lambda row: row.ranks or _UNKNOWN, NUMBER, 1),
    Column("operation", attrgetter("operation"), TEXT, 10),
    Column("calls", attrgetter("calls"), Unit(_calls), 8),
    Column("bytes", lambda row: _UNKNOWN if row.size_bytes is None else row.size_bytes, _ABOUT, 7),
    Column("time", attrgetter("time_s"), _TIME, 6),
    Column("transfer", attrgetter("transfer_s"), _TIME, 3),
    Column("waiting", attrgetter("waiting_s"), _TIME, 5),
    Column("busbw\nGB/s", lambda row: row.busbw or None, Unit(_bandwidth), 2),
    Column("of\nstep", attrgetter("step_share"), Unit(format_share), 4),
)
WAITING = (
    Column("rank", attrgetter("rank"), NUMBER),
    Column("waiting", attrgetter("waiting_s"), _TIME),
    Column("most\nfor rank", attrgetter("for_rank"), NUMBER),
    Column("of it", attrgetter("for_rank_share"), Unit(format_share)),
)
FIGURES = "sums over the calls of one step of one rank"
SUMS = "Time is transfer and waiting for other ranks; calls at the same time all count."
MEANINGS = (
    ("program", "the calls of the ranks that make the same ones; figures are means over the ranks"),
    ("bytes", "the sizes S, by nccl-tests' convention"),
    ("time", "of each call the median over the steps and ranks"),
    ("transfer", "the shortest time on the ranks of the group"),
    ("waiting", "for other ranks: the rest of the time"),
    ("of step", "the part of the step during which such a call was under way"),
)  # fmt: skip


def document(found: Found) -> Document:
    """The workload of a file or of a model, or the analysis of traces."""
    analysis = None if isinstance(found, Workload) else found
    workload = found if isinstance(found, Workload) else found.workload
    steps = [block for step in workload.steps for block in _step(workload, step)]
    blocks: list[Block] = steps[:MOST_STEPS]
    if steps[MOST_STEPS:]:
        more = format_count(sum(step.count for step in workload.steps[MOST_STEPS:]), "step")
        blocks.append(Text(f"{more} more with other calls: --verbose prints all."))
        blocks.append(Folded("Other steps", steps[MOST_STEPS:]))
    is_split = any(row.transfer_s is not None for row in workload_totals(workload))
    blocks += [Text(SUMS)] * is_split
    blocks += [_waiting(analysis)] if analysis and analysis.waits[1:] else []
    blocks += [
        Items([f"{formula}." for formula in workload.formulas]),
        Items([f"Note: {note}." for note in workload.notes]),
        Folded("What the columns mean", [Facts(MEANINGS)]),
    ]
    return Document(_title(workload, analysis), (), [*_answer(workload, analysis)], blocks)


def _title(workload: Workload, analysis: TraceAnalysis | None) -> str:
    of = format_count(workload.world_size, "rank")
    if analysis:
        trace = analysis.traces[0]
        name = ", ".join(filter(None, [trace.format, trace.backend]))
        return f"{name}: {len(analysis.traces)} of {of}"
    ranks = max((sum(len(p.ranks) for p in s.programs) for s in workload.steps), default=0)
    return f"{workload.name}: {f'{ranks} of ' if ranks < workload.world_size else ''}{of}"


def _step(workload: Workload, step: Step) -> Iterator[Block]:
    """Its calls, under its count and time."""
    title = [f"from {step.name}"] if len(workload.steps) > 1 else []
    time = format_time(step.time_s) if step.time_s is not None else ""
    if step.name == WHOLE_TRACE:
        title.append(" of ".join(filter(None, ["the whole trace", time])))
    elif step.count > 1 or len(workload.steps) > 1 or time:
        title.append(" of ".join(filter(None, [format_count(step.count, "step"), time])))
    if len(step.programs) > 1:
        title.append(format_count(len(step.programs), "program"))
    name = "; ".join(filter(None, title))
    rows = workload_totals(workload, step)
    if not rows:
        yield Section(name, [Text("no collective calls")])
    of = FIGURES if step.name != WHOLE_TRACE else "sums over the calls of one rank"
    yield Table(f"{name}: {of}" if name else f"{of[0].upper()}{of[1:]}", COLUMNS, rows)


def _answer(workload: Workload, analysis: TraceAnalysis | None) -> Iterator[str]:
    """What a rank calls; what takes most of a step, how much is exposed, how much is waiting and
    for whom."""
    step = most_often(workload.steps) if workload.steps else None
    if not (step and (rows := workload_totals(workload, step))):
        yield "No collective call is in a whole step."
        return
    first, the = rows[0], "the trace" if step.name == WHOLE_TRACE else "the step"
    took = f" of {format_time(step.time_s)}" if step.time_s else ""
    total, calls = known_sum(row.size_bytes for row in rows), sum(row.calls for row in rows)
    texts = [f"{_calls(row.calls)} {_call(row)}{_size(row.size_bytes)}" for row in rows]
    mean = " on average" * (len(step.programs) > 1)
    what = f"{_calls(calls)} calls{mean}{_size(total)}: " * bool(texts[1:])
    ranks = format_count(workload.world_size, "rank")
    part = the if step.name == WHOLE_TRACE else "a step"
    yield f"In {part}{took}, each of {ranks} makes {what}{list_some(texts, MOST_CALLS)}."
    most = _call(first)
    if first.time_s is None:
        return
    if analysis and (overlap := analysis.overlap):
        # Both are medians of few steps: where the part is over 1, these differ too much for one.
        of_step = overlap.communication_s / step.time_s if step.time_s else inf
        share = f" ({format_share(of_step)})" if of_step <= 1 else ""
        part = "the largest part" if rows[1:] else "all of it"
        what = f"Communication takes {format_time(overlap.communication_s)}{share} of {the}"
        yield f"{what}, {part} {most}."
        yield _hidden(analysis, overlap)
    elif first.step_share is not None:
        yield f"{most} is under way during {format_share(first.step_share)} of {the}."
    else:
        yield f"{most} takes most time in {the}: {format_time(first.time_s)}."
    if analysis and (waits := analysis.waits) and waits[0].waiting_s > SHORTEST:
        rank, waiting_s, for_rank, for_rank_share = waits[0]
        part = format_share(for_rank_share).replace("100 %", "all")
        yield f"Rank {rank} waits {format_time(waiting_s)}, {part} of it for rank {for_rank}."


def _call(row: Any) -> str:
    return f"{row.operation} over {row.group}".replace(UNKNOWN_GROUP, "an unknown group")


def _size(size_bytes: float | None) -> str:
    return f" ({format_about(size_bytes)})" if size_bytes else ""


def _hidden(analysis: TraceAnalysis, overlap: TraceOverlap) -> str:
    """How much of the communication is exposed, and hidden, and behind what."""
    what = "kernels" if any(trace.has_kernels for trace in analysis.traces) else "operators"
    share = f" ({format_share(overlap.hidden_s / (overlap.communication_s or 1.0))})"
    seen = f"{format_time(overlap.hidden_s)}{share}" if overlap.hidden_s > SHORTEST else "nothing"
    exposed = f"Nothing computes during {format_time(overlap.exposed_s)} of it (exposed)"
    behind = f"{what}, which take {format_time(overlap.computing_s)}"
    return f"{exposed}; {seen} is hidden behind {behind}."


def _waiting(analysis: TraceAnalysis) -> Table:
    """How long each rank waits for others, and for whom most."""
    waits = [each for each in analysis.waits if each.waiting_s > SHORTEST]
    title = "Waiting for other ranks in a step, without operations with a root"
    return Table(title, WAITING, waits, brief=waits[:MOST_WAITING])


def _data(found: Found) -> dict[str, Any]:
    """What JSON holds: the totals of the workload, and what the traces say."""
    workload = found if isinstance(found, Workload) else found.workload
    values = {"content": TOTALS, **fields_of(workload)} | {
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


VIEW = View(document, schema=1, data=_data)
