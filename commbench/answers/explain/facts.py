"""The facts about a row by itself: what each is, its value in SI units, and how it is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from commbench.analysis.diagnostics import find_causes
from commbench.analysis.figures import NODE_BOUND, find_peak_fraction, why_no_peak_fraction
from commbench.analysis.rows import ResultRow
from commbench.answers.expect.document import row_text
from commbench.answers.expect.expectation import judge_row
from commbench.output.text import clean, exact, list_some, seconds
from commbench.plan.call_forms import DIRECT, choose_forms, size_step
from commbench.plan.dimensions import describe_timing
from commbench.plan.dtypes import DTYPES
from commbench.plan.links import Peak
from commbench.plan.operation import IN_PLACE, MESSAGE_COUNTS
from commbench.plan.operations import OPERATIONS
from commbench.plan.own_calls import find_forms
from commbench.plan.replay import replayed_step, replayed_workload
from commbench.plan.workload_variants import AS_TRACED, VARIANTS
from commbench.results.schema import CUT_OFF
from commbench.stats import Estimate, ratio
from commbench.units import GB, format_about
from commbench.views import cells

BYTES, SECONDS, RATE, RATIO, SHARE, TEXT = "bytes", "s", "bytes/s", "ratio", "share", ""
FIGURE = "figure"
"""The unit of the figure of a warning, whose text says what matters of it."""
AS_GIVEN = "as given"
"""In place of the launcher of a call whose time the user gives."""
_ROUNDING = 0.005
"""A fraction of a peak up to 1 + this is printed as 100 %."""
_STOPS = {
    "precision": "the interval was narrow enough",
    "budget": "the time for one case was used up before the interval was narrow enough",
    "cap": "a case has no more iterations than this",
    "fixed": "this number of iterations was requested",
    "looked": "a quick search did not choose it after its first look",
    CUT_OFF: "the run ended before the case was finished",
}


class Fact(NamedTuple):
    """A fact about a row."""

    name: str
    value: Any
    """A number in SI units, an Estimate, both ends of a range, or a text. A fact without a value is
    not known, or has no meaning for the row: it is left out."""
    unit: str = TEXT
    """One of BYTES, SECONDS, RATE, RATIO, SHARE and FIGURE; TEXT for what has none."""
    how: str = ""
    """How it is computed; its figures have the digits of their interval."""

    @property
    def is_known(self) -> bool:
        """Whether it has a value."""
        return not (self.value is None or self.value is False or self.value == "")


_WRITERS: dict[str, Callable[[Any], str]] = {
    BYTES: lambda found: f"{exact(found)} bytes" if found == int(found) else format_about(found),
    SECONDS: lambda found: seconds(found, 3) if isinstance(found, float) else time_of(found),
    RATE: lambda found: f"{_rate(found)} GB/s",
    RATIO: cells.ratio_text,
    SHARE: lambda found: f"{cells.share_with_interval_text(found)} %",
    FIGURE: lambda _: "",
    TEXT: str,
}
"""How a value is written, by its unit."""


def time_of(found: Estimate) -> str:
    """A time, as it was given or with the digits of its interval."""
    return cells.time_text(found) if found.has_interval else seconds(found.value, 4)


def _rate(found: Any) -> str:
    found = found if isinstance(found, Estimate) else Estimate(found)
    return cells.bandwidth_text(found) if found.has_interval else f"{found.value / GB:.4g}"


_INTERVALS = {SECONDS: cells.TIME_INTERVAL, RATE: cells.BANDWIDTH_INTERVAL}
_INTERVALS |= {RATIO: cells.RATIO_INTERVAL}


def value_text(value: Any, unit: str) -> str:
    """A value of that unit, with the digits of its interval, and with that."""
    ends = value if isinstance(value, tuple) and not isinstance(value, Estimate) else (value,)
    shown = " … ".join(dict.fromkeys(map(_WRITERS[unit], ends)))
    return shown + cells.in_brackets(_INTERVALS[unit].write(value) if unit in _INTERVALS else "")


def row_facts(row: ResultRow, every: Sequence[ResultRow], peak: Peak | None) -> list[Fact]:
    """What a row says by itself, the step that it is by all rows of its run, and its warnings."""
    facts = _size(row) if row.case.dtype else []
    facts += _step(row, every) if row.case.step else []
    facts += _time(row) + _overlap(row)
    if row.time and not row.case.step and (row.case.has_bandwidth or not row.case.part):
        facts += _bandwidth(row) + _peak(row, peak) + _others(row)
    return facts + [
        Fact(f"warning {found.name}", figure, FIGURE, found.describe([(row, figure)]))
        for found, figure in find_causes(row).items()
    ]


def _size(row: ResultRow) -> list[Fact]:
    case = row.case
    operation, size = OPERATIONS[case.operation], exact(case.size_bytes)
    if operation.registers:
        return [Fact("size S", case.size_bytes, BYTES, "each rank allocates and registers them")]
    elements = "elements of the tensor"
    if operation.block_counts:
        elements = f"of a block on average; n = {case.ranks} blocks ({case.imbalance})"
    elif operation.blocks:
        elements = f"of a block; S / n = {size} / {case.ranks} = {exact(case.block_bytes)} bytes"
    cut = "" if case.tensors.isdigit() else f", cut as {case.tensors}"
    memory = "as one here" if case.call_form.is_reference else "each with its own memory"
    same = " in the same memory" if case.placement == IN_PLACE else ""
    extents = f"a rank sends {operation.send.value}, receives {operation.receive.value}{same}"
    asked = min((each for each in row.header.plan.sizes if is_of_size(row, each)), default=None)
    return [
        Fact("size S", case.size_bytes, BYTES, "the larger of what a rank sends and receives"),
        Fact("asked for", asked != case.size_bytes and asked, BYTES,
             "rounded down to whole blocks and elements"),
        Fact("count", f"{exact(case.count)} {case.dtype}", TEXT, elements),
        Fact("tensors", case.num_tensors > 1 and case.num_tensors, TEXT, f"{memory}{cut}"),
        Fact("form of the call", case.call or (case.form != DIRECT and case.form), TEXT,
             case.call_form.summary),
        Fact("over a direct call", row.form_ratio, RATIO, "t / its time, of the same bytes"),
        Fact("buffers", case.placement, TEXT, extents),
    ]  # fmt: skip


def is_of_size(row: ResultRow, requested: int) -> bool:
    """Whether the row's size is `requested` bytes rounded down to whole blocks of each tensor.

    Blocks are whole elements, or as in nccl-tests multiples of 16 bytes.
    """
    if not row.case.dtype:
        return False
    element, operation = DTYPES[row.case.dtype].size_bytes, OPERATIONS[row.case.operation]
    step = row.case.ranks * max(element, 16) if operation.blocks else element
    names = choose_forms(row.header.plan.forms, operation, row.case.tensors)
    own = (call for call in row.header.plan.own if call.operation == row.case.operation)
    step *= size_step(operation, find_forms(names, own), row.case.tensors, row.case.ranks)
    return 0 <= requested - row.case.size_bytes < step


def _step(row: ResultRow, every: Sequence[ResultRow]) -> list[Fact]:
    """What a rank does in the replayed step of a workload."""
    case, time = row.case, row.time
    workload = replayed_workload(row.header.plan)
    step = next(step for step in workload.steps if step.name == case.step)
    rank = step.programs[0].ranks[0]
    replayed = replayed_step(row.header.plan, case, rank)
    calls = [one.call for one in replayed.calls]
    counts = Counter(f"{call.operation} over {call.group}" for call in calls)
    named = list_some([f"{number} {call}" for call, number in counts.most_common()], 6)
    times = {each.case.key(): each.time for each in every if each.time}
    found = [times.get(one.case.key()) for one in replayed.calls]
    alone = sum(one.median for one in found if one) if all(found) else None
    computing = sum(call.compute_s or 0.0 for call in calls) + replayed.compute_s
    own = [times.get(case._replace(variant=variant).key()) for variant in AS_TRACED]
    over_own = None
    if time and case.variant not in AS_TRACED:
        over_own = ratio(time.estimate, next((each.estimate for each in own if each), None))
    name, _, size = case.variant.partition(":")
    what = VARIANTS[name].removeprefix("bucket:SIZE: ").replace("SIZE bytes", size)
    return [
        Fact("step", clean(case.step), TEXT, f"of the workload {clean(workload.name)}"),
        Fact("variant", case.variant, TEXT, what),
        Fact(f"calls of rank {rank}", len(calls), TEXT, clean(named)),
        Fact("their bytes", sum(call.size_bytes or 0 for call in calls), BYTES,
             "of all calls together"),
        Fact("one by one", alone or None, SECONDS, "these calls, each measured alone"),
        Fact("computing", computing or None, SECONDS, "of the rank between its calls"),
        Fact("t over the sum", time and alone and time.median / (alone + computing), RATIO,
             "t / (one by one + computing)"),
        Fact("t over its own", over_own, RATIO, "t / time of the step with its own calls"),
        Fact("in the trace", step.time_s or None, SECONDS, "time of the step"),
    ]  # fmt: skip


def _time(row: ResultRow) -> list[Fact]:
    time, measurement, stop = row.time, row.measurement, row.stop_reason
    if time is None:
        return [Fact("not timed", measurement.status, TEXT, measurement.outcome)]
    case, mode = measurement.case, describe_timing(measurement.case.timing)
    part = OPERATIONS[case.operation].part
    how = measurement.reported.statistic if measurement.reported else mode.summary
    how = AS_GIVEN if row.header.launcher == AS_GIVEN else f"{mode.name}: {how}"
    ends = "" if time.estimate.has_interval else "; an interval needs more"
    return [
        Fact("time t", time.estimate, SECONDS, how),
        Fact("t is of", part != "call" and part, TEXT, f"the time of a call / {case.parts}"),
        Fact("iterations", stop and time.iterations, TEXT, f"{_STOPS.get(stop, stop)}{ends}"),
        Fact("wrong elements", measurement.wrong or None, TEXT, "do not use this time"),
    ]


def _overlap(row: ResultRow) -> list[Fact]:
    part, batches, both = row.case.part, row.measurement.batches, row.overlap
    facts = [
        Fact("part", part, TEXT, "communication and computation, each alone and at once"),
        Fact("computation", batches[-1].work if part and batches else None, TEXT, "of each rank"),
    ]
    if not (both and row.parts):
        return facts
    a, b = (each.time and each.time.estimate for each in row.parts)
    slowdowns = (both.communication_slowdown, both.computation_slowdown)
    slower = [found and found.map(lambda share: 1 + share) for found in slowdowns]
    return [
        *facts,
        Fact("communication a", a, SECONDS, "alone"),
        Fact("computation b", b, SECONDS, "alone"),
        Fact("hidden share", both.hidden, SHARE, "(a + b - t) / min(a, b), from 0 to 1"),
        Fact("gain", both.gain, RATIO, "(a + b) / t; t is the time until both had ended"),
        Fact("a beside b", slower[0], RATIO, "times as long as alone"),
        Fact("b beside a", slower[1], RATIO, "times as long as alone"),
    ]


def _bandwidth(row: ResultRow) -> list[Fact]:
    case, load, n = row.case, row.load, str(row.case.ranks)
    operation, factor = OPERATIONS[case.operation], case.busbw_factor
    least = f"at least {MESSAGE_COUNTS[operation.messages](case.ranks)}"
    filled = f"{operation.messages} = {operation.messages.replace('n', n)}"
    few = filled if "n" in operation.messages else "even for the smallest S"
    messages = Fact("messages in a row", not operation.registers and least, TEXT, few)
    if factor is None or row.algbw is None or row.busbw is None or row.time is None:
        return [Fact("bandwidth", "none", TEXT, "it has a time, but no bandwidth"), messages]
    algbw = row.time.estimate.map(lambda time_s: case.size_bytes / time_s)
    size = exact(case.size_bytes)
    formula = case.own_call.busbw_formula or operation.busbw_formula
    over = f"algbw x {formula} = {_rate(algbw)} x {factor:.5g}"
    must = f"{formula} x S, one way, with any algorithm{_unless_reduced(case.operation, factor)}"
    uneven = []
    if load:
        worst = "every rank" if load.worst_rank is None else f"rank {load.worst_rank}"
        must = f"{load.worst_link:.5g} x S, of {worst}, without the block that it keeps"
        uneven = [
            Fact("logical_GBps", algbw.scaled(load.largest), RATE,
                 f"{load.largest:.5g} x S / t, with the block that a rank keeps"),
            Fact("most sent", load.sent, RATIO, "over the mean of the ranks"),
            Fact("most received", load.received, RATIO, "over the mean of the ranks"),
        ]  # fmt: skip
    return [
        Fact("algbw", algbw, RATE, f"S / t = {size} B / {time_of(row.time.estimate)}"),
        Fact("busbw", algbw.scaled(factor), RATE, over),
        *uneven,
        Fact("over some link", case.ranks > 1 and round(factor * case.size_bytes), BYTES, must),
        messages,
    ]


def _unless_reduced(operation: str, factor: float) -> str:
    reduces = OPERATIONS[operation].reduces and factor > 1
    return ", except where the network itself reduces (NVLS, SHARP)" if reduces else ""


def _peak(row: ResultRow, peak: Peak | None) -> list[Fact]:
    """The part of a peak that a row needed, its bound, and what more than 100 % means."""
    if peak is None:
        how = "--peak 450GB/s compares busbw with a speed, or with a link"
        return [Fact("peak", "not given", TEXT, how)]
    case, share, speed = row.case, find_peak_fraction(row, peak), peak.bytes_per_second
    more = f"; see `commbench links {peak.name}`" if peak.source else ""
    facts = [Fact("peak", speed, RATE, f"{peak.text}{more}")]
    if share is None:
        return [*facts, Fact("no share of it", "not known", TEXT, why_no_peak_fraction(row, peak))]
    what, must, least = "busbw", "", share.factor * case.size_bytes
    if share.bound == NODE_BOUND:
        what = f"{share.factor:.5g} x algbw"
        must = (
            f": {share.factor:.5g} x S must enter or leave some node"
            f"{_unless_reduced(case.operation, share.ceiling)}"
        )
    time = row.time.estimate if row.time else Estimate(1.0)
    reached = time.map(lambda time_s: share.fraction * time.value / time_s)
    is_above = share.fraction > 1 + _ROUNDING
    is_reduced = share.ceiling > 1 and share.fraction <= share.ceiling + _ROUNDING
    return [
        *facts,
        Fact("of the peak", reached, SHARE,
             f"{what} / peak = {_rate(reached.scaled(speed))} / {speed / GB:g} "
             f"({share.bound} bound){must}"),
        Fact("t at the peak", least / speed, SECONDS, f"{exact(least)} B / {speed / GB:g} GB/s"),
        Fact("of the limit", is_above and is_reduced and share.fraction / share.ceiling, SHARE,
             f"a network that reduces (NVLS, SHARP) moves S instead of {share.factor:.5g} x S: the "
             f"limit is {share.ceiling:.5g} x the peak"),
        Fact("above 100 %", is_above and not is_reduced and "impossible", TEXT,
             "the peak is of one link of several, or of another link; or t is not of the whole "
             "call; or most bytes stay within a node: give its speed, such as "
             "--peak 400GB/s/node"),
    ]  # fmt: skip


def _others(row: ResultRow) -> list[Fact]:
    algorithm, protocol, channels = row.nccl_selection
    how = f"selected in a call that was not timed; channels: {channels or 'not known'}"
    judged = judge_row(row)
    return [
        Fact("NCCL", f"{algorithm} {protocol}".strip(), TEXT, how),
        Fact("others", judged and judged.verdict, TEXT, row_text(row, judged) if judged else ""),
    ]
