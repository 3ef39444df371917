"""Recorded runs: loading, tables, plots, other formats, explanations, and reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from commbench.errors import UsageError
from commbench.plan.links import parse_peak
from commbench.readers.source import NO_HINTS, ImportHints
from commbench.results import run_folder, schema
from commbench.results.files import write_new
from commbench.results.run_folder import find_sweep
from commbench.runner.option import parse_size_list
from commbench.stats import TOLERANCE
from commbench.units import parse_tolerance
from commbench.validation import choose
from commbench.views import formats
from commbench.views.formats import HTML, OWN_PAGE, VIEW_OF_DOCUMENT, Result, View, choose_format

if TYPE_CHECKING:
    from pandas import DataFrame

    from commbench.analysis.columns import Row
    from commbench.analysis.load import LoadedRun
    from commbench.answers.check.gate import GateResult
    from commbench.answers.compare.comparison import Comparison
    from commbench.answers.explain.explanation import Explanation
    from commbench.answers.pairs.matrix import RankMatrix
    from commbench.answers.replay.replay import ReplayResult
    from commbench.answers.show.lists import RunList
    from commbench.answers.soak.soak import SoakResult
    from commbench.answers.sweep.result import SweepResult
    from commbench.views.draw import Drawn

    AnyRun: TypeAlias = schema.Run | LoadedRun | str | Path
    """A run, or the path or label of one."""
    Reported: TypeAlias = LoadedRun | Comparison | GateResult | SweepResult
    """What a report can be about."""


class Run(Result, schema.Run, view="answers.show.run_document"):
    """A recorded run: its header, with the plan, and its measurements, with every sample.

    `print(run)` prints the table of `commbench show`.
    """

    __slots__ = ()

    def __new__(cls, *fields: Any, **named: Any) -> Run:
        """`commbench.load` reads one; UsageError where fields are missing."""
        if len(fields) + len(named) < 4:
            name = next(iter(fields), "LABEL")
            raise UsageError("Run(...) reads no run", f"write commbench.load({name!r})")
        return super().__new__(cls, *fields, **named)

    @property
    def rows(self) -> Sequence[Row]:
        """A row per case. `time`, `busbw` and `algbw` are Estimates in seconds and bytes/s: `value`
        with `low` and `high`; its fields are the columns of results.csv in SI units, such as
        `operation`, `size_bytes`, `dtype`, `time_s`, `wrong`."""
        from commbench.analysis.load import as_loaded_run

        return as_loaded_run(self).rows

    def frame(self, *, all_columns: bool = False) -> DataFrame:
        """A pandas DataFrame with a row per case and the columns of results.csv: those that every
        run has or this one fills. `all_columns` has the others, too."""
        from commbench.analysis.load import as_loaded_run, filled

        found = as_loaded_run(self).frame()
        return found if all_columns else filled(found)

    def text(
        self,
        format: str = "text",
        peak: str | None = None,
        *,
        verbose: bool = False,
        warnings: bool = False,
        groups: bool = False,
    ) -> str:
        """The run as `commbench show` prints it. `peak` is a speed such as "450GB/s"; by default
        that of the run. `warnings` explains every warning, `verbose` adds every row; with `groups`
        it is the time of each group of ranks."""
        from commbench.answers.show.formats import require_format
        from commbench.answers.show.run_document import VIEW, ShownRun

        require_format(format, peak)
        shown = ShownRun(self, peak, warnings or verbose, verbose, groups)
        return VIEW.write(shown, format, verbose).rstrip("\n")

    def matrices(self) -> list[RankMatrix]:
        """The values of pairs of ranks, a matrix for each kind of call and size: `values` has
        seconds or bytes/s by (from, to). Raises UsageError for a run without pairs."""
        from commbench.answers.pairs.matrix import has_matrix, pair_matrices

        if not (found := pair_matrices(self)) and not has_matrix(self.header.plan):
            raise UsageError(f"{self.name} has no pairs", "`commbench pairs` measures them")
        return found

    def replay(self, peak: str | None = None) -> ReplayResult:
        """The steps of a replay: what each took in the trace, and takes here, in seconds. `peak` is
        a speed such as "450GB/s". Raises UsageError for another run."""
        from commbench.answers.replay.replay import analyse_replay

        if not self.header.plan.workload:
            raise UsageError(f"{self.name} is no replay", "`commbench replay TRACE` makes one")
        peak = peak or self.header.plan.peak
        return analyse_replay(self, peak=parse_peak(peak) if peak else None)

    def soak(self, tolerance: float | str | None = None) -> SoakResult:
        """What a soak found: drift, slow minutes, wrong elements by rank. Smaller changes than the
        `tolerance`, by default 5 %, count as none. Raises UsageError for another run."""
        from commbench.answers.soak.soak import analyse_soak

        return analyse_soak(self, TOLERANCE if tolerance is None else parse_tolerance(tolerance))

    def plot(self, output: str | Path | None = None, peak: str | None = None) -> Drawn:
        """Draw bus bandwidth and time against size: see `commbench.plot`."""
        return plot(self, output=output, peak=peak)

    def export(self, format: str | None = None, output: str | Path | None = None) -> str | bytes:
        """The rows in another format: see `commbench.export`."""
        return export(self, format, output)

    def report(self, output: str | Path | None = None, format: str | None = None) -> str:
        """A report about this run, as text: see `commbench.report`."""
        return report(self, output=output, format=format)

    def _shown(self) -> tuple[View, Any]:
        from commbench.answers.show.run_document import VIEW, ShownRun

        return VIEW, ShownRun(self)


def ignore(line: str) -> None:
    """Take no notice of a line."""


def require_some(runs: Sequence[object], purpose: str) -> None:
    """Raise UsageError where no run is named."""
    if not runs:
        raise UsageError(f"there is no run to {purpose}", "name at least one run")


def texts(values: Any) -> tuple[str, ...]:
    """One value, or several, as text, each once."""
    is_one = isinstance(values, (str, int, float))
    return (str(values),) if is_one else tuple(dict.fromkeys(map(str, values)))


def load(
    run: AnyRun,
    *,
    ranks: int | None = None,
    op: str | None = None,
    dtype: str | None = None,
    size: str | int | Sequence[int | str] | None = None,
    notify: Callable[[str], None] = ignore,
) -> Run:
    """Load a run by its folder, its journal or its label under results/, or from another tool's
    file; with `size` (16384, "1M" or "1M,4M"), and of commbench's runs with `op`, only these rows.

    `ranks`, `op` and `dtype` describe another tool's file that does not contain them. `notify` gets
    a line where the newest of several runs with one label was chosen.

    Raises RecordsError where there is no such run, or only a results.csv, which has no samples.
    Raises UsageError where `ranks`, `op` or `dtype` is missing.
    """
    hints, choose_rows = row_choice([run], ranks, op, dtype, size)
    found: Run = choose_rows(run, load_one_of(run, hints, notify))
    return found


def row_choice(
    runs: Sequence[AnyRun], ranks: int | None, op: str | None, dtype: str | None,
    size: str | int | Sequence[int | str] | None,
) -> tuple[ImportHints, Callable[[AnyRun, Any], Any]]:  # fmt: skip
    """What describes other tools' files among these runs, as `hints_for`; and a function of what
    names a run and of the run, which keeps the rows that `load` does."""
    from commbench.analysis.load import is_of_commbench, only_rows

    sizes = parse_size_list(size) if size is not None else ()
    hints = hints_for(runs, ranks, None if all(map(is_of_commbench, runs)) else op, dtype)
    return hints, lambda named, run: only_rows(run, op if is_of_commbench(named) else None, sizes)


def hints_for(
    runs: Sequence[AnyRun], ranks: int | None, op: str | None, dtype: str | None = None
) -> ImportHints:
    """What describes other tools' files among these runs. UsageError where any of it is given, and
    all runs are of commbench."""
    from commbench.analysis.load import require_another_tool

    hints = ImportHints(ranks, op, dtype)
    require_another_tool(runs, hints)
    return hints


def load_one_of(run: AnyRun, hints: ImportHints, notify: Callable[[str], None]) -> Run:
    """A run as `load` has it; of several, of which the hints may describe another."""
    from commbench.analysis.load import open_run, require_run, require_samples

    if isinstance(run, Run):
        return run
    if not isinstance(run, (str, Path)):
        return Run(*require_samples(require_run(run)))
    return Run(*open_run(run_folder.find_run(str(run), notify), hints))


def list_runs() -> RunList:
    """The runs in the folder `results`, the newest first: a sequence of their folders, and `runs`
    with label, start, operations and status; and the folders of sweeps (`sweeps`)."""
    from commbench.answers.show.lists import RunList

    return RunList(sorted(run_folder.list_stored_runs(), reverse=True), run_folder.list_sweeps())


def frame(*runs: AnyRun, all_columns: bool = False) -> DataFrame:
    """One pandas DataFrame of several runs: the columns of results.csv after `run`, the run's name;
    those that every run has or one of these fills. `all_columns` has the others, too.

    Values that were not measured are `pandas.NA`. Raises RecordsError for what is no run.
    """
    from commbench.analysis.load import filled, join_frames

    require_some(runs, "show")
    found = join_frames([load_rows(run) for run in runs])
    return found if all_columns else filled(found)


def plot(*runs: AnyRun, output: str | Path | None = None, peak: str | None = None) -> Drawn:
    """Draw bus bandwidth and time against size, several runs in the same axes; or one sweep.

    The new files are the `paths` of the result: busbw.png and time.png in the folder `output`, or
    one file if `output` ends in .png, .svg or .pdf. No file is overwritten: the next plot in a
    folder is busbw-2.png. Without `output` nothing is written; a notebook shows the `pictures`.
    `peak` is a speed to mark, such as "450GB/s"; by default that of the runs. Raises
    UsageError where no run has two sizes.
    """
    from commbench.answers.show.plots import draw
    from commbench.answers.sweep.result import load_sweep

    marked = None if peak is None else parse_peak(peak)
    require_some(runs, "plot")
    where = None if output is None else Path(output)
    if len(runs) == 1 and isinstance(only := runs[0], (str, Path)) and find_sweep(str(only)):
        if marked:
            raise UsageError(f"{only} is a sweep, which has no --peak", "leave out --peak")
        return load_sweep(only).plot(where)
    return draw([load(run) for run in runs], where, marked)


def export(
    run: AnyRun,
    format: str | None = None,
    output: str | Path | None = None,
    *,
    notify: Callable[[str], None] = ignore,
) -> str | bytes:
    """The rows of a run in another format: csv, json, markdown, nccl-tests, parquet, openmetrics,
    curves, nccl-perf, autoparallel, inductor.

    Parquet is bytes, every other format is text. With `output` the content is also written to that
    new file, whose ending chooses the format (.csv, .json, .md, .parquet, .prom) unless it is
    given; without both it is csv. Raises RecordsError where the file exists.
    """
    where = None if output is None else Path(output)
    parts = [*export_parts(run, format, where, notify)]
    content: str | bytes = parts[0] if len(parts) == 1 else "".join(parts)
    if where is not None:
        write_new(where, content)
    return content


def export_parts(
    run: AnyRun, format: str | None, output: Path | None, notify: Callable[[str], None]
) -> Iterable[Any]:
    """What `export` returns, in parts: texts, or one of bytes."""
    from commbench.answers.show.exporters import EXPORT_ENDINGS, EXPORTERS

    write = choose("format", choose_format(format, output, "csv", EXPORT_ENDINGS), EXPORTERS)
    loaded = load_rows(run, notify=notify)
    schema.tell_incomplete(loaded, notify)
    content = write(loaded)
    return [content] if isinstance(content, str | bytes) else content


def import_results(
    file: str | Path,
    *,
    ranks: int | None = None,
    op: str | None = None,
    dtype: str | None = None,
    system: str | None = None,
    nccl_version: str | None = None,
    label: str | None = None,
    output: str | Path | None = None,
) -> Run:
    """Make a run folder of another tool's file, and return the run.

    `ranks`, `op` and `dtype` describe a file that does not contain them; `system` and
    `nccl_version` choose curves of a file that has several. The label is by default
    the name of the file, the folder `output` is by default results/TIME-LABEL.
    """
    from commbench.analysis.csv_file import write_run_folder
    from commbench.readers.registry import import_run
    from commbench.runner.option import as_label, require_label

    if label is not None:
        require_label(label)
    found = import_run(Path(file), ImportHints(ranks, op, dtype, system, nccl_version))
    header = found.header._replace(label=label or found.header.label)
    path = Path(output) if output else run_folder.new_folder(as_label(header.label))
    folder = run_folder.create_folder(path)
    imported = Run(*found._replace(path=str(folder), header=header))
    write_run_folder(folder, imported)
    return imported


def explain(
    what: AnyRun,
    *,
    op: str | None = None,
    size: str | int | None = None,
    peak: str | None = None,
    ranks: int | None = None,
    time: str | None = None,
    dtype: str | None = None,
    timing: str | None = None,
    nodes: int | None = None,
    model: str | Path | None = None,
    notify: Callable[[str], None] = ignore,
) -> Explanation:
    """Explain a run, or one call of an operation, with the formulas of its figures.

    `what` is a run, or the name of an operation. `op` and `size` choose rows of a run. A call of an
    operation needs `ranks`, `size` and `time`, such as 8, "1G" and "4.2ms". `model` is a machine
    file of `commbench model fit`: what its models predict is compared with each time. Raises
    UsageError for an option that is missing or has no meaning here.
    """
    from commbench.answers.explain.explanation import answer

    text_or_run = str(what) if isinstance(what, (str, Path)) else load(what)
    quoted = {"ranks": ranks, "time": time, "dtype": dtype, "timing": timing, "nodes": nodes}
    size = None if size is None else str(size)
    return answer(text_or_run, op, size, peak, model, notify, **quoted)


def load_rows(
    run: AnyRun,
    columns: Collection[str] | None = None,
    hints: ImportHints = NO_HINTS,
    notify: Callable[[str], None] = ignore,
) -> LoadedRun:
    """A run with its rows, also those of a results.csv, and these of COLUMNS, by default all.
    `hints` describe another tool's file, `notify` is that of `load`."""
    from commbench.analysis.columns import COLUMNS
    from commbench.analysis.load import as_loaded_run, load, require_run

    wanted = COLUMNS if columns is None else columns
    if not isinstance(run, (str, Path)):
        return as_loaded_run(require_run(run), wanted)
    return load(run_folder.find_run(str(run), notify), wanted, hints)


def report(
    *what: AnyRun | Comparison | GateResult | SweepResult,
    output: str | Path | None = None,
    format: str | None = None,
) -> str:
    """A report about one run, about the result of `check`, about a sweep, or about several runs
    or results of `compare` with the same first run.

    Returns the text, and writes it into the file `output` if that is given. `format` is "html" or
    "markdown"; by default Markdown for a file that ends in .md, else HTML. Raises UsageError for
    runs that cannot be compared, RecordsError if the file exists and is no HTML file of commbench.
    """
    from commbench.analysis.load import LoadedRun
    from commbench.answers.report import find_contents, make_document
    from commbench.api import compare

    where = None if output is None else Path(output)
    texts = {ending: name for ending, name in formats.ENDINGS.items() if name != formats.JSON}
    format = choose_format(format, where, HTML, texts)
    VIEW_OF_DOCUMENT.require(format)
    found = [_reported(each) for each in what]
    runs = [each for each in found if isinstance(each, LoadedRun)]
    if len(runs) > 1 and len(runs) == len(found):
        found = [compare(runs[0], other) for other in runs[1:]]
    text = VIEW_OF_DOCUMENT.write(make_document(find_contents(found)), format)
    if where is not None:
        write_new(where, text, OWN_PAGE)
    return text


def _reported(what: AnyRun | Reported) -> Reported:
    from commbench.analysis.load import LoadedRun
    from commbench.answers.sweep.result import load_sweep

    if isinstance(what, (str, Path)) and find_sweep(str(what)):
        return load_sweep(what)
    return load_rows(what) if isinstance(what, (str, Path, schema.Run, LoadedRun)) else what
