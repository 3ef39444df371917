"""Explains one row: each formula with the figures of the row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from commbench.analysis.expectation_text import row_text
from commbench.analysis.peak import (
    NODE_BOUND,
    PeakFraction,
    find_peak_fraction,
    why_no_peak_fraction,
)
from commbench.analysis.rows import ResultRow
from commbench.analysis.run_expectations import RowJudgement, judge_row
from commbench.output.paragraphs import Paragraph, exact, gbps, paragraphs, seconds, wrapped
from commbench.results.schema import CUT_OFF
from commbench.spec.call_forms import DIRECT, choose_forms, size_step
from commbench.spec.case import Load
from commbench.spec.computations import AT_ONCE, COMMUNICATION, COMPUTATION
from commbench.spec.dtypes import DTYPES
from commbench.spec.links import Peak
from commbench.spec.operations import IN_PLACE, OPERATIONS, Extent, Operation
from commbench.spec.timing_modes import describe_timing
from commbench.units import format_bytes, format_count, format_known_time, format_percent

_ROUNDING = 0.005
"""A fraction of a peak up to 1 + this is printed as 100 %."""

_BUFFERS = {
    Extent.NOTHING: "holds nothing",
    Extent.BLOCK: "holds one block",
    Extent.WHOLE: "holds S",
    Extent.AT_ROOT: "holds S on the root and nothing on other ranks",
}

_STOPS = {
    "precision": "the interval was narrow enough",
    "budget": "the time for one case was used up before the interval was narrow enough",
    "cap": "a case has no more iterations than this",
    "fixed": "this number of iterations was requested",
    "looked": "a quick search did not choose it after its first look",
    CUT_OFF: "the run ended before the case was finished",
}


def explain_row(
    row: ResultRow, peak: Peak | None = None, where: str = "", why: Sequence[str] = (),
    step: Sequence[str] = (),
) -> str:  # fmt: skip
    """Everything about a row; `where` describes where it was measured, if it was, `why` what bounds
    it (explain.why), and `step` the step of a workload that it is."""
    case = row.measurement.case
    operation = OPERATIONS[case.operation]
    kind = case.title_without("timing")
    what = f"{kind}, {format_bytes(case.size_bytes)}" if case.dtype else kind
    nodes = f" of {row.header.num_nodes} nodes" if row.header.num_nodes > 1 else ""
    count = format_count(case.ranks, "rank")
    title = f"{what}, on {count}{nodes}: {operation.summary}"
    parts = [Paragraph("where", [where])] if where else []
    if case.dtype:
        parts.append(Paragraph("size", [*_size(row, operation)]))
    if step:
        parts.append(Paragraph("step", step))
    parts.append(Paragraph("time", [*_time(row)]))
    if case.part:
        parts.append(Paragraph("overlap", [*_overlap(row)]))
    if row.time and (case.has_bandwidth or not case.part) and not case.step:
        parts += _bandwidths(row, operation)
        if not operation.registers:
            parts.append(Paragraph("latency", [_latency(operation, case.ranks)]))
        if why:
            parts.append(Paragraph("why", why))
        parts.append(Paragraph("peak", [*_peak(row, peak)]))
        if found := judge_row(row):
            parts.append(Paragraph("others", [row_text(RowJudgement(row, found))]))
    if row.nccl_selection[0]:
        algorithm, protocol, channels = row.nccl_selection
        text = f"In a call of its own, which was not timed, it selected {algorithm} {protocol}"
        parts.append(Paragraph("NCCL", [text + (f", channels: {channels}." if channels else ".")]))
    return "\n\n".join((wrapped(title), paragraphs(parts)))


def _size(row: ResultRow, operation: Operation) -> Iterator[str]:
    case, ranks = row.measurement.case, row.measurement.case.ranks
    if operation.registers:
        yield f"S = {exact(case.size_bytes)} bytes, which each rank allocates and registers."
        return
    yield (
        f"S = {exact(case.size_bytes)} bytes. This is the larger of what one rank sends and what "
        "it receives in a call, as in nccl-tests."
    )
    noun = "element" if case.count == 1 else "elements"
    elements = f"{exact(case.count)} {noun} of {case.dtype} (count)"
    if operation.block_counts:
        yield f"It consists of n = {ranks} blocks of {elements} on average ({case.imbalance})."
    elif operation.blocks:
        block = f"S/n = {exact(case.size_bytes)}/{ranks} = {exact(case.block_bytes)} bytes"
        yield f"It consists of n = {ranks} blocks, one per rank. A block has {block}: {elements}."
    else:
        yield f"It {'is one tensor of' if case.num_tensors == 1 else 'has'} {elements}."
    yield from _form(row)
    sent, received = _BUFFERS[operation.send], _BUFFERS[operation.receive]
    place = " Both are the same memory (in place)." if case.placement == IN_PLACE else ""
    yield f"The send buffer of a rank {sent}. Its receive buffer {received}.{place}"
    requested = [size for size in row.header.plan.sizes if is_of_size(row, size)]
    if requested and min(requested) != case.size_bytes:
        whole = f"{ranks} whole blocks" if operation.blocks else "whole elements"
        yield f"{exact(min(requested))} bytes were requested. They were rounded down to {whole}."


def _form(row: ResultRow) -> Iterator[str]:
    """Into what S is cut, and by which calls it moves, where that is not one call of one tensor."""
    case = row.measurement.case
    if case.num_tensors > 1:
        how = "" if case.tensors.isdigit() else f", cut as {case.tensors}"
        many = format_count(case.num_tensors, "tensor")
        own = "They are one here" if case.call_form.is_reference else "Each has its own memory"
        yield f"These are the bytes of {many}{how}. {own}."
    if case.form != DIRECT:
        yield f"The form of the call is {case.form}: {case.call_form.summary}."
    if row.form_ratio:
        yield f"It takes {row.form_ratio:.3g} times as long as one direct call of S bytes."


def _overlap(row: ResultRow) -> Iterator[str]:
    """What a part of an overlap is, and the formulas of both with their figures."""
    batches = row.measurement.batches
    work = f" ({batches[-1].work})" if batches and batches[-1].work else ""
    yield {
        COMMUNICATION: "The call was started with async_op=True and waited for at once.",
        COMPUTATION: f"This is the computation alone{work}. Nothing was communicated.",
        AT_ONCE: "The call was started with async_op=True. Then the rank computed"
        f"{work}, and then it waited for the call.",
    }[row.measurement.case.part]
    if not (row.overlap and row.parts and row.time):
        return
    a, b = (part.time.median if part.time else 0.0 for part in row.parts)
    t, found = row.time.median, row.overlap
    yield (
        f"Alone, the communication takes a = {seconds(a)}, and the computation b = {seconds(b)}. "
        f"Hidden share: (a + b - t) / min(a, b), from 0 to 1 = {100 * found.hidden.value:.1f} %. "
        f"Gain: (a + b) / t = {found.gain.value:.3g}."
    )
    slower = f"The computation took {100 * found.computation_slowdown.value:.1f} % longer than b"
    if found.communication_slowdown:
        slower += f", the communication {100 * found.communication_slowdown.value:.1f} % than a"
    yield f"{slower}. t = {seconds(t)} is the time until both had ended."


def _time(row: ResultRow) -> Iterator[str]:
    measurement, time = row.measurement, row.time
    timing = measurement.case.timing
    if time is None:
        yield f"This case was not timed. It is {measurement.outcome}"
        return
    if row.header.label:
        yield f"t = {seconds(time.median)} ({timing}). {describe_time(row)}"
    else:  # a call that the user quotes
        what = describe_timing(timing).summary
        yield f"t = {seconds(time.median)}, taken as {timing} (see --timing): {what}."
    operation = OPERATIONS[measurement.case.operation]
    if operation.part != "call":
        number = measurement.case.parts
        yield f"It is the time of {operation.part}: that of a call over {number}."
    if row.stop_reason:
        were = "was" if time.iterations == 1 else "were"
        yield f"There {were} {count_iterations(time.iterations)}. {_interval(row)}"
        why = _STOPS.get(row.stop_reason, row.stop_reason)
        yield f"Sampling stopped ({row.stop_reason}): {why}."
    if measurement.wrong:
        wrong = "element is" if measurement.wrong == 1 else "elements are"
        yield f"{exact(measurement.wrong)} {wrong} wrong in the results: do not use this time."


def describe_time(row: ResultRow) -> str:
    """What the time of a row is: by its timing mode, or as another tool defines it."""
    reported = row.measurement.reported
    if reported is None:
        return describe_timing(row.measurement.case.timing).explanation
    tool = row.header.environment.get("tool") or "another tool"
    statistic = reported.statistic[:1].upper() + reported.statistic[1:]
    return f"{statistic}, as printed by {tool}. The samples are unknown."


def count_iterations(number: int) -> str:
    """`1 iteration`, `5 iterations`."""
    return f"{exact(number)} iteration{'s' * (number != 1)}"


def _interval(row: ResultRow) -> str:
    time = row.time
    if time is None or time.low is None or time.high is None:
        return "An interval of the median needs more."
    _, ends = format_known_time(time.median, time.low, time.high)
    return f"The 95 % interval of the median is {ends}."


def _bandwidths(row: ResultRow, operation: Operation) -> Iterator[Paragraph]:
    case = row.measurement.case
    factor = case.busbw_factor
    algbw, busbw = row.algbw, row.busbw
    if factor is None or algbw is None or busbw is None or row.time is None:
        why = "" if operation.has_data else "The operation moves no data. "
        yield Paragraph("busbw", [f"{why}It has a time, but no bandwidth."])
        return
    formula = operation.busbw_formula
    filled = formula.replace("n", str(case.ranks))
    product = f"{gbps(algbw)} x {factor:.5g} = {gbps(busbw)} GB/s"
    steps = f"algbw x {formula} = {gbps(algbw)} x {filled} = {product}"
    yield Paragraph(
        "algbw",
        [
            f"S / t = {exact(case.size_bytes)} B / {seconds(row.time.median)} = {gbps(algbw)} GB/s "
            "(1 GB is 10⁹ bytes)",
            "This is how fast one call moves its data. It is not the speed of a link.",
        ],
    )
    yield Paragraph(
        "busbw", [steps if formula != "1" else f"algbw x 1 = {gbps(busbw)} GB/s", _why_busbw(row)]
    )


def _why_busbw(row: ResultRow) -> str:
    operation = OPERATIONS[row.measurement.case.operation]
    ranks = row.measurement.case.ranks
    factor = row.measurement.case.busbw_factor
    if ranks == 1 or factor is None:
        return "With one rank no data crosses a link, so there is nothing to compare."
    size = row.measurement.case.size_bytes
    if row.load:
        return _why_unequal_busbw(row, row.load)
    times = "" if operation.busbw_formula == "1" else f"{operation.busbw_formula} x "
    return (
        f"With any algorithm, {times}S = {exact(factor * size)} bytes must cross the link of some "
        f"rank in one direction{_unless_reduced(operation, factor)}. So that link carried at least "
        "busbw. Compare busbw, not algbw, with the speed of a link, and between different numbers "
        "of ranks."
    )


def _why_unequal_busbw(row: ResultRow, load: Load) -> str:
    size = row.measurement.case.size_bytes
    which = "every rank" if load.worst_rank is None else f"rank {load.worst_rank}"
    return (
        f"The blocks that {which} has to send or to receive, without the one that it keeps, are "
        f"{exact(round(load.worst_link * size))} bytes = {load.worst_link:.5g} x S. They must "
        "cross its link in one direction, so that link carried at least busbw (wire_GBps). With "
        f"the block that a rank keeps, the most is {load.largest:.5g} x S, and logical_GBps is "
        f"{gbps(row.logical_bandwidth or 0.0)}. The most sent is {load.sent:.5g} times the mean, "
        f"the most received {load.received:.5g} times."
    )


def _unless_reduced(operation: Operation, factor: float) -> str:
    reduces = operation.reduces and factor > 1
    return ", except where the network itself reduces (NVLS, SHARP)" if reduces else ""


def _peak(row: ResultRow, peak: Peak | None) -> Iterator[str]:
    """The fraction of the peak that a row needed, its bound, and why it may exceed 100 %."""
    if peak is None:
        yield (
            "None was given. --peak compares busbw with a speed such as 450GB/s, or with a link of "
            "`commbench links`."
        )
        return
    yield f"{peak.text}.{f' See `commbench links {peak.name}`.' if peak.source else ''}"
    found = find_peak_fraction(row, peak)
    if found is None:
        yield f"There is no percentage: {why_no_peak_fraction(row, peak)}."
        return
    yield _peak_fraction(row, peak, found)
    least = found.factor * row.measurement.case.size_bytes
    median = row.time.median if row.time else 0.0
    yield (
        f"At this speed the bytes take {exact(least)} B / {gbps(peak.bytes_per_second)} GB/s = "
        f"{seconds(least / peak.bytes_per_second)}; t is {seconds(median)}."
    )
    if found.fraction > 1 + _ROUNDING:
        yield _above_peak(row, peak, found)


def _peak_fraction(row: ResultRow, peak: Peak, found: PeakFraction) -> str:
    percent = (
        f"{gbps(found.rate)} / {gbps(peak.bytes_per_second)} = {format_percent(found.fraction)}"
    )
    if found.bound != NODE_BOUND:
        return f"busbw / peak = {percent} (the {found.bound} bound: some link carried busbw)."
    operation = OPERATIONS[row.measurement.case.operation]
    return (
        f"With any algorithm, {found.factor:.5g} x S must enter or leave some of the "
        f"{row.header.num_nodes} nodes{_unless_reduced(operation, found.ceiling)}. "
        f"{found.factor:.5g} x algbw / peak = {percent} (the {found.bound} bound)."
    )


def _above_peak(row: ResultRow, peak: Peak, found: PeakFraction) -> str:
    if found.ceiling > 1 and found.fraction <= found.ceiling + _ROUNDING:
        return (
            "More than 100 % is possible here. A network that itself reduces (NVLS, SHARP) moves "
            f"about S in each direction instead of {found.factor:.5g} x S, so the limit is "
            f"{found.ceiling:.5g} times the peak. Of this limit the call reached algbw / peak = "
            f"{format_percent(found.fraction / found.ceiling)}."
        )
    inside = (
        " Or the peak is that of the network between nodes, while most bytes stay within a node: "
        "then give the speed of a whole node, such as --peak 400GB/s/node."
        if row.header.num_nodes > 1 and not peak.is_per_node
        else ""
    )
    return (
        "More than 100 % is impossible. Perhaps the peak is that of one link of several, or of "
        f"another link. Or t is not the time of the whole call.{inside}"
    )


def is_of_size(row: ResultRow, requested: int) -> bool:
    """Whether the row's size is `requested` bytes rounded down to whole blocks of each tensor.

    Blocks are whole elements, or as in nccl-tests multiples of 16 bytes.
    """
    case = row.measurement.case
    if not case.dtype:
        return False
    element, operation = DTYPES[case.dtype].size_bytes, OPERATIONS[case.operation]
    step = case.ranks * max(element, 16) if operation.blocks else element
    forms = choose_forms(row.header.plan.forms, operation, case.tensors)
    step *= size_step(operation, forms, case.tensors, case.ranks)
    return 0 <= requested - case.size_bytes < step


def _latency(operation: Operation, ranks: int) -> str:
    fewest = operation.fewest_messages(ranks)
    if ranks == 1:
        return "With one rank no message is sent."
    if not fewest:
        return "The messages do not wait for one another, so t can be less than the latency of one."
    formula = operation.messages
    how = f"{formula} = {formula.replace('n', str(ranks))} = " if "n" in formula else ""
    least = "Even for the smallest S at least" if operation.has_data else "At least"
    needed = "1 message must be sent."
    if fewest > 1:
        needed = f"{fewest} messages must be sent one after another."
    small = (
        " At small sizes this is most of the time, so the bandwidth there says little about a link."
    )
    return f"{least} {how}{needed}{small if operation.has_data else ''}"
