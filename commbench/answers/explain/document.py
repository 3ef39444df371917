"""What a document of an explanation says: a row in a sentence and its facts, or a table of rows."""

from __future__ import annotations

from operator import attrgetter, methodcaller
from typing import Any

from commbench.analysis.environment_diff import environment_facts
from commbench.analysis.nccl_log import describe_init, describe_start_up
from commbench.analysis.row_names import describe_time
from commbench.answers.explain import bound
from commbench.answers.explain.explanation import Explanation, RowExplanation
from commbench.answers.explain.facts import FIGURE, RATIO, SECONDS, value_text
from commbench.output.paragraphs import join_words
from commbench.results.schema import RunHeader
from commbench.stats.estimate import Estimate
from commbench.units import format_about, format_bytes, format_count, format_share
from commbench.views import cells
from commbench.views.cells import Column, Unit
from commbench.views.document import Code, Document, Facts, Items, Section, Table, facts_table
from commbench.views.formats import View

_RATIO = Unit(lambda v: v if isinstance(v, str) else value_text(v, RATIO), is_left=True)


def _factor(found: RowExplanation) -> str:
    """The formula of the factor from algbw to busbw: the operation's, or an own call's."""
    return found.row.measurement.case.own_call.busbw_formula or found.operation.busbw_formula


_COLUMNS = (
    Column("size", methodcaller("get", "size S"), cells.BYTES),
    Column("time", methodcaller("get", "time t"), cells.TIME),
    Column("interval", methodcaller("get", "time t"), cells.TIME_INTERVAL, 6),
    Column("not timed", lambda each: each.get("not timed") and each.row.measurement.outcome,
           cells.TEXT, 5, is_wrapped=True),
    Column("n", lambda each: each.row.time and (each.row.time.iterations or None), cells.NUMBER, 3),
    Column("algbw\nGB/s", methodcaller("get", "algbw"), cells.BANDWIDTH, 4),
    Column("busbw /\nalgbw", lambda each: each.row.busbw and _factor(each), cells.TEXT, 5),
    Column("busbw\nGB/s", methodcaller("get", "busbw"), cells.BANDWIDTH),
    Column("of\npeak %", methodcaller("get", "of the peak"), cells.SHARE_WITH_INTERVAL),
    Column("latency", methodcaller("get", bound.LATENCY_SHARE), Unit(format_share)),
    Column("n-half\n(fitted)", methodcaller("get", bound.HALF), Unit(format_about), 7),
    Column("twice\nthe size", methodcaller("get", bound.TWICE_SIZE), _RATIO, 7),
    Column("twice\nthe ranks", methodcaller("get", bound.TWICE_RANKS), _RATIO, 7),
)  # fmt: skip


def document(found: Explanation) -> Document:
    """A row with its facts; several as a table, and their facts where they were asked for."""
    first, is_one = found.rows[0], len(found.rows) == 1
    blocks: list[Any] = []
    if not is_one or found.is_overview:
        kind = attrgetter("row.measurement.case.title")
        blocks += [Table("", _COLUMNS, found.rows, kind), Items(_notes(found))]
    for each in found.rows:
        if not found.is_overview or each.get("step"):
            rows = [(fact.name, value_text(fact.value, fact.unit), fact.how) for fact in each.facts]
            facts = facts_table("", rows)
            blocks.append(facts if is_one else Section(_title(each), [facts]))
    if found.name:
        timings = {each.row.measurement.case.timing: describe_time(each.row) for each in found.rows}
        blocks += [Facts(_measured(first.row.header)), Facts([*timings.items()])]
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
    text = f"{case.operation}{size} on {format_count(case.ranks, 'rank')} takes "
    text += value_text(row.time.estimate, SECONDS)
    if isinstance(predicted := found.get("predicted"), Estimate):
        text += f", {row.time.median / predicted.value:.3g} times the predicted time"
    if busbw := found.get("busbw"):
        text += f", a bus bandwidth of {cells.bandwidth_text(busbw)} GB/s"
    if share := found.get("of the peak"):
        text += f", {format_share(share.value)} of the peak"
    if row.measurement.wrong:
        return f"{text}; its results are wrong."
    warning = next((fact.how for fact in found.facts if fact.unit == FIGURE), "")
    return f"{text}. {_what_helps(found)}{f' Warning: {warning}.' if warning else ''}".strip()


_FULL = 0.8
"""From this part of its peak on, a link is full in practice."""


def _what_helps(found: RowExplanation) -> str:
    """What bounds a row, and what would make it faster."""
    known = next((fact for fact in found.facts if fact.name == bound.BOUND), None)
    peak = found.get("of the peak")
    texts = {
        f"It is {known.value}: {known.how}." if known else "": known,
        "That is impossible: check the peak and the time.": found.get("above 100 %"),
        f"The link bounds it: {bound.HELPS[bound.BANDWIDTH]}.": peak and peak.value >= _FULL,
        "The link is not full: something else bounds it.": peak,
        "To learn what bounds it, measure three sizes.": found.get(bound.NOT_KNOWN),
        "To learn what bounds it, give --peak or --model.": found.get("busbw"),
    }
    return next((text for text, applies in texts.items() if applies), "")


def _summary(found: Explanation) -> str:
    """The kinds of calls of a run in one sentence."""
    bounds = [kind for each in found.rows if (kind := each.get(bound.BOUND))]
    counts = [(bounds.count(kind), kind) for kind in dict.fromkeys(bounds)]
    words = [f"{number} {'is' if number == 1 else 'are'} {kind}" for number, kind in counts]
    kinds = f"{format_count(len(found.rows), 'kind')} of calls"
    text = f"{found.name} has {kinds}, of too few sizes to say what bounds them"
    if len(words) == 1 and len(bounds) == len(found.rows):
        every = {1: "the call is", 2: "both kinds of calls are"}.get(
            len(bounds), f"all {kinds} are"
        )
        text = f"At the largest size, {every} {bounds[0]}: {bound.HELPS[bounds[0]]}"
    elif words:
        text = f"At the largest size, of {kinds} {join_words(words)}"
    fastest = max(found.rows, key=lambda each: each.row.busbw or 0.0)
    if busbw := fastest.get("busbw"):
        most = cells.bandwidth_text(busbw)
        text += f"; {fastest.operation.name} has the highest bus bandwidth, {most} GB/s"
    return f"{text}."


def _notes(found: Explanation) -> list[str]:
    """Where figures of the table come from that are not measured."""
    names = (bound.HALF, bound.TWICE_RANKS, bound.NOT_KNOWN, "predicted", "no share of it")
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


VIEW = View(document, schema=2)
