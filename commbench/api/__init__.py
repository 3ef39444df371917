"""commbench from Python, and what the command line calls.

Returns data, raises CommbenchError, and prints nothing but the progress of a run, on standard
error.
"""

# ruff: noqa: F405 - names are imported when they are used
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from commbench.api.runs import *  # noqa: F403
from commbench.api.runs import Run, hints_for, ignore, load_rows, row_choice, texts
from commbench.errors import RecordsError, UsageError, closest, wrong_value
from commbench.results import schema
from commbench.stats import FAIL, PASS
from commbench.units import format_count, parse_tolerance
from commbench.validation import choose
from commbench.views.formats import Result

if TYPE_CHECKING:
    from commbench.analysis.load import LoadedRun
    from commbench.answers.check.gate import GateResult
    from commbench.answers.check.rules import Rule
    from commbench.answers.compare.comparison import Comparison
    from commbench.answers.doctor.checkup import DoctorReport
    from commbench.answers.sweep.result import load_sweep
    from commbench.api import history, workload
    from commbench.api.foresee import advise, fit_model, predict
    from commbench.api.judging import expect, expect_run, fleet, preflight
    from commbench.api.measuring import measure, pairs, replay, run, soak
    from commbench.api.runs import AnyRun
    from commbench.api.sweeping import resume_sweep, run_sweep, sweep
    from commbench.runner.planning import plan_run
    from commbench.runner.smoke import SmokeResult

__all__ = [
    "Run", "advise", "check", "compare", "doctor", "environment", "expect", "expect_run",
    "explain", "export", "fit_model", "fleet", "frame", "history", "import_results", "list_runs",
    "load", "load_sweep", "measure", "pairs", "plan_run", "plot", "predict", "preflight", "replay",
    "report", "resume_sweep", "run", "run_sweep", "smoke", "soak", "sweep", "workload",
]  # fmt: skip
_LAZY = {
    "api.judging": ("expect", "expect_run", "fleet", "preflight"),
    "api.measuring": ("measure", "pairs", "replay", "run", "soak"),
    "runner.planning": ("plan_run",),
    "api.sweeping": ("resume_sweep", "run_sweep", "sweep"),
    "answers.sweep.result": ("load_sweep",),
    "api.foresee": ("advise", "fit_model", "predict"),
}  # fmt: skip


if not TYPE_CHECKING:  # a type checker reads the imports above

    def __getattr__(name: str) -> Any:
        """Import what measures or reports when it is used."""
        for module, names in _LAZY.items():
            if name in names:
                return getattr(import_module(f"commbench.{module}"), name)
        if name in ("history", "workload"):
            return import_module(f"commbench.api.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def doctor(
    *,
    seconds: float = 90.0,
    rounds: int = 6,
    nproc_per_node: int = 2,
    notify: Callable[[str], None] = ignore,
) -> DoctorReport:
    """Look for what disturbs measurements with CPU ranks on this host; takes about `seconds`.

    Every CPU mode is tried `rounds` times. `notify` gets lines about progress. An error that ends
    the check early is in the `trouble` of the report.
    """
    start = time.monotonic()
    from commbench.answers.doctor.checkup import DoctorOptions, examine
    from commbench.launch.devices import import_torch

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
    started; these then tell their progress on standard error. What does not work is in `operations`
    and `error` of the result. Raises UsageError or UnavailableError where no rank can be started.
    """
    from commbench.runner.planning import restored_process_state
    from commbench.runner.smoke import plan_smoke, run_smoke

    given = {"backend": backend, "device": device, "mesh": mesh, "timeout": timeout}
    with restored_process_state():
        plan = plan_smoke({**given, "nproc_per_node": nproc_per_node})
        ranks = format_count(plan.world_size, f"{plan.backend} rank")
        notify(f"checking {len(plan.operations)} operations with {ranks} on {plan.device}")
        return run_smoke(plan, is_silent=notify is ignore)


class Environment(Result, dict[str, Any], view="answers.show.lists:ENVIRONMENT"):  # type: ignore[misc]
    """Facts of a machine by name."""

    __slots__ = ()


def environment() -> Environment:
    """What this machine offers: versions, devices, backends, host facts and environment variables,
    without those that may hold secrets."""
    from commbench.host.environment import device_names, gather_facts
    from commbench.launch.devices import detect_capabilities

    devices = detect_capabilities().devices
    gpus = [f"{number} x {kind}" for kind, number in devices.items() if kind != "cpu"]
    gpus += [name for kind in devices if kind != "cpu" for name in device_names(kind)]
    return Environment(gather_facts(), devices=gpus)


def compare(
    a: AnyRun,
    b: AnyRun,
    *,
    tolerance: str | float = "5%",
    force: bool = False,
    ranks: int | None = None,
    op: str | None = None,
    dtype: str | None = None,
    size: str | int | Sequence[int | str] | None = None,
    notify: Callable[[str], None] = ignore,
) -> Comparison:
    """Compare run `b` with run `a`: the ratio of times with its 95 % interval, for each row
    (`rows`) and each range of sizes (`pooled`).

    A run is a Run, or a path or label, also of a results.csv. Ratios within `tolerance` of 1 count
    as the same. `ranks`, `op`, `dtype`, `size` and `notify` are those of `load`. Raises UsageError
    for one run that is named twice, for runs that have no row in common and, unless `force`, for
    runs that differ in what must match.
    """
    from commbench.answers.compare import comparison

    within = parse_tolerance(tolerance)
    hints, choose_rows = row_choice((a, b), ranks, op, dtype, size)
    first, second = (
        choose_rows(run, load_rows(run, comparison.COMPARED, hints, notify)) for run in (a, b)
    )
    comparison.require_two_runs(first, second)
    found = comparison.compare(first, second, within)
    for side in (found.a, found.b):
        schema.tell_incomplete(side, notify)
    comparison.require_comparable([found], force)
    return found


HISTORY = "history"
"""The `against` of check that stands for the history."""


def check(
    run: AnyRun,
    rules: str | Path | Sequence[Rule] | None = None,
    *,
    against: AnyRun | None = None,
    max_slowdown: str | float | Sequence[str] = (),
    min_busbw: str | Sequence[str] = (),
    max_time: str | Sequence[str] = (),
    expect: str | None = None,
    published: str | Path | Sequence[str | Path] = (),
    tolerance: str | float | None = None,
    node: str | None = None,
    db: str | Path | None = None,
    undecided: Literal["pass", "fail", "no-verdict"] | None = None,
    allow_unmatched: bool = False,
    allow_unchecked: bool = False,
    force: bool = False,
    ranks: int | None = None,
    op: str | None = None,
    dtype: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> GateResult:
    """Check a run against rules, those of a TOML file, and limits such as
    `min_busbw="all_reduce:1M-1G:3.0GB/s"` or `max_slowdown=0.1`; the options are those of
    `commbench check`. `expect` is "run", or the hardware: "h100:8x400G:2 nodes", or "published",
    with files of your own curves in `published` (docs/expect.md); `tolerance` is how much slower
    than `expect` says a row may be, such as 0.2. `against` of "history" is the usual level of the
    history `db`, for the node: a slowdown does not become usual by itself (docs/history.md).

    The `outcome` of the result is "pass", "fail" or "no verdict"; `undecided` is what undecided
    rows, and those that likely pass, count as: "pass", "fail", "no-verdict", or None
    (docs/gates.md). `ranks`, `op`, `dtype` and `notify` are those of `load`. Raises UsageError
    where there is no rule, or run and baseline cannot be compared.
    """
    from commbench.answers.check.expected import PUBLISHED
    from commbench.answers.check.gate import NO_VERDICT, check
    from commbench.answers.check.rules import LIMITS, Rule, select_rules
    from commbench.answers.compare import comparison

    counted = ""
    if undecided is not None:
        effects = {PASS: PASS, FAIL: FAIL, "no-verdict": NO_VERDICT}
        counted = choose("--undecided", str(undecided), effects)
    if tolerance is not None and expect is None:
        why = "--tolerance belongs to --expect"
        hint = "add --expect run; or with --against write --max-slowdown 10% instead"
        raise UsageError(why, hint)
    if published and expect != PUBLISHED:
        raise UsageError("--published belongs to --expect published", "add --expect published")
    if rules is None or isinstance(rules, (str, Path)):
        given = locals()  # each limit is a keyword of this function, by its name in LIMITS
        demands = {name: texts(given[name]) for name in LIMITS}
        path = Path(rules) if rules else None
        rules = select_rules(demands, path, against is not None, has_others=expect is not None)
    elif not all(isinstance(rule, Rule) for rule in rules):
        raise wrong_value(rules, "are no rules", "give a TOML file, or limits such as --max-time")
    others = [] if against in (None, HISTORY) else [against]
    hints = hints_for([run, *others], ranks, op, dtype)
    read = partial(load_rows, columns=comparison.CHECKED, hints=hints, notify=notify)
    checked = read(run)
    hardware = None
    if expect is not None:
        from commbench.api.judging import expected_rules

        more, hardware = expected_rules(checked, expect, published, tolerance, notify)
        rules = [*rules, *more]
    baseline: LoadedRun | None
    if against == HISTORY:
        from commbench.api.history import as_baseline

        rules, baseline = as_baseline(checked, rules, node, db)
    elif node is not None or db is not None:
        hint = "write --against history, or leave out --node and --db"
        also = f", not to --against {against}" if against is not None else ""
        raise UsageError(f"--node and --db belong to --against history{also}", hint)
    else:
        try:
            baseline = None if against is None else read(against)
        except RecordsError as error:
            if error.is_unknown and closest(str(against), [HISTORY], similarity=0.8):
                error.texts = error.texts[0], f"did you mean --against {HISTORY}?"
            raise
        if baseline is not None:
            comparison.require_two_runs(checked, baseline)
    result = check(checked, rules, baseline, allow_unmatched, counted, hardware, allow_unchecked)
    is_cut_off = bool(result.incomplete and result.comparison and not result.comparison.rows)
    if result.comparison and (against != HISTORY or result.comparison.rows) and not is_cut_off:
        comparison.require_comparable([result.comparison], force)
    return result
