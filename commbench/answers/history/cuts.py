"""The best places to cut a series into segments, by the sum of squares about their means."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, log, sqrt
from typing import Any

from commbench.analysis.statistics import Z
from commbench.answers.history.noise import Noise
from commbench.stats import Array, Estimate, around, np

SHORTEST = 3
"""Points of a segment."""
FEWEST = 2 * SHORTEST
"""Points of a series in which steps are looked for."""


class Sums:
    """Cumulative sums of weighted values, from which the cost of any segment follows."""

    def __init__(self, values: Array, weights: Array) -> None:
        self._offset = float(np.average(values, weights=weights))
        self._weights = np.concatenate([[0.0], np.cumsum(weights)])
        self._sums = np.concatenate([[0.0], np.cumsum(weights * (values - self._offset))])

    def __len__(self) -> int:
        """How many values there are."""
        return len(self._sums) - 1

    def mean(self, first: int, end: int) -> float:
        """The weighted mean of the points from `first` to before `end`."""
        return float(self.above(first, end) / self.weight(first, end)) + self._offset

    def weight(self, first: Any, end: Any) -> Any:
        """The weight of these points."""
        return self._weights[end] - self._weights[first]

    def above(self, first: Any, end: Any) -> Any:
        """The sum by which they are above the mean of all points."""
        return self._sums[end] - self._sums[first]

    def level(self, first: int, end: int, noise: Noise) -> Estimate:
        """The same with its interval."""
        return around(self.mean(first, end), Z * sqrt(noise.long_run / self.weight(first, end)))

    def _gain(self, first: Any, end: Any) -> Any:
        """By how much a level of its own lowers the sum of squares of a segment."""
        return self.above(first, end) ** 2 / self.weight(first, end)

    def cut(self, step_cost: float) -> list[int]:
        """The places of the steps of the best fit."""
        number = len(self)
        best, before = np.full(number + 1, -inf), np.zeros(number + 1, int)
        best[0] = step_cost
        for end in range(SHORTEST, number + 1):
            firsts = slice(0, end - SHORTEST + 1)
            gains = best[firsts] + self._gain(firsts, end)
            before[end] = chosen = int(gains.argmax())
            best[end] = gains[chosen] - step_cost
        cuts, place = [], int(before[number])
        while place:
            cuts.append(place)
            place = int(before[place])
        return cuts[::-1]

    def best(self, most: int) -> Iterator[list[int]]:
        """The places of one step, of two, and so on, with the smallest sum of squares."""
        length = len(self)
        first, end = np.triu_indices(length + 1, SHORTEST)
        gains = np.full((length + 1, length + 1), -inf)
        gains[first, end] = self._gain(first, end)
        best, before = gains[0], []
        for _ in range(most):
            every = best[:, None] + gains
            before.append(every.argmax(axis=0))
            best = every.max(axis=0)
            places = [length]
            for chosen in reversed(before):
                places.append(int(chosen[places[-1]]))
            yield places[:0:-1]

    def places(self, first: int, at: int, end: int, variance: float) -> tuple[int, int]:
        """The places at which a step between two others may be as well: those whose likelihood is
        at least 5 % of the best one's."""
        tried = np.arange(first + 1, end)
        gains = self._gain(first, tried) + self._gain(tried, end)
        near = tried[gains >= gains.max() - 2 * log(20) * variance]
        return min(int(near[0]), at), max(int(near[-1]), at)
