"""The facts about a row: what each is, its value in SI units, and how it is computed.

What bounds a call, latency or bandwidth, comes from the other sizes of the same run, or from a
machine's fitted models. What more ranks would do comes from rows of the run with twice the ranks,
else from the formula of the backend's algorithm, and the fact says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import exp
from operator import attrgetter
from typing import Any, NamedTuple

from commbench import stats
from commbench.analysis import diagnostics, figures
from commbench.analysis.rows import ResultRow
from commbench.answers.cost import fit, intervals, observations
from commbench.answers.cost.cost_models import find_algorithm, growth
from commbench.answers.cost.machine import Machine
from commbench.answers.cost.predict import Prediction, Request, models_of_row, predict
from commbench.answers.explain.bounds import NO_DATA, find_bound, what_helps
from commbench.errors import CommbenchError
from commbench.output.text import clean, exact
from commbench.plan import call_forms, dimensions, links, replay, workload_variants
from commbench.plan.case import Case
from commbench.plan.operation import IN_PLACE, MESSAGE_COUNTS
from commbench.plan.operations import OPERATIONS
from commbench.results.schema import OK
from commbench.stats import Estimate
from commbench.units import GB, format_bytes, format_rough, format_time, format_times
from commbench.views import cells

BYTES, SECONDS, RATE, RATIO, SHARE, TEXT = "bytes", "s", "bytes/s", "ratio", "share", ""
FIGURE = "figure"
"""The unit of the figure of a warning, whose text says what matters of it."""
FORM, OVER_DIRECT = "form of the call", "over a direct call"
"""Names of facts."""
AS_GIVEN = "as given"
"""In place of the launcher of a call whose time the user gives."""
_ROUNDING = 0.005
"""A fraction of a peak up to 1 + this is printed as 100 %."""


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


def row_facts(row: ResultRow, peak: links.Peak | None) -> list[Fact]:
    """What a row says by itself, and its warnings."""
    facts = _size(row) if row.case.dtype else []
    facts += _step(row) if row.case.step else []
    facts += _time(row) + _overlap(row)
    if row.time and not row.case.step and (row.case.has_bandwidth or not row.case.part):
        facts += [*_bandwidth(row), *_peak(row, peak), _nccl(row)]
    return facts + [
        Fact(f"warning {found.name}", figure, FIGURE, found.describe([(row, figure)]))
        for found, figure in diagnostics.find_causes(row).items()
    ]


def _size(row: ResultRow) -> list[Fact]:
    case = row.case
    operation = OPERATIONS[case.operation]
    if operation.registers:
        return [Fact("size S", case.size_bytes, BYTES, "each rank allocates and registers them")]
    elements = f"elements of {f'a block: S / {case.ranks}' if operation.blocks else 'the tensor'}"
    same = " in the same memory" if case.placement == IN_PLACE else ""
    extents = f"sends {operation.send.value}, receives {operation.receive.value}{same}"
    asked = _requested(row)
    return [
        Fact("size S", case.size_bytes, BYTES, "the larger of sent and received"),
        Fact("asked for", asked != case.size_bytes and asked, BYTES,
             "rounded down to whole blocks and elements"),
        Fact("count", f"{exact(case.count)} {case.dtype}", TEXT, elements),
        Fact("tensors", case.num_tensors > 1 and case.num_tensors, TEXT, case.tensors),
        Fact(FORM, case.call or (case.form != call_forms.DIRECT and case.form), TEXT,
             case.call_form.summary),
        Fact(OVER_DIRECT, row.form_ratio, RATIO, "t / its time, same bytes"),
        Fact("buffers", case.placement, TEXT, extents),
    ]  # fmt: skip


def _requested(row: ResultRow) -> int:
    """The size that was asked for, of which the row's is rounded down to whole blocks."""
    size, asked = row.case.size_bytes, row.header.plan.sizes
    return min((each for each in asked if each >= size), default=size)


def is_of_size(row: ResultRow, size: int) -> bool:
    """Whether a row has this size, or was asked to have it."""
    return bool(row.case.dtype) and size in (row.case.size_bytes, _requested(row))


def _step(row: ResultRow) -> list[Fact]:
    name, _, size = row.case.variant.partition(":")
    what = workload_variants.VARIANTS[name].removeprefix("bucket:SIZE: ")
    workload = replay.replayed_workload(row.header.plan).name
    return [
        Fact("step", clean(row.case.step), TEXT, f"of the workload {clean(workload)}"),
        Fact("variant", row.case.variant, TEXT, what.replace("SIZE bytes", size)),
    ]


def _time(row: ResultRow) -> list[Fact]:
    time, measurement, stop = row.time, row.measurement, row.stop_reason
    if time is None:
        return [Fact("not timed", measurement.status, TEXT, measurement.outcome)]
    mode = dimensions.describe_timing(measurement.case.timing)
    how = measurement.reported.statistic if measurement.reported else mode.summarise()
    how = AS_GIVEN if row.header.launcher == AS_GIVEN else f"{mode.name}: {how}"
    return [
        Fact("time t", time.estimate, SECONDS, how),
        Fact("iterations", stop and time.iterations, TEXT, f"stop_reason: {stop}"),
        Fact("wrong elements", measurement.wrong or None, TEXT, "do not use this time"),
    ]


def _overlap(row: ResultRow) -> list[Fact]:
    batches, both = row.measurement.batches, row.overlap
    a, b = [each.time and each.time.estimate for each in row.parts or ()] or (None, None)
    return [
        Fact("part", row.case.part, TEXT, "communication and computation, each alone and at once"),
        Fact("computation", batches[-1].work if batches else "", TEXT, "of each rank"),
        Fact("communication a", a, SECONDS, "alone"),
        Fact("computation b", b, SECONDS, "alone"),
        Fact("hidden share", both and both.hidden, SHARE, "(a + b - t) / min(a, b), from 0 to 1"),
        Fact("gain", both and both.gain, RATIO, "(a + b) / t; t is the time until both had ended"),
    ]


def _bandwidth(row: ResultRow) -> list[Fact]:
    case, load = row.case, row.case.load
    operation, factor = OPERATIONS[case.operation], case.busbw_factor
    least = f"at least {MESSAGE_COUNTS[operation.messages](case.ranks)}"
    few = f"{operation.messages}, for any S, if a rank sends to one at a time"
    messages = Fact("messages in a row", not operation.registers and least, TEXT, few)
    if factor is None or row.algbw is None or row.busbw is None or row.time is None:
        return [Fact("bandwidth", "none", TEXT, "it has a time, but no bandwidth"), messages]
    algbw = row.time.estimate.map(lambda time_s: case.size_bytes / time_s)
    formula = case.own_call.busbw_formula or operation.busbw_formula
    over = f"algbw x {formula}" + f", n = {case.ranks}" * ("n" in formula)
    reduces = ", except where the network itself reduces (NVLS, SHARP)" * (factor > 1)
    must = f"{formula} x S, one way, or more{reduces * operation.reduces}"
    if load:
        worst = "every rank" if load.worst_rank is None else f"rank {load.worst_rank}"
        must = f"{load.worst_link:.5g} x S, of {worst}, without the block that it keeps"
    largest = load.largest if load else 0.0
    return [
        Fact("algbw", algbw, RATE, f"S / t, t = {cells.time_text(row.time.estimate)}"),
        Fact("busbw", algbw.scaled(factor), RATE, over),
        Fact("logical_GBps", load and algbw.scaled(largest), RATE,
             f"{largest:.5g} x S / t, with the block that a rank keeps"),
        Fact("over some link", case.ranks > 1 and round(factor * case.size_bytes), BYTES, must),
        messages,
    ]  # fmt: skip


def _peak(row: ResultRow, peak: links.Peak | None) -> list[Fact]:
    """The part of a peak that a row needed, its bound, and what more than 100 % means."""
    if peak is None:
        how = "--peak 450GB/s compares busbw"
        return [Fact("peak", "not given", TEXT, how)]
    share, speed = figures.find_peak_fraction(row, peak), peak.bytes_per_second
    more = f"; see `commbench links {peak.name}`" if peak.source else ""
    facts = [Fact("peak", speed, RATE, f"{peak.text}{more}")]
    if share is None:
        how = figures.why_no_peak_fraction(row, peak)
        return [*facts, Fact("no share of it", "not known", TEXT, how)]
    what = f"{share.factor:.5g} x algbw" if share.bound == figures.NODE_BOUND else "busbw"
    time = row.time.estimate if row.time else Estimate(1.0)
    reached = time.map(lambda time_s: share.fraction * time.value / time_s)
    least, is_above = share.factor * row.case.size_bytes, share.fraction > 1 + _ROUNDING
    is_reduced = share.fraction <= share.ceiling + _ROUNDING
    return [
        *facts,
        Fact("of the peak", reached, SHARE,
             f"{what} / peak = {cells.bandwidth_text(reached.scaled(speed))} / {speed / GB:g} "
             f"({share.bound} bound)"),
        Fact("in a ring", share.bound == figures.NODE_BOUND and (row.busbw or 0.0) / speed, SHARE,
             "each node sends busbw: busbw / peak"),
        Fact("t at the peak", least / speed, SECONDS, f"{exact(least)} B / {speed / GB:g} GB/s"),
        Fact("of the limit", is_above and is_reduced and share.fraction / share.ceiling, SHARE,
             f"a network that reduces (NVLS, SHARP) moves S instead of {share.factor:.5g} x S: the "
             f"limit is {share.ceiling:.5g} x the peak"),
        Fact("above 100 %", is_above and not is_reduced and "impossible", TEXT,
             "the peak is of one link of several, or of another link; or t is not of the whole "
             "call; or most bytes stay within a node: give its speed, such as "
             "--peak 400GB/s/node"),
    ]  # fmt: skip


def _nccl(row: ResultRow) -> Fact:
    algorithm, protocol, channels = row.nccl_selection
    how = f"selected in a call that was not timed; channels: {channels or 'not known'}"
    return Fact("NCCL", f"{algorithm} {protocol}".strip(), TEXT, how)


# What bounds a call, and what more bytes or ranks would do.

BOUND, LATENCY_SHARE, HALF = "bound", "latency over t", "n-half"
TWICE_SIZE, TWICE_RANKS = "t of twice the size", "t of twice the ranks"
NOT_KNOWN = "latency or bandwidth"
"""Names of facts."""
TOO_FEW = "needs three sizes of the call or more, as --sizes 16K,128K,1M"
MEASURED, BY_MODEL = "measured in this run", "by the model"


def bound_facts(row: ResultRow, every: Sequence[ResultRow], machine: Machine | None) -> list[Fact]:
    """What bounds a row: by the models of a machine, else by all rows of its run. Nothing for what
    no model describes: overlaps, steps, what the host does, and by a machine's own calls."""
    case, time = row.case, row.time and row.time.estimate
    if not time or case.part or case.step or OPERATIONS[case.operation].is_timed_by_host:
        return []
    if machine:
        return [] if case.call else _by_machine(row, time.value, machine)
    return _by_run(row, time, every) if every else []


def _bound(
    share: float | Estimate, twice: Estimate | None = None, half: Estimate | None = None,
    has_data: bool = True,
) -> list[Fact]:  # fmt: skip
    bound = find_bound(share)
    told = (what_helps(bound, twice, half), "the rest grows with S") if has_data else NO_DATA
    return [Fact(BOUND, bound, TEXT, told[0]), Fact(LATENCY_SHARE, share, SHARE, told[1])]


def _by_run(row: ResultRow, time: Estimate, every: Sequence[ResultRow]) -> list[Fact]:
    size = row.case.size_bytes
    valid = (each for each in every if each.measurement.status == OK)
    timed = {each.case: each.time.estimate for each in valid if each.time}
    own = row.case.key("size_bytes", "count")
    waited = {each.case for each in every if diagnostics.has_waited(each.queued_share)}
    alike = {case: t for case, t in timed.items() if case.key("size_bytes", "count") == own}
    times = {case.size_bytes: t for case, t in alike.items() if case not in waited}
    is_wide = bool(times) and max(times) >= 2 * min(times) > 0
    ranges = fit.fit_sizes(times) if is_wide else ()
    doubled, why = stats.ratio(times.get(2 * size), time), ""
    fewest = fit.FEWEST_OF_RUN if OPERATIONS[row.case.operation].has_data else 1
    if len(alike) >= fewest and (row.case in waited or len(times) < fewest):
        why = f"{diagnostics.WAITED}: `commbench doctor`"
    elif ranges:
        # Later ranges may have more latency, where the protocol switches.
        of_size = fit.range_of(ranges, size)
        line = max(ranges[0], of_size, key=attrgetter("fixed_s"))
        why = "" if line.fits(size) and of_size.fits(size) else _misfit(times, ranges)
    elif fewest > 1:
        why = TOO_FEW
    if why:
        twice = Fact(TWICE_SIZE, doubled, RATIO, MEASURED)
        unknown = Fact(NOT_KNOWN, "not known", TEXT, why)
        return [unknown, twice, *_twice_the_ranks(row, time, timed, None)]
    latency, share, where = time, Estimate(1.0), "it moves no data"
    if ranges:
        latency = line.fixed_s.map(lambda fixed_s: min(time.ends[1], fixed_s))
        low, high = time.ends
        parts = zip((latency.value, *latency.ends), (time.value, high, low), strict=True)
        share = Estimate(*(min(1.0, part / t) if t else 1.0 for part, t in parts))
        where = "fixed part of the line of {} to {}".format(*map(format_bytes, line.ends))
        where += "; the model of t, of larger sizes, has less" * (line is not of_size)
    halved = stats.ratio(time, times.get(size // 2))
    bound = _bound(share, doubled, halved, has_data=bool(ranges))
    facts = [*bound, Fact("latency", latency, SECONDS, where)]
    if ranges:
        longer = fit.range_of(ranges, 2 * size).time_at(2 * size)
        grown = max(1.0, longer / of_size.time_at(size))
        (low, high), (least, most) = of_size.fixed_s.ends, of_size.beta.ends
        ends = [1 + b * size / (fixed + b * size) for fixed, b in ((high, least), (low, most))]
        error = fit.factor_above(2 * size, max(times))
        ratio = Estimate(grown, max(1.0, min(grown, *ends) / error), max(grown, *ends) * error)
        far = f"; above the measured sizes it may be off {format_rough(error)} times (95 %)"
        how = MEASURED if doubled else BY_MODEL + far * (error > 1)
        twice = Fact(TWICE_SIZE, doubled or ratio, RATIO, how)
        facts += [_line(of_size), twice]
    return facts + _twice_the_ranks(row, time, timed, latency)


def _misfit(times: Mapping[int, Estimate], ranges: Sequence[fit.Range]) -> str:
    """That no line fits the times by size, and how far they are from the best ones."""
    most = max(error for each in ranges for error in each.errors)
    sizes = " to ".join(map(format_bytes, (min(times), max(times))))
    far = f"they are up to a factor of {format_rough(exp(most))} from it"
    return f"no line fits these {len(times)} times, {sizes}: {far}"


def _line(fitted: fit.Range) -> Fact:
    """The time by size in a range of sizes."""
    fixed_s, of_mib = fitted.fixed_s, fitted.beta.scaled(1 << 20)
    terms = [cells.time_text(fixed_s)] if fixed_s.value or not of_mib.value else []
    more = ""
    if fitted.grows:
        terms.append(f"S x {cells.time_text(of_mib)}/MiB")
        more = f"; {cells.time_interval_text(of_mib)} per MiB"
    elif of_mib.value:
        terms.append(f"S x about {format_time(float(f'{of_mib.value:.1g}'))}/MiB")
        more = "; the time may not grow with the size"
    low, high = map(format_bytes, fitted.ends)
    how = f"line fitted to {len(fitted.sizes)} sizes, {low} to {high}"
    return Fact("model of t", " + ".join(terms), TEXT, how + more)


def _twice_the_ranks(
    row: ResultRow, time: Estimate, timed: Mapping[Case, Estimate], latency: Estimate | None
) -> list[Fact]:
    """What twice the ranks take: measured, else by the formula of the backend's algorithm, for
    latency that is the same for any number of ranks and for latency that is all in the steps, and
    as much wider as the interval of the row's own time."""
    case, backend, groups = row.case, row.header.plan.backend, ("root", "group", "group_ranks")
    for each, longer in timed.items():
        if each.ranks == 2 * case.ranks and each.key(*groups) == case.key(*groups):
            return [Fact(TWICE_RANKS, stats.ratio(longer, time), RATIO, MEASURED)]
    if latency is None or case.ranks == 1:
        return []
    known = None if case.call else find_algorithm(backend, case.operation, row.nccl_selection[0])
    if known is None or not time.value:
        how = "runs of more ranks show it: `commbench model fit`"
        return [Fact(TWICE_RANKS, "not known", TEXT, how)]
    latencies = [min(time.value, each) for each in latency.ends]
    ends = (growth(known, s, time.value - s, case.ranks, 2 * case.ranks) for s in latencies)
    every = [ratio for pair in ends for ratio in pair]
    # A measured ratio would differ by the errors of this time, too.
    low, high = time.ends
    ratios = max(1.0, min(every) * time.value / high), max(every) * time.value / low
    how = f"not measured; formula of {backend}'s algorithm: {known.name}, {known.formula}"
    return [Fact(TWICE_RANKS, ratios, RATIO, how)]


def _by_machine(row: ResultRow, time_s: float, machine: Machine) -> list[Fact]:
    """What a machine's models say about a row: its predicted time, shares, n-half, twice the size
    and twice the ranks; or why they say nothing."""
    case, (_, per_node) = row.case, observations.group_shape(row.header, row.case)
    machine = models_of_row(machine, row, row.case.key())
    try:
        asked = Request((case.operation,), (case.ranks,), per_node, (case.size_bytes,))
        (found,) = predict(machine, asked)
    except CommbenchError as error:
        how = f"{machine.name} does not predict this call: {error.message}"
        return [Fact("predicted", "not known", TEXT, how)]
    times = f"t is {format_times(time_s / found.time_s)} that"
    how = f"{found.model} ({found.kind}) of {machine.name}; {times}"
    facts = [Fact("predicted", found.time, SECONDS, how)]
    more = partial(_predict, machine, case, per_node, found)
    if found.size_bytes:
        of = found.fitted, case.ranks, per_node, 1
        latency, half = (intervals.find_figure(*of, of_byte) for of_byte in (0, -1))
        share: float | Estimate = found.latency_share
        if latency and share:
            share = latency.map(lambda s: min(1.0, found.latency_share * s / latency.value))
        facts += [*_bound(share), Fact(HALF, half, BYTES, intervals.HALF.meaning), more(TWICE_SIZE)]
    return [*facts, more(TWICE_RANKS)]


def _predict(machine: Machine, case: Case, per_node: int, now: Prediction, name: str) -> Fact:
    """What a larger call takes. More ranks than one host has are on further hosts if groups across
    hosts were measured, else on the same host."""
    ranks, size, error = case.ranks, case.size_bytes, ""
    ranks, size = (2 * ranks, size) if name == TWICE_RANKS else (ranks, 2 * size)
    for on_host in dict.fromkeys((per_node, max(per_node, ranks))):
        try:
            (more,) = predict(machine, Request((case.operation,), (ranks,), on_host, (size,)))
        except CommbenchError as caught:
            error = error or caught.message
            continue
        how = BY_MODEL if more.kind == now.kind else f"{BY_MODEL}, {more.kind}"
        ratio = more.time.scaled(1 / now.time_s)
        return Fact(name, ratio, RATIO, f"{how}: {cells.time_text(more.time)}")
    return Fact(name, "not known", TEXT, f"no prediction: {error}")
