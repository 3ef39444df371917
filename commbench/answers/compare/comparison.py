"""Compares two runs row by row: which is faster, by how much, and how sure that is.

The ratio is the time of B over the time of A: above 1 B is slower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench import stats
from commbench.analysis import environment
from commbench.analysis.columns import COLUMNS as COLUMNS_OF_RESULTS
from commbench.analysis.columns import FEW, KEY, TEXTS, TIMES, UNDISTURBED_TIMES
from commbench.analysis.csv_file import row_at
from commbench.analysis.environment import MUST_MATCH, Difference
from commbench.analysis.load import LoadedRun, as_loaded_run, distinct_names, make_frame, match_rows
from commbench.analysis.row_names import case_of_kind, kind_values
from commbench.answers.compare import host, ratio, turns
from commbench.answers.compare.pooling import PooledRatio, pool_kind
from commbench.errors import UsageError
from commbench.plan.dimensions import DIMENSIONS
from commbench.results.run_folder import JOURNAL, RESULTS_CSV, holds_rounds, resume_command
from commbench.results.schema import Run, is_imported
from commbench.stats import CHANGED, FASTER, NOT_COMPARED, SLOWER, TOLERANCE, VERDICTS, collect
from commbench.units import scaled
from commbench.views.formats import Result, fields_of

if TYPE_CHECKING:
    from pandas import DataFrame

COMPARED = (
    *KEY, *TIMES, *FEW, *UNDISTURBED_TIMES, *MUST_MATCH, "label", "busbw_GBps", "status",
    "launch_min_us", "launch_max_us", "work", "queued_share", "warnings",
)  # fmt: skip
"""The columns that a comparison needs; loading no others is faster."""
_SAME_OPTIONS = "measure both with the same options"
_key = attrgetter(*KEY)
CHECKED = (*COMPARED, "wrong", "stop_reason")
"""Those that a check needs, and a fleet."""


def _of_side(side: str, name: str) -> Callable[[ratio.ComparedRow], Any]:
    """A column of results.csv, of `a`, `b` or `either`; None where that side has no row."""
    column = COLUMNS_OF_RESULTS[name]
    return lambda row: column.as_written(getattr(getattr(row, side), column.field, None))


def _of_ratio(name: str, part: str) -> Callable[[ratio.ComparedRow], Any]:
    """The value of a ratio, or an end of its interval."""
    return lambda row: scaled(getattr(getattr(row, name), part, None))


COLUMNS: dict[str, Callable[[ratio.ComparedRow], Any]] = {
    **{name: _of_side("either", name) for name in KEY},
    **{
        name.replace("_", f"_{side}_", 1): _of_side(side, name)
        for side in "ab"
        for name in (*TIMES, "busbw_GBps")
    },
    "ratio": _of_ratio("ratio", "value"),
    "ratio_ci_low": _of_ratio("ratio", "low"),
    "ratio_ci_high": _of_ratio("ratio", "high"),
    "verdict": attrgetter("verdict"),
    "reason": attrgetter("reason"),
    "time_p5_a_us": _of_side("a", "time_p5_us"),
    "time_p5_b_us": _of_side("b", "time_p5_us"),
    "p5_ratio": _of_ratio("undisturbed", "value"),
    "p5_ratio_ci_low": _of_ratio("undisturbed", "low"),
    "p5_ratio_ci_high": _of_ratio("undisturbed", "high"),
}
"""The columns of a comparison, and what a row has in them."""


class Crossover(NamedTuple):
    """Two sizes of one kind of case between which the verdict turns."""

    kind: str
    below_bytes: int
    above_bytes: int
    below: str
    """The verdict at the smaller size: `faster` or `slower`."""
    above: str


@dataclass(frozen=True, repr=False)
class Comparison(Result, view="answers.compare.document"):
    """Run B against run A."""

    a: LoadedRun
    b: LoadedRun
    tolerance: float
    rows: tuple[ratio.ComparedRow, ...]
    """A row per case that both have: steps of a workload first, kinds in the order of A, sizes
    ascending within each kind."""
    only_a: tuple[Any, ...]
    """The rows of A that B lacks, named tuples of columns of results.csv."""
    only_b: tuple[Any, ...]
    mismatches: tuple[Difference, ...]
    """Where this is not empty, the two runs should not be compared."""
    differences: tuple[Difference, ...]
    host_changes: tuple[ratio.HostChange, ...]
    """In what the host was slower or faster during B; ComparedRow.host has what that may do to a
    row. Empty for different machines."""
    is_across_machines: bool = False
    left_out: tuple[host.LeftOut, ...] = ()
    """Launches in turns that do not count; the rows are without them."""

    @cached_property
    def pooled(self) -> tuple[PooledRatio, ...]:
        """The rows by ranges of sizes where the ratio does not change: what each says together."""
        kinds = groupby(self._judged, attrgetter("kind"))
        ranges = [each for _, rows in kinds for each in pool_kind([*rows], self.tolerance)]
        rows, number = len(self._judged), len(ranges)
        return tuple(each.among(rows if each.rows == 1 else number) for each in ranges)

    @cached_property
    def _judged(self) -> list[ratio.ComparedRow]:
        return [row for row in self.rows if row.verdict != NOT_COMPARED]

    def confirmed(self, verdict: str) -> list[ratio.ComparedRow]:
        """The rows with a verdict, `slower` or `faster`, that holds with 95 % for all rows
        together: not by chance because they are many."""
        alike = [row for row in self._judged if row.verdict == verdict]
        held = (ratio.hold_together(row, len(self._judged)) for row in alike)
        both = zip(alike, held, strict=True)
        return [row for row, own in both if stats.decide(own, self.tolerance) == verdict]

    def covers(self, case: Any) -> bool:
        """Whether both runs have a case, or that of a row."""
        return _key(case) in self._common

    @cached_property
    def _common(self) -> set[Any]:
        return {_key(row.a) for row in self.rows}

    @property
    def setting(self) -> str:
        """How B's machine or its number of cores differs from A's: `across machines`, `on fewer
        cores`, `on more cores`; empty where neither does."""
        if self.is_across_machines:
            return "across machines"
        for each in self.differences:
            if each.name == environment.CORES and (each.a + each.b).isdecimal():
                return f"on {'more' if int(each.b) > int(each.a) else 'fewer'} cores"
        return ""

    @property
    def crossovers(self) -> tuple[Crossover, ...]:
        """Where the verdict turns. Where sizes in between are not decided, it may be at any."""
        decided = (row for row in self.rows if row.verdict in CHANGED)
        return tuple(
            Crossover(kind, x.a.size_bytes, y.a.size_bytes, x.verdict, y.verdict)
            for kind, same in groupby(decided, attrgetter("kind"))
            for x, y in pairwise(same)
            if x.verdict != y.verdict
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict."""
        found = Counter(row.verdict for row in self.rows)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def is_slower(self) -> bool:
        """Whether B is slower in any row or range of sizes: with 95 % for all together."""
        return self._has(SLOWER)

    @property
    def is_faster(self) -> bool:
        """Whether B is faster in any row or range of sizes, likewise."""
        return self._has(FASTER)

    def _has(self, verdict: str) -> bool:
        of_ranges = any(pooled.verdict == verdict for pooled in self.pooled)
        return of_ranges or bool(self.confirmed(verdict))

    @property
    def are_in_turns(self) -> bool:
        """Whether each launch of both runs is a turn of its own."""
        return any(row.in_turns for row in self.rows)

    @property
    def are_of_two_boots(self) -> bool:
        """Whether it is known that the host of B is not that of A, or was started anew since."""
        a, b = ((run.header.environment if run.header else {}) for run in (self.a, self.b))
        return a.get("boot_id") != b.get("boot_id")

    @property
    def waited(self) -> int:
        """How many rows are undecided because ranks waited for a core."""
        return sum(bool(row.waited) for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Everything that is known; rows that only one side has with what it says of them."""
        alone = {
            name: [ratio.case_json(row) | ratio.side_json(row) for row in getattr(self, name)]
            for name in ("only_a", "only_b")
        }
        sides = {"a": self.a.named, "b": self.b.named}
        more = ("counts", "waited", "pooled", "crossovers")
        found = fields_of(self, *more, without=("a", "b", *alone))
        return sides | found | alone

    def written_rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows, then those of one side only, as values of COLUMNS; seven digits."""
        only_a = (ratio.ComparedRow("", row, None, None, "only in A") for row in self.only_a)
        only_b = (ratio.ComparedRow("", None, row, None, "only in B") for row in self.only_b)
        for row in chain(self.rows, only_a, only_b):
            yield tuple(of(row) for of in COLUMNS.values())

    def frame(self) -> DataFrame:
        """Every row of either side as a pandas DataFrame, with the columns of `--format csv`."""
        return make_frame(self.written_rows(), [*COLUMNS], (*TEXTS, "verdict", "reason"))


def compare(a: Run | LoadedRun, b: Run | LoadedRun, tolerance: float = TOLERANCE) -> Comparison:
    """Compare B with A. Raises RecordsError where a run has two rows of one case.

    Runs that should not be compared are compared nevertheless: see `mismatches`, and
    `require_comparable`.
    """
    a, b = as_loaded_run(a, COMPARED), as_loaded_run(b, COMPARED)
    left_out: tuple[host.LeftOut, ...] = ()
    runs = turns.find_facts(a, b)
    if a.run and b.run and turns.are_in_turns(runs):
        left_out = host.find_left_out([a.run, b.run])
        a, b = (_without(run, left_out) for run in (a, b)) if left_out else (a, b)
        runs = turns.find_facts(a, b)
    in_a, in_b, only_a, only_b = match_rows(a, b)
    found, varied = find_mismatches(a, b)
    is_across, in_turns = environment.are_other_machines(a, b), turns.are_in_turns(runs)
    others = (*varied, *(a.history.differences if a.history else environment.differences(a, b)))
    is_alike = not found and all(each.name != environment.CORES for each in others)
    # In turns, the launches show how the host changes; what is slower on one side is its own.
    changes = () if is_across or in_turns else host.find_host_changes(a, b, is_alike)
    if a.history:  # on a faster host, a run is as fast as usual if it takes no longer
        changes = tuple(each for each in changes if each.ratio.value > 1)
    timed = (a.rows[index] for index in (in_a if changes else ()))
    of_kinds = collect((row_kind(row), row) for row in timed if row.time_s)

    def compared(index: int, other: int, effect: ratio.HostEffect) -> ratio.ComparedRow:
        first, second, samples = a.rows[index], b.rows[other], None
        level = a.history.levels[first.case.key()] if a.history else None
        if level:
            second = second._replace(time_ci_low_s=second.time_s, time_ci_high_s=second.time_s)
        if not in_turns:
            effect = effect.with_wait(ratio.find_wait_effect(first, second))
        if a.run and b.run:
            samples = a.run.measurements[index], b.run.measurements[other]
        kind = row_kind(first)
        row = ratio.compare_rows(kind, first, second, tolerance, effect, samples, runs)
        own = {"a": row_at(a.rows, index), "b": row_at(b.rows, other)}
        return row._replace(**own, level=level)

    both = [*zip(in_a, in_b, strict=True)]
    rows = [compared(*pair, ratio.NO_EFFECT) for pair in both]
    if changes:
        firsts = (a.rows[index] for index in in_a)
        parts = [host.find_parts(row, of_kinds.get(row_kind(row), ())) for row in firsts]
        changes = tuple(
            host.limit_change(each, [*zip(rows, (own[each.part] for own in parts), strict=True)])
            for each in changes
        )
        effects = (host.find_effect(changes, own) for own in parts)
        rows = [compared(*pair, effect) for pair, effect in zip(both, effects, strict=True)]
    kinds = dict.fromkeys(row.kind for row in sorted(rows, key=lambda row: not row.a.step))
    order = {kind: number for number, kind in enumerate(kinds)}
    rows.sort(key=lambda row: (order[row.kind], row.a.size_bytes))
    alone_a = tuple(row_at(a.rows, index) for index in only_a)
    alone_b = tuple(row_at(b.rows, index) for index in only_b)
    return Comparison(
        a, b, tolerance, tuple(rows), alone_a, alone_b, found, others, changes, is_across, left_out
    )


def _without(run: LoadedRun, left_out: Sequence[host.LeftOut]) -> LoadedRun:
    """The run without these launches."""
    assert run.run
    kept = as_loaded_run(host.without(run.run, left_out), run.columns)
    return run._replace(run=kept.run, rows=kept.rows)


def find_mismatches(
    a: LoadedRun, b: LoadedRun
) -> tuple[tuple[Difference, ...], tuple[Difference, ...]]:
    """The facts that must match and do not: those that forbid a comparison, and those of two
    settings of one sweep, which names all of them."""
    found = environment.mismatches(a, b)
    folders = [run.path.resolve() for run in (a, b)]
    pairs = [(d.name, *each) for d in found for each in zip((d.a, d.b), folders, strict=True)]
    is_named = all(f"{n.replace('_', '-')}={v}" in folder.name.split("+") for n, v, folder in pairs)
    is_swept = folders[0].parent == folders[1].parent and all(map(holds_rounds, folders))
    return ((), found) if is_named and is_swept else (found, ())


def row_kind(row: Any) -> str:
    """The title of a row's case: what it is without its size."""
    return _title(kind_values(row))


@lru_cache(maxsize=1 << 12)
def _title(values: tuple[Any, ...]) -> str:
    return case_of_kind(values).title


def require_two_runs(a: LoadedRun, b: LoadedRun) -> None:
    """Raise UsageError where both are the same run: the same object, folder or file."""
    first, second = _source(a), _source(b)
    is_copy = a.run and b.run and a.run._replace(path="") == b.run._replace(path="")
    if (a.run or a) is (b.run or b) or (first == second and first.exists()) or is_copy:
        where = f"{b.path} is a copy of {a.path}" if is_copy and first != second else a.path
        why = f"{a.name} and {b.name} are the same run: {where}"
        raise UsageError(why, "name two different runs")


def _source(run: LoadedRun) -> Path:
    """The folder of a run, or the file of another tool."""
    path = run.path.resolve()
    return path.parent if path.name in (JOURNAL, RESULTS_CSV) else path


def require_comparable(comparisons: Sequence[Comparison], force: bool) -> None:
    """Raise UsageError where no row is common, or, unless `force`, what must match differs."""
    for found in comparisons:
        if found.mismatches and not force:
            a, b = distinct_names([found.a, found.b])
            facts = "; ".join(fact.in_words(a, b) for fact in found.mismatches)
            how = _SAME_OPTIONS
            if [fact.name for fact in found.mismatches] == ["cpu_mode"]:
                modes = ",".join(found.mismatches[0][1:3])
                sweep = f"`commbench sweep --vary cpu-mode={modes}`"
                how = f"{sweep} measures both modes in turns; measure both in one mode"
            why = f"{a} and {b} should not be compared: {facts}"
            raise UsageError(why, f"{how}, or add --force to compare them anyway")
        if not found.rows:
            raise _nothing_common(found.a, found.b)


def _nothing_common(a: LoadedRun, b: LoadedRun) -> UsageError:
    """That two runs have no row in common, and the first option of which they share no value; or
    which of them has no rows."""
    runs = dict(zip(distinct_names([a, b]), (a, b), strict=True))
    if empty := [name for name, run in runs.items() if not (run.rows or run.incomplete)]:
        what = "has no rows" if len(empty) == 1 else "have no rows"
        return UsageError(f"{' and '.join(empty)} {what}", "name a run that measured something")
    why = "".join(f"; {name} is incomplete" for name, run in runs.items() if run.incomplete)
    own = [r.path for r in (a, b) if r.incomplete and r.header and not is_imported(r.header)]
    hint = f"continue it with `{resume_command(own[0])}`" if own else _SAME_OPTIONS
    for each in () if why else DIMENSIONS:
        first, second = ({getattr(row, each.field) for row in run.rows} for run in (a, b))
        if not first & second:
            why, hint = f": they differ in {each.word}", f"measure both with the same {each.option}"
            if a.path.parent == b.path.parent and all(holds_rounds(run.path) for run in (a, b)):
                hint = f"`commbench show {a.path.parent}` compares the settings of this sweep"
            break
    return UsageError(f"{' and '.join(runs)} have no row in common{why}", hint)
