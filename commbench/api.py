"""commbench from Python, and what the command line calls.

Returns data, raises CommbenchError, and prints nothing but the progress of a run, on standard
error.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from commbench.errors import CommbenchError, UsageError
from commbench.results import schema
from commbench.runner.planning import RunListener
from commbench.runner.run_options import RUN_OPTIONS, RunOptions, parse_options

if TYPE_CHECKING:
    from pandas import DataFrame

    from commbench.analysis.load import LoadedRun
    from commbench.compare.comparison import Comparison
    from commbench.gate.gate import GateResult
    from commbench.gate.rules import Rule

    AnyRun: TypeAlias = schema.Run | LoadedRun | str | Path
    """A run, or the path or label of one."""


class Run(schema.Run):
    """A recorded run: its header, with the plan, and its measurements, with every sample."""

    __slots__ = ()

    def frame(self) -> DataFrame:
        """A row per case, with the columns of results.csv."""
        from commbench.analysis.load import as_loaded_run

        return as_loaded_run(self).frame()

    def plot(self, folder: str | Path | None = None) -> list[Path]:
        """Draw bus bandwidth and time against size; the files, by default in the run's folder."""
        from commbench.report.plots import draw

        return draw([self], Path(self.path if folder is None else folder))


class _Recorder:
    """Keeps the run that a session reports."""

    run: Run | None = None

    def status(self, line: str) -> None:
        pass

    def ended(self, run: schema.Run, error: CommbenchError | None) -> None:  # noqa: ARG002
        self.run = Run(*run)

    def hung(self, error: CommbenchError) -> None:
        from commbench.output.console import print_error

        print_error(error.message, error.hint, error.details)


def run(**options: Any) -> Run:
    """Measure collectives on ranks that are launched from here, and return the recorded run.

    The keywords are the options of `commbench run`: `op` and `dtype` take a name or a list of
    names, `sizes` an expression such as "1K-1G", a number of bytes or a list of them. No plots are
    drawn without `plots=True`. Raises CommbenchError; its `run` is what was recorded until then.
    """
    parsed = parse_options({"plots": False, **options}, "api")
    from commbench.runner.planning import find_rank_context

    if context := find_rank_context(parsed):
        raise UsageError(
            f"{context.launcher} started this process as one of {context.world_size} ranks",
            "commbench.measure measures on the process group of such ranks",
        )
    recorder = _Recorder()
    try:
        run_options(parsed, recorder)
    except CommbenchError as error:
        error.run = recorder.run
        raise
    assert recorder.run is not None
    return recorder.run


def run_options(options: RunOptions, listener: RunListener) -> Run | None:
    """Carry out a run and return what was recorded; None where another process reports it.

    Raises CommbenchError for whatever ended it, and for wrong results.
    """
    from commbench.runner import session
    from commbench.runner.process_state import restored_process_state

    with restored_process_state():
        recorded = session.run(options, listener)
    return Run(*recorded) if recorded else None


def measure(*, group: Any = None, **options: Any) -> Run:
    """Measure on a process group of the job that calls this, as started by torchrun.

    Every rank of `group` (of the default group for None) calls this with the same options and gets
    the same Run. The group may be one of `new_group` or of a DeviceMesh dimension. Nothing is
    initialised, and nothing remains. The options are those of `commbench run` without those that
    start ranks; with `output` rank 0 of the group also writes the run into that folder.

    Raises CommbenchError on every rank alike, WrongResultError for wrong results.
    """
    parsed = replace(parse_options(options, "api", "measure"), cpu_mode="plain")
    from commbench.runner.session import require_correct
    from commbench.worker.in_process import measure_on_group

    recorded = Run(*measure_on_group(parsed.plan, group, label=parsed.name, output=parsed.output))
    require_correct(recorded)
    return recorded


def _make_signature(*users: str, **others: Any) -> inspect.Signature:
    """The options that these users take, as keywords; `others` are further ones."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            option.name,
            kind,
            annotation=option.type,
            default=False if option.name == "plots" else option.default,
        )
        for option in RUN_OPTIONS.values()
        if not option.sets and option.refused_by.keys().isdisjoint(users)
    ]
    parameters += [inspect.Parameter(name, kind, default=other) for name, other in others.items()]
    return inspect.Signature(parameters, return_annotation=Run)


run.__signature__ = _make_signature("api")  # type: ignore[attr-defined]
measure.__signature__ = _make_signature(  # type: ignore[attr-defined]
    "api", "measure", group=None
)


def load(
    run: str | Path, *, ranks: int | None = None, op: str | None = None, dtype: str | None = None
) -> Run:
    """Load a run by its folder, journal or label under results/, or from another tool's file.

    `ranks`, `op` and `dtype` are for other tools' files that do not tell them. Raises RecordsError
    where there is no such run, UsageError where one of those is missing.
    """
    from commbench.analysis.load import open_run
    from commbench.importers.hints import ImportHints
    from commbench.results.run_folder import find_run

    return Run(*open_run(find_run(str(run)), ImportHints(ranks, op, dtype)))


def compare(
    a: AnyRun, b: AnyRun, *, tolerance: str | float = "5%", force: bool = False
) -> Comparison:
    """Compare run `b` against run `a`, row by row: the ratio of times with its 95 % interval.

    A run is a Run, or a path or label, also of a results.csv. Ratios within `tolerance` of 1 count
    as the same. Raises UsageError for runs that have no row in common or, unless `force`, differ in
    what must match.
    """
    from commbench.compare.comparison import COMPARED, compare, require_comparable
    from commbench.units import parse_percentage

    within = parse_percentage(str(tolerance), "tolerance")
    comparison = compare(_loaded(a, COMPARED), _loaded(b, COMPARED), within)
    require_comparable([comparison], force)
    return comparison


def check(
    run: AnyRun,
    rules: str | Path | Sequence[Rule] | None = None,
    *,
    against: AnyRun | None = None,
    max_slowdown: str | Sequence[str] = (),
    min_busbw: str | Sequence[str] = (),
    max_time: str | Sequence[str] = (),
    undecided: str | None = None,
    allow_unmatched: bool = False,
    force: bool = False,
) -> GateResult:
    """Check a run against rules, those of a TOML file, and limits such as
    `min_busbw="all_reduce:1M-1G:3.0GB/s"`; the options are those of `commbench check`.

    The `outcome` of the result is "pass", "fail" or "no verdict"; `undecided` is what undecided
    rows count as: "pass", "fail", or None (docs/comparing.md). Raises UsageError where there is no
    rule, or run and baseline cannot be compared.
    """
    from commbench.compare.comparison import COMPARED, require_comparable
    from commbench.gate.gate import CHECKED, check
    from commbench.gate.limits import FAIL, PASS
    from commbench.gate.rules import select_rules
    from commbench.validation import choose

    if undecided is not None:
        choose("--undecided", undecided, {PASS: None, FAIL: None})
    if rules is None or isinstance(rules, (str, Path)):
        limits = {"max_slowdown": max_slowdown, "min_busbw": min_busbw, "max_time": max_time}
        texts = {name: [text] if isinstance(text, str) else text for name, text in limits.items()}
        rules = select_rules(texts, Path(rules) if rules else None, against is not None)
    checked = _loaded(run, CHECKED)
    baseline = None if against is None else _loaded(against, COMPARED)
    result = check(checked, rules, baseline, allow_unmatched, undecided or "")
    if result.comparison:
        require_comparable([result.comparison], force)
    return result


def _loaded(run: AnyRun, columns: Collection[str]) -> schema.Run | LoadedRun:
    """A run that may be given by its path or label."""
    if not isinstance(run, (str, Path)):
        return run
    from commbench.analysis.load import load
    from commbench.results.run_folder import find_run

    return load(find_run(str(run)), columns)
