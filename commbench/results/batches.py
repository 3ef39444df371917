"""The batches of a case as they are read: a record for each is made when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from commbench.results.samples import SamplesOfBatches
from commbench.results.schema import Batch


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
