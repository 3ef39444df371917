"""Two sets of results, row by row: which is faster, by how much, and how sure that is.

The ratio is time of B over time of A: above 1 B is slower. analysis.comparison.ratio gives its
interval and the verdict; where both sides hold samples, a rank test has its say too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.columns import KEY, TIMES
from commbench.analysis.environment_diff import NEEDED_FACTS, Difference, differences, mismatches
from commbench.analysis.load import LoadedRun
from commbench.analysis.row_matching import RowMatch, case_of, key_codes, match
from commbench.compare.rank_test import rank_tests
from commbench.compare.ratio import (
    FASTER,
    NOT_COMPARED,
    SLOWER,
    TOLERANCE,
    VERDICTS,
    MedianCI,
    ratio_of,
    verdicts_of,
)
from commbench.compare.reasons import choose, doubts, unusable
from commbench.errors import UsageError
from commbench.spec.dimensions import DIMENSIONS

if TYPE_CHECKING:
    from pandas import DataFrame


COMPARED = (*KEY, *TIMES, *NEEDED_FACTS, "label", "busbw_GBps", "launches", "status")
"""The columns that a comparison needs; reading no others is faster."""


class Comparison(NamedTuple):
    """B against A."""

    a: LoadedRun
    b: LoadedRun
    tolerance: float
    rows: DataFrame
    """A row per key that both have, sizes ascending within each kind: the columns of KEY, `kind`
    (the row's title), times, busbw and status of both, ratio, p_value, units, verdict, reason."""
    only_a: DataFrame
    """Rows of A that B lacks, with their `kind`."""
    only_b: DataFrame
    mismatches: tuple[Difference, ...]
    """Not empty: the two should not be compared."""
    differences: tuple[Difference, ...]
    crossovers: tuple[Crossover, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many rows got each verdict."""
        found = self.rows["verdict"].value_counts()
        return {verdict: int(found.get(verdict, 0)) for verdict in VERDICTS}

    @property
    def ranked(self) -> bool:
        """Whether a rank test had a say in any row."""
        return bool((self.rows["units"] != "").any())


def compare(a: LoadedRun, b: LoadedRun, tolerance: float = TOLERANCE) -> Comparison:
    """B against A. Raises RecordsError where a side has two rows of one key.

    Whether the two may be compared at all is for the caller to see, by its `mismatches`.
    """
    matched = match(a, b)
    rows = _rows(a, b, matched, tolerance)
    return Comparison(
        a=a,
        b=b,
        tolerance=tolerance,
        rows=rows,
        only_a=_with_kind(a.frame.iloc[matched.only_a]),
        only_b=_with_kind(b.frame.iloc[matched.only_b]),
        mismatches=mismatches(a, b),
        differences=differences(a, b),
        crossovers=crossovers_of(rows),
    )


def _rows(a: LoadedRun, b: LoadedRun, matched: RowMatch, tolerance: float) -> DataFrame:
    import numpy as np
    from pandas import Categorical

    first, second = a.frame.iloc[matched.in_a], b.frame.iloc[matched.in_b]
    rows = _with_kind(first[list(KEY)])
    for side, frame in (("a", first), ("b", second)):
        for name in (*TIMES, "busbw_GBps"):
            what, _, rest = name.partition("_")
            rows[f"{what}_{side}_{rest}"] = frame[name].to_numpy()
        rows[f"status_{side}"] = frame["status"].array
    times_a, times_b = _times(first), _times(second)
    ratio = ratio_of(times_a, times_b)
    rows["ratio"], rows["ratio_ci_low"], rows["ratio_ci_high"] = ratio
    rows["p_value"], rows["units"] = rank_tests(a, b, matched)
    verdicts = verdicts_of(ratio, rows["p_value"].to_numpy(), tolerance)
    out = unusable(first, second, ratio.median)
    rows["reason"] = choose(out + doubts(verdicts, times_a, times_b, ratio, tolerance), len(rows))
    left_out = np.logical_or.reduce([where for where, _ in out])
    rows["verdict"] = Categorical(np.where(left_out, NOT_COMPARED, verdicts), list(VERDICTS))
    order = np.lexsort((rows["size_bytes"].to_numpy(), rows["kind"].cat.codes.to_numpy()))
    ordered: DataFrame = rows.iloc[order].reset_index(drop=True)
    return ordered


def _with_kind(frame: DataFrame) -> DataFrame:
    """The rows with a column `kind`: their titles, as categories in order of first appearance."""
    import pandas

    found = frame.reset_index(drop=True)
    codes, _ = key_codes(found, found.iloc[:0], KEY[:-1])
    firsts = found[~pandas.Series(codes).duplicated().to_numpy()]
    numbers, titles = pandas.factorize(
        pandas.Series([case_of(row).title for row in firsts.itertuples()], dtype="object")
    )
    kinds = pandas.Categorical.from_codes(numbers[codes], pandas.Index(titles, dtype="object"))
    with_kind: DataFrame = found.assign(kind=kinds)
    return with_kind


def _times(frame: DataFrame) -> MedianCI:
    return MedianCI(*(frame[name].to_numpy() for name in TIMES))


def allowed(comparisons: Sequence[Comparison], force: bool) -> None:
    """Refuse comparisons whose sides differ in what must match, unless forced; and empty ones."""
    for found in comparisons:
        if found.mismatches and not force:
            told = "; ".join(f"{f.name} is {f.a} and {f.b}" for f in found.mismatches)
            raise UsageError(
                f"{found.a.name} and {found.b.name} should not be compared: {told}",
                "measure both alike, or compare all the same with --force",
            )
        if not len(found.rows):
            words = [dimension.word for dimension in DIMENSIONS]
            raise UsageError(
                f"{found.a.name} and {found.b.name} have no row in common",
                f"rows match by {', '.join(words[:-1])} and {words[-1]}",
            )


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
