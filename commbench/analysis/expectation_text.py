"""Sentences about what to expect of a bandwidth. Bandwidths are in bytes/s."""

from __future__ import annotations

from commbench.analysis.expectations import (
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
from commbench.analysis.run_expectations import RowJudgement
from commbench.output.paragraphs import join_words
from commbench.units import GB, format_bytes


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


def call_text(call: Call) -> str:
    """A call in a few words: `all_reduce of 8 GiB on 8 x H100`."""
    size = f" of {format_bytes(call.size_bytes)}" if call.size_bytes else ""
    algorithm = f" ({call.algorithm})" if call.algorithm else ""
    return f"{call.operation}{size}{algorithm} on {machine_text(call)}"


def bound_text(bound: Bound) -> str:
    """The largest possible bus bandwidth, and why."""
    return f"at most {gbps(bound.busbw)} GB/s are possible, {bound.text}"


def judgement_text(judgement: Judgement) -> str:
    """Whether the bandwidth is plausible, with the figures that decide it, in sentences."""
    found = judgement.expectation
    value = f"{gbps(judgement.busbw)} GB/s is"
    measured = measured_text(found)
    possible = f"at most {gbps(found.bound.busbw)} GB/s are possible" if found.bound else ""
    why = {
        PLAUSIBLE: measured,
        LOW: f"{measured}, and at least {gbps(found.low or 0)} GB/s are plausible",
        HIGH: ", and ".join(filter(None, (measured or _most(found), possible))),
        IMPOSSIBLE: bound_text(found.bound) if found.bound else "",
        UNKNOWN: ", and ".join(filter(None, (possible, "nothing comparable was published"))),
    }[judgement.verdict]
    verdict = "possible" if judgement.verdict == UNKNOWN else judgement.verdict
    is_impossible = judgement.verdict == IMPOSSIBLE
    more = f"O{measured[1:]}." if is_impossible and measured else ""
    return " ".join(filter(None, (f"{value} {verdict}: {why}.", more, mix_ups_text(judgement))))


def measured_text(found: Expectation) -> str:
    """`others measured 338.8 to 365 GB/s`, and on how many nodes or accelerators where these are
    others than those that are asked about; empty where nothing is known."""
    if not found.measured:
        return ""
    call, several = found.call, found.call.parts > 1
    known = [figure.published for figure in found.figures if figure.busbw is not None]
    counts = sorted({one.nodes if several else one.ranks for one in known})
    where = ""
    if counts != [call.parts if several else call.ranks]:
        numbers = join_words([str(count) for count in counts])
        where = f" on {numbers} {'nodes' if several else 'accelerators'}"
    return f"others measured {range_text(*found.measured)}{where}"


def _most(found: Expectation) -> str:
    top = max((figure.published.busbw for figure in found.figures), default=0.0)
    return f"others measured at most {gbps(top)} GB/s, with larger messages"


def mix_ups_text(judgement: Judgement) -> str:
    """The mistakes that explain a bandwidth; empty where there is none."""
    if not judgement.mix_ups:
        return ""
    parts = [f"{gbps(value)} GB/s if {what}" for what, value in judgement.mix_ups]
    return f"It would be plausible as {', or as '.join(parts)}."


def source_of(judgement: Judgement) -> str:
    """The source of the figure that decides: of the bound for what is impossible or unknown, else
    of the nearest figure of others."""
    found = judgement.expectation
    known = [figure for figure in found.figures if figure.busbw is not None] or list(found.figures)
    if judgement.verdict in (IMPOSSIBLE, UNKNOWN) or not known:
        return found.bound.source if found.bound else ""

    def distance(figure: float | None) -> float:
        return abs((figure or 0.0) - judgement.busbw)

    return min(known, key=lambda figure: distance(figure.busbw)).published.source


def row_text(found: RowJudgement) -> str:
    """The judgement of a row of a run, with its source, in one or two sentences."""
    judgement, size = found.judgement, found.row.measurement.case.size_bytes
    call = judgement.expectation.call
    text = judgement_text(judgement).replace(" is ", f" at {format_bytes(size)} is ", 1)
    source = source_of(judgement)
    return f"On {machine_text(call)}, {text}" + (f" Source: {source}" if source else "")
