"""A row in sentences: each formula with the row's own figures in it; at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterator

from commbench.analysis.rows import ResultRow
from commbench.explain.peak_text import held_against
from commbench.output.paragraphs import Paragraph, exact, gbps, paragraphs, seconds, wrapped
from commbench.results.schema import CUT_OFF
from commbench.spec.dtypes import DTYPES
from commbench.spec.links import Peak
from commbench.spec.operations import IN_PLACE, OPERATIONS, Extent, Operation
from commbench.spec.timing_modes import describe_timing
from commbench.units import format_bytes, format_percent

_BUFFERS = {
    Extent.NOTHING: "nothing",
    Extent.BLOCK: "one block",
    Extent.WHOLE: "S",
    Extent.AT_ROOT: "S at the root (nothing elsewhere)",
}

_STOPS = {
    "precision": "the interval had become narrow enough",
    "budget": "the time for one case was used up before the interval became narrow enough",
    "cap": "there were as many iterations as a case may have",
    "fixed": "that is the number of iterations asked for",
    CUT_OFF: "the run ended before it was done",
}


def explain(row: ResultRow, peak: Peak | None = None, where: str = "") -> str:
    """Everything about a row; `where` says where it was measured, if it was."""
    case = row.measurement.case
    operation = OPERATIONS[case.operation]
    kind = case.title_without("timing")
    what = f"{kind}, {format_bytes(case.size_bytes)}" if case.dtype else kind
    nodes = f" of {row.header.num_nodes} nodes" if row.header.num_nodes > 1 else ""
    count = f"{case.ranks} rank{'s' if case.ranks > 1 else ''}"
    title = f"{what}, on {count}{nodes}: {operation.summary}"
    parts = [Paragraph("where", [where])] if where else []
    if case.dtype:
        parts.append(Paragraph("size", [*_size(row, operation)]))
    parts.append(Paragraph("time", [*_time(row)]))
    if row.time:
        parts += _bandwidths(row, operation)
        parts.append(Paragraph("latency", [_latency(operation, case.ranks)]))
        parts.append(Paragraph("peak", [*held_against(row, peak)]))
    return "\n\n".join((wrapped(title), paragraphs(parts)))


def _size(row: ResultRow, operation: Operation) -> Iterator[str]:
    case, ranks = row.measurement.case, row.measurement.case.ranks
    yield (
        f"S = {exact(case.size_bytes)} bytes: the larger of what one rank's call sends and "
        "receives, as nccl-tests prints it."
    )
    elements = f"{exact(case.count)} elements of {case.dtype} (count)"
    if operation.blocks:
        block = f"S/n = {exact(case.size_bytes)}/{ranks} = {exact(case.block_bytes)} bytes"
        yield f"It is cut into n = {ranks} blocks, one per rank: {block}, {elements}."
    else:
        yield f"It is one tensor: {elements}."
    sent, received = _BUFFERS[operation.send], _BUFFERS[operation.receive]
    place = "; in place, they share memory" if case.placement == IN_PLACE else ""
    yield f"A rank's send buffer holds {sent}, its receive buffer {received}{place}."
    asked = [size for size in row.header.plan.sizes if is_of_size(row, size)]
    if asked and min(asked) != case.size_bytes:
        whole = f"{ranks} whole blocks" if operation.blocks else "whole elements"
        yield f"{exact(min(asked))} bytes were asked for, and rounded down to {whole}."


def _time(row: ResultRow) -> Iterator[str]:
    measurement, time = row.measurement, row.time
    timing = measurement.case.timing
    if time is None:
        yield f"Nothing was timed. The case is {measurement.status}: {measurement.reason}"
        return
    yield f"t = {seconds(time.median)}, {timing}: {describe_timing(timing).explanation}"
    if measurement.stop_reason:
        yield f"There were {time.iterations} iterations. {_interval(row)}"
        why = _STOPS.get(measurement.stop_reason, measurement.stop_reason)
        yield f"Sampling stopped ({measurement.stop_reason}) because {why}."
    if measurement.wrong:
        yield f"{exact(measurement.wrong)} elements of the result were wrong: trust nothing here."


def _interval(row: ResultRow) -> str:
    time = row.time
    if time is None or time.low is None or time.high is None:
        return "That is too few for an interval of the median."
    within = "" if time.precision is None else f" (± {format_percent(time.precision)})"
    return (
        f"The 95 % interval of the median is {seconds(time.low)} to {seconds(time.high)}{within}."
    )


def _bandwidths(row: ResultRow, operation: Operation) -> Iterator[Paragraph]:
    factor_of, case, ranks = (
        operation.busbw_factor,
        row.measurement.case,
        row.measurement.case.ranks,
    )
    algbw, busbw = row.algbw, row.busbw
    if factor_of is None or algbw is None or busbw is None or row.time is None:
        moved = "It has" if operation.has_data else "It moves no data, and has"
        yield Paragraph("busbw", [f"{moved} no bandwidth: the time is all there is."])
        return
    factor = factor_of(ranks)
    formula, filled = operation.busbw_formula, operation.busbw_formula.replace("n", str(ranks))
    product = f"{gbps(algbw)} x {factor:.5g} = {gbps(busbw)} GB/s"
    steps = f"algbw x {formula} = {gbps(algbw)} x {filled} = {product}"
    yield Paragraph(
        "algbw",
        [
            f"S / t = {exact(case.size_bytes)} B / {seconds(row.time.median)} = {gbps(algbw)} GB/s "
            "(1 GB is 10⁹ bytes)",
            "How fast a call gets its data done; not the speed of any link.",
        ],
    )
    yield Paragraph(
        "busbw", [steps if formula != "1" else f"algbw x 1 = {gbps(busbw)} GB/s", _why(row)]
    )


def _why(row: ResultRow) -> str:
    operation = OPERATIONS[row.measurement.case.operation]
    ranks = row.measurement.case.ranks
    if ranks == 1 or operation.busbw_factor is None:
        return "With one rank nothing crosses a link, so there is nothing to compare."
    factor, size = operation.busbw_factor(ranks), row.measurement.case.size_bytes
    times = "" if operation.busbw_formula == "1" else f"{operation.busbw_formula} x "
    unless = ", unless the network itself reduces" if operation.reduces and factor > 1 else ""
    return (
        f"Why: {times}S = {exact(factor * size)} bytes have to pass some rank's link one way, "
        f"whichever algorithm runs{unless}. busbw is the least speed that link had. So it can be "
        "held against the link's own speed, and compared between numbers of ranks; algbw cannot."
    )


def is_of_size(row: ResultRow, asked: int) -> bool:
    """Whether the row's size is what `asked` bytes become, rounded down to whole blocks.

    Blocks are whole elements, or as in nccl-tests multiples of 16 bytes.
    """
    case = row.measurement.case
    if not case.dtype:
        return False
    element, ranks = DTYPES[case.dtype].size_bytes, case.ranks
    step = ranks * max(element, 16) if OPERATIONS[case.operation].blocks else element
    return 0 <= asked - case.size_bytes < step


def _latency(operation: Operation, ranks: int) -> str:
    fewest = operation.fewest_messages(ranks)
    if not fewest:
        return "With one rank there is no message to wait for."
    how = f"ceil(log2 n) = ceil(log2 {ranks}) = " if operation.log_depth else ""
    plural = "messages have" if fewest > 1 else "message has"
    small = " Small sizes wait for that, and their bandwidth says nothing of a link."
    return (
        f"At least {how}{fewest} {plural} to follow one another, however few the bytes."
        f"{small if operation.has_data else ''}"
    )
