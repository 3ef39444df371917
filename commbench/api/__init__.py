"""commbench from Python, and what the command line calls.

Returns data, raises CommbenchError, and prints nothing but the progress of a run, on standard
error.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.api.reports import report
from commbench.api.runs import (
    Run,
    as_results,
    explain,
    export,
    frame,
    ignore,
    import_results,
    list_runs,
    load,
    plot,
)
from commbench.api.sweeps import load_sweep, resume_sweep, run_sweep, sweep
from commbench.errors import CommbenchError, UsageError
from commbench.results import schema
from commbench.runner.planning import PlannedRun, RunListener
from commbench.runner.run_options import RUN_OPTIONS, RunOptions, parse_options

if TYPE_CHECKING:
    from commbench.api.runs import AnyRun
    from commbench.compare.comparison import Comparison
    from commbench.doctor.checkup import DoctorReport
    from commbench.gate.gate import GateResult
    from commbench.gate.rules import Rule
    from commbench.jobs.kubernetes import KubernetesOptions
    from commbench.jobs.slurm import SlurmOptions
    from commbench.runner.smoke import SmokeResult

__all__ = [
    "Run",
    "check",
    "compare",
    "doctor",
    "environment",
    "explain",
    "export",
    "frame",
    "import_results",
    "job_script",
    "list_runs",
    "load",
    "load_sweep",
    "measure",
    "plan_options",
    "plot",
    "report",
    "resume_sweep",
    "run",
    "run_options",
    "run_sweep",
    "smoke",
    "sweep",
]


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


def plan_options(options: RunOptions) -> PlannedRun:
    """What a run with these options would measure, and on which ranks. Starts nothing."""
    from commbench.runner.planning import plan_run

    return plan_run(options)


def doctor(
    *,
    seconds: float = 60.0,
    rounds: int = 3,
    nproc_per_node: int = 2,
    notify: Callable[[str], None] = ignore,
) -> DoctorReport:
    """Look for what disturbs measurements with CPU ranks on this host; takes about `seconds`.

    Every CPU mode is tried `rounds` times. `notify` gets lines about progress. An error that ends
    the check early is in the `trouble` of the report.
    """
    start = time.monotonic()
    from commbench.doctor.checkup import DoctorOptions, examine
    from commbench.launch.process_setup import import_torch

    options = DoctorOptions(ranks=nproc_per_node, rounds=rounds, seconds=seconds)
    import_torch()
    return examine(options, start, notify)


def smoke(
    *,
    backend: str | None = "gloo",
    device: str | None = None,
    nproc_per_node: int | None = None,
    timeout: float = 60.0,
    notify: Callable[[str], None] = ignore,
) -> SmokeResult:
    """Run every operation once with several dtypes and sizes, and check every result.

    `timeout` is in seconds, for one collective. `notify` gets a line that says which ranks are
    started. What does not work is in `operations` and `error` of the result. Raises UsageError or
    UnavailableError where no rank can be started.
    """
    from commbench.runner.process_state import restored_process_state
    from commbench.runner.smoke import plan_smoke, run_smoke

    given = {"backend": backend, "device": device, "timeout": timeout}
    with restored_process_state():
        plan, target = plan_smoke({**given, "nproc_per_node": nproc_per_node})
        notify(f"{plan.world_size} {plan.backend} ranks on {plan.device} ({target.why})")
        return run_smoke(plan)


def environment() -> dict[str, Any]:
    """What this machine offers: versions, devices, backends, host facts and environment variables,
    without those that may hold secrets."""
    from commbench.host.environment import device_names, gather_facts
    from commbench.launch.devices import detect_capabilities

    devices = detect_capabilities().devices
    gpus = [f"{number} x {kind}" for kind, number in devices.items() if kind != "cpu"]
    gpus += [name for kind in devices if kind != "cpu" for name in device_names(kind)]
    return gather_facts() | {"devices": gpus or "no GPU"}


def job_script(
    run: RunOptions,
    words: Sequence[str],
    options: SlurmOptions | KubernetesOptions,
    *,
    nodes: int,
    nproc_per_node: int,
    gpus_per_node: int | None = None,
    env: Sequence[str] = (),
) -> str:
    """A script for Slurm or a manifest for Kubernetes that runs `commbench run WORDS`.

    `run` are the options that `words` hold. Raises the error that every rank would raise.
    """
    from commbench.jobs.job import make_job

    return options.script(make_job(run, words, nodes, nproc_per_node, gpus_per_node, env))


def compare(
    a: AnyRun,
    b: AnyRun,
    *,
    tolerance: str | float = "5%",
    force: bool = False,
    ranks: int | None = None,
    op: str | None = None,
    dtype: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> Comparison:
    """Compare run `b` with run `a`: the ratio of times with its 95 % interval, for each row
    (`rows`) and each range of sizes (`pooled`, in words `sentences`).

    A run is a Run, or a path or label, also of a results.csv. Ratios within `tolerance` of 1 count
    as the same. `ranks`, `op`, `dtype` and `notify` are those of `load`. Raises UsageError for one
    run that is named twice, for runs that have no row in common and, unless `force`, for runs that
    differ in what must match.
    """
    from commbench.compare.comparison import (
        COMPARED,
        compare,
        require_comparable,
        require_two_runs,
    )
    from commbench.importers.hints import ImportHints
    from commbench.units import parse_percentage

    within = parse_percentage(str(tolerance), "tolerance")
    hints = ImportHints(ranks, op, dtype)
    first, second = (as_results(run, COMPARED, notify, hints) for run in (a, b))
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
    undecided: str | None = None,
    allow_unmatched: bool = False,
    force: bool = False,
    ranks: int | None = None,
    op: str | None = None,
    dtype: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> GateResult:
    """Check a run against rules, those of a TOML file, and limits such as
    `min_busbw="all_reduce:1M-1G:3.0GB/s"`; the options are those of `commbench check`.

    The `outcome` of the result is "pass", "fail" or "no verdict"; `undecided` is what undecided
    rows count as: "pass", "fail", or None (docs/comparing.md). `ranks`, `op`, `dtype` and `notify`
    are those of `load`. Raises UsageError where there is no rule, or run and baseline cannot be
    compared.
    """
    from commbench.compare.comparison import COMPARED, require_comparable, require_two_runs
    from commbench.gate.gate import CHECKED, check
    from commbench.gate.limits import FAIL, PASS
    from commbench.gate.rules import select_rules
    from commbench.importers.hints import ImportHints
    from commbench.validation import choose

    if undecided is not None:
        choose("--undecided", undecided, {PASS: None, FAIL: None})
    if rules is None or isinstance(rules, (str, Path)):
        limits = {"max_slowdown": max_slowdown, "min_busbw": min_busbw, "max_time": max_time}
        texts = {name: [text] if isinstance(text, str) else text for name, text in limits.items()}
        rules = select_rules(texts, Path(rules) if rules else None, against is not None)
    hints = ImportHints(ranks, op, dtype)
    checked = as_results(run, CHECKED, notify, hints)
    baseline = None if against is None else as_results(against, COMPARED, notify, hints)
    if baseline is not None:
        require_two_runs(checked, baseline)
    result = check(checked, rules, baseline, allow_unmatched, undecided or "")
    if result.comparison:
        require_comparable([result.comparison], force)
    return result
