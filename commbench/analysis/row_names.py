"""How sentences name rows, by operation and ranges of sizes (`all_reduce 1K-64K; broadcast 4K`),
and what the columns of the table of a run mean.

Other dimensions are named where the rows of a run differ in them: `all_reduce bfloat16 1K-64K`.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from commbench.errors import UsageError
from commbench.plan.case import Case
from commbench.plan.dimensions import DIMENSIONS, IN_TITLE, describe_timing
from commbench.plan.operations import OPERATIONS
from commbench.stats import collect
from commbench.units import format_bytes, format_sizes, size_end

if TYPE_CHECKING:
    from commbench.analysis.rows import ResultRow

_FIELDS = tuple(d.field for d in DIMENSIONS if d.field != "size_bytes")
kind_values = attrgetter(*_FIELDS)
"""The values of a case, or of a named tuple of columns of results.csv, without its size."""
_Kind = TypeVar("_Kind", bound=Hashable)
LONGEST = 40
"""Characters of the names of rows in a line; what is longer is cut."""


def short_titles(cases: Mapping[_Kind, Case], varied: Collection[str] = ()) -> dict[_Kind, str]:
    """The title of each kind, by a case of it, without the dimensions that are `varied` or that are
    alike in all kinds of each operation."""
    alike = []
    for dimension in IN_TITLE:
        found = {(case.operation, getattr(case, dimension.field)) for case in cases.values()}
        if not dimension.is_name and len({o for o, _ in found}) == len(found):
            alike.append(dimension.field)
    return {kind: case.title_without(*alike, *varied) for kind, case in cases.items()}


def format_range(low_bytes: int, high_bytes: int) -> str:
    """A range of sizes: `1K-64M`; one size: `1K`; empty for an operation without data."""
    low, high = size_end(low_bytes), size_end(high_bytes)
    return ("" if not low_bytes else low) if low == high else f"{low}-{high}"


def named_bytes(row: Any) -> int:
    """The size that names a row, a case or a named tuple of columns of results.csv; 0 where the
    operation has no size, as the step of a workload."""
    return row.size_bytes if OPERATIONS[row.operation].has_data else 0


def lacks_size(name: str, has: Iterable[int], asked: int) -> UsageError:
    """The error for a size that none of the rows of a run has; `has` are their sizes."""
    some = sorted({*has} - {0})
    place = bisect(some, asked)
    near = " and ".join(map(format_bytes, some[max(0, place - 1) : place + 1]))
    hint = f"it has {format_sizes(tuple(some)) or 'rows without a size'}"
    hint += f"; nearest: {near}" * bool(some[2:])
    return UsageError(f"{name} has no row of {format_bytes(asked)}", hint)


def case_of_kind(kind: tuple[Any, ...]) -> Case:
    """A case of a kind, with index, size and count 0."""
    return Case(index=0, size_bytes=0, count=0, **dict(zip(_FIELDS, kind, strict=True)))


def name_rows(
    rows: Collection[Any], every: Collection[Any], longest: float, varied: Collection[str] = ()
) -> str:
    """The names of some rows of `every` row: cases, or named tuples of columns of results.csv;
    without the dimensions that are `varied`.

    What makes the text longer than `longest` characters is counted: `all_reduce 1K-64K; 3 more
    rows`.
    """
    sizes_of_all = _sizes_by_kind(every, varied)
    titles = short_titles({kind: case_of_kind(kind) for kind in sizes_of_all})
    text = named = ""
    more = 0
    for kind, sizes in _sizes_by_kind(rows, varied).items():
        for is_chosen, neighbours in groupby(sorted(sizes_of_all[kind]), sizes.__contains__):
            if not is_chosen:
                continue
            low, *others = neighbours
            range_ = format_range(low, others[-1] if others else low)
            added = f"{'; ' if text else ''}{titles[kind]} {range_}".rstrip()
            if titles[kind] == named:
                added = f", {range_}"
            if more or (text and len(text + added) > longest):
                more += 1 + len(others)
            else:
                text, named = text + added, titles[kind]
    return f"{text}; {more} more {'row' if more == 1 else 'rows'}" if more else text


def _sizes_by_kind(
    rows: Collection[Any], varied: Collection[str]
) -> dict[tuple[Any, ...], set[int]]:
    """The sizes of each kind of case; the kind as the values of its dimensions, but for those that
    are `varied`."""
    blank = dict.fromkeys(varied, "")
    kinds = (kind_values(row._replace(**blank) if blank else row) for row in rows)
    sizes = collect(zip(kinds, map(named_bytes, rows), strict=True))
    return {kind: {*own} for kind, own in sizes.items()}


_COLUMNS = {
    "size": "S: the larger of what one rank sends and what it receives in a call.",
    "count": "Elements of the tensor, or of one rank's block where S consists of blocks.",
    "time": "t: the slowest rank of each iteration, then the median of the iterations.",
    "interval": "The 95 % confidence interval of this median. A wide interval means noise.",
    "p5": "The 5th percentile: 5 % of the iterations took less. It is hardly disturbed.",
    "n": "Number of timed iterations.",
    "algbw": "S / t: how fast one call moves its data.",
    "busbw": "algbw x factor: at least one rank's link was this fast. Compare it with a link.",
    "wrong": "Wrong elements of the results. An empty cell: they were not checked.",
}
_OF_GROUPS = {
    "slowest group": "The ranks of the group with the longest time.",
    "interference": "The time of a group, all groups of the dimension together, over its time "
    "alone. 1: the groups do not slow each other.",
}


def column_meanings(rows: Sequence[ResultRow]) -> dict[str, str]:
    """What each column of the table of these rows means."""
    columns, missing = dict(_COLUMNS), set()
    if all(row.measurement.wrong is None for row in rows):
        missing.add("wrong")
    if all(row.time is None or row.time.p5 is None for row in rows):
        missing.add("p5")
    if rows and all(row.measurement.reported for row in rows):
        columns["time"] = f"t: {describe_time(rows[0])}"
        missing |= {"interval", "p5"}
    if any(row.worst_group for row in rows):
        columns |= _OF_GROUPS
    return {name: text for name, text in columns.items() if name not in missing}


def describe_time(row: ResultRow) -> str:
    """What the time of a row is: by its timing mode, or as another tool defines it."""
    reported = row.measurement.reported
    if reported is None:
        return describe_timing(row.case.timing).explanation
    tool = row.header.environment.get("tool") or "another tool"
    statistic = reported.statistic[:1].upper() + reported.statistic[1:]
    return f"{statistic}, as printed by {tool}. The samples are unknown."
