"""Why a row of a comparison is undecided, or not compared at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commbench.compare.ratio import UNDECIDED, MedianCI
from commbench.results.schema import OK, WRONG

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import Categorical, DataFrame

    Numbers = NDArray[Any]
    Reasons = list[tuple[Numbers, str]]

OVERLAP = "the interval reaches over the tolerance"
CHANCE = "the rank test does not rule out chance"


def unusable(a: DataFrame, b: DataFrame, ratio: Numbers) -> Reasons:
    """Which rows cannot be compared, and why: pairs of where and what, the first that holds
    counts."""
    import numpy as np

    found: Reasons = []
    for side, frame in (("A", a), ("B", b)):
        words = [str(word) for word in frame["status"].cat.categories if word != OK]
        found += [((frame["status"] == word).to_numpy(), _status(word, side)) for word in words]
        time = frame["time_us"].to_numpy()
        found.append((~(time > 0), f"nothing timed in {side}"))
    found.append((~((ratio > 0) & np.isfinite(ratio)), "the ratio is out of range"))
    return found


def _status(word: str, side: str) -> str:
    return f"wrong results in {side}" if word == WRONG else f"{word} in {side}"


def doubts(
    verdicts: Numbers, a: MedianCI, b: MedianCI, ratio: MedianCI, tolerance: float
) -> Reasons:
    """Why rows are undecided; the first that holds counts."""
    import numpy as np

    undecided = verdicts == UNDECIDED
    beyond = (ratio.low > 1 + tolerance) | (ratio.high < 1 / (1 + tolerance))
    return [
        (undecided & np.isnan(a.low), "no interval in A"),
        (undecided & np.isnan(b.low), "no interval in B"),
        (undecided & beyond, CHANCE),
        (undecided, OVERLAP),
    ]


def choose(reasons: Reasons, number: int) -> Categorical:
    """For each of so many rows the first reason that holds; empty where none does."""
    import numpy as np
    from pandas import Categorical, Index

    texts = list(dict.fromkeys(["", *(text for _, text in reasons)]))
    if not reasons:
        return Categorical.from_codes(np.zeros(number, dtype=np.int64), Index(texts))
    codes = np.select([where for where, _ in reasons], [texts.index(t) for _, t in reasons], 0)
    return Categorical.from_codes(codes.astype(np.int64), Index(texts))
