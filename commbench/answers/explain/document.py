"""What a document of an explanation says: a row in a sentence and its facts, or a table of rows."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any

from commbench.analysis.environment_diff import environment_facts
from commbench.analysis.nccl_log import describe_init, describe_start_up
from commbench.analysis.row_names import describe_time
from commbench.answers.explain.bound import (
    BOUND,
    HALF,
    LATENCY_SHARE,
    NOT_KNOWN,
    TWICE_RANKS,
    TWICE_SIZE,
)
from commbench.answers.explain.explanation import Explanation, RowExplanation
from commbench.answers.explain.facts import BYTES, RATE, RATIO, SECONDS, SHARE, TEXT, Fact
from commbench.output.paragraphs import exact, gbps, seconds
from commbench.results.schema import RunHeader
from commbench.stats.estimate import Estimate
from commbench.units import format_about, format_bytes, format_count, format_percent, format_share
from commbench.views import cells
from commbench.views.cells import Column, Unit
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
_INTERVALS = {SECONDS: cells.time_interval_text, RATIO: cells.ratio_interval_text}


def fact_text(fact: Fact) -> str:
    """The value of a fact, with its interval."""
    write, value = _WRITERS[fact.unit], fact.value
    if isinstance(value, Estimate):
        interval = _INTERVALS[fact.unit](value) if fact.unit in _INTERVALS else ""
        return f"{write(value.value)}{cells.in_brackets(interval)}"
    return " to ".join(dict.fromkeys(map(write, value if isinstance(value, tuple) else (value,))))


def _ratio_text(value: Any) -> str:
    return value if isinstance(value, str) else fact_text(Fact("", value, RATIO))


_COLUMNS = (
    Column("size", methodcaller("get", "size S"), cells.BYTES),
    Column("time", methodcaller("get", "time t"), cells.TIME),
    Column("interval", methodcaller("get", "time t"), cells.TIME_INTERVAL, 6),
    Column("not timed", lambda each: each.get("not timed") and each.row.measurement.outcome,
           cells.TEXT, 5, is_wrapped=True),
    Column("n", lambda each: each.row.time and (each.row.time.iterations or None), cells.NUMBER, 3),
    Column("algbw\nGB/s", attrgetter("row.algbw"), cells.BANDWIDTH, 4),
    Column("busbw /\nalgbw", lambda each: each.row.busbw and each.operation.busbw_formula,
           cells.TEXT, 5),
    Column("busbw\nGB/s", attrgetter("row.busbw"), cells.BANDWIDTH),
    Column("of\npeak", methodcaller("get", "of the peak"), cells.SHARE),
    Column("latency", methodcaller("get", LATENCY_SHARE), Unit(format_share)),
    Column("n-half", methodcaller("get", HALF), Unit(format_about), 7),
    Column("2 x S\ntakes", methodcaller("get", TWICE_SIZE), Unit(_ratio_text, is_left=True), 7),
    Column("2 x n\ntakes", methodcaller("get", TWICE_RANKS), Unit(_ratio_text, is_left=True), 7),
)  # fmt: skip


def document(found: Explanation) -> Document:
    """A row with its facts; several as a table, and their facts where they were asked for."""
    first, is_one = found.rows[0], len(found.rows) == 1
    blocks: list[Block] = []
    if not is_one or found.is_overview:
        kind = attrgetter("row.measurement.case.title")
        blocks += [Table("", _COLUMNS, found.rows, kind), Items(_notes(found))]
    for each in found.rows:
        if not found.is_overview or each.get("step"):
            facts = facts_table("", [(fact.name, fact_text(fact), fact.how) for fact in each.facts])
            blocks.append(facts if is_one else Section(_title(each), [facts]))
    if found.name:
        blocks.append(Facts(_measured(first.row.header)))
    timings = {each.row.measurement.case.timing: describe_time(each.row) for each in found.rows}
    blocks.append(Facts([*timings.items()]))
    if found.more:
        text = "Only the largest size of each kind is explained; of another size:"
        blocks.append(Code(text, found.more))
    is_summary = not is_one or found.is_overview
    title = found.name if is_summary else _title(first)
    return Document(title, (), [_summary(found) if is_summary else _sentence(first)], blocks)


def _title(found: RowExplanation) -> str:
    row, case = found.row, found.row.measurement.case
    size = f", {format_bytes(case.size_bytes)}" if case.dtype else ""
    nodes = f" of {row.header.num_nodes} nodes" if row.header.num_nodes > 1 else ""
    ranks = format_count(case.ranks, "rank")
    return f"{case.title_without('timing')}{size}, on {ranks}{nodes}: {found.operation.summary}"


def _sentence(found: RowExplanation) -> str:
    """A row in one sentence."""
    row, case = found.row, found.row.measurement.case
    if row.time is None:
        return f"{case.title} was not timed: {row.measurement.outcome}."
    size = f" of {format_bytes(case.size_bytes)}" if case.dtype else ""
    interval = cells.in_brackets(cells.time_interval_text(row.time.estimate))
    took = f"{cells.time_text(row.time.estimate)}{interval}"
    text = f"{case.operation}{size} on {format_count(case.ranks, 'rank')} takes {took}"
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
    """Where figures of the table come from that are not measured."""
    names = (TWICE_RANKS, NOT_KNOWN, "predicted", "no share of it")
    facts = [fact for each in found.rows for fact in each.facts if fact.name in names]
    return [*dict.fromkeys(f"{fact.name}: {fact.how}." for fact in facts)]


_SHOWN = ("ranks", "torch", "tool", "imported_from", "started", "nccl_log", "nccl_init_mode",
          "nccl_init", "start_up", "gpus")  # fmt: skip


def _measured(header: RunHeader) -> list[tuple[str, str]]:
    """Who measured what, with which versions, and how long the start took."""
    facts = environment_facts(header) | {
        "ranks": header.describe_ranks(),
        "started": header.started,
        "nccl_init": describe_init(header.environment.get("nccl_log")),
        "start_up": describe_start_up(header),
        "gpus": "shared: these times do not measure performance" if header.gpu_shared else "",
    }
    return [(name.replace("_", " "), facts[name]) for name in _SHOWN if facts.get(name)]


VIEW = View(document, schema=1)
