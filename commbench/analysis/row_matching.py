"""Matches the rows of two runs: those with the same values in KEY measured the same."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis.columns import KEY
from commbench.analysis.load import LoadedRun
from commbench.errors import RecordsError
from commbench.results.run_folder import JOURNAL
from commbench.spec.case import Case


class RowMatch(NamedTuple):
    """Indices of rows of two runs."""

    both: list[tuple[int, int]]
    """Of rows with the same key in A and in B, in the order of A."""
    only_a: list[int]
    only_b: list[int]


def match_rows(a: LoadedRun, b: LoadedRun) -> RowMatch:
    """Match the rows of two runs. Raises RecordsError where a run has two rows of one key."""
    first, second = index_rows(a), index_rows(b)
    return RowMatch(
        both=[(index, second[key]) for key, index in first.items() if key in second],
        only_a=[index for key, index in first.items() if key not in second],
        only_b=[index for key, index in second.items() if key not in first],
    )


def index_rows(run: LoadedRun) -> dict[tuple[Any, ...], int]:
    """The index of each row by its values in KEY. Raises RecordsError where two are the same."""
    indices: dict[tuple[Any, ...], int] = {}
    for index, key in enumerate(map(attrgetter(*KEY), run.rows)):
        if (first := indices.setdefault(key, index)) != index:
            raise _two_of_one_key(run, first, index)
    return indices


def make_case(row: Any) -> Case:
    """The case that a row of results measured, with index and count 0."""
    return Case(index=0, count=0, **{name: getattr(row, name) for name in KEY})


def _two_of_one_key(run: LoadedRun, first: int, second: int) -> RecordsError:
    where = f"rows {first + 1} and {second + 1}"
    if run.run is None:
        where = f"lines {first + 2} and {second + 2}"
    return RecordsError(
        f"{run.path} has two rows of {make_case(run.rows[first]).name}: {where}",
        f"give every run a file of its own; {JOURNAL} joins launches of one run",
    )
