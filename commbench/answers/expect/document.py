"""What a document of an expectation says, and the sentences about one that others quote. Bandwidths
are in bytes/s."""

from __future__ import annotations

from collections.abc import Iterator

from commbench.analysis.rows import ResultRow
from commbench.answers.expect import expectation as verdicts
from commbench.answers.expect.curve_document import describe
from commbench.answers.expect.curves import OnCurves
from commbench.answers.expect.expectation import Bound, Call, Expectation, Figure, Judgement
from commbench.answers.expect.question import Answer, Demand
from commbench.output.paragraphs import join_words
from commbench.units import GB, format_bytes, format_count
from commbench.views.cells import NUMBER, TEXT, Column, Unit
from commbench.views.document import BAD, GOOD, Block, Document, Table, facts_table, sources_section
from commbench.views.formats import View

_TONES = {verdicts.PLAUSIBLE: GOOD, verdicts.LOW: BAD, verdicts.IMPOSSIBLE: BAD}
_POSSIBLE = (verdicts.UNKNOWN, "possible")
_NVLS = ("NVLS", "NVLSTree")
_NEAR = 1.05
"""Up to so much above a figure without NVLS, NVLS may be off."""
_ALIKE = 0.005
"""A difference that is not worth a word."""
_MOST_MISTAKES = 2
"""Mistakes that a sentence asks about."""


def gbps(value: float) -> str:
    """In GB/s, with three digits or, from 1,000 on, as an integer: `367`, `1,350`."""
    shown = value / GB
    return f"{shown:.3g}" if shown < 999.5 else f"{shown:,.0f}"


def range_text(low: float, high: float) -> str:
    """`367 to 480 GB/s`, or `370 GB/s` where both ends are the same."""
    first, last = gbps(low), gbps(high)
    return f"{last} GB/s" if first == last else f"{first} to {last} GB/s"


def machine_text(call: Call) -> str:
    """The accelerators, nodes and network of a call: `2 nodes of 8 x H100 with 8 x 400 Gbit/s`."""
    gpu, nics = call.fabric.gpu, call.fabric.nics
    number = round(call.ranks / call.nodes)
    ranks = f"{number} x {gpu.what}" if gpu else format_count(number, "rank")
    nodes = f"{call.nodes} nodes of " if call.nodes > 1 else ""
    return nodes + ranks + (f" with {nics.name}" if nics and call.parts > 1 else "")


def bound_text(bound: Bound) -> str:
    """Its link: `450 GB/s one way per accelerator (NVLink 4) x 1.75 (its switch can reduce)`."""
    is_more = bound.why_more and abs(bound.times - 1) > 1e-9
    more = f" x {bound.times:.4g} ({bound.why_more})" if is_more else ""
    return f"{gbps(bound.speed_bytes_per_s)} GB/s one way per {bound.per} ({bound.link}){more}"


def possible_text(found: Expectation) -> str:
    """The largest possible bus bandwidth; empty where it is not known."""
    bound = found.bound
    return f"the links allow at most {gbps(bound.busbw_bytes_per_s)} GB/s" if bound else ""


def _where(found: Expectation) -> str:
    """On how many nodes or accelerators others measured, where these are others than those that
    are asked about; else empty."""
    call, several = found.call, found.call.parts > 1
    measured = [figure.published for figure in found.known]
    counts = sorted({one.nodes if several else one.ranks for one in measured})
    if counts in ([], [call.parts if several else call.ranks]):
        return ""
    numbers = join_words([str(count) for count in counts])
    is_unlike = None in (found.low_bytes_per_s, found.high_bytes_per_s)
    why = f", where the network carries {'more' if call.parts == 2 else 'less'}" * is_unlike
    return f" on {numbers} {'nodes' if several else 'accelerators'}{why}"


def measured_text(found: Expectation) -> str:
    """`others measured 367 (ring) to 480 GB/s (NVLS)`, and on how many nodes or accelerators
    where these are others than those that are asked about."""
    if not found.measured:
        top = max((one.published.busbw_bytes_per_s for one in found.figures), default=0.0)
        larger = f"others measured only larger messages (at most {gbps(top)} GB/s)"
        return larger if top else "nobody has published a figure to compare with"
    return f"others measured {_measured_range(found)}{_where(found)}"


def _measured_range(found: Expectation) -> str:
    if not _differ(found):
        return range_text(*found.measured or (0.0, 0.0))
    low, high = (found.known[end] for end in (0, -1))
    last = f"{gbps(_speed(high))} GB/s ({high.published.how})"
    return f"{gbps(_speed(low))} ({low.published.how}) to {last}"


def _differ(found: Expectation) -> bool:
    """Whether the lowest and the highest figure are of two algorithms."""
    return len({_whose(found.known[end]) for end in (0, -1)} - {"others"}) == 2


def _whose(figure: Figure) -> str:
    how = figure.published.how
    whose = {"ring": "a ring", "SHARP": how} | dict.fromkeys(_NVLS, how)
    return f"others {how}" if how.startswith("without") else whose.get(how, "others")


def _speed(figure: Figure) -> float:
    return figure.busbw_bytes_per_s or 0.0


def _against(figure: Figure, busbw: float, where: str) -> str:
    """How far a bandwidth is from a figure: `5 % below a ring (367 GB/s)`."""
    whose, reached = f"{_whose(figure)}{where}", _speed(figure)
    if reached >= 2 * busbw:
        times = f"{reached / busbw:.{'2g' if reached < 100 * busbw else '0f'}}"
        return f"{whose} reached {times} times as much ({gbps(reached)} GB/s)"
    side = "below" if busbw < reached else "above"
    return f"{100 * abs(1 - busbw / reached):.0f} % {side} {whose} ({gbps(reached)} GB/s)"


def _plausible_sentence(found: Expectation, busbw: float) -> str:
    """That a bandwidth is plausible, and how far outside the figures of others it is."""
    low, high = found.known[0], found.known[-1]
    without = [_speed(each) for each in found.known if each.published.how not in _NVLS]
    is_off = high.published.how in _NVLS and busbw <= _NEAR * max(without, default=0.0)
    if abs(busbw / min(max(busbw, _speed(low)), _speed(high)) - 1) <= _ALIKE:
        return f"plausible: {measured_text(found)}{'; is NVLS on?' if is_off else '.'}"
    ends = [low, high][: 1 + _differ(found)] if busbw < _speed(low) else [high]
    text = " and ".join(_against(each, busbw, _where(found)) for each in ends)
    return f"plausible, but {text}{': is NVLS on?' if is_off else '.'}"


def judgement_text(judgement: Judgement) -> str:
    """Whether the bandwidth is plausible, with the figures that decide it, in sentences."""
    found, busbw, verdict, mistakes = judgement
    possible, others = possible_text(found), measured_text(found)
    said = f"{verdict.replace(*_POSSIBLE)}: {'; '.join(filter(None, (others, possible)))}."
    if verdict == verdicts.PLAUSIBLE:
        said = _plausible_sentence(found, busbw)
    elif verdict == verdicts.LOW:
        least = f"from {gbps(found.low_bytes_per_s or 0.0)} GB/s on it would be plausible"
        said = f"low: {_against(found.known[0], busbw, _where(found))}; {least}."
    elif verdict == verdicts.IMPOSSIBLE and found.bound:
        said = f"impossible: {possible} ({found.bound.link}); {others}."
    for one in mistakes[:_MOST_MISTAKES]:
        said += f" {one.what} {gbps(one.busbw_bytes_per_s)} GB/s would be plausible."
    return f"{gbps(busbw)} GB/s is {said}"


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
    blocks: list[Block] = [
        facts_table("", [*_limits(found)], "bandwidth"),
        _figures(found, sources),
        _demands(answer, sources),
    ]
    blocks += [sources_section(sources)] if sources else []
    return Document(
        f"{call.operation}{size}{algorithm} on {machine_text(call)}",
        (),
        [judgement_text(judgement) if judgement else _expect_sentence(found)],
        blocks,
        _TONES.get(answer.verdict, ""),
    )


def _expect_sentence(found: Expectation) -> str:
    """What to expect, in a sentence or two."""
    low, possible = found.low_bytes_per_s, possible_text(found)
    if low is None or not found.known:
        text = "; ".join(filter(None, (measured_text(found), possible)))
        return f"{text[:1].upper()}{text[1:]}."
    least = "" if found.high_bytes_per_s else "at least "
    measured = f"{least}{_measured_range(found)}, which others measured{_where(found)}"
    limits = [f"below {gbps(low)} GB/s look for the cause", possible]
    return f"Expect a bus bandwidth of {measured}; {'; '.join(filter(None, limits))}."


def _plausible_text(found: Expectation, factor: float = 1.0) -> str:
    """The range of what is plausible, times a factor; empty where nothing is known."""
    ends = (found.low_bytes_per_s, found.high_bytes_per_s)
    low, high = (None if end is None else gbps(end * factor) for end in ends)
    text = f"{low} … {high}" if low and high else f"from {low}" if low else f"up to {high}"
    return f"{text} GB/s" if low or high else ""


def _limits(found: Expectation) -> Iterator[tuple[str, str, str]]:
    """What is plausible and possible, and what crosses the network: a name, the bandwidth, and how
    it is computed."""
    call, bound, several = found.call, found.bound, found.call.parts > 1
    has_network = bool(call.fabric.nics) or not several
    how = measured_text(found) if call.fabric.gpu else "no accelerator is given (--gpu)"
    if found.plausible and found.measured:
        low, high = (end / of - 1 for end, of in zip(found.plausible, found.measured, strict=True))
        how = f"from {-100 * low:.0f} % below the lowest to {100 * high:.0f} % above the highest"
        how += f" figure of others{_where(found)}"
        if not has_network:
            names = [*dict.fromkeys(figure.published.link for figure in found.known)]
            how += f"; no network is given, so the figures of {join_words(names)} count"
    yield "plausible", _plausible_text(found) or "not known", how
    more = "" if has_network else "--nic gives the bound of a network"
    most = f"at most {gbps(bound.busbw_bytes_per_s)} GB/s" if bound else "not known"
    ways = [bound_text(bound) if bound else "", more]
    links = "--link gives the speed of an accelerator's links"
    yield "possible", most, "; ".join(filter(None, ways)) or links
    if call.node_factor:
        part = "node" if call.parts == call.nodes else "rack"
        share = call.node_factor * call.parts / call.ranks
        once = "if data crosses the network only once: "
        for what, factor, how in (
            (f"each {part} sends", call.node_factor, once),
            ("each accelerator sends", share, "its share of that: "),
            (f"each {part} of a ring sends", 1.0, "in a ring, all data crosses the network: "),
        ):
            yield what, _plausible_text(found, factor), f"{how}busbw x {factor:.4g}"
    elif call.fabric.nics and not several:
        yield "each node sends", "nothing", "nothing crosses the network"


_BUSBW = Unit(lambda value: f"{value / GB:.4g}")


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
        Column("source", lambda one: sources.index(one.published.source) + 1, NUMBER),
    )  # fmt: skip
    return Table("", columns, found.figures)


def _demands(answer: Answer, sources: list[str]) -> Table:
    """What others demand, and whether that is possible."""
    several = answer.expectation.call.nodes > 1

    def demanded(one: Demand) -> str:
        low, high = one.threshold.low_bytes_per_s, one.threshold.high_bytes_per_s
        return gbps(low) if high is None else f"{gbps(low)} … {gbps(high)}"

    def ranks(one: Demand) -> str:
        asked = one.threshold
        return f"{asked.nodes} x {asked.ranks // asked.nodes}" if several else str(asked.ranks)

    def network(one: Demand) -> str:
        is_across = one.judgement.expectation.call.parts > 1
        return (one.threshold.nic or "not known") if is_across else ""

    columns = (
        Column("demanded\nby others", lambda one: one.threshold.who, TEXT, 10),
        Column("busbw\nGB/s", demanded, NUMBER),
        Column("from\nnodes" if several else "from\nranks", ranks, NUMBER),
        Column("network", network, TEXT),
        Column("demand\nis", lambda one: one.judgement.verdict.replace(*_POSSIBLE), TEXT),
        Column("source", lambda one: sources.index(one.threshold.source) + 1, NUMBER),
    )
    return Table("", columns, answer.demands)


VIEW = View(document, schema=3)
