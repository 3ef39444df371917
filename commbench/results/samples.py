"""Samples, and all samples of a case in order, without a Python object for each."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

MANY = 20_000
"""From here on numpy sorts faster, although it has to be imported."""


class Samples(Sequence[float]):
    """The samples of a batch. They are equal to any sequence of the same numbers."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[float]) -> None:
        self.values = array("d", values)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[float]:
        return iter(self.values)

    def __getitem__(self, index: Any) -> Any:
        found = self.values[index]
        return tuple(found) if isinstance(index, slice) else found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and (*self.values,) == (*other,)

    def __hash__(self) -> int:
        return hash((*self.values,))

    def __repr__(self) -> str:
        return repr((*self.values,))


def in_order(batches: Sequence[Sequence[float]]) -> Sequence[float]:
    """All samples of some batches, sorted."""
    if sum(map(len, batches)) < MANY:
        return sorted(chain.from_iterable(batches))
    import numpy

    return array("d", numpy.sort(concatenated(batches)).tobytes())


def concatenated(batches: Sequence[Sequence[float]]) -> Any:
    """All samples of at least one batch in a numpy array."""
    import numpy

    parts = (b.values if isinstance(b, Samples) else array("d", b) for b in batches)
    return numpy.frombuffer(b"".join(parts))
