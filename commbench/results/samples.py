"""Samples, and all samples of a case in order, without a Python object for each."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any

MANY = 20_000
"""From here on numpy sorts faster, although it has to be imported."""


class Samples(array):  # type: ignore[type-arg]
    """The samples of a batch. They are equal to any sequence of the same numbers."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return tuple(found) if isinstance(index, slice) else found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and (*self,) == (*other,)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]
        return hash((*self,))


def in_order(batches: Sequence[Sequence[float]]) -> Sequence[float]:
    """All samples of some batches, sorted."""
    if sum(map(len, batches)) < MANY:
        return sorted(chain.from_iterable(batches))
    import numpy

    whole = concatenated(batches)
    numpy.frombuffer(whole).sort()
    return whole


def concatenated(batches: Sequence[Sequence[float]]) -> array[float]:
    """All samples of some batches."""
    whole = array("d")
    for batch in batches:
        whole.extend(batch)
    return whole
