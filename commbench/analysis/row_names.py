"""How sentences name rows: by operation and ranges of sizes, `all_reduce 1K-64K, 1M; broadcast 4K`.

Other dimensions are named where the rows of a run differ in them: `all_reduce bfloat16 1K-64K`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from commbench.spec.case import Case
from commbench.spec.dimensions import DIMENSIONS, IN_TITLE
from commbench.spec.operations import OPERATIONS
from commbench.units import format_size

_FIELDS = tuple(d.field for d in DIMENSIONS if d.field != "size_bytes")
_kind = attrgetter(*_FIELDS)
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
    low, high = (
        f"{text}B" if (text := format_size(size)).isdigit() else text
        for size in (low_bytes, high_bytes)
    )
    return ("" if not low_bytes else low) if low == high else f"{low}-{high}"


def named_bytes(row: Any) -> int:
    """The size that names a row, a case or a named tuple of columns of results.csv; 0 where the
    operation has no size, as the step of a workload."""
    return row.size_bytes if OPERATIONS[row.operation].has_data else 0


class _Part(NamedTuple):
    kind: str
    sizes: str
    rows: int


def name_rows(rows: Iterable[Any], every: Iterable[Any], longest: int) -> str:
    """The names of some rows of `every` row: cases, or named tuples of columns of results.csv.

    What makes the text longer than `longest` characters is counted: `all_reduce 1K-64K; 3 more
    rows`.
    """
    text = named = ""
    parts = [*_parts(rows, every)]
    for index, part in enumerate(parts):
        added = f"{'; ' if text else ''}{part.kind} {part.sizes}".rstrip()
        if part.kind == named:
            added = f", {part.sizes}"
        if text and len(text + added) > longest:
            more = sum(each.rows for each in parts[index:])
            return f"{text}; {more} more {'row' if more == 1 else 'rows'}"
        text, named = text + added, part.kind
    return text


def _parts(rows: Iterable[Any], every: Iterable[Any]) -> Iterator[_Part]:
    """Each range of neighbouring sizes, of kind after kind."""
    sizes_of_all = _sizes_by_kind(every)
    cases = {
        kind: Case(index=0, size_bytes=0, count=0, **dict(zip(_FIELDS, kind, strict=True)))
        for kind in sizes_of_all
    }
    titles = short_titles(cases)
    for kind, sizes in _sizes_by_kind(rows).items():
        for is_chosen, neighbours in groupby(sorted(sizes_of_all[kind]), sizes.__contains__):
            if is_chosen:
                found = [*neighbours]
                yield _Part(titles[kind], format_range(found[0], found[-1]), len(found))


def _sizes_by_kind(rows: Iterable[Any]) -> dict[tuple[Any, ...], set[int]]:
    """The sizes of each kind of case; the kind as the values of its dimensions."""
    kinds: dict[tuple[Any, ...], set[int]] = {}
    for row in rows:
        kinds.setdefault(_kind(row), set()).add(named_bytes(row))
    return kinds
