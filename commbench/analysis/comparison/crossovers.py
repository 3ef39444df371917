"""Between which sizes B turns from faster to slower, or back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.comparison.ratio import FASTER, SLOWER

if TYPE_CHECKING:
    from pandas import DataFrame


class Crossover(NamedTuple):
    """Two sizes of one kind of case between which the verdict turns."""

    kind: str
    below_bytes: int
    above_bytes: int
    below: str
    """The verdict at the smaller size: `faster` or `slower`."""
    above: str


def crossovers_of(rows: DataFrame) -> tuple[Crossover, ...]:
    """The crossovers of a comparison's rows, whose sizes ascend within each kind. Where sizes in
    between are not decided, the crossover may lie at any of them."""
    decided = rows[rows["verdict"].isin((FASTER, SLOWER))]
    kinds, verdicts, sizes = (
        decided[name].to_numpy() for name in ("kind", "verdict", "size_bytes")
    )
    turns = ((kinds[1:] == kinds[:-1]) & (verdicts[1:] != verdicts[:-1])).nonzero()[0]
    return tuple(
        Crossover(
            str(kinds[i]), int(sizes[i]), int(sizes[i + 1]), str(verdicts[i]), str(verdicts[i + 1])
        )
        for i in turns
    )
