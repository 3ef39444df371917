"""Explains one row: each formula with the row's own figures, in lines of at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterator

from commbench.analysis.peak import (
    NODE_BOUND,
    PeakFraction,
    find_peak_fraction,
    why_no_peak_fraction,
)
from commbench.analysis.rows import ResultRow
from commbench.output.paragraphs import Paragraph, exact, gbps, paragraphs, seconds, wrapped
from commbench.results.schema import CUT_OFF
from commbench.spec.dtypes import DTYPES
from commbench.spec.links import Peak
from commbench.spec.operations import IN_PLACE, OPERATIONS, Extent, Operation
from commbench.spec.timing_modes import describe_timing
from commbench.units import format_bytes, format_percent

_ROUNDING = 0.005
"""A fraction of a peak up to 1 + this is printed as 100 %."""

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


def explain_row(row: ResultRow, peak: Peak | None = None, where: str = "") -> str:
    """Everything about a row; `where` describes where it was measured, if it was."""
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
        parts.append(Paragraph("peak", [*_peak(row, peak)]))
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
    requested = [size for size in row.header.plan.sizes if is_of_size(row, size)]
    if requested and min(requested) != case.size_bytes:
        whole = f"{ranks} whole blocks" if operation.blocks else "whole elements"
        yield f"{exact(min(requested))} bytes were asked for, and rounded down to {whole}."


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
    factor_of, case = operation.busbw_factor, row.measurement.case
    algbw, busbw = row.algbw, row.busbw
    if factor_of is None or algbw is None or busbw is None or row.time is None:
        moved = "It has" if operation.has_data else "It moves no data, and has"
        yield Paragraph("busbw", [f"{moved} no bandwidth: the time is all there is."])
        return
    factor = factor_of(case.ranks)
    formula = operation.busbw_formula
    filled = formula.replace("n", str(case.ranks))
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
        "busbw", [steps if formula != "1" else f"algbw x 1 = {gbps(busbw)} GB/s", _why_busbw(row)]
    )


def _why_busbw(row: ResultRow) -> str:
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


def _peak(row: ResultRow, peak: Peak | None) -> Iterator[str]:
    """The fraction of the peak that a row needed, its bound, and why it may exceed 100 %."""
    if peak is None:
        yield "None given. --peak 450GB/s, or a link of `commbench links`, holds busbw against it."
        return
    yield f"{peak.text}.{f' `commbench links {peak.name}` says more.' if peak.source else ''}"
    found = find_peak_fraction(row, peak)
    if found is None:
        yield f"There is no percentage: {why_no_peak_fraction(row, peak)}."
        return
    yield _peak_fraction(row, peak, found)
    least = found.factor * row.measurement.case.size_bytes
    median = row.time.median if row.time else 0.0
    yield (
        f"Those bytes take {exact(least)} B / {gbps(peak.bytes_per_second)} GB/s = "
        f"{seconds(least / peak.bytes_per_second)} at that speed; t is {seconds(median)}."
    )
    if found.fraction > 1 + _ROUNDING:
        yield _above_peak(row, peak, found)


def _peak_fraction(row: ResultRow, peak: Peak, found: PeakFraction) -> str:
    percent = (
        f"{gbps(found.rate)} / {gbps(peak.bytes_per_second)} = {format_percent(found.fraction)}"
    )
    if found.bound != NODE_BOUND:
        return f"busbw / peak = {percent}, by the {found.bound} bound: some link carried busbw."
    nodes = row.header.num_nodes
    unless = ", unless the network itself reduces" if found.ceiling > 1 else ""
    return (
        f"{found.factor:.5g} x S have to enter or leave some of the {nodes} nodes, whichever "
        f"algorithm runs{unless}. {found.factor:.5g} x algbw / peak = {percent}, by the "
        f"{found.bound} bound."
    )


def _above_peak(row: ResultRow, peak: Peak, found: PeakFraction) -> str:
    if found.ceiling > 1 and found.fraction <= found.ceiling + _ROUNDING:
        return (
            "More than 100 % is no error here. A network that itself reduces (NVLS, SHARP) moves "
            f"about S each way, not {found.factor:.5g} x S, so that {found.ceiling:.5g} times the "
            "peak is the limit. Of that limit it is algbw / peak = "
            f"{format_percent(found.fraction / found.ceiling)}."
        )
    nodes = row.header.num_nodes
    inside = (
        " Or the peak is of the network between nodes, while most bytes stay within a node: then "
        "say what a whole node has, such as --peak 400GB/s/node."
        if nodes > 1 and not peak.is_per_node
        else ""
    )
    return (
        "More than 100 % cannot be. Is the peak that of one link among several, or of another "
        f"link? Or is t not the time of the whole call?{inside}"
    )


def is_of_size(row: ResultRow, requested: int) -> bool:
    """Whether the row's size is `requested` bytes rounded down to whole blocks.

    Blocks are whole elements, or as in nccl-tests multiples of 16 bytes.
    """
    case = row.measurement.case
    if not case.dtype:
        return False
    element, ranks = DTYPES[case.dtype].size_bytes, case.ranks
    step = ranks * max(element, 16) if OPERATIONS[case.operation].blocks else element
    return 0 <= requested - case.size_bytes < step


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
