"""The batches of a case and their samples, without a Python object for each: records are made when
they are asked for; and what is recorded of each rank: arrays, once per launch, however many batches
the case has. Of a batch only the quantiles over the ranks are recorded."""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from math import isfinite
from struct import pack
from typing import Any

from commbench.results.records import Check, WrongElement
from commbench.results.schema import OK, WRONG, Batch, Measurement, RankTimes, Run
from commbench.stats import np

MANY = 20_000
"""From here on numpy sorts faster, although it has to be imported."""
LONGEST_S = 1e7
SHORTEST_S = 1e-15
"""A duration is 0 or lies between these, in seconds: any other is damaged, and would give an
infinite bandwidth."""


class SamplesOfBatches(Sequence[tuple[float, ...]]):
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
        return tuple(self.whole[self._ends[begin] : self._ends[begin + 1]])

    def are_durations(self) -> bool:
        """Whether all samples are within the limits of durations; there has to be one."""
        least, most = (np.min, np.max) if len(self.whole) >= MANY else (min, max)
        if not most(self.whole) <= LONGEST_S:
            return False
        return least(self.whole) >= SHORTEST_S or all(n == 0 or n >= SHORTEST_S for n in self.whole)


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
    np.frombuffer(whole).sort()
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

    def __repr__(self) -> str:
        return f"<Batches: {len(self)}>"

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


BATCH_FIELDS = ("rank_medians_s", "rank_behind_s", "last_in")
"""What a batch that was just measured has of each rank; a case has it if all its batches do."""
FLOATS, COUNTS = "f", "I"
"""The types of arrays: 32 bits, little-endian in the journal."""
SHARE = 0.25
TYPES_OF_RANKS = {"medians_s": FLOATS, "behind_s": FLOATS, "last_in": COUNTS}


class RankTimesSum:
    """Adds up what the batches of a case in one launch have of each rank."""

    def __init__(self) -> None:
        self._iterations = 0
        self._with: Counter[str] = Counter()
        """How many batches there are, and how many have each field."""
        self._medians: list[tuple[int, array[float]]] = []
        """The iterations of each batch, and the median of each rank."""
        self._behind: list[float] = []
        self._last_in: list[int] = []

    def add(self, batch: Batch, iterations: int) -> Batch:
        """Add a batch of so many iterations; returns it without what it has of each rank."""
        if not (batch.rank_medians_s or batch.rank_behind_s or batch.last_in):
            return batch
        self._iterations += iterations
        found = (name for name in BATCH_FIELDS if getattr(batch, name))
        self._with.update(("", *found))
        if medians := batch.rank_medians_s:
            self._medians.append((iterations, array(FLOATS, medians)))
        if behind := batch.rank_behind_s:
            before = self._behind or [0.0] * len(behind)
            self._behind = [b + iterations * s for b, s in zip(before, behind, strict=True)]
        if last := batch.last_in:
            earlier = self._last_in or [0] * len(last)
            self._last_in = [a + b for a, b in zip(earlier, last, strict=True)]
        quantiles = batch.rank_quantiles_s or quantiles_of(medians)
        return batch._replace(
            rank_medians_s=(), rank_behind_s=(), last_in=(), rank_quantiles_s=quantiles
        )

    def result(self, launch: int) -> tuple[RankTimes, ...]:
        """The record, if there is anything to record."""
        if not self._iterations:
            return ()
        weights = [weight for weight, _ in self._medians]
        by_rank = zip(*(medians for _, medians in self._medians), strict=True)
        medians, behind, last = (self._with[name] == self._with[""] for name in BATCH_FIELDS)
        quartiles = [lower_quartile(own, weights) for own in by_rank] if medians else []
        means = [total / self._iterations for total in self._behind] if behind else []
        arrays = array(FLOATS, quartiles), array(FLOATS, means)
        last_in = array(COUNTS, self._last_in if last else [])
        return (RankTimes(launch, self._iterations, *arrays, last_in),)


def with_rank_times(measurement: Measurement) -> Measurement:
    """The measurement, with what its batches have of each rank in `rank_times`."""
    others = without_samples(measurement.batches)
    if not any(b.rank_medians_s or b.rank_behind_s or b.last_in for b in others):
        return measurement
    sums: dict[int, RankTimesSum] = {}
    batches = tuple(
        sums.setdefault(batch.launch, RankTimesSum()).add(batch, len(batch.samples_s))
        for batch in measurement.batches
    )
    added = tuple(each for launch, own in sums.items() for each in own.result(launch))
    return measurement._replace(batches=batches, rank_times=measurement.rank_times + added)


def lower_quartile(values: Sequence[float], weights: Sequence[float]) -> float:
    """The value below which a quarter of the weight lies."""
    if len(values) == 1:
        return values[0]
    left = SHARE * sum(weights)
    for value, weight in sorted(zip(values, weights, strict=True)):
        left -= weight
        if left <= 0:
            return value
    return max(values)


def quantiles_of(values: Sequence[float]) -> tuple[float, ...]:
    """Least, quartiles and most of some values; empty for none."""
    ordered, last = sorted(values), len(values) - 1
    return tuple(ordered[round(last * part / 4)] for part in range(5) if ordered)


def encode_rank_times(times: RankTimes) -> dict[str, Any]:
    """The JSON object of a record; arrays in base64."""
    return times._asdict() | {name: _encode_array(getattr(times, name)) for name in TYPES_OF_RANKS}


def decode_rank_times(values: dict[str, Any]) -> RankTimes:
    """The record of a JSON object; ValueError or TypeError for one that is none."""
    arrays = {name: _decode_array(values[name], kind) for name, kind in TYPES_OF_RANKS.items()}
    found = RankTimes(**values | arrays)
    numbers = (found.launch, found.iterations)
    if not all(type(number) is int and 0 <= number < 1 << 53 for number in numbers):
        raise ValueError(f"rank_times of launch {found.launch!r} are of {found.iterations!r}")
    for name in ("medians_s", "behind_s"):
        own = arrays[name]
        if own and not (isfinite(sum(own)) and min(own) >= 0 and max(own) <= 1.1 * LONGEST_S):
            raise ValueError(f"{name} has numbers that are no durations")
    return found


def _encode_array(values: array[Any]) -> str:
    copy = values[:]
    if sys.byteorder == "big":
        copy.byteswap()
    return b64encode(copy.tobytes()).decode()


def _decode_array(text: str, kind: str) -> array[Any]:
    found = array(kind)
    found.frombytes(b64decode(text, validate=True))
    if sys.byteorder == "big":
        found.byteswap()
    return found


# The checks of a soak.


def with_checks(measurement: Measurement, checks: Sequence[Check]) -> Measurement:
    """The measurement of a case, with the outcome of all its checks in a soak."""
    if not checks or measurement.status not in (OK, WRONG):
        return measurement
    found = measurement._replace(wrong=sum(sum(check.wrong_elements) for check in checks))
    first = next((check for check in checks if check.first_wrong), None)
    if first is None:
        return found
    reason = describe_wrong(first.first_wrong, first.first_call)
    return found._replace(status=WRONG, reason=reason, first_wrong=first.first_wrong)


def describe_wrong(first: WrongElement | None, call: int) -> str:
    """A wrong element, and of which checked call it is, from 1; 0 where no call is named. One that
    got its value after the check, from a call that returned early, has the expected one."""
    if first is None:
        return ""
    which = f", in checked call {call}" if call else ""
    where = f"rank {first.rank}, element {first.element}"
    values = f": expected {first.expected}, got {first.got}" * (first.expected != first.got)
    return f"{where}{values}{which}"


def soaked_s(run: Run) -> float:
    """Seconds that a soak has lasted, without the time in which it was cut off."""
    found: list[Batch | Check] = [*run.checks]
    for measurement in run.measurements:
        found += without_samples(measurement.batches)
    return max(((each.start_s or 0.0) + each.elapsed_s for each in found), default=0.0)
