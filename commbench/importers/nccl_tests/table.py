"""The columns of nccl-tests' text table, which changed with versions and options."""

from __future__ import annotations

import re
from typing import NamedTuple

from commbench.importers import cells
from commbench.importers.nccl_tests.names import dtype_of
from commbench.importers.nccl_tests.rows import PlacementCells, RowKey, wrong_elements
from commbench.spec.operations import IN_PLACE, OUT_OF_PLACE

_BEGINNINGS = {
    ("size", "count", "type"): cells.MICROSECONDS,
    ("bytes", "N", "type"): cells.MILLISECONDS,
}
"""How a header begins, and its unit of time: milliseconds in the first versions."""
_TITLES = {"out-of-place": OUT_OF_PLACE, "in-place": IN_PLACE}
_TITLE = re.compile("|".join(_TITLES))
_TIMES = ("time", "cputime")
_STATISTICS = {"i_min": "minimum_s", "i_max": "maximum_s", "i_p99": "p99_s"}
_REDUCE_OPS = ("redop", "op")
_LAST = "timestamp"
CPU_TIME = "its times are the CPU's for launching (option -C), not the operation's"


class NcclTestsTable(NamedTuple):
    """One table: where it begins and what its columns are."""

    line: int
    columns: tuple[str, ...]
    exponent: int
    placements: tuple[str, ...]

    @property
    def is_legacy(self) -> bool:
        """Whether it is of the first versions, whose rows may begin with `#`."""
        return self.exponent != cells.MICROSECONDS

    def is_row(self, row: list[str]) -> bool:
        """Whether a line is meant as a row, sound or not."""
        return looks_like_row(row) or (len(row) == len(self.columns) and cells.is_whole(row[0]))

    def split(self, row: list[str]) -> tuple[RowKey, list[PlacementCells]]:
        """The cells of a row; ValueError where they are not as many as columns."""
        row = self._aligned(row)
        first = _groups(self.columns)[0]
        named = dict(zip(self.columns[:first], row[:first], strict=True))
        key = RowKey(
            named.get("size") or named["bytes"],
            named.get("count") or named["N"],
            named["type"],
            named.get("redop") or named.get("op") or "",
            named.get("root", ""),
        )
        return key, [self._timed(row, index) for index in range(len(self.placements))]

    def _aligned(self, row: list[str]) -> list[str]:
        """The cells under their columns: a blank reduce op counts, a timestamp is two words."""
        for name in _REDUCE_OPS:
            if name in self.columns and len(row) > (blank := self.columns.index(name)):
                row = row if row[blank][0].isalpha() else [*row[:blank], "", *row[blank:]]
        last = len(self.columns) - 1
        if self.columns[-1] == _LAST and len(row) == last + 2:
            row = [*row[:last], " ".join(row[last:])]
        if len(row) != len(self.columns):
            raise ValueError(f"it has {len(row)} cells, and the header {len(self.columns)} columns")
        return row

    def _timed(self, row: list[str], index: int) -> PlacementCells:
        begins = [*_groups(self.columns), len(self.columns)]
        named = dict(
            zip(
                self.columns[begins[index] : begins[index + 1]],
                row[begins[index] : begins[index + 1]],
                strict=True,
            )
        )
        is_count = "#wrong" in named
        wrong = named.get("#wrong") or named.get("error") or named.get("res") or "N/A"
        return PlacementCells(
            self.placements[index],
            named["time"],
            named["algbw"],
            named["busbw"],
            wrong_elements(wrong, is_count),
            {field: named[name] for name, field in _STATISTICS.items() if name in named},
        )


def looks_like_row(row: list[str]) -> bool:
    """Whether cells begin as those of a row do, in a table of whatever columns."""
    if len(row) < 3:
        return False
    return (cells.is_whole(row[0]) and cells.is_whole(row[1])) or _is_dtype(row[2])


def _is_dtype(cell: str) -> bool:
    try:
        return bool(dtype_of(cell))
    except LookupError:
        return False


def _groups(columns: tuple[str, ...]) -> list[int]:
    """Where the columns of each placement begin."""
    return [index for index, name in enumerate(columns) if name in _TIMES]


def is_header(text: str) -> bool:
    """Whether a line names the columns of a table."""
    return tuple(text.lstrip("# \t").split()[:3]) in _BEGINNINGS


def table_of(line: int, text: str, title: str) -> NcclTestsTable:
    """The table that a header begins, with the title line before it.

    ValueError for a header that lacks what a table needs, LookupError for one whose numbers
    commbench has no use for.
    """
    columns = tuple(text.lstrip("# \t").split())
    groups = _groups(columns)
    placements = tuple(_TITLES[name] for name in _TITLE.findall(title))
    if not placements and len(groups) == 2:
        placements = (OUT_OF_PLACE, IN_PLACE)  # the order of every version
    if "cputime" in columns:
        raise LookupError(CPU_TIME)
    if not groups or len(set(placements)) != len(groups) or len(placements) != len(groups):
        raise ValueError("the header does not tell which times are in place")
    for begin, end in zip(groups, [*groups[1:], len(columns)], strict=True):
        if not {"algbw", "busbw"} <= set(columns[begin:end]) or len(set(columns[begin:end])) != len(
            columns[begin:end]
        ):
            raise ValueError("the header lacks a column, or has it twice")
    exponent = next(unit for names, unit in _BEGINNINGS.items() if columns[:3] == names)
    return NcclTestsTable(line, columns, exponent, placements)


def is_title(text: str) -> bool:
    """Whether a line says which columns are of which placement."""
    return text.startswith("#") and _TITLE.search(text) is not None
