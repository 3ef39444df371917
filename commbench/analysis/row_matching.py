"""Which rows of two files speak of the same thing: those with the same values in KEY."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.columns import KEY, TEXTS
from commbench.analysis.load import LoadedRun
from commbench.errors import RecordsError
from commbench.results.run_folder import JOURNAL
from commbench.spec.case import Case
from commbench.spec.dimensions import DIMENSIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame

    Numbers = NDArray[Any]

_TOO_MANY_CODES = 1 << 31


class RowMatch(NamedTuple):
    """Positions of rows in two frames; the first two belong together one by one."""

    in_a: Numbers
    in_b: Numbers
    only_a: Numbers
    only_b: Numbers


def match(a: LoadedRun, b: LoadedRun) -> RowMatch:
    """The rows of two sources that belong together, in the order of `a`, and those left alone.

    Raises RecordsError where a file has two rows of one key.
    """
    import numpy as np

    first, second = key_codes(a.frame, b.frame)
    _refuse_duplicates(a, first)
    _refuse_duplicates(b, second)
    place = np.full(int(max(first.max(initial=0), second.max(initial=0))) + 1, -1)
    place[second] = np.arange(len(second))
    found = place[first]
    (in_a,) = np.nonzero(found >= 0)
    alone = np.ones(len(second), dtype=bool)
    alone[found[in_a]] = False
    return RowMatch(in_a, found[in_a], np.nonzero(found < 0)[0], np.nonzero(alone)[0])


def key_codes(
    a: DataFrame, b: DataFrame, columns: tuple[str, ...] = KEY
) -> tuple[Numbers, Numbers]:
    """A number for each row of both frames: the same where these columns agree, and only there."""
    import numpy as np
    import pandas

    codes = np.zeros(len(a) + len(b), dtype=np.int64)
    number = 1
    for name in columns:
        if name in TEXTS:
            joined = pandas.api.types.union_categoricals([a[name], b[name]])
            found, values = joined.codes.astype(np.int64), len(joined.categories)
        else:
            both = np.concatenate([a[name].to_numpy(), b[name].to_numpy()])
            found, uniques = pandas.factorize(both, use_na_sentinel=False)
            values = len(uniques)
        codes = codes * max(values, 1) + found
        number *= max(values, 1)
        if number > _TOO_MANY_CODES:
            codes, uniques = pandas.factorize(codes)
            number = len(uniques)
    codes, _ = pandas.factorize(codes)
    return codes[: len(a)], codes[len(a) :]


def case_of(row: Any) -> Case:
    """What a row of a frame measured."""
    values = {d.field: d.read(getattr(row, d.field)) for d in DIMENSIONS}
    return Case(index=0, **values, count=0)


def _refuse_duplicates(source: LoadedRun, codes: Numbers) -> None:
    import pandas

    again = pandas.Series(codes).duplicated().to_numpy()
    if not again.any():
        return
    second = int(again.argmax())
    first = int((codes == codes[second]).argmax())
    row = next(source.frame.iloc[[second]].itertuples())
    where = f"rows {first + 1} and {second + 1}"
    if source.run is None:
        where = f"lines {first + 2} and {second + 2}"
    raise RecordsError(
        f"{source.path} has two rows of {case_of(row).name}: {where}",
        f"give every run a file of its own; {JOURNAL} joins launches of one run",
    )
