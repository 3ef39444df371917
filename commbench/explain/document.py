"""What a document of an explanation says: a sentence about each row and its facts, or a table of
the kinds of calls of a run."""

from __future__ import annotations

from commbench.analysis.column_meanings import column_meanings, describe_time
from commbench.analysis.nccl_log import (
    INIT_MODE,
    describe_communicator,
    describe_init,
    describe_start_up,
)
from commbench.explain.explanation import Explanation, RowExplanation
from commbench.explain.facts import row_facts, times_text
from commbench.output.paragraphs import gbps
from commbench.results.schema import RunHeader
from commbench.units import format_about, format_bytes, format_count, format_percent, format_share
from commbench.views.cells import (
    BANDWIDTH,
    BYTES,
    NUMBER,
    SHARE,
    TEXT,
    TIME,
    TIME_INTERVAL,
    Column,
    Unit,
    in_brackets,
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

_KINDS = (
    Column("size", lambda each: each.row.measurement.case.size_bytes or None, BYTES),
    Column("time", lambda each: each.row.time and each.row.time.estimate, TIME),
    Column("interval", lambda each: each.row.time and each.row.time.estimate, TIME_INTERVAL, 6),
    Column("not timed", lambda each: (not each.row.time and each.row.measurement.outcome) or None,
           TEXT, 5, is_wrapped=True),
    Column("n", lambda each: each.row.time and each.row.time.iterations, NUMBER, 3),
    Column("algbw\nGB/s", lambda each: each.row.algbw, BANDWIDTH, 4),
    Column("busbw /\nalgbw", lambda each: each.row.busbw and each.operation.busbw_formula, TEXT, 5),
    Column("busbw\nGB/s", lambda each: each.row.busbw, BANDWIDTH),
    Column("of\npeak", lambda each: each.share and each.share.fraction, SHARE),
    Column("latency", lambda each: each.why and each.why.latency_share, Unit(format_share)),
    Column("n-half", lambda each: each.why and each.why.half_bytes, Unit(format_about), 7),
    Column("2 x S\ntakes", lambda each: each.why and times_text(each.why.twice_size), TEXT, 7),
    Column("2 x n\ntakes", lambda each: each.why and times_text(each.why.twice_ranks), TEXT, 7),
)  # fmt: skip


def document(found: Explanation) -> Document:
    """The rows that were asked for, each with its facts; or all kinds of calls of a run."""
    first = found.rows[0]
    blocks: list[Block] = []
    if found.is_overview:
        blocks.append(Table("", _KINDS, found.rows, lambda each: each.row.measurement.case.title))
        blocks.append(Items(_notes(found)))
    detailed = [each for each in found.rows if each.step or not found.is_overview]
    for each in detailed:
        facts = facts_table("", row_facts(each))
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
    answer = [_summary(found)] if found.is_overview else [_sentence(each) for each in found.rows]
    return Document(title, [_where(first.row.header)] if found.name else (), answer, blocks)


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
    interval = in_brackets(time_interval_text(row.time.estimate))
    text = f"{case.operation}{size} takes {time_text(row.time.estimate)}{interval}"
    if row.busbw is not None:
        text += f", a bus bandwidth of {gbps(row.busbw)} GB/s"
    if found.share and found.peak:
        text += f", {format_percent(found.share.fraction)} of {found.peak.name}"
    return text + (f": {found.why.bound}." if found.why and found.why.bound else ".")


def _summary(found: Explanation) -> str:
    """The kinds of calls of a run in one sentence."""
    bounds = [each.why.bound for each in found.rows if each.why and each.why.bound]
    counts = [f"{bounds.count(bound)} {bound}" for bound in dict.fromkeys(bounds)]
    text = f"{found.name} has {format_count(len(found.rows), 'kind')} of calls"
    text += f", at their largest size {' and '.join(counts)}" if counts else ""
    fastest = max(found.rows, key=lambda each: each.row.busbw or 0.0)
    if busbw := fastest.row.busbw:
        text += f"; {fastest.operation.name} has the highest bus bandwidth, {gbps(busbw)} GB/s"
    return f"{text}."


def _notes(found: Explanation) -> list[str]:
    """What the table of all kinds cannot say."""
    texts = []
    for each in found.rows:
        if each.why and each.why.twice_ranks:
            texts.append(f"2 x n: {each.why.twice_ranks.source}.")
        if each.why and each.why.unknown:
            texts.append(f"{each.operation.name}: {each.why.unknown}.")
        if each.share and each.peak:
            texts.append(f"`of peak`: the {each.share.bound} over {each.peak.text}.")
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
