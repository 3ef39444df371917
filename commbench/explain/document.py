"""What a document of an explanation says: a sentence about each row and its facts, or a table of
the kinds of calls of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from commbench.analysis.column_meanings import column_meanings, describe_time
from commbench.analysis.nccl_log import (
    INIT_MODE,
    describe_communicator,
    describe_init,
    describe_start_up,
)
from commbench.explain.explanation import Explanation, RowExplanation
from commbench.explain.facts import BYTES, RATE, RATIO, SECONDS, SHARE, TEXT, Fact
from commbench.explain.why import BOUND, HALF, LATENCY_SHARE, NOT_KNOWN, TWICE_RANKS, TWICE_SIZE
from commbench.output.paragraphs import exact, gbps, seconds
from commbench.results.schema import RunHeader
from commbench.stats.estimate import Estimate
from commbench.units import format_about, format_bytes, format_count, format_percent, format_share
from commbench.views import cells
from commbench.views.cells import (
    BANDWIDTH,
    NUMBER,
    TIME,
    TIME_INTERVAL,
    Column,
    Unit,
    in_brackets,
    ratio_interval_text,
    time_interval_text,
    time_text,
)
from commbench.views.document import (
    Block,
    Code,
    Document,
    Facts,
    Items,
    Section,
    Table,
    facts_table,
)
from commbench.views.formats import View

_WRITERS: dict[str, Callable[[Any], str]] = {
    BYTES: lambda value: f"{exact(value)} bytes",
    SECONDS: seconds,
    RATE: lambda value: f"{gbps(value)} GB/s",
    RATIO: "{:.3g}".format,
    SHARE: lambda value: f"{'-' * (value < 0)}{format_percent(abs(value))}",
    TEXT: str,
}
"""How a value is written, by its unit. Five digits allow to check products by hand."""


def fact_text(fact: Fact) -> str:
    """The value of a fact, with its interval."""
    write, value = _WRITERS[fact.unit], fact.value
    if isinstance(value, Estimate):
        intervals = {SECONDS: time_interval_text, RATIO: ratio_interval_text}
        interval = intervals.get(fact.unit, lambda _: "")(value)
        return f"{write(value.value)}{in_brackets(interval)}"
    if isinstance(value, tuple):
        return " to ".join(dict.fromkeys(map(write, value)))
    return write(value)


def _text_of(name: str) -> Callable[[RowExplanation], str]:
    return lambda each: "".join(fact_text(fact) for fact in each.facts if fact.name == name)


_KINDS = (
    Column("size", lambda each: each.row.measurement.case.size_bytes or None, cells.BYTES),
    Column("time", lambda each: each.row.time and each.row.time.estimate, TIME),
    Column("interval", lambda each: each.row.time and each.row.time.estimate, TIME_INTERVAL, 6),
    Column("not timed", lambda each: each.get("not timed") and each.row.measurement.outcome,
           cells.TEXT, 5, is_wrapped=True),
    Column("n", lambda each: each.row.time and each.row.time.iterations, NUMBER, 3),
    Column("algbw\nGB/s", lambda each: each.row.algbw, BANDWIDTH, 4),
    Column("busbw /\nalgbw", lambda each: each.row.busbw and each.operation.busbw_formula,
           cells.TEXT, 5),
    Column("busbw\nGB/s", lambda each: each.row.busbw, BANDWIDTH),
    Column("of\npeak", lambda each: each.get("of the peak"), cells.SHARE),
    Column("latency", lambda each: each.get(LATENCY_SHARE), Unit(format_share)),
    Column("n-half", lambda each: each.get(HALF), Unit(format_about), 7),
    Column("2 x S\ntakes", _text_of(TWICE_SIZE), cells.TEXT, 7),
    Column("2 x n\ntakes", _text_of(TWICE_RANKS), cells.TEXT, 7),
)  # fmt: skip


def document(found: Explanation) -> Document:
    """The rows that were asked for, each with its facts; or all kinds of calls of a run."""
    first = found.rows[0]
    blocks: list[Block] = []
    if found.is_overview:
        blocks.append(Table("", _KINDS, found.rows, lambda each: each.row.measurement.case.title))
        blocks.append(Items(_notes(found)))
    detailed = [each for each in found.rows if each.get("step") or not found.is_overview]
    for each in detailed:
        facts = facts_table("", [(fact.name, fact_text(fact), fact.how) for fact in each.facts])
        blocks.append(facts if len(found.rows) == 1 else Section(_title(each), [facts]))
    if found.is_overview:
        meanings = Facts([*column_meanings(found.every).items()])
        blocks.append(Section("The columns of the table of the run", [meanings]))
    timings = {each.row.measurement.case.timing: describe_time(each.row) for each in found.rows}
    blocks.append(Items([f"{timing}: {text}" for timing, text in timings.items()]))
    if found.more:
        blocks.append(
            Code("Only the largest size of each kind is explained; of another size:", found.more)
        )
    title = _title(first) if len(detailed) == len(found.rows) == 1 else found.name
    answer = (
        [_summary(found)]
        if found.is_overview
        else [_sentence(each, len(found.rows) == 1) for each in found.rows]
    )
    return Document(title, [_where(first.row.header)] if found.name else (), answer, blocks)


def _title(found: RowExplanation) -> str:
    row, case = found.row, found.row.measurement.case
    size = f", {format_bytes(case.size_bytes)}" if case.dtype else ""
    nodes = f" of {row.header.num_nodes} nodes" if row.header.num_nodes > 1 else ""
    ranks = format_count(case.ranks, "rank")
    return f"{case.title_without('timing')}{size}, on {ranks}{nodes}: {found.operation.summary}"


def _sentence(found: RowExplanation, is_only: bool) -> str:
    """A row in one sentence; among others it has its whole name."""
    row, case = found.row, found.row.measurement.case
    if row.time is None:
        return f"{case.title} was not timed: {row.measurement.outcome}."
    size = f" of {format_bytes(case.size_bytes)}" if case.dtype else ""
    interval = in_brackets(time_interval_text(row.time.estimate))
    took = f"{time_text(row.time.estimate)}{interval}"
    name = case.operation if is_only else case.title
    text = f"{name}{size} on {format_count(case.ranks, 'rank')} takes {took}"
    if row.busbw is not None:
        text += f", a bus bandwidth of {gbps(row.busbw)} GB/s"
    if share := found.get("of the peak"):
        text += f", {format_percent(share)} of the peak"
    text += f": {bound}" if (bound := found.get(BOUND)) else ""
    return f"{text}; its results are wrong." if row.measurement.wrong else f"{text}."


def _summary(found: Explanation) -> str:
    """The kinds of calls of a run in one sentence."""
    bounds = [bound for each in found.rows if (bound := each.get(BOUND))]
    counts = [f"{bounds.count(bound)} {bound}" for bound in dict.fromkeys(bounds)]
    text = f"{found.name} has {format_count(len(found.rows), 'kind')} of calls"
    text += f", at their largest size {' and '.join(counts)}" if counts else ""
    fastest = max(found.rows, key=lambda each: each.row.busbw or 0.0)
    if busbw := fastest.row.busbw:
        text += f"; {fastest.operation.name} has the highest bus bandwidth, {gbps(busbw)} GB/s"
    return f"{text}."


def _notes(found: Explanation) -> list[str]:
    """What the table of all kinds cannot say: where some of its figures come from."""
    names = {TWICE_RANKS: "2 x n", NOT_KNOWN: NOT_KNOWN, "predicted": "predicted", "peak": "peak"}
    every = [fact for each in found.rows for fact in each.facts if fact.name in names]
    texts = [
        f"{names[fact.name]}: {fact.how or fact.value}."
        for fact in every
        if fact.value != "not given"
    ]
    return [*dict.fromkeys(texts)]


def _where(header: RunHeader) -> str:
    """Who measured what, with which versions, and how long the start took."""
    facts, log = header.environment, header.environment.get("nccl_log")
    source, mode, init = facts.get("imported_from"), facts.get(INIT_MODE), describe_init(log)
    parts = [
        header.describe_ranks(),
        f"torch {facts['torch']}" if facts.get("torch") else "",
        f"measured by {facts.get('tool', 'another tool')}, imported from {source}"
        if source
        else "",
        header.started,
        describe_communicator(log),
        f"{mode} init of communicators" if mode else "",
        f"communicator made in {init}" if init else "",
        describe_start_up(header),
        "ranks share a GPU: these times do not measure performance" if header.gpu_shared else "",
    ]
    return f"{'; '.join(filter(None, parts))}."


VIEW = View(document, schema=1)
