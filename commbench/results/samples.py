"""The batches of a case and their samples, without a Python object for each: records are made when
they are asked for."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from struct import pack
from typing import Any

from commbench.results.schema import Batch

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


class SamplesOfBatches(Sequence[Samples]):
    """The samples of each batch of a case, all in one array."""

    def __init__(self) -> None:
        self.whole = array("d")
        self.lengths: list[int] = []
        """How many samples each batch has."""
        self._ends = array("q", [0])

    def append(self, samples: Sequence[float]) -> None:
        """Add the samples of the next batch; struct.error or OverflowError for other values."""
        self.whole.frombytes(pack(f"{len(samples)}d", *samples))
        self.lengths.append(len(samples))
        self._ends.append(len(self.whole))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        begin = range(len(self))[index]
        return Samples("d", self.whole[self._ends[begin] : self._ends[begin + 1]])


def lengths_of(batches: Sequence[Sequence[float]]) -> list[int]:
    """How many samples each of some batches has."""
    return batches.lengths if isinstance(batches, SamplesOfBatches) else [*map(len, batches)]


def in_order(batches: Sequence[Sequence[float]]) -> Sequence[float]:
    """All samples of some batches, sorted."""
    if sum(lengths_of(batches)) < MANY:
        return sorted(chain.from_iterable(batches))
    if isinstance(batches, SamplesOfBatches):
        return _sorted(batches)
    return _sort(concatenated(batches))


@lru_cache(maxsize=1)  # several figures of a case need them, one after another
def _sorted(batches: SamplesOfBatches) -> array[float]:
    return _sort(batches.whole[:])


def _sort(whole: array[float]) -> array[float]:
    import numpy

    numpy.frombuffer(whole).sort()
    return whole


def concatenated(batches: Sequence[Sequence[float]]) -> array[float]:
    """All samples of some batches; not to be changed."""
    if isinstance(batches, SamplesOfBatches):
        return batches.whole
    whole = array("d")
    for batch in batches:
        whole.extend(batch)
    return whole


class Batches(Sequence[Batch]):
    """Batches of a case. They are equal to any sequence of the same batches."""

    def __init__(self) -> None:
        self.samples = SamplesOfBatches()
        self.others: list[Batch] = []
        """The batches without their samples; equal neighbours may be one object."""

    def append(self, samples: Sequence[float], other: Batch) -> None:
        """Add a batch, given as its samples and the record without them."""
        self.samples.append(samples)
        self.others.append(other)

    def __len__(self) -> int:
        return len(self.others)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self.others[index]._replace(samples_s=self.samples[index])

    def __iter__(self) -> Iterator[Batch]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return repr((*self,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    def __hash__(self) -> int:
        return hash((*self,))


def samples_of(batches: Sequence[Batch]) -> Sequence[Sequence[float]]:
    """The samples of each batch."""
    if isinstance(batches, Batches):
        return batches.samples
    return [batch.samples_s for batch in batches]


def without_samples(batches: Sequence[Batch]) -> Sequence[Batch]:
    """The same batches to read their other fields, which is faster."""
    return batches.others if isinstance(batches, Batches) else batches
