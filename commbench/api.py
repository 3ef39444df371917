"""commbench from Python, and what the command line calls.

Returns data, raises CommbenchError, and prints nothing but the progress of a run, on standard
error.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
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
    from commbench.sweep.result import SweepResult
    from commbench.sweep.session import SweepListener, SweepOptions
    from commbench.sweep.settings import Setting

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
    as the same. Raises UsageError for one run that is named twice, for runs that have no row in
    common and, unless `force`, for runs that differ in what must match.
    """
    from commbench.compare.comparison import (
        COMPARED,
        compare,
        require_comparable,
        require_two_runs,
    )
    from commbench.units import parse_percentage

    within = parse_percentage(str(tolerance), "tolerance")
    first, second = _loaded(a, COMPARED), _loaded(b, COMPARED)
    require_two_runs(first, second)
    comparison = compare(first, second, within)
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
    allow_unmatched: bool = False,
    force: bool = False,
) -> GateResult:
    """Check a run against rules, those of a TOML file, and limits such as
    `min_busbw="all_reduce:1M-1G:3.0GB/s"`; the options are those of `commbench check`.

    The `outcome` of the result is "pass", "fail" or "undecided". Raises UsageError where there is
    no rule, or a rule matches no row.
    """
    from commbench.compare.comparison import COMPARED, require_comparable
    from commbench.gate.gate import CHECKED, check
    from commbench.gate.rules import select_rules

    if rules is None or isinstance(rules, (str, Path)):
        limits = {"max_slowdown": max_slowdown, "min_busbw": min_busbw, "max_time": max_time}
        texts = {name: [text] if isinstance(text, str) else text for name, text in limits.items()}
        rules = select_rules(texts, Path(rules) if rules else None, against is not None)
    checked = _loaded(run, CHECKED)
    baseline = None if against is None else _loaded(against, COMPARED)
    result = check(checked, rules, baseline, allow_unmatched)
    if result.comparison:
        require_comparable([result.comparison], force)
    return result


def sweep(
    *,
    env: Mapping[str, Sequence[str]] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    rounds: int = 3,
    tolerance: str | float = "5%",
    label: str | None = None,
    output: str | Path | None = None,
    export: str | None = None,
    force: bool = False,
    **options: Any,
) -> SweepResult:
    """Measure the same cases under every combination of settings.

    `env` has the values of environment variables ("-" leaves one unset), `vary` those of options of
    `commbench run`: `sweep(env={"NCCL_ALGO": ["RING", "TREE"]}, vary={"dtype": ["float32"]})`. The
    other keywords are the options of `commbench run`, as for `run`. Settings that could not be
    measured are in `failures`. Raises CommbenchError; its `run` is what was measured until then.
    """
    from commbench.sweep.session import SweepOptions
    from commbench.sweep.settings import make_settings
    from commbench.units import parse_percentage

    varied = {name.replace("_", "-"): tuple(map(str, v)) for name, v in (vary or {}).items()}
    settings = make_settings({name: tuple(v) for name, v in (env or {}).items()}, varied)

    def parse(setting: Setting) -> RunOptions:
        names = {name.replace("-", "_"): value for name, value in setting.options}
        values = {n: int(v) if RUN_OPTIONS[n].type == int | None else v for n, v in names.items()}
        return parse_options({"plots": False, **options, **values}, "api", "sweep")

    return run_sweep(
        SweepOptions(
            settings=settings,
            runs=tuple(map(parse, settings)),
            rounds=rounds,
            tolerance=parse_percentage(str(tolerance), "tolerance"),
            label=label,
            output=None if output is None else Path(output),
            export=export,
            force=force,
        ),
        _SilentListener(),
    )


class _SilentListener:
    """Ignores what a sweep tells; its progress goes to standard error by itself."""

    def status(self, line: str) -> None:
        pass

    def ended(self, result: SweepResult, error: CommbenchError | None) -> None:
        pass


def run_sweep(options: SweepOptions, listener: SweepListener) -> SweepResult:
    """Carry out a new sweep; raises CommbenchError for what ended it, and for wrong results."""
    from commbench.runner.process_state import restored_process_state
    from commbench.sweep import session

    with restored_process_state():
        return session.start(options, listener)


def resume_sweep(
    sweep: str | Path,
    listener: SweepListener | None = None,
    *,
    tolerance: float | None = None,
    export: str | None = None,
) -> SweepResult:
    """Measure what is missing of a sweep: its folder, or its name under results/."""
    from commbench.runner.process_state import restored_process_state
    from commbench.sweep import session

    with restored_process_state():
        return session.resume(str(sweep), listener or _SilentListener(), tolerance, export)


def load_sweep(sweep: str | Path) -> SweepResult:
    """Load a sweep by its folder, or by its name under results/; RecordsError if there is none."""
    from commbench.sweep.result import load_sweep

    return load_sweep(sweep)


def _loaded(run: AnyRun, columns: Collection[str]) -> schema.Run | LoadedRun:
    """A run that may be given by its path or label."""
    if not isinstance(run, (str, Path)):
        return run
    from commbench.analysis.load import load
    from commbench.results.run_folder import find_run

    return load(find_run(str(run)), columns)
