"""Why a call takes as long as it does: latency or bandwidth, and what more bytes or ranks would do.

The figures come from the other sizes of the same run, or from a machine's fitted models. What more
ranks would do comes from rows of the run with twice the ranks, else from the formula of the
backend's algorithm, and the result says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from commbench.analysis.rows import ResultRow
from commbench.errors import CommbenchError
from commbench.models.machine import Machine, Point
from commbench.models.observations import PER_HOST, SELECTED
from commbench.models.predict import Prediction, find_fitted, half_size, predict_one
from commbench.models.size_curve import SizeCurve, fit_sizes
from commbench.models.textbook import find_algorithm, growth
from commbench.results.schema import OK
from commbench.spec.dimensions import DIMENSIONS
from commbench.spec.groups import ALONE
from commbench.spec.operations import OPERATIONS
from commbench.stats.estimate import Estimate

LATENCY, BANDWIDTH, BOTH = "latency-bound", "bandwidth-bound", "bound by latency and bandwidth"
CLEAR = 0.6
"""A part that takes at least so much of a time bounds it."""
MEASURED = "measured in this run"
BY_MODEL = "by the model"


class Line(NamedTuple):
    """The part of a fitted curve that a size belongs to: t = fixed + S / rate."""

    fixed_s: float
    bytes_per_s: float | None
    """None where the time does not grow with the size."""
    low_bytes: int
    high_bytes: int
    sizes: int
    """The number of sizes to which the whole curve was fitted."""
    error: float
    """The mean error of the curve, as a part of the time."""


class Larger(NamedTuple):
    """What a larger call takes. The ratios are those of its time to the time of the call."""

    low_ratio: float | None
    high_ratio: float | None
    """The same as the low one where a single value is known; None where nothing is."""
    source: str
    """How that is known, or why it is not."""
    time_s: Estimate | None = None
    """As it is predicted."""


class Why(NamedTuple):
    """What bounds a call."""

    latency_share: float | None = None
    """The part of the time that a call takes at any size; None where that is not known."""
    latency_s: float | None = None
    line: Line | None = None
    """Fitted to the sizes of this call in its run."""
    half_bytes: float | None = None
    """n-half: the size at which latency takes as long as the bytes."""
    twice_size: Larger | None = None
    twice_ranks: Larger | None = None
    model: str = ""
    """The machine's model that predicts the call."""
    predicted_s: Estimate | None = None
    unknown: str = ""
    """Why nothing is known."""

    @property
    def bound(self) -> str:
        """LATENCY, BANDWIDTH or BOTH; empty where that is not known."""
        if self.latency_share is None:
            return ""
        if self.latency_share >= CLEAR:
            return LATENCY
        return BANDWIDTH if self.latency_share <= 1 - CLEAR else BOTH


def find_why(row: ResultRow, rows: Sequence[ResultRow], machine: Machine | None) -> Why | None:
    """What bounds a row: by the models of a machine, else by all rows of its run. None for what no
    model describes: overlaps, steps and what the host does."""
    case = row.measurement.case
    if not row.time or case.part or case.step or OPERATIONS[case.operation].is_timed_by_host:
        return None
    return _by_machine(row, machine) if machine else _by_run(row, rows)


def _by_run(row: ResultRow, rows: Sequence[ResultRow]) -> Why:
    case, time_s = row.measurement.case, _time(row)
    timed = [each for each in rows if each.time and each.measurement.status == OK]
    times = {
        each.measurement.case.size_bytes: _time(each) for each in timed if _kind(each) == _kind(row)
    }
    points = [Point(case.ranks, case.ranks, size, seconds) for size, seconds in times.items()]
    is_wide = bool(times) and max(times) >= 2 * min(times) > 0
    curve = fit_sizes(case.operation, points) if is_wide else None
    twice_size = None
    if not OPERATIONS[case.operation].has_data:
        latency_s, unknown = time_s, ""
    elif curve is None:
        latency_s, unknown = None, "too few sizes of this call to tell latency from bandwidth"
    else:
        # Later pieces may have more of it, where the protocol switches.
        fixed, _ = curve.at(case.size_bytes)
        latency_s, unknown = min(time_s, max(fixed, curve.pieces[0].parameters[0])), ""
        twice_size = _twice_the_size(case.size_bytes, times, time_s, curve)
    return Why(
        latency_share=None if latency_s is None or not time_s else latency_s / time_s,
        latency_s=latency_s,
        line=_line(curve, case.size_bytes) if curve else None,
        half_bytes=curve.half_size if curve else None,
        twice_size=twice_size,
        twice_ranks=_twice_the_ranks(row, timed, latency_s) if case.ranks > 1 else None,
        unknown=unknown,
    )


def _time(row: ResultRow) -> float:
    return row.time.median if row.time else 0.0


def _kind(row: ResultRow) -> tuple[str, str]:
    """What rows have in common that differ in size only."""
    case = row.measurement.case
    return case.title, case.timing


def _call(row: ResultRow) -> tuple[object, ...]:
    """What rows have in common that differ in size and in their group of ranks."""
    case = row.measurement.case
    left_out = ("size_bytes", "root", "group", "group_ranks")
    return tuple(getattr(case, d.field) for d in DIMENSIONS if d.field not in left_out)


def _line(curve: SizeCurve, size: int) -> Line:
    fixed, grown = curve.at(size)
    rate = size / grown if grown else None
    return Line(fixed, rate, *curve.range_at(size), len(curve.sizes), curve.error)


def _twice_the_size(size: int, times: dict[int, float], time_s: float, curve: SizeCurve) -> Larger:
    if time_s and (longer := times.get(2 * size)):
        return Larger(longer / time_s, longer / time_s, MEASURED)
    ratio = max(1.0, sum(curve.at(2 * size)) / sum(curve.at(size)))
    return Larger(ratio, ratio, BY_MODEL)


def _twice_the_ranks(
    row: ResultRow, timed: Sequence[ResultRow], latency_s: float | None
) -> Larger | None:
    """What twice the ranks take: measured, else by the formula of the backend's algorithm, for
    latency that is the same for any number of ranks and for latency that is all in the steps."""
    case, time_s, backend = row.measurement.case, _time(row), row.header.plan.backend
    for each in timed:
        other = each.measurement.case
        is_wider = other.ranks == 2 * case.ranks and other.size_bytes == case.size_bytes
        if is_wider and _call(each) == _call(row) and time_s:
            return Larger(_time(each) / time_s, _time(each) / time_s, MEASURED)
    if latency_s is None:
        return None
    algorithm = find_algorithm(backend, case.operation, row.nccl_selection[0])
    if algorithm is None or not time_s:
        return Larger(None, None, "not measured; `commbench model fit` takes runs of more ranks")
    rest = max(0.0, time_s - latency_s)
    ratios = growth(algorithm.model, latency_s, rest, case.ranks, 2 * case.ranks)
    formula = f"{algorithm.name}, {algorithm.model.formula}"
    return Larger(*ratios, f"not measured; by the formula of {backend}'s algorithm: {formula}")


def _by_machine(row: ResultRow, machine: Machine) -> Why:
    """What a machine's models say about a row: its predicted time, shares, n-half, twice the size
    and twice the ranks; or why they say nothing."""
    case, per_node = row.measurement.case, ranks_per_node(row)
    machine = _models_of(row, machine)
    try:
        found = predict_one(machine, case.operation, case.ranks, per_node, case.size_bytes)
    except CommbenchError as error:
        return Why(unknown=f"{machine.name} does not predict this call: {error.message}")
    larger = _predict(machine, found, case.ranks, per_node, 2) if found.size_bytes else None
    fitted = find_fitted(machine, case.operation, found.kind, "", per_node)
    return Why(
        latency_share=found.latency_share if found.size_bytes else 1.0,
        half_bytes=half_size(fitted, case.ranks, per_node) if found.size_bytes else None,
        twice_size=larger,
        twice_ranks=_predict(machine, found, 2 * case.ranks, per_node, 1),
        model=f"{found.model} ({found.kind}) of {machine.name}",
        predicted_s=Estimate(found.time_s, found.low_s, found.high_s),
    )


def _models_of(row: ResultRow, machine: Machine) -> Machine:
    """The machine with those models only whose variant describes the row; the whole machine where
    none does."""
    case = row.measurement.case
    known = {str(getattr(case, d.field)) for d in DIMENSIONS} | {case.concurrency or ALONE, ""}
    known.add(f"{SELECTED} {' '.join(row.nccl_selection[:2]).lower()}")
    fitting = [
        each
        for each in machine.fitted
        if all(word in known or word.endswith(PER_HOST) for word in each.variant.split(", "))
    ]
    return machine._replace(fitted=tuple(fitting)) if fitting else machine


def _predict(machine: Machine, now: Prediction, ranks: int, per_node: int, factor: int) -> Larger:
    """What a larger call takes. More ranks than one host has are on further hosts if groups across
    hosts were measured, else on the same host."""
    error = ""
    for hosts_ranks in dict.fromkeys((per_node, max(per_node, ranks))):
        try:
            more = predict_one(machine, now.operation, ranks, hosts_ranks, factor * now.size_bytes)
        except CommbenchError as caught:
            error = error or caught.message
            continue
        source = BY_MODEL if more.kind == now.kind else f"{BY_MODEL}, {more.kind}"
        ratio = more.time_s / now.time_s
        return Larger(ratio, ratio, source, Estimate(more.time_s, more.low_s, more.high_s))
    return Larger(None, None, f"no prediction: {error}")


def ranks_per_node(row: ResultRow) -> int:
    """The most ranks of the row's group on one host."""
    case, header = row.measurement.case, row.header
    hosts = {rank.rank: rank.host for rank in header.ranks}
    if not hosts:
        return ceil(case.ranks / max(1, header.num_nodes))
    groups = header.plan.groups_of(case) if case.group else (tuple(range(case.ranks)),)
    return max(max(Counter(hosts.get(rank, "") for rank in group).values()) for group in groups)
