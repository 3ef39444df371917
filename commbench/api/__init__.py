"""commbench from Python, and what the command line calls.

Returns data, raises CommbenchError, and prints nothing but the progress of a run, on standard
error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.api.runs import Run as Run
from commbench.api.runs import as_results, ignore
from commbench.api.runs import expect as expect
from commbench.api.runs import explain as explain
from commbench.api.runs import export as export
from commbench.api.runs import frame as frame
from commbench.api.runs import import_results as import_results
from commbench.api.runs import list_runs as list_runs
from commbench.api.runs import load as load
from commbench.api.runs import plot as plot
from commbench.errors import UsageError
from commbench.results import schema
from commbench.units import format_count

if TYPE_CHECKING:
    from commbench.api.advice import advise as advise
    from commbench.api.measuring import init as init
    from commbench.api.measuring import measure as measure
    from commbench.api.measuring import pairs as pairs
    from commbench.api.measuring import plan_options as plan_options
    from commbench.api.measuring import replay as replay
    from commbench.api.measuring import run as run
    from commbench.api.measuring import run_options as run_options
    from commbench.api.models import fit_model as fit_model
    from commbench.api.models import predict as predict
    from commbench.api.reports import report as report
    from commbench.api.runs import AnyRun
    from commbench.api.sweeps import load_sweep as load_sweep
    from commbench.api.sweeps import resume_sweep as resume_sweep
    from commbench.api.sweeps import run_sweep as run_sweep
    from commbench.api.sweeps import sweep as sweep
    from commbench.compare.comparison import Comparison
    from commbench.doctor.report import DoctorReport
    from commbench.gate.gate import GateResult
    from commbench.gate.rules import Rule
    from commbench.jobs.kubernetes import KubernetesOptions
    from commbench.jobs.slurm import SlurmOptions
    from commbench.runner.run_options import RunOptions
    from commbench.runner.smoke import SmokeResult

_LAZY = {
    "commbench.api.advice": ("advise",),
    "commbench.api.measuring": (
        "init", "measure", "pairs", "plan_options", "replay", "run", "run_options",
    ),
    "commbench.api.models": ("fit_model", "predict"),
    "commbench.api.reports": ("report",),
    "commbench.api.sweeps": ("load_sweep", "resume_sweep", "run_sweep", "sweep"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what measures or reports when it is used."""
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    if name == "workload":
        return import_module("commbench.api.workload")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
    from commbench.doctor.checkup import examine
    from commbench.doctor.report import DoctorOptions
    from commbench.launch.process_setup import import_torch

    options = DoctorOptions(ranks=nproc_per_node, rounds=rounds, seconds=seconds)
    import_torch()
    return examine(options, start, notify)


def smoke(
    *,
    backend: str | None = "gloo",
    device: str | None = None,
    nproc_per_node: int | None = None,
    mesh: str = "",
    timeout: float = 60.0,
    notify: Callable[[str], None] = ignore,
) -> SmokeResult:
    """Run every operation once with several dtypes and sizes, and check every result; with a `mesh`
    such as "dp=2,tp=2" in the groups of each of its dimensions.

    `timeout` is in seconds, for one collective. `notify` gets a line that says which ranks are
    started. What does not work is in `operations` and `error` of the result. Raises UsageError or
    UnavailableError where no rank can be started.
    """
    from commbench.runner.process_state import restored_process_state
    from commbench.runner.smoke import plan_smoke, run_smoke

    given = {"backend": backend, "device": device, "mesh": mesh, "timeout": timeout}
    with restored_process_state():
        plan, target = plan_smoke({**given, "nproc_per_node": nproc_per_node})
        ranks = format_count(plan.world_size, f"{plan.backend} rank")
        notify(f"{ranks} on {plan.device} ({target.why})")
        return run_smoke(plan)


def environment() -> dict[str, Any]:
    """What this machine offers: versions, devices, backends, host facts and environment variables,
    without those that may hold secrets."""
    from commbench.host.environment import device_names, gather_facts
    from commbench.launch.devices import detect_capabilities

    devices = detect_capabilities().devices
    gpus = [f"{number} x {kind}" for kind, number in devices.items() if kind != "cpu"]
    gpus += [name for kind in devices if kind != "cpu" for name in device_names(kind)]
    return gather_facts() | {"devices": gpus}


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
    from commbench.units import parse_tolerance

    within = parse_tolerance(tolerance)
    hints = ImportHints(ranks, op, dtype)
    first, second = (as_results(run, COMPARED, notify, hints) for run in (a, b))
    require_two_runs(first, second)
    comparison = compare(first, second, within)
    for side in (comparison.a, comparison.b):
        schema.tell_incomplete(side, notify)
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
    expect: str | None = None,
    tolerance: str | float | None = None,
    undecided: str | None = None,
    allow_unmatched: bool = False,
    allow_unchecked: bool = False,
    force: bool = False,
    ranks: int | None = None,
    op: str | None = None,
    dtype: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> GateResult:
    """Check a run against rules, those of a TOML file, and limits such as
    `min_busbw="all_reduce:1M-1G:3.0GB/s"`; the options are those of `commbench check`.
    `expect` is "run", or the hardware: "h100:8x400G:2 nodes" (docs/models.md); `tolerance` is its.

    The `outcome` of the result is "pass", "fail" or "no verdict"; `undecided` is what undecided
    rows count as: "pass", "fail", or None (docs/comparing.md). `ranks`, `op`, `dtype` and `notify`
    are those of `load`. Raises UsageError where there is no rule, or run and baseline cannot be
    compared.
    """
    from commbench.analysis.load import as_loaded_run
    from commbench.compare.comparison import require_comparable, require_two_runs
    from commbench.expect.expectation import BELOW
    from commbench.gate.expected import expectation_rules, hardware_of, parse_hardware
    from commbench.gate.gate import CHECKED, check
    from commbench.gate.rules import select_rules
    from commbench.importers.hints import ImportHints
    from commbench.stats.verdict import FAIL, PASS
    from commbench.units import parse_tolerance
    from commbench.validation import choose

    if undecided is not None:
        choose("--undecided", undecided, {PASS: None, FAIL: None})
    if tolerance is not None and expect is None:
        raise UsageError("--tolerance belongs to --expect", "add --expect run, or leave it out")
    if rules is None or isinstance(rules, (str, Path)):
        limits = {"max_slowdown": max_slowdown, "min_busbw": min_busbw, "max_time": max_time}
        texts = {name: [text] if isinstance(text, str) else text for name, text in limits.items()}
        path = Path(rules) if rules else None
        rules = select_rules(texts, path, against is not None, has_others=expect is not None)
    hardware = None if expect is None else parse_hardware(expect)
    below = BELOW if tolerance is None else parse_tolerance(tolerance)
    hints = ImportHints(ranks, op, dtype)
    checked = as_loaded_run(as_results(run, CHECKED, notify, hints), CHECKED)
    if expect is not None:
        hardware = hardware or hardware_of(checked)
        rules = [*rules, *expectation_rules(checked, hardware, below)]
    baseline = None if against is None else as_results(against, CHECKED, notify, hints)
    if baseline is not None:
        require_two_runs(checked, baseline)
    result = check(
        checked, rules, baseline, allow_unmatched, undecided or "", hardware, allow_unchecked
    )
    if result.comparison:
        require_comparable([result.comparison], force)
    return result
