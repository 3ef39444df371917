"""What a document of an expectation says, and the sentences about one that others quote. Bandwidths
are in bytes/s."""

from __future__ import annotations

from collections.abc import Iterator

from commbench.analysis.rows import ResultRow
from commbench.answers.expect.curve_document import describe
from commbench.answers.expect.curves import OnCurves
from commbench.answers.expect.expectation import (
    HIGH,
    IMPOSSIBLE,
    LOW,
    PLAUSIBLE,
    UNKNOWN,
    Bound,
    Call,
    Expectation,
    Judgement,
)
from commbench.answers.expect.question import Answer, Demand
from commbench.output.paragraphs import join_words
from commbench.units import GB, format_bytes
from commbench.views.cells import NUMBER, TEXT, Column, Unit
from commbench.views.document import BAD, GOOD, Block, Document, Table, facts_table, sources_section
from commbench.views.formats import View

_TONES = {PLAUSIBLE: GOOD, LOW: BAD, IMPOSSIBLE: BAD}
_VERDICT_WORDS = {UNKNOWN: "possible"}
_DEMAND_WORDS = {LOW: "less than measured", UNKNOWN: "possible", HIGH: "more than measured"}


def gbps(value: float) -> str:
    """In GB/s, with four digits: `787.5`."""
    return f"{value / GB:.4g}"


def range_text(low: float, high: float) -> str:
    """`367.2 to 480 GB/s`, or `370 GB/s` where both ends are the same."""
    first, last = gbps(low), gbps(high)
    return f"{last} GB/s" if first == last else f"{first} to {last} GB/s"


def machine_text(call: Call) -> str:
    """The accelerators, nodes and network of a call: `16 x H100 on 2 nodes (8 x 400 Gbit/s)`."""
    gpu, nics = call.fabric.gpu, call.fabric.nics
    ranks = f"{call.ranks} x {gpu.what}" if gpu else f"{call.ranks} ranks"
    nodes = f" on {call.nodes} nodes" if call.nodes > 1 else ""
    return ranks + nodes + (f" ({nics.name})" if nics and call.parts > 1 else "")


def bound_text(bound: Bound) -> str:
    """Its link: `450 GB/s one way per accelerator (NVLink 4) x 1.75 (its switch can reduce)`."""
    is_more = bound.why_more and abs(bound.times - 1) > 1e-9
    more = f" x {bound.times:.4g} ({bound.why_more})" if is_more else ""
    return f"{gbps(bound.speed_bytes_per_s)} GB/s one way per {bound.per} ({bound.link}){more}"


def possible_text(found: Expectation) -> str:
    """The largest possible bus bandwidth; empty where it is not known."""
    bound = found.bound
    return f"at most {gbps(bound.busbw_bytes_per_s)} GB/s are possible" if bound else ""


def measured_text(found: Expectation) -> str:
    """`others measured 338.8 to 365 GB/s`, and on how many nodes or accelerators where these are
    others than those that are asked about."""
    if not found.measured:
        top = max((one.published.busbw_bytes_per_s for one in found.figures), default=0.0)
        larger = f"others measured at most {gbps(top)} GB/s, with larger messages"
        return larger if top else "nothing comparable was published"
    call, several = found.call, found.call.parts > 1
    known = [figure.published for figure in found.known]
    counts = sorted({one.nodes if several else one.ranks for one in known})
    where = ""
    if counts != [call.parts if several else call.ranks]:
        numbers = join_words([str(count) for count in counts])
        where = f" on {numbers} {'nodes' if several else 'accelerators'}"
    return f"others measured {range_text(*found.measured)}{where}"


def judgement_text(judgement: Judgement) -> str:
    """Whether the bandwidth is plausible, with the figures that decide it, in sentences."""
    found, verdict = judgement.expectation, judgement.verdict
    link = f", {bound_text(found.bound)}" if found.bound and verdict == IMPOSSIBLE else ""
    least = f"at least {gbps(found.low_bytes_per_s or 0.0)} GB/s are plausible"
    least = least if verdict == LOW else ""
    why = [measured_text(found), least, possible_text(found) + link]
    why = why[::-1] if verdict == IMPOSSIBLE else why
    shown = f"{gbps(judgement.busbw_bytes_per_s)} GB/s is {_VERDICT_WORDS.get(verdict, verdict)}"
    text = "; ".join(filter(None, why))
    named = [f"{gbps(one.busbw_bytes_per_s)} GB/s if {one.what}" for one in judgement.mistakes]
    mistakes = f" It would be plausible as {', or as '.join(named)}." if named else ""
    return f"{shown}: {text}.{mistakes}"


def row_text(row: ResultRow, judgement: Judgement) -> str:
    """The judgement of a row of a run, with its source, in one or two sentences."""
    size = format_bytes(row.measurement.case.size_bytes)
    text = judgement_text(judgement).replace(" is ", f" at {size} is ", 1)
    source = f" Source: {judgement.source}" if judgement.source else ""
    return f"On {machine_text(judgement.expectation.call)}, {text}{source}"


def document(answer: Answer | OnCurves) -> Document:
    """What is expected of hardware; or a run beside published curves."""
    return describe(answer) if isinstance(answer, OnCurves) else _expected(answer)


def _expected(answer: Answer) -> Document:
    """Whether a bandwidth is plausible, or which ones are; the limits, figures and demands."""
    found, judgement = answer.expectation, answer.judgement
    call = found.call
    size = f" of {format_bytes(call.size_bytes)}" if call.size_bytes else ""
    algorithm = f" ({call.algorithm})" if call.algorithm else ""
    demanded = [one.threshold.source for one in answer.demands]
    sources = [*dict.fromkeys([*found.sources, *demanded])]
    facts = "; ".join(filter(None, (measured_text(found), possible_text(found))))
    plausible = f"Plausible bus bandwidth: {_plausible_text(found)}; {facts}."
    blocks: list[Block] = [
        facts_table("", [*_limits(found)], "bus bandwidth"),
        _figures(found, sources),
        _demands(answer, sources),
    ]
    blocks += [sources_section(sources)] if sources else []
    return Document(
        f"{call.operation}{size}{algorithm} on {machine_text(call)}",
        (),
        [judgement_text(judgement) if judgement else plausible],
        blocks,
        _TONES.get(answer.verdict, ""),
    )


def _plausible_text(found: Expectation) -> str:
    return range_text(*found.plausible) if found.plausible else "not known"


def _limits(found: Expectation) -> Iterator[tuple[str, str, str]]:
    """What is plausible and possible, and what crosses the network: a name, the bandwidth, and how
    it is computed."""
    call, bound, several = found.call, found.bound, found.call.parts > 1
    has_network = bool(call.fabric.nics) or not several
    how = measured_text(found) if call.fabric.gpu else "no accelerator is given (--gpu)"
    if found.plausible and found.measured:
        low, high = (end / of - 1 for end, of in zip(found.plausible, found.measured, strict=True))
        how = f"the figures of others, {low:+.0%} for the lowest and {high:+.0%} for the highest"
        if not has_network:
            names = [*dict.fromkeys(figure.published.link for figure in found.known)]
            how += f"; no network is given, so the figures of {join_words(names)} count"
    yield "plausible", _plausible_text(found), how
    more = "" if has_network else "--nic gives the bound of a network"
    if bound:
        most = f"at most {gbps(bound.busbw_bytes_per_s)} GB/s"
        yield "possible", most, "; ".join(filter(None, [bound_text(bound), more]))
    else:
        links = "--link gives the speed of an accelerator's links"
        yield "possible", "not known", more or links
    if call.node_factor:
        part = "node" if call.parts == call.nodes else "rack"
        share = call.node_factor * call.parts / call.ranks
        once = "in a hierarchical algorithm, data crosses the network once: "
        for what, factor, how in (
            (f"each {part} sends", call.node_factor, once),
            ("each accelerator sends", share, "its share of that: "),
            (f"each {part} of a ring sends", 1.0, ""),
        ):
            ends = [end * factor for end in found.plausible or ()]
            rates = range_text(*ends) if ends else ""
            yield what, rates, f"{how}busbw{f' x {factor:.4g}' if factor != 1 else ''}"
    elif call.fabric.nics and not several:
        yield "each node sends", "nothing", "nothing crosses the network"


_BUSBW = Unit(gbps)


def _figures(found: Expectation, sources: list[str]) -> Table:
    """What others measured."""
    call, several = found.call, found.call.parts > 1
    columns = (
        Column("measured\nby others", lambda one: one.published.machine, TEXT, 10),
        Column("nodes", lambda one: one.published.nodes if several else None, NUMBER),
        Column("how", lambda one: one.published.how, TEXT),
        Column("size", lambda one: one.published.size, NUMBER),
        Column("busbw\nGB/s", lambda one: one.published.busbw_bytes_per_s, _BUSBW),
        Column(
            f"at\n{format_bytes(call.size_bytes or 0)}",
            lambda one: one.busbw_bytes_per_s if call.size_bytes else None, _BUSBW,
        ),
        Column("network" if several else "link", lambda one: one.published.link, TEXT, 7),
        Column("NCCL", lambda one: one.published.nccl, TEXT, 6),
        Column("", lambda one: sources.index(one.published.source) + 1, NUMBER),
    )  # fmt: skip
    return Table("", columns, found.figures)


def _demands(answer: Answer, sources: list[str]) -> Table:
    """What others demand, and whether that is possible."""
    several = answer.expectation.call.nodes > 1

    def demanded(one: Demand) -> str:
        low, high = one.threshold.low_bytes_per_s, one.threshold.high_bytes_per_s
        return gbps(low) if high is None else f"{gbps(low)}-{gbps(high)}"

    def ranks(one: Demand) -> str:
        asked = one.threshold
        return f"{asked.ranks} on {asked.nodes}" if several else str(asked.ranks)

    def network(one: Demand) -> str:
        is_across = one.judgement.expectation.call.parts > 1
        return (one.threshold.nic or "not known") if is_across else ""

    def verdict(one: Demand) -> str:
        found, bound = one.judgement.verdict, one.judgement.expectation.bound
        most = bound and found == IMPOSSIBLE and f": at most {gbps(bound.busbw_bytes_per_s)}"
        return f"{_DEMAND_WORDS.get(found, found)}{most or ''}"

    columns = (
        Column("demanded\nby others", lambda one: one.threshold.who, TEXT, 10),
        Column("busbw\nGB/s", demanded, NUMBER),
        Column("from ranks\non nodes" if several else "from\nranks", ranks, NUMBER),
        Column("network", network, TEXT),
        Column("this is", verdict, TEXT),
        Column("", lambda one: sources.index(one.threshold.source) + 1, NUMBER),
    )
    return Table("", columns, answer.demands)


VIEW = View(document, schema=3)
