"""The facts about a row: what each is, its value, and how it is computed.

Values have five digits, so that products can be checked by hand. A fact whose value is None or
empty is left out: then it is not known, or it has no meaning for this row.
"""

from __future__ import annotations

from typing import Any

from commbench.analysis.peak import NODE_BOUND, why_no_peak_fraction
from commbench.expect.document import row_text
from commbench.expect.rows import RowJudgement
from commbench.explain.explanation import RowExplanation
from commbench.explain.why import Larger
from commbench.output.paragraphs import exact, gbps, list_some, seconds
from commbench.output.table import clean
from commbench.results.schema import CUT_OFF
from commbench.spec.call_forms import DIRECT
from commbench.spec.computations import AT_ONCE, COMMUNICATION, COMPUTATION
from commbench.spec.operations import IN_PLACE, OPERATIONS, Extent, Operation
from commbench.spec.timing_modes import describe_timing
from commbench.spec.workload_variants import BUCKET, VARIANTS
from commbench.stats.estimate import Estimate
from commbench.units import format_about, format_bytes, format_percent, format_share
from commbench.views.cells import (
    in_brackets,
    ratio_interval_text,
    ratio_text,
    time_interval_text,
    time_text,
)

Facts = list[tuple[str, Any, str]]
_ROUNDING = 0.005
"""A fraction of a peak up to 1 + this is printed as 100 %."""
_EXTENTS = {
    Extent.NOTHING: "nothing",
    Extent.BLOCK: "one block",
    Extent.WHOLE: "S",
    Extent.AT_ROOT: "S on the root and nothing elsewhere",
}
_STOPS = {
    "precision": "the interval was narrow enough",
    "budget": "the time for one case was used up before the interval was narrow enough",
    "cap": "a case has no more iterations than this",
    "fixed": "this number of iterations was requested",
    "looked": "a quick search did not choose it after its first look",
    CUT_OFF: "the run ended before the case was finished",
}
_PARTS = {
    COMMUNICATION: "the call was started with async_op=True and waited for at once",
    COMPUTATION: "the computation alone; nothing was communicated",
    AT_ONCE: "the call was started with async_op=True; the rank computed, and then waited for it",
}


def row_facts(found: RowExplanation) -> Facts:
    """All that is known about a row."""
    case = found.row.measurement.case
    facts = _size(found) + _step(found) + _time(found) + _overlap(found)
    if found.row.time and not case.step and (case.has_bandwidth or not case.part):
        facts += _bandwidth(found) + _why(found) + _peak(found) + _others(found)
    return [fact for fact in facts if fact[1]]


def _size(found: RowExplanation) -> Facts:
    row, case = found.row, found.row.measurement.case
    operation, asked, size = (
        OPERATIONS[case.operation],
        found.requested_bytes,
        exact(case.size_bytes),
    )
    what = "the larger of what a rank sends and what it receives in a call, as in nccl-tests"
    if not case.dtype:
        return []
    if operation.registers:
        return [("size S", f"{size} bytes", "each rank allocates and registers them")]
    elements = "of the tensor"
    if operation.block_counts:
        elements = f"of a block on average; n = {case.ranks} blocks ({case.imbalance})"
    elif operation.blocks:
        elements = f"of a block; S / n = {size} / {case.ranks} = {exact(case.block_bytes)} bytes"
    cut = "" if case.tensors.isdigit() else f", cut as {case.tensors}"
    memory = "as one here" if case.call_form.is_reference else "each with its own memory"
    same = " in the same memory" if case.placement == IN_PLACE else ""
    extents = f"a rank sends {_EXTENTS[operation.send]}, receives {_EXTENTS[operation.receive]}"
    return [
        ("size S", f"{size} bytes", what),
        ("asked for", asked and f"{exact(asked)} bytes", "rounded down to whole blocks, elements"),
        ("count", f"{exact(case.count)} {case.dtype}", elements),
        ("tensors", case.num_tensors > 1 and str(case.num_tensors), f"{memory}{cut}"),
        ("form of the call", case.form != DIRECT and case.form, case.call_form.summary),
        ("over a direct call", row.form_ratio and f"{row.form_ratio:.3g}", "of the same bytes"),
        ("buffers", case.placement, f"{extents}{same}"),
    ]


def _step(found: RowExplanation) -> Facts:
    case, time, step = found.row.measurement.case, found.row.time, found.step
    if step is None:
        return []
    name, _, size = case.variant.partition(":")
    what = VARIANTS[name]
    if name == BUCKET:
        what = what.partition(": ")[2].replace("SIZE bytes", size)
    calls = list_some([f"{number} {call}" for call, number in step.calls.items()], 6)
    total = f"{sum(step.calls.values())} of {format_about(step.size_bytes)}"
    alone, own = step.alone_s, step.over_own
    over = f"{time.median / (alone + step.computing_s):.2f}" if time and alone else ""
    own_text = own and f"{ratio_text(own)}{in_brackets(ratio_interval_text(own))}"
    return [
        ("step", clean(case.step), f"of the workload {clean(step.workload)}"),
        ("variant", case.variant, what),
        ("calls", total, f"of rank {step.rank}: {clean(calls)}"),
        ("calls one by one", alone and time_text(alone), "these calls, each measured alone"),
        ("computing", step.computing_s and time_text(step.computing_s), "between its calls"),
        ("t over the sum", over, "t / (calls one by one + computing)"),
        ("t over its own", own_text, "t / time of the step with its own calls"),
        ("in the trace", step.traced_s and time_text(step.traced_s), "time of the step"),
    ]


def _time(found: RowExplanation) -> Facts:
    row, time, measurement = found.row, found.row.time, found.row.measurement
    if time is None:
        return [("not timed", measurement.status, measurement.outcome)]
    case, mode, stop = measurement.case, describe_timing(measurement.case.timing), row.stop_reason
    part, wrong, count = OPERATIONS[case.operation].part, measurement.wrong, exact(time.iterations)
    how = measurement.reported.statistic if measurement.reported else mode.summary
    ends = time_interval_text(time.estimate) or "needs more iterations"
    return [
        ("time t", seconds(time.median), f"{mode.name}: {how}"),
        ("t is of", part != "call" and part, f"the time of a call / {case.parts}"),
        ("95 % interval", stop and ends, f"of the median; iterations: {count}"),
        ("sampling stopped", stop, _STOPS.get(stop, stop)),
        ("wrong elements", wrong and exact(wrong), "do not use this time"),
    ]


def _overlap(found: RowExplanation) -> Facts:
    row, part, batches = found.row, found.row.measurement.case.part, found.row.measurement.batches
    facts: Facts = [
        ("part", part, _PARTS.get(part, "")),
        ("computation", part and batches and batches[-1].work, "what each rank computes"),
    ]
    both = row.overlap
    if not (both and row.parts):
        return facts
    a, b = (each.time and seconds(each.time.median) for each in row.parts)
    slower = both.communication_slowdown
    return [
        *facts,
        ("communication a", a, "alone"),
        ("computation b", b, "alone"),
        ("hidden share", f"{100 * both.hidden.value:.1f} %", "(a + b - t) / min(a, b), 0 to 1"),
        ("gain", f"{both.gain.value:.3g}", "(a + b) / t; t: until both had ended"),
        ("a takes longer by", slower and f"{100 * slower.value:.1f} %", "beside the computation"),
        ("b takes longer by", f"{100 * both.computation_slowdown.value:.1f} %", "beside the call"),
    ]


def _bandwidth(found: RowExplanation) -> Facts:
    row, case, load = found.row, found.row.measurement.case, found.row.load
    operation, factor = OPERATIONS[case.operation], case.busbw_factor
    formula, n = operation.busbw_formula, str(case.ranks)
    least = operation.fewest_messages(case.ranks)
    messages = operation.messages.replace("n", n) if "n" in operation.messages else ""
    facts: Facts = [
        ("messages in a row", not operation.registers and f"at least {least}",
         f"{operation.messages} = {messages}, even for the smallest S" if messages else ""),
    ]  # fmt: skip
    if factor is None or row.algbw is None or row.busbw is None or row.time is None:
        none = "it has a time, but no bandwidth"
        return [
            ("bandwidth", "none", none if operation.has_data else f"it moves no data: {none}"),
            *facts,
        ]
    time, size, algbw = seconds(row.time.median), exact(case.size_bytes), gbps(row.algbw)
    filled = formula.replace("n", n) if not load else f"{factor:.5g}"
    must = f"{formula} x S, one way, with any algorithm{_unless_reduced(operation, factor)}"
    if load:
        worst = "every rank" if load.worst_rank is None else f"rank {load.worst_rank}"
        must = f"{load.worst_link:.5g} x S, of {worst}, without the block that it keeps"
    facts = [
        ("algbw", f"{algbw} GB/s", f"S / t = {size} B / {time}; not the speed of a link"),
        ("busbw", f"{gbps(row.busbw)} GB/s",
         f"algbw x {formula} = {algbw} x {filled} = {algbw} x {factor:.5g}; compare it with links"),
        ("on some link", case.ranks > 1 and f"{exact(factor * case.size_bytes)} bytes", must),
        *facts,
    ]  # fmt: skip
    if load:
        most = f"{load.largest:.5g} x S / t, with the block that a rank keeps"
        facts += [
            ("logical_GBps", gbps(row.logical_bandwidth or 0.0), most),
            ("most sent", f"{load.sent:.5g} x the mean", f"received: {load.received:.5g} x"),
        ]
    return facts


def _unless_reduced(operation: Operation, factor: float) -> str:
    reduces = operation.reduces and factor > 1
    return ", except where the network itself reduces (NVLS, SHARP)" if reduces else ""


def estimate_text(time: Estimate) -> str:
    """A time with its interval: `740 us (690 … 800 us)`."""
    return f"{time_text(time)}{in_brackets(time_interval_text(time))}"


def times_text(larger: Larger | None) -> str:
    """How many times as long a larger call takes: `1.7`, or `1.3 to 2.1`; empty if unknown."""
    ratios = [] if larger is None else [larger.low_ratio, larger.high_ratio]
    texts = [f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}" for ratio in ratios if ratio]
    return " to ".join(dict.fromkeys(texts))


def _why(found: RowExplanation) -> Facts:
    why, time = found.why, found.row.time
    if why is None or time is None:
        return []
    facts: Facts = [("bound", not why.bound and "not known", why.unknown)]
    if predicted := why.predicted_s:
        low, high = predicted.ends
        where = "above" if time.median > high else "below" if time.median < low else "inside"
        ratio = time.median / predicted.value
        how = f"{why.model}; t is {ratio:.3g} times that, {where} the interval"
        facts.append(("predicted", estimate_text(predicted), how))
    if (share := why.latency_share) is not None:
        parts = f"{format_share(share)} of t is latency, {format_share(1 - share)} grows with S"
        facts.append(("bound", why.bound, parts))
    if line := why.line:
        rate = f" + S / {gbps(line.bytes_per_s)} GB/s" if line.bytes_per_s else ""
        here = f"{format_bytes(line.low_bytes)} to {format_bytes(line.high_bytes)}"
        error = f"off by {format_share(line.error)} on average"
        how = f"alpha-beta, fitted to {line.sizes} sizes of this call, here {here}; {error}"
        facts.append(("model of t", f"{seconds(line.fixed_s)}{rate}", how))
    latency, half = why.latency_s, why.half_bytes
    facts += [
        ("latency", latency and seconds(latency), "what a call takes at any size"),
        ("n-half", half and format_about(half), "there latency takes as long as the bytes"),
    ]
    ranks = f"twice the ranks ({2 * found.row.measurement.case.ranks})"
    for name, larger in (("twice the size", why.twice_size), (ranks, why.twice_ranks)):
        if larger:
            ratio_now = times_text(larger)
            value = f"{ratio_now} times as long" if ratio_now else "not known"
            then = f"{estimate_text(larger.time_s)}, " if larger.time_s else ""
            facts.append((name, value, f"{then}{larger.source}"))
    return facts


def _peak(found: RowExplanation) -> Facts:
    row, peak, share = found.row, found.peak, found.share
    if peak is None:
        return [("peak", "not given", "--peak 450GB/s compares busbw with a speed, or with a link")]
    speed, more = gbps(peak.bytes_per_second), ""
    more = f"; see `commbench links {peak.name}`" if peak.source else ""
    facts: Facts = [("peak", f"{speed} GB/s", f"{peak.text}{more}")]
    if share is None:
        return [*facts, ("of the peak", "not known", why_no_peak_fraction(row, peak))]
    case, rate = row.measurement.case, gbps(share.rate_bytes_per_s)
    what, must = "busbw", ""
    if share.bound == NODE_BOUND:
        unless = _unless_reduced(OPERATIONS[case.operation], share.ceiling)
        what = f"{share.factor:.5g} x algbw"
        must = f": {share.factor:.5g} x S must enter or leave some node{unless}"
    least = share.factor * case.size_bytes
    time = seconds(least / peak.bytes_per_second)
    is_above = share.fraction > 1 + _ROUNDING
    is_reduced = share.ceiling > 1 and share.fraction <= share.ceiling + _ROUNDING
    of_limit = is_above and is_reduced and format_percent(share.fraction / share.ceiling)
    node = ""
    if row.header.num_nodes > 1 and not peak.is_per_node:
        node = "; or most bytes stay within a node: give its speed, such as --peak 400GB/s/node"
    return [
        *facts,
        ("of the peak", format_percent(share.fraction),
         f"{what} / peak = {rate} / {speed} ({share.bound} bound){must}"),
        ("t at the peak", time, f"{exact(least)} B / {speed} GB/s"),
        ("of the limit", of_limit,
         f"a network that reduces (NVLS, SHARP) moves S instead of {share.factor:.5g} x S: the "
         f"limit is {share.ceiling:.5g} x the peak"),
        ("above 100 %", is_above and not is_reduced and "impossible",
         "the peak is of one link of several, or of another link; or t is not of the whole call"
         f"{node}"),
    ]  # fmt: skip


def _others(found: RowExplanation) -> Facts:
    algorithm, protocol, channels = found.row.nccl_selection
    more = f"; channels: {channels}" if channels else ""
    facts: Facts = [
        (
            "NCCL",
            f"{algorithm} {protocol}".strip(),
            f"selected in a call of its own, not timed{more}",
        )
    ]
    if found.others:
        said = row_text(RowJudgement(found.row, found.others))
        facts.insert(0, ("others", found.others.verdict, said))
    return facts
