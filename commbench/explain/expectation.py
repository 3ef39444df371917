"""What `commbench expect` answers: what to expect of a call, as data, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from commbench.analysis.expectation_text import (
    call_text,
    gbps,
    judgement_text,
    machine_text,
    measured_text,
    range_text,
    source_of,
)
from commbench.analysis.expectations import (
    ALGORITHMS,
    BELOW,
    HIGH,
    IMPOSSIBLE,
    LOW,
    PLAUSIBLE,
    UNKNOWN,
    Call,
    Expectation,
    Judgement,
    expect,
    find_thresholds,
    judge,
    judge_threshold,
)
from commbench.errors import UsageError
from commbench.output.paragraphs import Paragraph, fill, join_words, paragraphs
from commbench.output.table import BOLD, GREEN, RED, style, table
from commbench.spec.fabrics import Fabric, choose_gpu, load_gpus, make_fabric, parse_nics
from commbench.spec.links import Link, Threshold, find_link, parse_peak
from commbench.spec.operations import DEFAULT_OPERATION, find_operation
from commbench.units import GB, format_bytes, parse_size, parse_time, parse_tolerance
from commbench.validation import choose

SCHEMA = 1
"""Version of the JSON; raised when a field changes its meaning or goes."""
_THRESHOLD_WORDS = {
    PLAUSIBLE: "plausible", LOW: "less than measured", UNKNOWN: "possible",
    HIGH: "more than measured", IMPOSSIBLE: "impossible",
}  # fmt: skip
_STYLES = {PLAUSIBLE: GREEN, IMPOSSIBLE: RED, LOW: RED}


class Answer(NamedTuple):
    """What to expect of a call, and whether a given bandwidth is plausible."""

    expectation: Expectation
    judgement: Judgement | None
    """None where no bandwidth was given."""

    @property
    def verdict(self) -> str:
        """`plausible`, `low`, `high`, `impossible` or `unknown`; empty without a bandwidth."""
        return self.judgement.verdict if self.judgement else ""

    def __str__(self) -> str:
        """What `commbench expect` prints."""
        return answer_text(self)


def answer(
    *,
    gpu: str | None = None,
    nodes: int = 1,
    gpus_per_node: int | None = None,
    nic: str | None = None,
    link: str | None = None,
    op: str | None = None,
    size: str | int | None = None,
    algorithm: str | None = None,
    nccl: str | None = None,
    tolerance: str | float | None = None,
    busbw: str | float | None = None,
    algbw: str | float | None = None,
    time: str | float | None = None,
) -> Answer:
    """What to expect of a call, from texts as the command line takes them; numbers are in bytes,
    seconds, and bytes per second. Raises UsageError for a value that is wrong or missing."""
    model = choose_gpu(gpu, "--gpu", f"give {_WITHOUT}") if gpu else None
    if not gpu and not (nic or link):
        raise UsageError("no hardware is given", f"give --gpu, one of {_names()}; or {_WITHOUT}")
    per_node = 4 if model and model.connects == 72 else 8
    per_node = per_node if gpus_per_node is None else gpus_per_node
    for name, number in (("--nodes", nodes), ("--gpus-per-node", per_node)):
        if not 1 <= number <= 1 << 20:
            raise UsageError(f"{name} is {number}", "write a number from 1 on")
    if nodes * per_node < 2:
        raise UsageError("one rank communicates with nobody", "give --nodes or --gpus-per-node")
    fabric = make_fabric(model, parse_nics(nic, model) if nic else None)
    if link:
        fabric = fabric._replace(link=_parse_link(link))
    operation = find_operation(op or DEFAULT_OPERATION)
    if operation.busbw_factor is None:
        raise UsageError(f"{operation.name} has no bandwidth to expect", "choose another --op")
    if algorithm:
        choose("--algorithm", algorithm, dict.fromkeys(ALGORITHMS))
    call = Call(
        fabric, operation.name, nodes * per_node, nodes,
        parse_size(str(size)) if size is not None else None, algorithm or "", nccl or "",
    )  # fmt: skip
    below = BELOW if tolerance is None else parse_tolerance(tolerance)
    found = expect(call, below)
    value = _given_busbw(call, busbw, algbw, time)
    return Answer(found, None if value is None else judge(found, value))


_WITHOUT = "--link or --nic alone, for hardware that no table has"


def _names() -> str:
    return ", ".join(gpu.name for gpu in load_gpus())


def _parse_link(text: str) -> Link:
    peak = parse_peak(text, "--link")
    if peak.source:
        return find_link(peak.name)
    return Link(peak.name, (), "the given link", peak.bytes_per_second, "accelerator", "", "")


def _given_busbw(
    call: Call, busbw: str | float | None, algbw: str | float | None, time: str | float | None
) -> float | None:
    """The bus bandwidth that one of the three options means, in bytes/s."""
    given = {"--busbw": busbw, "--algbw": algbw, "--time": time}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} say the same thing", "give one of them")
    if not names:
        return None
    value = given[names[0]]
    if isinstance(value, int | float):
        number = float(value)
    else:
        text = str(value)
        number = parse_time(text) if time is not None else _parse_bandwidth(text, names[0])
    if not 0 < number < 1e30:
        raise UsageError(f"{names[0]} is {value}", "write a number above 0 and below 1e30")
    if time is not None:
        if call.size_bytes is None:
            raise UsageError("--time needs the size of the message", "add --size, such as 1G")
        return call.size_bytes / number * call.factor
    return number * call.factor if algbw is not None else number


def _parse_bandwidth(text: str, option: str) -> float:
    """A bandwidth with a unit that has one meaning, in bytes/s."""
    peak = parse_peak(text, option, takes_links=False)
    if peak.is_per_node:
        hint = f"it is of one accelerator: write {text.strip().removesuffix('/node')}"
        raise UsageError(f"{option} {text!r} is the speed of a node", hint)
    return peak.bytes_per_second


def answer_text(found: Answer) -> str:
    """The answer for a terminal: the verdict, what to expect, the figures, the sources."""
    expectation, judgement = found
    call = expectation.call
    numbers: dict[str, int] = {}
    parts = []
    if judgement:
        parts.append(style(_fill(judgement_text(judgement)), _STYLES.get(judgement.verdict, BOLD)))
    parts.append(paragraphs([Paragraph(label, texts) for label, texts in _facts(expectation)]))
    if expectation.figures:
        parts.append("\n".join(_figure_lines(expectation, numbers)))
    if thresholds := find_thresholds(call):
        parts.append("\n".join(_threshold_lines(thresholds, numbers)))
    if expectation.bound and expectation.bound.source:
        numbers.setdefault(expectation.bound.source, len(numbers) + 1)
    if numbers:
        sources = [f"  {number}  {source}" for source, number in numbers.items()]
        parts.append("\n".join(["Sources:", *sources]))
    return "\n\n".join(parts)


def _fill(text: str) -> str:
    return fill(text, break_on_hyphens=False, break_long_words=False)


def _facts(found: Expectation) -> list[tuple[str, list[str]]]:
    call, bound = found.call, found.bound
    facts = [("call", [f"{call_text(call)}."])]
    if found.low is not None and found.high is not None:
        measured = measured_text(found)
        more = f"busbw {range_text(found.low, found.high)}. O{measured[1:]}."
        facts.append(("plausible", [more, *_networks_of_figures(found)]))
    elif found.high is not None:
        facts.append(("plausible", [_small_text(found)]))
    else:
        facts.append(("plausible", [_nothing_known(call)]))
    possible = f"At most {gbps(bound.busbw)} GB/s: {bound.text}." if bound else "Not known."
    if call.parts > 1 and not call.fabric.nics:
        possible += " Give --nic for the bound of a network."
    elif not bound:
        possible += " Give --link, the speed of an accelerator's links."
    facts.append(("possible", [possible]))
    if call.node_factor:
        facts.append(("network", [_network_text(found)]))
    elif call.fabric.nics and call.parts == 1:
        facts.append(("network", ["Nothing crosses the network."]))
    return facts


def _networks_of_figures(found: Expectation) -> list[str]:
    """That figures of others are of several networks, where none is given."""
    call = found.call
    if call.fabric.nics or call.parts == 1:
        return []
    names = dict.fromkeys(one.published.link for one in found.figures if one.busbw is not None)
    return [f"No network is given; the figures of {join_words(list(names))} count."]


def _nothing_known(call: Call) -> str:
    if call.fabric.gpu is None:
        return f"No accelerator is given, so no figures of others count. --gpu takes {_names()}."
    return f"Nothing comparable was published for {machine_text(call)}."


def _small_text(found: Expectation) -> str:
    size = f"{format_bytes(found.call.size_bytes)}" if found.call.size_bytes else "this size"
    top = max(figure.published.busbw for figure in found.figures)
    return (
        f"Nothing was published for {size}. With larger messages, others measured at most "
        f"{gbps(top)} GB/s."
    )


def _network_text(found: Expectation) -> str:
    """How the rates of a node and of an accelerator follow from the bus bandwidth."""
    call = found.call
    assert call.node_factor is not None
    share = call.node_factor * call.parts / call.ranks
    part = "node" if call.parts == call.nodes else "rack"
    plausible = ""
    if found.low is not None and found.high is not None:
        low, high = (end * call.node_factor for end in (found.low, found.high))
        plausible = f" ({range_text(low, high)})"
    return (
        f"In a hierarchical algorithm, data crosses the network once: each {part} sends busbw x "
        f"{call.node_factor:.4g}{plausible}, and each accelerator busbw x {share:.4g}. In a ring, "
        f"each {part} sends busbw."
    )


def _figure_lines(found: Expectation, numbers: dict[str, int]) -> list[str]:
    size, several = found.call.size_bytes, found.call.parts > 1
    rows = [
        (
            one.machine,
            str(one.nodes) if several else "",
            one.how,
            one.size,
            gbps(one.busbw),
            gbps(at_size) if size and at_size is not None else "",
            one.link,
            one.nccl,
            str(numbers.setdefault(one.source, len(numbers) + 1)),
        )
        for one, at_size in found.figures
    ]
    headings = (
        "measured\nby others", "nodes", "how", "size", "busbw\nGB/s",
        f"at\n{format_bytes(size or 0)}", "network" if several else "link", "NCCL", "",
    )  # fmt: skip
    return _table_of_filled(headings, rows)


def _threshold_lines(thresholds: list[Threshold], numbers: dict[str, int]) -> list[str]:
    rows = []
    for one in thresholds:
        judgement = judge_threshold(one)
        words = _THRESHOLD_WORDS[judgement.verdict]
        if judgement.verdict == IMPOSSIBLE and judgement.expectation.bound:
            words += f": at most {gbps(judgement.expectation.bound.busbw)}"
        rows.append(
            (
                one.who,
                gbps(one.low) if one.high is None else f"{gbps(one.low)}-{gbps(one.high)}",
                f"{one.ranks} on {one.nodes}" if one.nodes > 1 else str(one.ranks),
                (one.nic or "not known") if judgement.expectation.call.parts > 1 else "",
                words,
                str(numbers.setdefault(one.source, len(numbers) + 1)),
            )
        )
    ranks = "from ranks\non nodes" if thresholds[0].nodes > 1 else "from\nranks"
    headings = ("demanded\nby others", "busbw\nGB/s", ranks, "network", "this is", "")
    return _table_of_filled(headings, rows)


def _table_of_filled(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table without its empty columns."""
    kept = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    cells = [[row[i] for i in kept] for row in rows]
    return table([headings[i] for i in kept], cells, left=_LEFT)


_LEFT = "measured\nby others,demanded\nby others,how,link,network,NCCL,this is"


def answer_json(found: Answer) -> str:
    """Everything that is known as JSON; bandwidths in GB/s, null for what is not known."""
    expectation, judgement = found
    call, bound = expectation.call, expectation.bound
    fabric: Fabric = call.fabric
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "call": {
            "operation": call.operation,
            "gpu": fabric.gpu.name if fabric.gpu else None,
            "link": fabric.link.name if fabric.link else None,
            "nic": fabric.nics.name if fabric.nics else None,
            "ranks": call.ranks,
            "nodes": call.nodes,
            "size_bytes": call.size_bytes,
            "algorithm": call.algorithm or None,
            "nccl": call.nccl or None,
        },
        "plausible_busbw_GBps": [_number(expectation.low), _number(expectation.high)],
        "largest_busbw_GBps": _number(bound.busbw) if bound else None,
        "why_largest": bound.text if bound else None,
        "node_rate_over_busbw": call.node_factor,
        "figures": [
            {
                "machine": one.published.machine,
                "ranks": one.published.ranks,
                "nodes": one.published.nodes,
                "how": one.published.how,
                "size": one.published.size,
                "nccl": one.published.nccl,
                "link": one.published.link,
                "busbw_GBps": _number(one.published.busbw),
                "busbw_at_size_GBps": _number(one.busbw),
                "source": one.published.source,
            }
            for one in expectation.figures
        ],
        "thresholds": [
            {
                "who": one.who,
                "ranks": one.ranks,
                "nodes": one.nodes,
                "nic": one.nic or None,
                "busbw_GBps": [_number(one.low), _number(one.high)],
                "verdict": judge_threshold(one).verdict,
                "source": one.source,
            }
            for one in find_thresholds(call)
        ],
        "sources": list(expectation.sources),
        "judgement": judgement_json(judgement) if judgement else None,
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def judgement_json(judgement: Judgement) -> dict[str, Any]:
    """A judgement as JSON has it."""
    return {
        "busbw_GBps": _number(judgement.busbw),
        "verdict": judgement.verdict,
        "sentence": judgement_text(judgement),
        "mix_ups": [
            {"what": what, "busbw_GBps": _number(value)} for what, value in judgement.mix_ups
        ],
        "source": source_of(judgement),
    }


def _number(value: float | None) -> float | None:
    return None if value is None else round(value / GB, 6)


FORMATS = {"text": lambda found: f"{answer_text(found)}\n", "json": answer_json}
