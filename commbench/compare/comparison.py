"""Compares two runs row by row: which is faster, by how much, and how sure that is.

The ratio is the time of B over the time of A: above 1 B is slower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby, pairwise, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.columns import COLUMNS as COLUMNS_OF_RESULTS
from commbench.analysis.columns import KEY, TEXTS, TIMES, UNDISTURBED_TIMES
from commbench.analysis.environment_diff import NEEDED_FACTS, Difference, differences, mismatches
from commbench.analysis.load import LoadedRun, as_loaded_run, make_frame, match_rows
from commbench.analysis.packed_rows import row_at
from commbench.analysis.rows import ResultRow
from commbench.compare import ratio as ratios
from commbench.compare.host_speed import HostChange, allow_for, find_host_changes
from commbench.compare.pooling import PooledRatio, PooledRow, pool_kind
from commbench.compare.rank_test import rank_test
from commbench.errors import UsageError
from commbench.results.run_folder import JOURNAL, RESULTS_CSV
from commbench.results.schema import Run
from commbench.spec.case import Case
from commbench.spec.dimensions import DIMENSIONS
from commbench.stats.estimate import Estimate, ratio
from commbench.stats.verdict import FASTER, NOT_COMPARED, SLOWER, TOLERANCE, VERDICTS, decide
from commbench.units import seven_digits
from commbench.views.as_json import fields_of

if TYPE_CHECKING:
    from pandas import DataFrame

COMPARED = (
    *KEY,
    *TIMES,
    *UNDISTURBED_TIMES,
    *NEEDED_FACTS,
    "label",
    "busbw_GBps",
    "launches",
    "status",
    "work",
)
"""The columns that a comparison needs; loading no others is faster."""

_SIDE_COLUMNS = {
    "time_us": "time_{}_us",
    "time_ci_low_us": "time_{}_ci_low_us",
    "time_ci_high_us": "time_{}_ci_high_us",
    "busbw_GBps": "busbw_{}_GBps",
}
"""The columns of either side, by those of results.csv."""
_UNKNOWN = (None, None, None)
_P5 = ("time_p5_us",)
_RATIO_COLUMNS = (
    "ratio", "ratio_ci_low", "ratio_ci_high", "p_value", "units", "verdict", "reason",
)  # fmt: skip
_UNDISTURBED_COLUMNS = (
    "time_p5_a_us", "time_p5_b_us", "p5_ratio", "p5_ratio_ci_low", "p5_ratio_ci_high",
)  # fmt: skip
COLUMNS = (
    *KEY,
    *(name.format(side) for side in "ab" for name in _SIDE_COLUMNS.values()),
    *_RATIO_COLUMNS,
    *_UNDISTURBED_COLUMNS,
)
"""The columns of a comparison, and the fields of its rows in JSON."""


class ComparedRow(NamedTuple):
    """Two rows that measured the same case."""

    kind: str
    """The title of the case: what it is without its size."""
    a: Any
    """The row of A, a named tuple of columns of results.csv."""
    b: Any
    ratio: Estimate | None
    """Time of B over time of A; None where it is not known."""
    p_value: float | None
    """The p-value of the rank test, which does not decide; None where there is none."""
    units: str
    """What the rank test ranked: `launches` or `batches`; empty where there is none."""
    verdict: str
    """One of VERDICTS."""
    reason: str
    """Why it is `undecided` or `not compared`, or that no interval is known; empty for others."""

    @property
    def undisturbed(self) -> Estimate | None:
        """The same ratio of undisturbed calls."""
        return ratio(self.b.undisturbed, self.a.undisturbed)

    def as_json(self) -> dict[str, Any]:
        """What was measured on either side, and the ratio."""
        sides = {"a": side_json(self.a), "b": side_json(self.b)}
        more = {"undisturbed_ratio": self.undisturbed}
        return case_json(self.a) | sides | fields_of(self, without=("kind", "a", "b")) | more


class Crossover(NamedTuple):
    """Two sizes of one kind of case between which the verdict turns."""

    kind: str
    below_bytes: int
    above_bytes: int
    below: str
    """The verdict at the smaller size: `faster` or `slower`."""
    above: str


@dataclass(frozen=True)
class Comparison:
    """Run B against run A."""

    a: LoadedRun
    b: LoadedRun
    tolerance: float
    rows: tuple[ComparedRow, ...]
    """A row per case that both have: steps of a workload first, kinds in the order of A, sizes
    ascending within each kind."""
    only_a: tuple[Any, ...]
    """The rows of A that B lacks, named tuples of columns of results.csv."""
    only_b: tuple[Any, ...]
    mismatches: tuple[Difference, ...]
    """Where this is not empty, the two runs should not be compared."""
    differences: tuple[Difference, ...]
    crossovers: tuple[Crossover, ...]
    host_changes: tuple[HostChange, ...]
    """In what the host was slower or faster during B; the intervals are widened for it."""
    places: Sequence[tuple[int, int]]
    """Of each of `rows`, where it is among the measurements of A and of B; empty where a run has no
    samples."""

    @cached_property
    def pooled(self) -> tuple[PooledRatio, ...]:
        """The rows by ranges of sizes where the ratio does not change: what each says together."""
        return tuple(
            found
            for kind, rows in groupby(self._pooled_rows(), _kind_of)
            for found in pool_kind(kind, list(rows), self.tolerance, self.host_changes)
        )

    def _pooled_rows(self) -> Iterator[PooledRow]:
        """The rows that are compared, with their samples where both runs have some."""
        a, b = self.a.run, self.b.run
        for row, place in zip_longest(self.rows, self.places):
            if row.verdict == NOT_COMPARED:
                continue
            if a and b:
                yield PooledRow(row, _result_row(a, place[0]), _result_row(b, place[1]))
            else:
                yield PooledRow(row)

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict."""
        found = Counter(row.verdict for row in self.rows)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def is_slower(self) -> bool:
        """Whether B is slower in any row or range of sizes."""
        verdicts = {row.verdict for row in self.rows} | {found.verdict for found in self.pooled}
        return SLOWER in verdicts

    @property
    def has_rank_tests(self) -> bool:
        """Whether any row has a rank test."""
        return any(row.units for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Everything that is known; rows that only one side has with what it says of them."""
        alone = {
            name: [case_json(row) | side_json(row) for row in getattr(self, name)]
            for name in ("only_a", "only_b")
        }
        sides = {"a": self.a.named, "b": self.b.named}
        left_out = ("a", "b", *alone, "places")
        return sides | fields_of(self, "counts", "pooled", without=left_out) | alone

    def frame(self) -> DataFrame:
        """Every row of either side as a pandas DataFrame, with the columns of `--format csv`."""
        return make_frame(flat_rows(self), COLUMNS, (*TEXTS, "units", "verdict", "reason"))


def compare(a: Run | LoadedRun, b: Run | LoadedRun, tolerance: float = TOLERANCE) -> Comparison:
    """Compare B with A. Raises RecordsError where a run has two rows of one case.

    Runs that should not be compared are compared nevertheless: see `mismatches`, and
    `require_comparable`.
    """
    a, b = as_loaded_run(a, COMPARED), as_loaded_run(b, COMPARED)
    in_a, in_b, only_a, only_b = match_rows(a, b)
    host_changes = find_host_changes(a.run, b.run)
    rows = [
        _compare_rows(a, b, *place, tolerance, host_changes)
        for place in zip(in_a, in_b, strict=True)
    ]
    kinds = dict.fromkeys(row.kind for row in sorted(rows, key=lambda row: not row.a.step))
    order = {kind: number for number, kind in enumerate(kinds)}

    def place_in_output(row: ComparedRow) -> tuple[int, int]:
        return order[row.kind], row.a.size_bytes

    places: Sequence[tuple[int, int]] = ()
    if a.run and b.run:
        paired = sorted(
            zip(rows, zip(in_a, in_b, strict=True), strict=True),
            key=lambda pair: place_in_output(pair[0]),
        )
        places = [place for _, place in paired]
    rows.sort(key=place_in_output)
    return Comparison(
        a=a,
        b=b,
        tolerance=tolerance,
        rows=tuple(rows),
        only_a=tuple(row_at(a.rows, index) for index in only_a),
        only_b=tuple(row_at(b.rows, index) for index in only_b),
        mismatches=mismatches(a, b),
        differences=differences(a, b),
        crossovers=find_crossovers(rows),
        host_changes=host_changes,
        places=places,
    )


def _compare_rows(
    a: LoadedRun,
    b: LoadedRun,
    in_a: int,
    in_b: int,
    tolerance: float,
    host_changes: Sequence[HostChange],
) -> ComparedRow:
    first, second = a.rows[in_a], b.rows[in_b]
    times = ratio(second.time, first.time)
    of_launches = ratios.of_launches(times, (first.launches, second.launches), first.backend)
    found = allow_for(host_changes, of_launches)
    p_value, units = None, ""
    if a.run and b.run:
        p_value, units = rank_test(_result_row(a.run, in_a), _result_row(b.run, in_b))
    verdict = decide(found, tolerance)
    if reason := ratios.why_not_compared(first, second, found):
        verdict = NOT_COMPARED
    else:
        reason = ratios.remark(first, second, found, verdict)
    sides = row_at(a.rows, in_a), row_at(b.rows, in_b)
    return ComparedRow(row_kind(first), *sides, found, p_value, units, verdict, reason)


def _result_row(run: Run, index: int) -> ResultRow:
    """A row with its samples."""
    return ResultRow(run.header, run.measurements[index], None)


_KIND = tuple(name for name in KEY if name != "size_bytes")
_kind_values = attrgetter(*_KIND)


def _kind_of(pooled: PooledRow) -> str:
    kind: str = pooled.row.kind
    return kind


def row_kind(row: Any) -> str:
    """The title of a row's case: what it is without its size."""
    return _title(_kind_values(row))


@lru_cache(maxsize=1 << 12)
def _title(values: tuple[Any, ...]) -> str:
    return Case(index=0, size_bytes=0, count=0, **dict(zip(_KIND, values, strict=True))).title


def require_two_runs(a: Run | LoadedRun, b: Run | LoadedRun) -> None:
    """Raise UsageError where both are the same run: the same object, folder or file."""
    first, second = _source(a), _source(b)
    if a is b or (first == second and first.exists()):
        raise UsageError(
            f"{a.name} and {b.name} are the same run: {a.path}", "name two different runs"
        )


def _source(run: Run | LoadedRun) -> Path:
    """The folder of a run, or the file of another tool."""
    path = Path(run.path).resolve()
    return path.parent if path.name in (JOURNAL, RESULTS_CSV) else path


def distinct_names(runs: Sequence[LoadedRun]) -> list[str]:
    """A name for each run; with its path where two runs have the same name."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({run.path})"
        for name, run in zip(names, runs, strict=True)
    ]


def require_comparable(comparisons: Sequence[Comparison], force: bool) -> None:
    """Raise UsageError where no row is common, or, unless `force`, what must match differs."""
    for found in comparisons:
        if found.mismatches and not force:
            first, second = found.a.name, found.b.name
            a, b = (first, second) if first != second else ("the first", "the second")
            facts = "; ".join(
                f"{fact.name} differs ({fact.a} in {a}, {fact.b} in {b})"
                for fact in found.mismatches
            )
            raise UsageError(
                f"{first} and {second} should not be compared: {facts}",
                "measure both with the same options, or add --force to compare them anyway",
            )
        if not found.rows:
            words = [dimension.word for dimension in DIMENSIONS]
            lacking = [f"; {r.name} is incomplete" for r in (found.a, found.b) if r.incomplete]
            raise UsageError(
                f"{found.a.name} and {found.b.name} have no row in common{''.join(lacking)}",
                f"rows match by {', '.join(words[:-1])} and {words[-1]}",
            )


def find_crossovers(rows: Sequence[ComparedRow]) -> tuple[Crossover, ...]:
    """The crossovers of rows whose sizes ascend within each kind. Where sizes in between are not
    decided, the crossover may lie at any of them."""
    decided = [row for row in rows if row.verdict in (FASTER, SLOWER)]
    return tuple(
        Crossover(kind, x.a.size_bytes, y.a.size_bytes, x.verdict, y.verdict)
        for kind, same in groupby(decided, attrgetter("kind"))
        for x, y in pairwise(same)
        if x.verdict != y.verdict
    )


def flat_rows(found: Comparison) -> Iterator[tuple[Any, ...]]:
    """The rows of a comparison, then those of one side only, as values of COLUMNS; seven digits."""
    for row in found.rows:
        compared = (row.p_value, row.units, row.verdict, row.reason)
        values = (*(row.ratio or _UNKNOWN), *compared, *_values(row.a, _P5), *_values(row.b, _P5))
        values += (*(row.undisturbed or _UNKNOWN),)
        yield *_values(row.a, KEY), *_values(row.a), *_values(row.b), *map(rounded, values)
    none = (None,) * len(_SIDE_COLUMNS)
    for row in found.only_a:
        verdict, times = ("", "only in A", ""), (*_values(row, _P5), None, None, None, None)
        yield *_values(row, KEY), *_values(row), *none, *none, *verdict, *times
    for row in found.only_b:
        verdict, times = ("", "only in B", ""), (None, *_values(row, _P5), None, None, None)
        yield *_values(row, KEY), *none, *_values(row), *none, *verdict, *times


def _values(row: Any, columns: Iterable[str] = _SIDE_COLUMNS) -> Iterator[Any]:
    """The values of a row as they are in results.csv."""
    return (
        COLUMNS_OF_RESULTS[n].as_written(getattr(row, COLUMNS_OF_RESULTS[n].field)) for n in columns
    )


def rounded(value: Any) -> Any:
    """A number with seven digits; anything else as it is."""
    return seven_digits(value) if isinstance(value, float) else value


def case_json(row: Any) -> dict[str, Any]:
    """What a row of results measured."""
    return dict(zip(KEY, _values(row, KEY), strict=True))


def side_json(row: Any) -> dict[str, Any]:
    """What a row of results says of its case."""
    return {
        "time_s": row.time,
        "undisturbed_s": row.undisturbed,
        "busbw_bytes_per_s": row.busbw_bytes_per_s,
        "status": row.status,
    }
