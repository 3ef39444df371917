"""Reads results from any file or folder that holds them, as a LoadedRun or a pandas DataFrame."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile, zip_longest
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench import __version__
from commbench.analysis.columns import (
    COLUMNS,
    INTEGERS,
    KEY,
    TEXTS,
    row_type,
    row_values,
    written_values,
)
from commbench.analysis.csv_file import ROUNDING, read_results
from commbench.analysis.row_names import kind_values, lacks_size
from commbench.analysis.rows import make_rows
from commbench.errors import RecordsError, UsageError, wrong_value
from commbench.output.text import list_some, short_repr
from commbench.plan.operations import find_operation
from commbench.readers.source import NO_HINTS, ImportHints
from commbench.results import schema
from commbench.results.files import is_file, is_folder, path_exists, reading
from commbench.results.journal_reader import read_run
from commbench.results.rounds import read_setting
from commbench.results.run_folder import FIRST_ROUND, JOURNAL, RESULTS_CSV, RUN_HINT, find_run
from commbench.units import format_count

if TYPE_CHECKING:
    from pandas import DataFrame


class OfHistory(NamedTuple):
    """What the usual levels of a history have beside their rows; see answers.history.baseline."""

    absent: str
    """Why a case has no row."""
    levels: Mapping[Any, Any] = {}
    """The Level of each case, by its key. The intervals of the rows hold for the ratio to a run:
    they contain what is unsure in the run."""
    host: Mapping[str, Sequence[float]] = {}
    """What answers.compare.host.host_logs says of the usual runs."""
    differences: tuple[Any, ...] = ()
    """In what the run that is compared with it differs from the usual runs: of each an
    analysis.environment.Difference."""
    has_run: bool = False
    """Whether the history holds the run that is compared with it."""
    node: str = ""
    """The node that was named in place of the hosts of the run."""


@short_repr("name", "path")
class LoadedRun(NamedTuple):
    """Results of one run, wherever they were read from."""

    name: str
    """The run's label; the name of its folder or file where it has none."""
    path: Path
    columns: tuple[str, ...]
    """Those of COLUMNS that were loaded."""
    rows: Sequence[Any]
    """A named tuple of the columns for each case; None: the number is not known."""
    header: schema.RunHeader | None = None
    """None where the file does not describe the environment, as results.csv."""
    run: schema.Run | None = None
    """With every sample; None where the file holds none. Its measurements are in the order of
    `rows`."""
    end: schema.RunEnd | None = schema.RunEnd(schema.COMPLETE)
    """How the run ended, as far as its file says; None where it has not, or was killed."""
    history: OfHistory | None = None
    """Where the rows are the usual levels of a history, and no run."""

    @property
    def incomplete(self) -> str:
        """Why the run is incomplete, in a clause; empty for one that is complete."""
        return (self.run and self.run.incomplete) or schema.describe_end(self.end)

    @property
    def launches(self) -> int | None:
        """The most launches of any row; None where it is not known."""
        return max((row.launches or 0 for row in self.rows), default=0) or None

    @property
    def named(self) -> dict[str, Any]:
        """What tells the run from others: its name, its path, and whether it has samples."""
        return {"name": self.name, "path": str(self.path), "has_samples": self.run is not None}

    def frame(self) -> DataFrame:
        """The rows as a pandas DataFrame, with all columns."""
        return make_frame([[*written_values(row, self.columns)] for row in self.rows], self.columns)


def require_run(run: Any) -> schema.Run | LoadedRun:
    """The same run; UsageError for what is none."""
    if not isinstance(run, schema.Run | LoadedRun):
        raise wrong_value(run, "is no run", "give a Run, or the path or the label of one")
    return run


def as_loaded_run(run: schema.Run | LoadedRun, columns: Collection[str] = COLUMNS) -> LoadedRun:
    """A run that was read or imported, with these columns of its rows; a LoadedRun as it is."""
    if isinstance(run, LoadedRun):
        return run
    make_row = row_type(tuple(columns))
    rows = [make_row(*row_values(row, columns)) for row in make_rows(run)]
    return LoadedRun(run.name, Path(run.path), tuple(columns), rows, run.header, run, run.end)


_OWN = tuple(name for name in COLUMNS if name != "warnings")
"""Columns whose values a version computes alike at any time."""
_LASTING = tuple(
    name
    for name in _OWN
    if name in (*takewhile("warnings".__ne__, COLUMNS), *KEY) and "_ci_" not in name
)
"""Those whose values every version computes alike."""


def distinct_names(runs: Sequence[schema.Run | LoadedRun]) -> list[str]:
    """A name for each run; with its path where two runs have the same name."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({run.path})"
        for name, run in zip(names, runs, strict=True)
    ]


def _read_journal(path: Path) -> schema.Run:
    """The run of a journal. One without checksums is compared with the rows beside it, which were
    computed from it when it was whole."""
    run = read_run(path)
    beside = Path(run.path) / RESULTS_CSV
    if not run.checked and is_file(beside):
        _require_same_rows(run, beside)
    return run


def _require_same_rows(run: schema.Run, beside: Path) -> None:
    """Raise RecordsError where the rows beside the journal of a run that ended complete are not
    those that follow from it."""
    if not run.end or run.end.status != schema.COMPLETE:
        return
    names = _OWN if run.header.commbench == __version__ else _LASTING
    ours, theirs = as_loaded_run(run, names).rows, read_results(beside, names)
    known = [any(value not in (None, "") for value in each) for each in zip(*theirs, strict=True)]
    nothing = (None,) * len(names)
    for number, both in enumerate(zip_longest(ours, theirs, fillvalue=nothing), start=1):
        for name, is_known, new, before in zip(names, known, *both, strict=False):
            if not is_known or new == before:
                continue
            if type(new) is type(before) is float and isclose(new, before, rel_tol=ROUNDING):
                continue
            kept_text, found_text = (
                "missing" if row is nothing else COLUMNS[name].as_written(value)
                for row, value in zip(both[::-1], (before, new), strict=True)
            )
            raise RecordsError(
                f"row {number} of {beside} contradicts {JOURNAL}: {name} is {kept_text}, "
                f"{found_text} there",
                "one of them was changed; if it was the rows, move them away",
            )


def _load_results(path: Path, columns: Collection[str]) -> LoadedRun:
    file = path / RESULTS_CSV if is_folder(path) else path
    rows = read_results(file, columns)
    labels = {row.label for row in rows} - {""}
    name = file.absolute().parent.name if file.name == RESULTS_CSV else file.stem
    label = labels.pop() if len(labels) == 1 else name
    end = _end_of_rows(file, rows if "stop_reason" in columns else ())
    return LoadedRun(label, path, tuple(columns), rows, end=end)


def _end_of_rows(file: Path, rows: Sequence[Any]) -> schema.RunEnd | None:
    """How the run of a results.csv ended, by its rows, and by the journal in the same folder.
    RecordsError where that has other rows."""
    if cut := sum(row.stop_reason == schema.CUT_OFF for row in rows):
        return schema.RunEnd(schema.INCOMPLETE, f"{format_count(cut, 'row')} {schema.CUT_OFF}")
    if file.name != RESULTS_CSV or not is_file(file.parent / JOURNAL):
        return schema.RunEnd(schema.COMPLETE)
    try:
        run = read_run(file.parent)
    except RecordsError as error:
        return schema.RunEnd(schema.INCOMPLETE, error.message)
    _require_same_rows(run, file)
    return run.end


_HEAD_BYTES = 4096
_OTHER = "another tool's file"


def load(
    path: Path, columns: Collection[str] = COLUMNS, hints: ImportHints = NO_HINTS
) -> LoadedRun:
    """The results in a run folder, run.jsonl, results.csv or another tool's file.

    RecordsError says what is wrong; UsageError names the hint that is missing.
    """
    kind = kind_of(path)
    if kind == RESULTS_CSV:
        return _load_results(path, columns)
    if kind:
        return as_loaded_run(open_run(path, hints), columns)
    why = f"{path} has no results"
    hint = "give a run folder, its run.jsonl or results.csv, or another tool's file"
    raise RecordsError(why, hint)


def kind_of(path: Path) -> str:
    """What a folder or a file has: JOURNAL, RESULTS_CSV, FIRST_ROUND, or _OTHER; empty for
    nothing."""
    if is_folder(path):
        names = JOURNAL, RESULTS_CSV, FIRST_ROUND
        return next((name for name in names if path_exists(path / name)), "")
    with reading(path, RUN_HINT) as file:
        head = file.read(_HEAD_BYTES)
    if path.name == JOURNAL or head.startswith(b'{"kind"'):
        return JOURNAL
    first = head.split(b"\n")[0].split(b",")
    has_rows = {b"operation", b"size_bytes"} <= {*first} and b"system" not in first
    is_csv = path.name == RESULTS_CSV or has_rows
    return RESULTS_CSV if is_csv else _OTHER if is_file(path) else ""


def open_run(path: Path, hints: ImportHints = NO_HINTS) -> schema.Run:
    """The run in a folder or journal, or in another tool's file.

    RecordsError where it cannot be read or is a results.csv, UsageError where a hint is missing or
    invalid.
    """
    hints = hints.validate()
    kind = kind_of(path) if is_folder(path) or is_file(path) else JOURNAL
    if kind == RESULTS_CSV:
        raise _no_samples_error(path)
    if kind == FIRST_ROUND:
        return read_setting(path)
    if kind != _OTHER:
        return _read_journal(path)
    from commbench.readers.registry import import_run

    return import_run(path, hints)


def require_another_tool(runs: Collection[Any], hints: ImportHints) -> None:
    """Raise UsageError where `ranks`, `op` or `dtype` describes another tool's file, and all runs
    are of commbench. What reads a run says that there is none."""
    given = {"--ranks": hints.ranks, "--op": hints.operation, "--dtype": hints.dtype}
    option = next((name for name, value in given.items() if value is not None), "")
    if not option or any(isinstance(run, LoadedRun) for run in runs):
        return
    try:
        is_own = bool(runs) and all(map(is_of_commbench, runs))
    except (RecordsError, UsageError):
        return
    if is_own:
        names = [str(getattr(run, "name", run)) for run in runs]
        what = f"{names[0]} is a run" if len(names) == 1 else f"{' and '.join(names)} are runs"
        why = f"{option} says what a file of another tool does not; {what} of commbench"
        raise UsageError(why, f"leave {option} out")


def only_rows(run: Any, op: str | None, sizes: tuple[int, ...]) -> Any:
    """The run with only the rows of an operation, and of these sizes; UsageError where none is."""
    if not (op or sizes):
        return run
    name = find_operation(op).name if op else ""
    is_loaded = isinstance(run, LoadedRun)
    rows = [*run.rows] if is_loaded else [m.case for m in run.measurements]
    kept = [at for at, row in enumerate(rows) if name in ("", row.operation)]
    chosen = [at for at in kept if not sizes or rows[at].size_bytes in sizes]
    if not kept:
        names = dict.fromkeys(row.operation for row in rows)
        raise UsageError(f"{run.name} has no {name}", f"it has {list_some([*names], 8)}")
    if not chosen:
        raise lacks_size(run.name, (rows[at].size_bytes for at in kept), sizes[0])
    if is_loaded:
        own = run.run and only_rows(run.run, op, sizes)
        return run._replace(rows=[rows[at] for at in chosen], run=own)
    found = tuple(run.measurements[at] for at in chosen)
    plan = run.header.plan
    within = tuple(size for size in plan.sizes if size in sizes)
    operations = tuple(dict.fromkeys(m.case.operation for m in found))
    plan = replace(plan, operations=operations, sizes=within or plan.sizes)
    return run._replace(measurements=found, header=run.header._replace(plan=plan))


def is_of_commbench(run: Any) -> bool:
    """Whether a run, or what names one, is of commbench, and not another tool's file."""
    if isinstance(run, str | Path):
        return kind_of(find_run(str(run))) in (JOURNAL, RESULTS_CSV, FIRST_ROUND)
    is_run = isinstance(run, schema.Run | LoadedRun)
    return is_run and not (run.header and schema.is_imported(run.header))


def require_samples(run: schema.Run | LoadedRun) -> schema.Run:
    """The run with every sample; RecordsError where it was read from a results.csv."""
    if isinstance(run, schema.Run):
        return run
    if run.run is None:
        raise _no_samples_error(run.path)
    return run.run


def _no_samples_error(path: Path) -> RecordsError:
    return RecordsError(
        f"{path} has the rows of a run, but not its samples",
        f"give the run folder with its {JOURNAL}; compare, check and export read {RESULTS_CSV} too",
    )


def index_rows(run: LoadedRun) -> dict[tuple[Any, ...], dict[int, int]]:
    """The index of each row by its values in KEY, without the size, and its size. Raises
    RecordsError where two are the same."""
    kinds: dict[tuple[Any, ...], dict[int, int]] = {}
    for index, row in enumerate(run.rows):
        first = kinds.setdefault(kind_values(row), {}).setdefault(row.size_bytes, index)
        if first != index:
            what, begin = ("lines", 2) if run.run is None else ("rows", 1)
            where = f"{what} {first + begin} and {index + begin}"
            why = f"{run.path} has two rows of {row.case.name}: {where}"
            hint = f"give every run its own file; only a {JOURNAL} may hold several launches"
            raise RecordsError(why, hint)
    return kinds


def match_rows(a: LoadedRun, b: LoadedRun) -> tuple[array[int], array[int], array[int], array[int]]:
    """The indices of the rows of the same cases in A and in B, in the order of A, and those of rows
    that only A or only B has. Raises RecordsError as index_rows."""
    first, second = index_rows(a), index_rows(b)
    in_a, in_b, only_a, only_b = (array("q") for _ in range(4))
    for index, row in enumerate(a.rows):
        other = second.get(kind_values(row), {}).get(row.size_bytes)
        if other is None:
            only_a.append(index)
        else:
            in_a.append(index)
            in_b.append(other)
    for index, row in enumerate(b.rows):
        if row.size_bytes not in first.get(kind_values(row), {}):
            only_b.append(index)
    return in_a, in_b, only_a, only_b


def make_frame(
    rows: Iterable[Sequence[Any]], columns: Sequence[str], texts: Collection[str] = TEXTS
) -> DataFrame:
    """A frame of rows, with NA for None: Int64 for INTEGERS, string for `texts`, else Float64."""
    import pandas

    frame = pandas.DataFrame(list(rows), columns=list(columns), dtype="object")
    types = dict.fromkeys(columns, "Float64")
    types |= {name: "Int64" for name in columns if name in INTEGERS}
    types |= {name: "string" for name in columns if name in texts}
    typed: DataFrame = frame.astype(types)
    return typed


def join_frames(runs: Sequence[LoadedRun]) -> DataFrame:
    """The rows of several runs, with all COLUMNS, in one frame: `run`, the run's name, comes first.
    Values that were not measured are `pandas.NA`."""
    rows = [(run.name, *written_values(row)) for run in runs for row in run.rows]
    return make_frame(rows, ("run", *COLUMNS), ("run", *TEXTS))


def filled(frame: DataFrame) -> DataFrame:
    """The columns of a frame of rows that every run has, and those with a value in a row."""
    kept = {"run", *takewhile("launch_mode".__ne__, COLUMNS)}
    is_empty = (frame.isna() | (frame == "")).all()
    found: DataFrame = frame[[name for name in frame if name in kept or not is_empty[name]]]
    return found
