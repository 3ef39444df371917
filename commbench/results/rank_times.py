"""What is recorded of each rank in a case: arrays, once per launch, however many batches the case
has. Of a batch only the quantiles over the ranks are recorded."""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import Any

from commbench.results.samples import without_samples
from commbench.results.schema import Batch, Measurement, RankTimes

BATCH_FIELDS = ("rank_medians_s", "rank_behind_s", "last_in")
"""What a batch that was just measured has of each rank; a case has it if all its batches do."""
FLOATS, COUNTS = "f", "I"
"""The types of arrays: 32 bits, little-endian in the journal."""
SHARE = 0.25
LONGEST_S = 1.1e7
TYPES = {"medians_s": FLOATS, "behind_s": FLOATS, "last_in": COUNTS}


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
    ordered = sorted(values)
    return (
        tuple(ordered[round((len(ordered) - 1) * part / 4)] for part in range(5)) if ordered else ()
    )


def encode(times: RankTimes) -> dict[str, Any]:
    """The JSON object of a record; arrays in base64."""
    return times._asdict() | {name: _encode_array(getattr(times, name)) for name in TYPES}


def decode(values: dict[str, Any]) -> RankTimes:
    """The record of a JSON object; ValueError or TypeError for one that is none."""
    arrays = {name: _decode_array(values[name], kind) for name, kind in TYPES.items()}
    found = RankTimes(**values | arrays)
    numbers = (found.launch, found.iterations)
    if not all(type(number) is int and 0 <= number < 1 << 53 for number in numbers):
        raise ValueError(f"rank_times of launch {found.launch!r} are of {found.iterations!r}")
    for name in ("medians_s", "behind_s"):
        own = arrays[name]
        if own and not (isfinite(sum(own)) and min(own) >= 0 and max(own) <= LONGEST_S):
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
