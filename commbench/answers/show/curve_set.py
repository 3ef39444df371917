"""The curves of a picture: the rows of each kind of case, and what tells them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from commbench.analysis.load import distinct_names
from commbench.analysis.rows import ResultRow, make_rows, worst_alone
from commbench.answers.pairs.matrix import outside_matrix
from commbench.answers.show.rows import time_of
from commbench.plan.case import Case
from commbench.plan.dimensions import IN_TITLE, Dimension
from commbench.plan.operations import OPERATIONS
from commbench.results.schema import FAILED, OK, WRONG, Run
from commbench.stats import Estimate, collect
from commbench.views import pictures

MOST_IN_ONE_PANEL = 5
"""Of more curves each operation has a panel of its own."""
Points = list[tuple[float, Estimate | None]]


class Curve(NamedTuple):
    """The rows of one kind of case in one run."""

    operation: str
    variant: str
    """What else of the case differs within an operation, such as `float32`; may be empty."""
    run: str
    """The name of the run, unique among the runs drawn."""
    rows: tuple[ResultRow, ...]
    """By ascending size."""

    @property
    def other(self) -> tuple[str, str]:
        """What tells it from other curves of its operation."""
        return self.variant, self.run

    @property
    def has_size(self) -> bool:
        """Whether its operation moves data."""
        return OPERATIONS[self.operation].has_data

    @property
    def timed(self) -> list[ResultRow]:
        """The rows that have a valid time."""
        return [row for row in self.rows if is_valid(row)]

    @property
    def times(self) -> Points:
        """The time at each size; None where a row failed or gave wrong results."""
        return [(row.case.size_bytes, time_of(row) if is_valid(row) else None) for row in self.rows]

    @property
    def busbws(self) -> Points:
        """The bus bandwidth at each size, in bytes/s."""
        rows = [row for row in self.rows if row.busbw or not is_valid(row)]
        return [(row.case.size_bytes, row.known_busbw if is_valid(row) else None) for row in rows]

    @property
    def has_busbw(self) -> bool:
        """Whether it has a bus bandwidth above 0."""
        return any(row.busbw for row in self.timed)


def is_valid(row: ResultRow) -> bool:
    """Whether a row has a time of right results."""
    return bool(row.time) and row.measurement.status == OK


class CurveSet(NamedTuple):
    """All curves of some runs."""

    curves: tuple[Curve, ...]
    """In the order of `commbench ops`."""
    common: str
    """What all cases have in common, besides their operation: `float32`."""
    beside: str = ""
    """What some of the curves were measured with, for the title: `with matmul:64x64x64`."""
    published: Mapping[str, Sequence[tuple[int, Estimate]]] = {}
    """Published times (s) by size, with the range of sound machines, by operation."""

    @property
    def operations(self) -> list[str]:
        """The operations drawn."""
        return list(dict.fromkeys(curve.operation for curve in self.curves))

    @property
    def others(self) -> list[tuple[str, str]]:
        """The variants and runs drawn."""
        return list(dict.fromkeys(curve.other for curve in self.curves))

    def look(self, curve: Curve) -> pictures.Look:
        """Colour is the operation; marker and dashes are the run and variant. Where a panel has one
        operation, the colour is the run, too; where there is one run, the marker is the operation,
        too. That of an operation without sizes has no markers."""
        number = list(OPERATIONS).index(curve.operation)
        colour = pictures.COLOURS[number % len(pictures.COLOURS)]
        if not curve.has_size:
            same = [each for each in self.curves if each.operation == curve.operation]
            return pictures.Look(colour, dashes=(6, 2, *(1, 2) * same.index(curve)))
        if len(self.others) == 1:
            return pictures.Look(colour, pictures.MARKERS[number % len(pictures.MARKERS)])
        place = self.others.index(curve.other)
        is_colour_free = len(self.operations) == 1 or self.is_split
        return pictures.nth_look(place, None if is_colour_free else colour)

    @property
    def is_split(self) -> bool:
        """Whether each operation has a panel, because all curves are too many for one, or each has
        a published one."""
        is_crowded = len(self.curves) > MOST_IN_ONE_PANEL
        return (is_crowded or bool(self.published)) and len(self.operations) > 1

    def name(self, curve: Curve, is_alone: bool = False) -> str:
        """What tells a curve from others: `all_reduce float32 in ring`; in panels of operations
        without these, unless `is_alone`."""
        has_operation = is_alone or (len(self.operations) > 1 and not self.is_split)
        text = " ".join(filter(None, [curve.operation if has_operation else "", curve.variant]))
        if len({each.run for each in self.curves}) > 1:
            return f"{text} in {curve.run}" if text else curve.run
        is_only = self.is_split and len(self.others) == 1 and not self.published
        return text or ("" if is_only else curve.operation)


def find_curves(runs: Sequence[Run], least: int = 2) -> CurveSet:
    """The curves of runs that have at least so many sizes with a time, and operations without data;
    a run that is given twice counts once."""
    distinct = list({run.path: run for run in runs}.values())
    rows = [
        (name, row)
        for name, run in zip(distinct_names(distinct), distinct, strict=True)
        if not run.header.plan.workload  # replay_pictures draws its steps
        for row in worst_alone(outside_matrix(make_rows(run)))
        if row.time or row.measurement.status in (FAILED, WRONG)
    ]
    cases = [row.case for _, row in rows]
    # Of groups that were measured alone only the slowest is drawn.
    others = [d for d in IN_TITLE if d.field != "operation"]
    varied = [d for d in others if d.field != "group_ranks" and _varies(cases, d.field)]
    fixed = [d.field for d in others if d not in varied]
    once = [(d, text) for d in varied if (text := _said_once(cases, d))]
    varied = [d for d in varied if d not in [each for each, _ in once]]

    def kind(name: str, case: Case) -> tuple[str, str, str]:
        return case.operation, " ".join(filter(None, (_value_text(case, d) for d in varied))), name

    grouped = collect((kind(name, row.case), row) for name, row in rows)
    by_size = attrgetter("case.size_bytes")
    curves = [Curve(*key, tuple(sorted(own, key=by_size))) for key, own in grouped.items()]
    curves.sort(key=lambda curve: list(OPERATIONS).index(curve.operation))
    kept = tuple(c for c in curves if len(c.timed) >= (least if c.has_size else 1))
    return CurveSet(kept, _common_title(cases, fixed), " ".join(text for _, text in once))


def _value_text(case: Case, dimension: Dimension) -> str:
    """What a title says of a dimension in which curves differ; also of its usual value, such as
    `isolated`, which titles leave out."""
    value = getattr(case, dimension.field)
    if value in dimension.curve_names:
        return dimension.curve_names[value]
    if text := dimension.title(value) if dimension.title else "":
        return text
    if value in ("", None):
        return "all ranks" if dimension.field == "group" else ""
    return str(value) if str(value).isalpha() else f"{dimension.word} {value}"


def _said_once(cases: Sequence[Case], dimension: Dimension) -> str:
    """The title of a dimension's only value, where a joint dimension tells the cases that have it
    from those that do not; else empty."""
    values = {value for case in cases if (value := getattr(case, dimension.field))}
    is_told = any("" in d.curve_names for d in IN_TITLE if d.field in dimension.joint[1:])
    if not (is_told and dimension.title and len(values) == 1):
        return ""
    return dimension.title(values.pop())


def _varies(cases: Sequence[Case], field: str) -> bool:
    """Whether the cases of some operation differ in a field."""
    values = {(case.operation, getattr(case, field)) for case in cases}
    return len(values) > len({operation for operation, _ in values})


def _common_title(cases: Sequence[Case], fields: Sequence[str]) -> str:
    """The words of the fields in which all cases with data agree."""
    with_data = [case for case in cases if OPERATIONS[case.operation].busbw_formula]
    if not with_data:
        return ""
    first = with_data[0]
    same = [f for f in fields if all(getattr(c, f) == getattr(first, f) for c in with_data)]
    return first.title_without(*(d.field for d in IN_TITLE if d.field not in same))
