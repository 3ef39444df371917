"""What a document of an expectation says, and the sentences about one that others quote. Bandwidths
are in bytes/s."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from commbench.analysis.rows import ResultRow
from commbench.answers.expect import curve_document, curves, expectation
from commbench.answers.expect.bound import Bound, Call
from commbench.output.text import join_words, span
from commbench.plan.links import Published
from commbench.units import GB, format_bytes, format_count, format_size
from commbench.views.cells import NUMBER, TEXT, Column, Unit, bandwidth_text
from commbench.views.document import BAD, GOOD, Block, Document, Table, facts_table, sources_section
from commbench.views.formats import View

_TONES = {expectation.PLAUSIBLE: GOOD, expectation.LOW: BAD, expectation.IMPOSSIBLE: BAD}
_MISTAKE = "Look for a mistake: the unit, the size, the number of ranks, the hardware."
NEXT = {
    expectation.LOW: "Look for the cause: `commbench pairs`, `commbench doctor`, NCCL_DEBUG=INFO.",
    expectation.UNKNOWN: "An earlier run or a like machine judges it: `commbench check --against`.",
    expectation.HIGH: _MISTAKE,
    expectation.IMPOSSIBLE: _MISTAKE,
}
"""What to do next after a verdict that no mistake explains."""
_POSSIBLE = (expectation.UNKNOWN, "possible")
_NVLS = ("NVLS", "NVLSTree")
_LIKE_RING = 1.15
"""A low bandwidth may be that of a ring that reaches so many times as much, or as little."""
_NEAR = 1.05
"""Up to so much above a figure without NVLS, NVLS may be off."""
_CURVES = "published curves"
_ALIKE = 0.005
"""A difference that is not worth a word."""
_MOST_MISTAKES = 2
"""Mistakes that a sentence asks about."""


def gbps(value: float) -> str:
    """In GB/s, with three digits or, from 1,000 on, as an integer: `367`, `1,350`."""
    shown = value / GB
    return f"{shown:.3g}" if shown < 999.5 else f"{shown:,.0f}"


def machine_text(call: Call) -> str:
    """The accelerators, nodes and network of a call: `2 nodes of 8 x H100 with 8 x 400 Gbit/s`."""
    gpu, nics = call.fabric.gpu, call.fabric.nics
    number = round(call.ranks / call.nodes)
    ranks = f"{number} x {gpu.what}" if gpu else format_count(number, "rank")
    nodes = f"{call.nodes} nodes of " if call.nodes > 1 else ""
    return nodes + ranks + (f" with {nics.name}" if nics and call.parts > 1 else "")


def bound_text(bound: Bound) -> str:
    """Its link: `450 GB/s one way per accelerator (NVLink 4) x 1.75 (its switch can reduce)`."""
    times = bound.busbw_bytes_per_s / bound.speed_bytes_per_s
    more = f" x {times:.4g} ({bound.why_more})" if bound.why_more and abs(times - 1) > 1e-9 else ""
    return f"{gbps(bound.speed_bytes_per_s)} GB/s one way per {bound.per} ({bound.link}){more}"


def _possible(found: expectation.Expectation) -> str:
    """The largest possible bus bandwidth; empty where it is not known."""
    bound = found.bound
    return f"the links allow at most {gbps(bound.busbw_bytes_per_s)} GB/s" if bound else ""


def _where(found: expectation.Expectation) -> str:
    """On how many nodes or accelerators others measured, where these are others than those that
    are asked about; else empty."""
    call, several = found.call, found.call.parts > 1
    counts = sorted({one.nodes if several else one.ranks for _, one in found.known})
    if counts in ([], [call.parts if several else call.ranks]):
        return ""
    is_unlike = None in (found.low_bytes_per_s, found.high_bytes_per_s)
    why = f", where the network carries {'more' if call.parts == 2 else 'less'}" * is_unlike
    return f" on {join_words([*map(str, counts)])} {'nodes' if several else 'accelerators'}{why}"


def _others(found: expectation.Expectation) -> str:
    """`others measured 367 (ring) to 480 GB/s (NVLS)`, and on how many nodes or accelerators
    where these are others than those that are asked about."""
    if found.known:
        return f"others measured {_span(found)}{_where(found)}"
    top = max((one.published.busbw_bytes_per_s for one in found.figures), default=0.0)
    larger = f"others measured only larger messages (at most {gbps(top)} GB/s)"
    return larger if top else "no published figure is known to compare with"


def _span(found: expectation.Expectation) -> str:
    (low, first), (high, last) = found.known[0], found.known[-1]
    if _differ(found):
        return f"{gbps(low)} ({first.how}) to {gbps(high)} GB/s ({last.how})"
    return f"{span(gbps, (low, high))} GB/s"


def _differ(found: expectation.Expectation) -> bool:
    """Whether the lowest and the highest figure are of two algorithms."""
    return len({_whose(found.known[end][1]) for end in (0, -1)} - {"others"}) == 2


def _whose(figure: Published) -> str:
    if figure.how.startswith("without"):
        return f"others {figure.how}"
    names = {"ring": "a ring", "SHARP": figure.how, curves.CURVES: _CURVES}
    names |= dict.fromkeys(_NVLS, figure.how)
    return names.get(figure.how, "others")


def _against(found: expectation.Expectation, end: int, busbw: float) -> str:
    """How far a bandwidth is from one end of the figures: `5 % below a ring (367 GB/s)`."""
    reached, figure = found.known[end]
    whose = f"{_whose(figure)}{_where(found)}"
    side = "below" if busbw < reached else "above"
    return f"{100 * abs(1 - busbw / reached):.0f} % {side} {whose} ({gbps(reached)} GB/s)"


def _plausible_sentence(found: expectation.Expectation, busbw: float) -> str:
    """That a bandwidth is plausible, and how far outside the figures of others it is."""
    (low, _), (high, best) = found.known[0], found.known[-1]
    without = [speed for speed, one in found.known if one.how not in _NVLS]
    is_off = best.how in _NVLS and busbw <= _NEAR * max(without, default=0.0)
    if abs(busbw / min(max(busbw, low), high) - 1) <= _ALIKE:
        return f"plausible: {_others(found)}{'; is NVLS on?' if is_off else '.'}"
    ends = [0, -1][: 1 + _differ(found)] if busbw < low else [-1]
    text = " and ".join(_against(found, end, busbw) for end in ends)
    return f"plausible, but {text}{': is NVLS on?' if is_off else '.'}"


def _near_a_ring(found: expectation.Expectation, busbw: float) -> str:
    """That a low bandwidth is that of a ring, of any size, where others reached more with NVLS."""
    figures = [figure.published for figure in found.figures]
    rings = [one for one in figures if one.how == "ring"]
    near = min(rings, key=lambda one: abs(busbw - one.busbw_bytes_per_s), default=None)
    if near is None or not any(one.how in _NVLS for one in figures):
        return ""
    reached = near.busbw_bytes_per_s
    if max(reached / busbw, busbw / reached) > _LIKE_RING:
        return ""
    return f" A ring reached {gbps(reached)} GB/s on {near.machine}: is NVLS on?"


def judgement_text(judgement: expectation.Judgement) -> str:
    """Whether the bandwidth is plausible, with the figures that decide it, in sentences."""
    found, busbw, verdict, mistakes = judgement
    possible, others = _possible(found), _others(found)
    said = f"{verdict.replace(*_POSSIBLE)}: {'; '.join(filter(None, (others, possible)))}."
    if verdict == expectation.PLAUSIBLE:
        said = _plausible_sentence(found, busbw)
    elif verdict == expectation.LOW:
        least = f"from {gbps(found.low_bytes_per_s or 0.0)} GB/s on it would be plausible"
        said = f"low: {_against(found, 0, busbw)}; {least}.{_near_a_ring(found, busbw)}"
    elif verdict == expectation.IMPOSSIBLE and found.bound:
        said = f"impossible: {possible} ({found.bound.link}); {others}."
    for one in mistakes[:_MOST_MISTAKES]:
        said += f" {one.what} {gbps(one.busbw_bytes_per_s)} GB/s would be plausible."
    return f"{gbps(busbw)} GB/s is {said}"


def row_text(row: ResultRow, judgement: expectation.Judgement) -> str:
    """The judgement of a row of a run, with its source, in one or two sentences; without figures of
    others, that of all rows of its kind."""
    found, size = judgement.expectation, format_bytes(row.case.size_bytes)
    source = f" Source: {judgement.source}" if judgement.source else ""
    _, verb, said = judgement_text(judgement).partition(" is ")
    text = f"{bandwidth_text(row.known_busbw)} GB/s at {size}{verb}{said}"
    if judgement.verdict == expectation.UNKNOWN and found.bound:
        others = _others(found)
        text = f"{_possible(found)}, and no row has more: {bound_text(found.bound)}. "
        text += f"{others[:1].upper()}{others[1:]}."
    return f"On {machine_text(found.call)}, {text}{source}"


def document(answer: expectation.Answer | curves.OnCurves) -> Document:
    """A run beside published curves; or what is expected of hardware: whether a bandwidth is
    plausible, or which ones are; the limits, figures and demands."""
    if isinstance(answer, curves.OnCurves):
        return curve_document.describe(answer)
    found, judgement, call = answer.expectation, answer.judgement, answer.expectation.call
    size = f" of {format_bytes(call.size_bytes)}" if call.size_bytes else ""
    algorithm = f" ({call.algorithm})" if call.algorithm else ""
    sources = [*dict.fromkeys([*found.sources, *(one.threshold.source for one in answer.demands)])]
    blocks: list[Block] = [
        facts_table([*_limits(found)], "bandwidth"),
        _figures(found, sources),
        _demands(answer, sources),
        *[sources_section(sources)] * bool(sources),
    ]
    title = f"{call.operation}{size}{algorithm} on {machine_text(call)}"
    said = judgement_text(judgement) if judgement else _expect_sentence(found)
    next_step = NEXT.get(answer.verdict, "") if judgement and not judgement.mistakes else ""
    said = " ".join(filter(None, (said, next_step, _by_size(call))))
    return Document(title, (), [said], blocks, _TONES.get(answer.verdict, ""))


def _by_size(call: Call) -> str:
    """What a size would change: published curves judge it then, as they judge a run."""
    sizes = [curve.points[-1][0] for curve in curves.curves_of_call(call)]
    if not sizes or call.size_bytes:
        return ""
    size = format_size(max(sizes))
    return (
        "Without a size, figures of large messages count; with one, such as --size "
        f"{size}, the {_CURVES} do, as in `commbench expect RUN`."
    )


def _expect_sentence(found: expectation.Expectation) -> str:
    """What to expect, in a sentence or two."""
    low, possible = found.low_bytes_per_s, _possible(found)
    if low is None or not found.known:
        text = "; ".join(filter(None, (_others(found), possible)))
        return f"{text[:1].upper()}{text[1:]}."
    least = "" if found.high_bytes_per_s else "at least "
    measured = f"{least}{_span(found)}, which others measured{_where(found)}"
    limits = [f"below {gbps(low)} GB/s look for the cause", possible]
    return f"Expect a bus bandwidth of {measured}; {'; '.join(filter(None, limits))}."


def _limits(found: expectation.Expectation) -> Iterator[tuple[str, str, str]]:
    """What is plausible and possible, and what crosses the network: a name, the bandwidth, and how
    it is computed."""
    call, bound, several = found.call, found.bound, found.call.parts > 1
    has_network = bool(call.fabric.nics) or not several
    how = _others(found) if call.fabric.gpu else "no accelerator is given (--gpu)"
    low, high, known = found.low_bytes_per_s, found.high_bytes_per_s, found.known
    if known and low is not None and high is not None:
        below, above = 1 - low / known[0][0], high / known[-1][0] - 1
        how = f"from {100 * below:.0f} % below the lowest to {100 * above:.0f} % above the highest"
        how += f" figure of others{_where(found)}{' at this size' * bool(call.size_bytes)}"
        if not has_network:
            how += "; no network is given, so the figures of all count"
    yield "plausible", _plausible(found, 1.0) or "not known", how
    most = f"at most {gbps(bound.busbw_bytes_per_s)} GB/s" if bound else "not known"
    ways = [bound_text(bound)] if bound else []
    ways += [] if has_network else ["--nic gives the bound of a network"]
    yield "possible", most, "; ".join(ways) or "--link gives the speed of an accelerator's links"
    if call.node_factor:
        part = "node" if call.parts == call.nodes else "rack"
        share = call.node_factor * call.parts / call.ranks
        for what, factor, how in (
            (f"each {part} sends", call.node_factor, "if data crosses the network only once"),
            ("each accelerator sends", share, "its share of that"),
        ):
            yield what, _plausible(found, factor), f"{how}: busbw x {factor:.4g}"
        how, nics = "in a ring, all data crosses the network: busbw x 1", call.fabric.nics
        if nics and part == "node" and (high or 0.0) > nics.bytes_per_second:
            how += f"; its links carry {gbps(nics.bytes_per_second)}, so more is no ring"
        yield f"each {part} of a ring sends", _plausible(found, 1.0), how


def _plausible(found: expectation.Expectation, factor: float) -> str:
    """The range of what is plausible, times a factor; empty where nothing is known."""
    ends = (found.low_bytes_per_s, found.high_bytes_per_s)
    low, high = (None if end is None else gbps(end * factor) for end in ends)
    text = f"{low} … {high}" if low and high else f"from {low}" if low else f"up to {high}"
    return f"{text} GB/s" if low or high else ""


def _figures(found: expectation.Expectation, sources: list[str]) -> Table:
    """What others measured."""
    call, several = found.call, found.call.parts > 1
    at_size = f"at\n{format_bytes(call.size_bytes or 0)}"
    columns = (
        Column("measured\nby others", attrgetter("published.machine"), TEXT, 10),
        Column("nodes", lambda one: one.published.nodes if several else None, NUMBER),
        Column("how", attrgetter("published.how"), TEXT),
        Column("size", attrgetter("published.size"), NUMBER),
        Column("busbw\nGB/s", attrgetter("published.busbw_bytes_per_s"), Unit(gbps)),
        Column(at_size, lambda one: one.busbw_bytes_per_s if call.size_bytes else None, Unit(gbps)),
        Column("network" if several else "link", attrgetter("published.link"), TEXT, 7),
        Column("NCCL", attrgetter("published.nccl"), TEXT, 6),
        Column("source", lambda one: sources.index(one.published.source) + 1, NUMBER),
    )
    return Table("", columns, found.figures)


def _demands(answer: expectation.Answer, sources: list[str]) -> Table:
    """What others demand, and whether that is possible."""
    several = answer.expectation.call.nodes > 1

    def demanded(one: expectation.Demand) -> str:
        low, high = one.threshold.low_bytes_per_s, one.threshold.high_bytes_per_s
        return gbps(low) if high is None else f"{gbps(low)} … {gbps(high)}"

    def ranks(one: expectation.Demand) -> str:
        asked = one.threshold
        return f"{asked.nodes} x {asked.ranks // asked.nodes}" if several else str(asked.ranks)

    def network(one: expectation.Demand) -> str:
        is_across = one.judgement.expectation.call.parts > 1
        return (one.threshold.nic or "not known") if is_across else ""

    columns = (
        Column("demanded\nby others", attrgetter("threshold.who"), TEXT, 10),
        Column("busbw\nGB/s", demanded, NUMBER),
        Column("from\nnodes" if several else "from\nranks", ranks, NUMBER),
        Column("network", network, TEXT),
        Column("demand\nis", lambda one: one.judgement.verdict.replace(*_POSSIBLE), TEXT),
        Column("source", lambda one: sources.index(one.threshold.source) + 1, NUMBER),
    )
    return Table("", columns, answer.demands)


VIEW = View(document, schema=3)
