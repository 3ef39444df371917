"""Why a call takes as long as it does: latency or bandwidth, and what more bytes or ranks would do.

The figures come from the other sizes of the same run, or from a machine's fitted models. What more
ranks would do comes from rows of the run with twice the ranks, else from the formula of the
backend's algorithm, and the text says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

from commbench.analysis.rows import ResultRow
from commbench.errors import CommbenchError
from commbench.models.machine import Machine, Point
from commbench.models.observations import PER_HOST, SELECTED
from commbench.models.predict import Prediction, find_fitted, half_size, predict_one
from commbench.models.size_curve import SizeCurve, fit_sizes
from commbench.models.textbook import Algorithm, find_algorithm, growth
from commbench.output.paragraphs import gbps, seconds
from commbench.results.schema import OK
from commbench.spec.dimensions import DIMENSIONS
from commbench.spec.groups import ALONE
from commbench.spec.operations import OPERATIONS
from commbench.units import (
    format_about,
    format_bytes,
    format_known_time,
    format_share,
)

LATENCY, BANDWIDTH = "latency", "bandwidth"
CLEAR = 0.6
"""A part that takes at least so much of a time bounds it."""
ABOUT = 0.05
"""Ratios of a range that differ by less are printed as one."""


class Why(NamedTuple):
    """What bounds a row, found from the other rows of its run."""

    row: ResultRow
    curve: SizeCurve | None
    """None where the run has too few sizes of this call."""
    longer: ResultRow | None
    """The row of the same call with twice the size."""
    wider: ResultRow | None
    """The row of the same call and size with twice the ranks."""

    @property
    def time_s(self) -> float:
        """The measured time."""
        return self.row.time.median if self.row.time else 0.0

    @property
    def latency_s(self) -> float | None:
        """What a call takes at any size, in seconds; None where that is not known. Later pieces may
        have more of it, where the protocol switches; what they lack was not saved."""
        if not OPERATIONS[self.row.measurement.case.operation].has_data:
            return self.time_s
        if self.curve is None:
            return None
        fixed, _ = self.curve.at(self.row.measurement.case.size_bytes)
        return min(self.time_s, max(fixed, self.curve.pieces[0].parameters[0]))


def find_why(row: ResultRow, rows: Sequence[ResultRow]) -> Why:
    """What bounds a row, by all rows of its run."""
    case = row.measurement.case
    timed = [each for each in rows if each.time and each.measurement.status == OK]
    by_size = {
        each.measurement.case.size_bytes: each for each in timed if _kind(each) == _kind(row)
    }
    points = [Point(case.ranks, case.ranks, size, _time(each)) for size, each in by_size.items()]
    wider = [
        each
        for each in timed
        if each.measurement.case.ranks == 2 * case.ranks
        and each.measurement.case.size_bytes == case.size_bytes
        and _call(each) == _call(row)
    ]
    return Why(
        row,
        fit_sizes(case.operation, points) if max(by_size) >= 2 * min(by_size) > 0 else None,
        by_size.get(2 * case.size_bytes),
        wider[0] if wider else None,
    )


def _kind(row: ResultRow) -> tuple[str, str]:
    """What rows have in common that differ in size only."""
    case = row.measurement.case
    return case.title, case.timing


def _call(row: ResultRow) -> tuple[object, ...]:
    """What rows have in common that differ in size and in their group of ranks."""
    case = row.measurement.case
    left_out = ("size_bytes", "root", "group", "group_ranks")
    return tuple(getattr(case, d.field) for d in DIMENSIONS if d.field not in left_out)


def _ratio(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _time(row: ResultRow) -> float:
    return row.time.median if row.time else 0.0


def why_sentences(
    row: ResultRow, rows: Sequence[ResultRow], machine: Machine | None
) -> Iterator[str]:
    """The paragraph `why` of a row: by the models of a machine, else by all rows of its run."""
    if row.measurement.case.step:
        return
    if machine is not None:
        yield from model_sentences(row, machine)
    elif _has_why(row):
        yield from _own_sentences(find_why(row, rows))


def _has_why(row: ResultRow) -> bool:
    """Whether the row is a call among ranks that the models describe."""
    case = row.measurement.case
    return bool(row.time and not case.part and not OPERATIONS[case.operation].is_timed_by_host)


def _own_sentences(why: Why) -> Iterator[str]:
    """Bound and shares, the model, n-half, twice the size, twice the ranks."""
    case, latency = why.row.measurement.case, why.latency_s
    operation = OPERATIONS[case.operation]
    if latency is None:
        yield (
            "Latency or bandwidth? This run has too few sizes of this call to tell them apart. "
            "Measure several sizes, or give --model."
        )
    elif not operation.has_data:
        yield "Latency-bound: it moves no data."
    else:
        yield (
            f"{_bound(latency / why.time_s)}: {format_share(latency / why.time_s)} of t is latency "
            f"({seconds(latency)}, which a call takes at any size), "
            f"{format_share(1 - latency / why.time_s)} grows with S."
        )
        if why.curve:
            yield _describe_curve(why.curve, case.size_bytes)
            yield from _half_sentence(why.curve.half_size)
            yield _twice_the_size(why, why.curve)
    if case.ranks > 1 and (latency is not None or why.wider):
        yield _twice_the_ranks(why)


def why_in_short(row: ResultRow, rows: Sequence[ResultRow], machine: Machine | None) -> str:
    """The same in two sentences, or nothing where nothing is known."""
    if row.measurement.case.step:
        return ""
    if machine is not None:
        return next(model_sentences(row, machine))
    if not _has_why(row):
        return ""
    why = find_why(row, rows)
    latency, size = why.latency_s, why.row.measurement.case.size_bytes
    if latency is None or why.curve is None or not why.time_s:
        return ""
    half = why.curve.half_size
    parts = [f"latency is {format_share(latency / why.time_s)} of t"]
    parts += [f"n-half {format_about(half)}"] if half else []
    twice = (
        f" Twice the size takes {_ratio(_size_ratio(why, why.curve))} times as long" if size else ""
    )
    ranks = _ratio_of_ranks(why)
    twice += f", twice the ranks {ranks[0]} ({ranks[1]})" if ranks else ""
    return f"{_bound(latency / why.time_s)} ({'; '.join(parts)}).{twice}{'.' * bool(twice)}"


def _bound(share: float) -> str:
    if share >= CLEAR:
        return "Latency-bound"
    return "Bandwidth-bound" if share <= 1 - CLEAR else "Latency and bandwidth count alike"


def _describe_curve(curve: SizeCurve, size: int) -> str:
    low, high = curve.range_at(size)
    count, several = len(curve.sizes), len(curve.pieces) > 1
    fixed, grown = curve.at(size)
    parts = [seconds(fixed)] if fixed or not grown else []
    parts += [f"S / {gbps(size / grown)} GB/s"] if grown else []
    where = f", from {format_bytes(low)} to {format_bytes(high)}" if several else ""
    return (
        f"Model: alpha-beta, fitted to the {count} sizes of this call in this run{where}: "
        f"t = {' + '.join(parts)}. Measured times differ from it by "
        f"{format_share(curve.error)} on average."
    )


def _half_sentence(half: float | None) -> Iterator[str]:
    if half:
        yield f"n-half = {format_about(half)}: there latency takes as long as the bytes."


def _size_ratio(why: Why, curve: SizeCurve) -> float:
    """Time of twice the size over that of this size: measured, else by the curve."""
    if why.longer and why.time_s:
        return _time(why.longer) / why.time_s
    size = why.row.measurement.case.size_bytes
    return max(1.0, sum(curve.at(2 * size)) / sum(curve.at(size)))


def _twice_the_size(why: Why, curve: SizeCurve) -> str:
    source = "measured in this run" if why.longer else "by the model"
    return f"Twice the size takes {_ratio(_size_ratio(why, curve))} times as long ({source})."


def _ratio_of_ranks(why: Why) -> tuple[str, str] | None:
    """How many times as long twice the ranks take, and by what; None where that is not known."""
    if why.wider and why.time_s:
        return f"{_ratio(_time(why.wider) / why.time_s)} times", "measured in this run"
    algorithm, latency = _algorithm(why.row), why.latency_s
    if algorithm is None or latency is None or not why.time_s:
        return None
    ranks = why.row.measurement.case.ranks
    low, high = growth(algorithm.model, latency, max(0.0, why.time_s - latency), ranks, 2 * ranks)
    text = (
        f"{_ratio(low)} to {_ratio(high)} times"
        if high - low > ABOUT * high
        else f"{_ratio(high)} times"
    )
    backend = why.row.header.plan.backend
    return text, f"by the formula of {backend}'s {algorithm.name}, not measured"


def _twice_the_ranks(why: Why) -> str:
    ranks = 2 * why.row.measurement.case.ranks
    found, algorithm = _ratio_of_ranks(why), _algorithm(why.row)
    if found and why.wider:
        return f"Twice the ranks ({ranks}) take {found[0]} as long ({found[1]})."
    alone = f"This run has no row with {ranks} ranks, so it does not show what they would do."
    if found is None or algorithm is None:
        return f"{alone} Runs of several numbers of ranks do: commbench model fit."
    return (
        f"{alone} By the formula of {why.row.header.plan.backend}'s algorithm ({algorithm.name}), "
        f"{algorithm.model.formula}, a call takes {found[0]} as long. This is a formula, not a "
        "measurement."
    )


def _algorithm(row: ResultRow) -> Algorithm | None:
    selected = row.nccl_selection[0]
    return find_algorithm(row.header.plan.backend, row.measurement.case.operation, selected)


def model_sentences(row: ResultRow, machine: Machine) -> Iterator[str]:
    """What a machine's models say about a row: its predicted time, shares, n-half, twice the size
    and twice the ranks; or why they say nothing."""
    case = row.measurement.case
    per_node = ranks_per_node(row)
    machine = _models_of(row, machine)
    try:
        found = predict_one(machine, case.operation, case.ranks, per_node, case.size_bytes)
    except CommbenchError as error:
        yield f"{machine.name} does not predict this call: {error.message}."
        return
    yield _compare(row, machine, found)
    if found.size_bytes:
        share = found.latency_share
        yield (
            f"{_bound(share)}: {format_share(share)} of the predicted time is latency, "
            f"{format_share(1 - share)} grows with S."
        )
        fitted = find_fitted(machine, case.operation, found.kind, "", per_node)
        yield from _half_sentence(half_size(fitted, case.ranks, per_node))
        yield _predicted(machine, found, "Twice the size", case.ranks, per_node, 2)
    more = 2 * case.ranks
    yield _predicted(machine, found, f"Twice the ranks ({more})", more, per_node, 1)


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


def _compare(row: ResultRow, machine: Machine, found: Prediction) -> str:
    time, ends = format_known_time(found.time_s, found.low_s, found.high_s)
    text = f"Model: {found.model} ({found.kind}) of {machine.name} predicts {time} ({ends})."
    measured = _time(row)
    if not measured:
        return text
    inside = found.low_s <= measured <= found.high_s
    where = "inside the interval" if inside else (
        "below the interval" if measured < found.low_s else "above the interval"
    )  # fmt: skip
    return f"{text} t is {measured / found.time_s:.3g} times that, {where}."


def _predicted(
    machine: Machine, now: Prediction, what: str, ranks: int, per_node: int, factor: int
) -> str:
    """What a larger call takes. More ranks than one host has are on further hosts if groups across
    hosts were measured, else on the same host."""
    error = ""
    for hosts_ranks in dict.fromkeys((per_node, max(per_node, ranks))):
        try:
            more = predict_one(machine, now.operation, ranks, hosts_ranks, factor * now.size_bytes)
        except CommbenchError as caught:
            error = error or caught.message
            continue
        time, ends = format_known_time(more.time_s, more.low_s, more.high_s)
        where = "" if more.kind == now.kind else f", {more.kind},"
        verb = "take" if ranks != now.world_size else "takes"
        ratio = more.time_s / now.time_s
        return f"{what}{where} {verb} {_ratio(ratio)} times as long: {time} ({ends}), by the model."
    return f"{what}: no prediction, since {error}."


def ranks_per_node(row: ResultRow) -> int:
    """The most ranks of the row's group on one host."""
    case, header = row.measurement.case, row.header
    hosts = {rank.rank: rank.host for rank in header.ranks}
    if not hosts:
        return ceil(case.ranks / max(1, header.num_nodes))
    groups = header.plan.groups_of(case) if case.group else (tuple(range(case.ranks)),)
    return max(max(Counter(hosts.get(rank, "") for rank in group).values()) for group in groups)
