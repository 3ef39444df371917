"""The rows of a results.csv, without a Python object for each number."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from math import nan
from typing import Any

from commbench.analysis.columns import INTEGERS, TEXTS, row_type

BLOCK = 128
"""Rows that are packed together. More take longer to parse: their fields do not fit into the
processor's caches."""
BLOCKS_KEPT = 64
"""Blocks that stay unpacked: rows of so many kinds of cases in turn, of each in the order of its
sizes, are unpacked once."""


class PackedRows(Sequence[Any]):
    """Rows that are made when they are asked for: a named tuple of the columns for each.

    Of each block of rows, a column with one value is that value, and a column of numbers an array,
    with NaN for None. They are equal to any sequence of the same rows.
    """

    def __init__(self, columns: tuple[str, ...], blocks: Iterable[Sequence[Sequence[Any]]]) -> None:
        """Each of the blocks has BLOCK rows, but for the last."""
        self._make = row_type(columns)._make
        self._columns = columns
        self._blocks: list[tuple[Any, ...]] = []
        self._length = 0
        self._kept = lru_cache(BLOCKS_KEPT)(lambda block: [*self._unpacked(block)])
        for block in blocks:
            self._length += len(block[0])
            self._blocks.append(tuple(map(_pack, columns, block)))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._length))]
        block, at = divmod(range(self._length)[index], BLOCK)
        return self._kept(block)[at]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(map(self._unpacked, range(len(self._blocks))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    def _unpacked(self, block: int) -> Iterator[Any]:
        """The rows of a block."""
        length = min(BLOCK, self._length - block * BLOCK)
        packed = zip(self._columns, self._blocks[block], strict=True)
        values = (_unpack(name, values, 0, length) for name, values in packed)
        return map(self._make, zip(*values, strict=True))


class PackedRow:
    """A row of PackedRows that is unpacked whenever a field of it is asked for."""

    __slots__ = ("_index", "_rows")

    def __init__(self, rows: PackedRows, index: int) -> None:
        self._rows, self._index = rows, index

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._rows[self._index], name)


def row_at(rows: Sequence[Any], index: int) -> Any:
    """One of the rows, which takes little memory if they are packed."""
    return PackedRow(rows, index) if isinstance(rows, PackedRows) else rows[index]


def _pack(name: str, values: Sequence[Any]) -> Any:
    if len({*values}) == 1:
        return values[0]
    if name in TEXTS:
        return tuple(values)
    return array("d", [nan if value is None else value for value in values])


def _unpack(name: str, packed: Any, begin: int, end: int) -> Sequence[Any]:
    """Some values of a packed column."""
    if isinstance(packed, tuple):
        return packed[begin:end]
    if not isinstance(packed, array):
        return [packed] * (end - begin)
    if name in INTEGERS:
        return [int(n) if n == n else None for n in packed[begin:end]]
    return [n if n == n else None for n in packed[begin:end]]
