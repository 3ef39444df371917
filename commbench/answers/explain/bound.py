"""What bounds a call, latency or bandwidth, and what more bytes or ranks would do.

The figures come from the other sizes of the same run, or from a machine's fitted models. What more
ranks would do comes from rows of the run with twice the ranks, else from the formula of the
backend's algorithm, and the fact says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from commbench.analysis.rows import ResultRow
from commbench.answers.cost.cost_models import find_algorithm, growth
from commbench.answers.cost.fit import SizeCurve, fit_sizes
from commbench.answers.cost.intervals import find_figure
from commbench.answers.cost.machine import Machine, Point
from commbench.answers.cost.observations import PER_HOST, SELECTED
from commbench.answers.cost.predict import find_fitted, predict
from commbench.answers.explain.facts import BYTES, RATIO, SECONDS, SHARE, TEXT, Fact
from commbench.errors import CommbenchError
from commbench.output.text import seconds
from commbench.plan.dimensions import DIMENSIONS
from commbench.plan.groups import ALONE
from commbench.plan.operations import OPERATIONS
from commbench.results.schema import OK
from commbench.units import GB, format_bytes, format_share
from commbench.views.cells import time_text

BOUND, LATENCY_SHARE, HALF = "bound", "latency over t", "n-half"
TWICE_SIZE, TWICE_RANKS = "t of twice the size", "t of twice the ranks"
NOT_KNOWN = "latency or bandwidth"
"""Names of facts."""
LATENCY, BANDWIDTH, BOTH = "latency-bound", "bandwidth-bound", "bound by latency and bandwidth"
SCHEDULER = "bound by the scheduler of this host"
HELPS = {
    LATENCY: "fewer and larger calls help",
    BANDWIDTH: "only fewer bytes or a faster path help",
    BOTH: "larger calls and fewer bytes both help",
    SCHEDULER: "fewer ranks or another CPU mode may help (`commbench doctor`)",
}
_QUEUED = 0.5
CLEAR = 0.6
"""A part that takes at least so much of a time bounds it."""
MEASURED, BY_MODEL = "measured in this run", "by the model"


def bound_facts(row: ResultRow, every: Sequence[ResultRow], machine: Machine | None) -> list[Fact]:
    """What bounds a row: by the models of a machine, else by all rows of its run. Nothing for what
    no model describes: overlaps, steps, what the host does, and by a machine's own calls."""
    case = row.case
    if not row.time or case.part or case.step or OPERATIONS[case.operation].is_timed_by_host:
        return []
    if machine:
        return [] if case.call else _by_machine(row, machine)
    return _by_run(row, every) if every else []


def _bound(share: float, queued: float = 0.0) -> list[Fact]:
    """What bounds a call of whose time this share is latency; not decided where its ranks waited
    for a core for a large share of the time."""
    if queued > _QUEUED:
        how = f"ranks waited for a core {format_share(queued)} of the time; {HELPS[SCHEDULER]}"
        return [Fact(BOUND, SCHEDULER, TEXT, how)]
    bound = LATENCY if share >= CLEAR else BANDWIDTH if share <= 1 - CLEAR else BOTH
    how = f"{format_share(share)} of the time is latency, the rest grows with S; {HELPS[bound]}"
    return [Fact(BOUND, bound, TEXT, how), Fact(LATENCY_SHARE, share, SHARE, "a part of t")]


def _half(size: float | None) -> Fact:
    how = "size at which latency is half of t (Hockney's n-half), not the size of half the peak"
    return Fact(HALF, size, BYTES, how)


def _by_run(row: ResultRow, every: Sequence[ResultRow]) -> list[Fact]:
    case, time_s = row.case, _time(row)
    timed = [each for each in every if each.time and each.measurement.status == OK]
    times = {
        each.case.size_bytes: _time(each)
        for each in timed
        if _call(each, "size_bytes", "count") == _call(row, "size_bytes", "count")
    }
    points = [Point(case.ranks, case.ranks, size, seconds) for size, seconds in times.items()]
    is_wide = bool(times) and max(times) >= 2 * min(times) > 0
    curve = fit_sizes(points) if is_wide else None
    latency_s = None if OPERATIONS[case.operation].has_data else time_s
    where = "it moves no data"
    if curve:
        fixed, _ = curve.at(case.size_bytes)
        # Later ranges may have more of it, where the protocol switches.
        latency_s = min(time_s, max(fixed, curve.ranges[0].fixed_s))
        where = "the fixed part of the line of the smallest sizes"
        if fixed > curve.ranges[0].fixed_s:
            own = curve.range_of(case.size_bytes).sizes
            where = (
                f"the fixed part of the line of {format_bytes(own[0])} to {format_bytes(own[-1])}"
            )
    more_ranks = _twice_the_ranks(row, timed, latency_s)
    if latency_s is None:
        few = "this call has too few sizes in this run"
        return [Fact(NOT_KNOWN, "not known", TEXT, few), *more_ranks]
    facts = [*_bound(latency_s / time_s if time_s else 1.0, row.interference.queued_share or 0.0)]
    facts.append(Fact("latency", latency_s, SECONDS, where))
    if curve:
        longer = times.get(2 * case.size_bytes)
        ratio = sum(curve.at(2 * case.size_bytes)) / sum(curve.at(case.size_bytes))
        now = longer / time_s if longer else max(1.0, ratio)
        more_bytes = Fact(TWICE_SIZE, now, RATIO, MEASURED if longer else BY_MODEL)
        grown = curve.at(case.size_bytes)[1]
        half = latency_s * case.size_bytes / grown if grown else None
        facts += [_line(curve, case.size_bytes), _half(half), more_bytes]
    return facts + more_ranks


def _time(row: ResultRow) -> float:
    return row.time.median if row.time else 0.0


def _call(row: ResultRow, *without: str) -> tuple[object, ...]:
    """What rows have in common that differ in these dimensions only."""
    return tuple(getattr(row.case, d.field) for d in DIMENSIONS if d.field not in without)


def _line(curve: SizeCurve, size: int) -> Fact:
    """The part of the curve that a size belongs to."""
    fixed, grown = curve.at(size)
    terms = [seconds(fixed, 3)] if fixed or not grown else []
    terms += [f"S / {size / grown / GB:.3g} GB/s"] if grown else []
    own = curve.range_of(size)
    sizes, error = own.sizes, sum(own.errors) / len(own.errors)
    low, *_, high = map(format_bytes, sizes)
    fitted = f"fitted to the times of {len(sizes)} sizes of this call, {low} to {high}"
    how = f"line {fitted}; off by {format_share(error)} on average"
    return Fact("model of t", " + ".join(terms), TEXT, how)


def _twice_the_ranks(
    row: ResultRow, timed: Sequence[ResultRow], latency_s: float | None
) -> list[Fact]:
    """What twice the ranks take: measured, else by the formula of the backend's algorithm, for
    latency that is the same for any number of ranks and for latency that is all in the steps."""
    case, time_s, backend = row.case, _time(row), row.header.plan.backend
    groups = ("root", "group", "group_ranks")
    for each in timed:
        is_twice = each.case.ranks == 2 * case.ranks
        if time_s and is_twice and _call(each, *groups) == _call(row, *groups):
            return [Fact(TWICE_RANKS, _time(each) / time_s, RATIO, MEASURED)]
    if latency_s is None or case.ranks == 1:
        return []
    known = None if case.call else find_algorithm(backend, case.operation, row.nccl_selection[0])
    if known is None or not time_s:
        how = "runs of more ranks show it: `commbench model fit`"
        return [Fact(TWICE_RANKS, "not known", TEXT, how)]
    rest = max(0.0, time_s - latency_s)
    ratios = growth(known, latency_s, rest, case.ranks, 2 * case.ranks)
    formula = f"{known.name}, {known.formula}"
    how = f"not measured; by the formula of {backend}'s algorithm: {formula}"
    return [Fact(TWICE_RANKS, ratios, RATIO, how)]


def _by_machine(row: ResultRow, machine: Machine) -> list[Fact]:
    """What a machine's models say about a row: its predicted time, shares, n-half, twice the size
    and twice the ranks; or why they say nothing."""
    case, per_node, measured = row.case, ranks_per_node(row), _time(row)
    machine = _models_of(row, machine)
    try:
        (found,) = predict(machine, case.operation, (case.ranks,), per_node, (case.size_bytes,))
    except CommbenchError as error:
        how = f"{machine.name} does not predict this call: {error.message}"
        return [Fact("predicted", "not known", TEXT, how)]
    is_inside = found.low_s <= measured <= found.high_s
    where = "inside" if is_inside else "below" if measured < found.low_s else "above"
    how = (
        f"{found.model} ({found.kind}) of {machine.name}; t is {measured / found.time_s:.3g} times "
        f"that, {where} the interval"
    )
    facts = [Fact("predicted", found.time, SECONDS, how)]
    if found.size_bytes:
        fitted = find_fitted(machine, case.operation, found.kind, "", per_node)
        half = find_figure(fitted, case.ranks, per_node, 1, -1)
        facts += [*_bound(found.latency_share), _half(half and half.value)]
        facts.append(_predict(machine, TWICE_SIZE, row, case.ranks, 2, found.time_s, found.kind))
    twice = _predict(machine, TWICE_RANKS, row, 2 * case.ranks, 1, found.time_s, found.kind)
    return [*facts, twice]


def _models_of(row: ResultRow, machine: Machine) -> Machine:
    """The machine with those models only whose variant describes the row; the whole machine where
    none does."""
    known = {*map(str, _call(row)), row.case.concurrency or ALONE, ""}
    known.add(f"{SELECTED} {' '.join(row.nccl_selection[:2]).lower()}")
    fitting = [
        each
        for each in machine.fitted
        if all(word in known or word.endswith(PER_HOST) for word in each.variant.split(", "))
    ]
    return replace(machine, fitted=tuple(fitting)) if fitting else machine


def _predict(
    machine: Machine, name: str, row: ResultRow, ranks: int, factor: int, now_s: float, kind: str
) -> Fact:
    """What a larger call takes. More ranks than one host has are on further hosts if groups across
    hosts were measured, else on the same host."""
    case, per_node, error = row.case, ranks_per_node(row), ""
    for on_host in dict.fromkeys((per_node, max(per_node, ranks))):
        try:
            size = factor * case.size_bytes
            (more,) = predict(machine, case.operation, (ranks,), on_host, (size,))
        except CommbenchError as caught:
            error = error or caught.message
            continue
        source = BY_MODEL if more.kind == kind else f"{BY_MODEL}, {more.kind}"
        return Fact(name, more.time.scaled(1 / now_s), RATIO, f"{source}: {time_text(more.time)}")
    return Fact(name, "not known", TEXT, f"no prediction: {error}")


def ranks_per_node(row: ResultRow) -> int:
    """The most ranks of the row's group on one host."""
    case, header = row.case, row.header
    hosts = {rank.rank: rank.host for rank in header.ranks}
    if not hosts:
        return ceil(case.ranks / max(1, header.num_nodes))
    groups = header.plan.groups_of(case) if case.group else (tuple(range(case.ranks)),)
    return max(max(Counter(hosts.get(rank, "") for rank in group).values()) for group in groups)
