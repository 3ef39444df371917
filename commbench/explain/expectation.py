"""What `commbench expect` answers: what to expect of a call, as data, as text and as JSON."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from commbench.analysis.expectation_text import (
    call_text,
    gbps,
    judgement_text,
    machine_text,
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
from commbench.output.paragraphs import Paragraph, fill, paragraphs
from commbench.output.table import BOLD, GREEN, RED, style, table
from commbench.spec.fabrics import Fabric, find_gpu, load_gpus, make_fabric, parse_nics
from commbench.spec.links import Link, Threshold, find_link, parse_peak
from commbench.spec.operations import DEFAULT_OPERATION, find_operation
from commbench.units import GB, format_bytes, parse_percentage, parse_size, parse_time
from commbench.validation import choose

SCHEMA = 1
"""Version of the JSON; raised when a field changes its meaning or goes."""
_THRESHOLD_WORDS = {
    PLAUSIBLE: "plausible", LOW: "below what others measured", UNKNOWN: "possible",
    HIGH: "above what others measured", IMPOSSIBLE: "impossible",
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
    model = find_gpu(gpu) if gpu else None
    if not gpu and not (nic or link):
        names = ", ".join(each.name for each in load_gpus())
        raise UsageError("no hardware is given", f"give --gpu, one of {names}; or --link or --nic")
    per_node = gpus_per_node or (4 if model and model.connects == 72 else 8)
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
    below = BELOW if tolerance is None else parse_percentage(str(tolerance), "--tolerance")
    if below >= 1:
        raise UsageError(f"--tolerance {tolerance} is not below 100 %", "write --tolerance 20%")
    found = expect(call, below)
    value = _given_busbw(call, busbw, algbw, time)
    return Answer(found, None if value is None else judge(found, value))


def _parse_link(text: str) -> Link:
    peak = parse_peak(text, "--link")
    if peak.source:
        return find_link(peak.name)
    return Link(peak.name, (), "the given link", peak.bytes_per_second, "accelerator", "", "--link")


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
        raise UsageError(f"{names[0]} is {value}", "write a number above 0")
    if time is not None:
        if call.size_bytes is None:
            raise UsageError("--time needs the size of the message", "add --size, such as 1G")
        return call.size_bytes / number * call.factor
    return number * call.factor if algbw is not None else number


def _parse_bandwidth(text: str, option: str) -> float:
    """A bandwidth with a unit that has one meaning, in bytes/s."""
    peak = parse_peak(text, option)
    if peak.source or peak.is_per_node:
        raise UsageError(f"{option} {text!r} is not a bandwidth", "write for example 430GB/s")
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
        more = f"busbw {range_text(found.low, found.high)}."
        if found.measured:
            more += f" Others measured {range_text(*found.measured)}."
        facts.append(("plausible", [more]))
    elif found.high is not None:
        facts.append(("plausible", [_small_text(found)]))
    else:
        facts.append(("plausible", [_nothing_known(call)]))
    possible = f"At most {gbps(bound.busbw)} GB/s: {bound.text}." if bound else ""
    facts.append(("possible", [possible or "No link is known."]))
    if call.node_factor:
        facts.append(("network", [_network_text(found)]))
    return facts


def _nothing_known(call: Call) -> str:
    if call.fabric.gpu is None:
        names = ", ".join(gpu.name for gpu in load_gpus())
        return f"Nothing is known of this accelerator. Known are {names}."
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
    text = (
        f"If data crosses it once, as in hierarchical algorithms, a node sends busbw x "
        f"{call.node_factor:.4g}, per accelerator busbw x {share:.4g}"
    )
    if found.low is not None and found.high is not None:
        low, high = (end * call.node_factor for end in (found.low, found.high))
        text += f": {range_text(low, high)} per node"
    return f"{text}. A ring sends busbw."


def _figure_lines(found: Expectation, numbers: dict[str, int]) -> list[str]:
    rows = []
    for figure in found.figures:
        one = figure.published
        rows.append(
            (
                one.machine,
                one.how,
                one.size,
                gbps(one.busbw),
                "" if figure.busbw is None else gbps(figure.busbw),
                one.link,
                one.nccl,
                str(numbers.setdefault(one.source, len(numbers) + 1)),
            )
        )
    size = found.call.size_bytes
    headings = (
        "measured by others", "how", "size", "busbw\nGB/s",
        f"at\n{format_bytes(size)}" if size else "", "link", "NCCL", "",
    )  # fmt: skip
    kept = [i for i in range(len(headings)) if i != 4 or size]
    return table(
        [headings[i] for i in kept],
        [tuple(row[i] for i in kept) for row in rows],
        left="measured by others,how,link,NCCL",
    )


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
                words,
                str(numbers.setdefault(one.source, len(numbers) + 1)),
            )
        )
    headings = ("demanded by others", "busbw\nGB/s", "ranks\nfrom", "this is", "")
    return table(headings, rows, left="demanded by others,this is")


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
