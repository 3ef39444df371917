"""Two sets of results, row by row: which is faster, by how much, and how sure that is.

The ratio is time of B over time of A: above 1 B is slower. analysis.comparison.ratio gives its
interval and the verdict; where both sides hold samples, a rank test has its say too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.columns import KEY, TIMES
from commbench.analysis.comparison.crossovers import Crossover, crossovers_of
from commbench.analysis.comparison.facts import NEEDED_FACTS, Fact, differences, mismatches
from commbench.analysis.comparison.matching import Match, case_of, key_codes, match
from commbench.analysis.comparison.rank_tests import rank_tests
from commbench.analysis.comparison.ratio import (
    NOT_COMPARED,
    TOLERANCE,
    VERDICTS,
    Times,
    ratio_of,
    verdicts_of,
)
from commbench.analysis.comparison.reasons import choose, doubts, unusable
from commbench.analysis.readers import Source

if TYPE_CHECKING:
    from pandas import DataFrame

COMPARED = (*KEY, *TIMES, *NEEDED_FACTS, "label", "busbw_GBps", "launches", "status")
"""The columns that a comparison needs; reading no others is faster."""


class Comparison(NamedTuple):
    """B against A."""

    a: Source
    b: Source
    tolerance: float
    rows: DataFrame
    """A row per key that both have, sizes ascending within each kind: the columns of KEY, `kind`
    (the row's title), times, busbw and status of both, ratio, p_value, units, verdict, reason."""
    only_a: DataFrame
    """Rows of A that B lacks, with their `kind`."""
    only_b: DataFrame
    mismatches: tuple[Fact, ...]
    """Not empty: the two should not be compared."""
    differences: tuple[Fact, ...]
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


def compare(a: Source, b: Source, tolerance: float = TOLERANCE) -> Comparison:
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


def _rows(a: Source, b: Source, matched: Match, tolerance: float) -> DataFrame:
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


def _times(frame: DataFrame) -> Times:
    return Times(*(frame[name].to_numpy() for name in TIMES))
