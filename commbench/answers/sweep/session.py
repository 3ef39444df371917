"""Starts a sweep, or continues one, and returns its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from commbench import errors
from commbench.answers.sweep import result as results
from commbench.answers.sweep import runner
from commbench.answers.sweep import settings as swept
from commbench.answers.sweep.ranking import is_beside, varied_fields
from commbench.launch import devices
from commbench.output.progress import work_listener
from commbench.plan.operations import REPLAY
from commbench.plan.plan import Plan
from commbench.plan.workload import make_workload
from commbench.results.files import write_workload
from commbench.results.run_folder import empty_folder, find_sweep, new_folder
from commbench.runner.launched_ranks import NOTHING_MEASURED
from commbench.runner.option import require_label
from commbench.runner.run_options import RunOptions
from commbench.units import format_count
from commbench.validation import require_within

Notify = Callable[[str], None]
"""Receives a line about what happens. Progress is not among them: the sweep shows that itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """The options of `commbench sweep`."""

    settings: tuple[swept.Setting, ...]
    runs: tuple[RunOptions, ...]
    """The options of `commbench run` under each setting."""
    rounds: int = 3
    tolerance: float = 0.05
    label: str | None = None
    output: Path | None = None
    export: str | None = None
    force: bool = False
    """Whether variables that the backend does not read are swept, too."""

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= swept.MOST_ROUNDS:
            hint = f"write a number from 1 to {swept.MOST_ROUNDS}; use 3 or more"
            raise errors.UsageError(f"--rounds is {self.rounds}", hint)
        if self.label is not None:
            require_label(self.label)
        _require_exportable(self.export)


def start(options: SweepOptions, notify: Notify) -> results.SweepResult:
    """Carry out a new sweep.

    Raises what ended it, with the result in `run` where there is one: Interrupted; UnavailableError
    where no setting could be measured; WrongResultError for wrong results.
    """
    sweep = make_sweep(options, notify)
    _require_exportable(options.export, sweep.backends)
    workload = options.runs[0].workload_values
    name = "sweep" + (f"-{options.label}" if options.label else "")
    folder = empty_folder(options.output or new_folder(name))
    runner.write_sweep(folder, sweep)
    if workload:
        write_workload(folder / runner.WORKLOAD, make_workload(workload))
    return _run(sweep, folder, {}, options.export, options.runs[0].plots, notify)


def resume(
    text: str, notify: Notify, tolerance: float | None = None, export: str | None = None,
    rounds: int | None = None, plots: bool = True,
) -> results.SweepResult:  # fmt: skip
    """Carry out the missing rounds of the sweep in a folder, or of a name under results/, or more
    `rounds`; draw it with `plots`. Raises as `start` does, and RecordsError where there is none."""
    folder = find_sweep(text) or Path(text)
    sweep = runner.read_sweep(folder)
    if rounds is not None:
        if rounds < sweep.rounds:
            why = f"--rounds is {rounds}, but {folder} has {sweep.rounds} rounds already"
            raise errors.UsageError(why, "more rounds can be added, none taken away")
        require_within("--rounds", rounds, 1, swept.MOST_ROUNDS)
        sweep = sweep._replace(rounds=rounds)
    _require_exportable(export, sweep.backends)
    measured = runner.whole_rounds(sweep, folder, runner.read_rounds(sweep, folder))
    if len(measured) < len(sweep.settings) * sweep.rounds:
        swept.require_interpreters(sweep.settings, notify, "; to resume, put it back")
    if rounds is not None:  # nothing changes where it cannot be measured
        runner.write_sweep(folder, sweep)
    sweep = sweep._replace(tolerance=sweep.tolerance if tolerance is None else tolerance)
    return _run(sweep, folder, measured, export, plots, notify)


def _require_exportable(export: str | None, backends: Collection[str] = ()) -> None:
    """Raise, before anything is measured, UsageError for an unknown export, and UnavailableError
    for what could not be exported."""
    if export is None:
        return
    if export != results.TUNER:
        raise errors.name_error("export", export, [results.TUNER])
    if others := sorted({*backends} - {"nccl"}):
        why = f"--export {export} needs the backend nccl, and this sweep uses {', '.join(others)}"
        hint = "leave --export out, or sweep --backend nccl on GPUs"
        raise errors.UnavailableError(why, hint)
    if backends and _nccl_version() < swept.FUNCTIONS_SINCE:
        why = f"--export {export} needs NCCL 2.24 or newer: older versions do not log their choices"
        hint = "leave --export out, or use a torch with a newer NCCL"
        raise errors.UnavailableError(why, hint)


def _nccl_version() -> tuple[int, ...]:
    import torch

    return tuple(torch.cuda.nccl.version())


def make_sweep(options: SweepOptions, notify: Notify) -> runner.Sweep:
    """The sweep of these options; raises CommbenchError where it could not be measured."""
    devices.import_torch()
    from commbench.worker.groups import make_nccl_options

    swept.require_interpreters(options.settings, notify)
    capabilities = devices.detect_capabilities()
    arguments, environments, backends = [], [], []
    runs: Sequence[RunOptions] = options.runs
    if not any(run.device for run in runs):  # one that all have in common: NCCL and gloo have GPUs
        named = tuple(dict.fromkeys(run.backend for run in runs if run.backend))
        device = devices.find_common_device(capabilities, named)
        runs = [replace(run, device=device) for run in runs]
    for setting, run in zip(options.settings, runs, strict=True):
        target = devices.choose_target(capabilities, run.backend, run.device, run.ranks_per_node)
        if not options.force:
            swept.require_read(options.settings, target.backend)
        plan = run.plan(target.backend, target.device, target.ranks_per_node)
        make_nccl_options(plan)  # raises where there are none
        _require_one_case(setting, plan)
        variables, operations = [], run.op
        if plan.workload:
            operations = tuple(name for name in plan.operations if name != REPLAY)
        for name, value in setting.variables:
            if name == swept.ALGORITHM and target.backend == "nccl":
                value, operations = swept.make_value(operations, value, _nccl_version())
                if not operations:
                    why = f"no operation of this sweep has the algorithm of {setting.name}"
                    hint = "see `commbench ops`; all_reduce has every algorithm"
                    raise errors.UnavailableError(why, hint)
            variables.append((name, value))
        # A round reads the workload in the folder of the sweep.
        words = replace(run, op=operations, workload=None).arguments()
        arguments.append((*words, f"--nproc-per-node={target.ranks_per_node}"))
        environments.append(tuple(variables))
        backends.append(target.backend)
    if len(options.settings) < 2:
        hint = "give several different values: --vary cpu-mode=quiet,plain, --vary call=torch,NAME,"
        hint += " or --env NCCL_ALGO=RING,TREE ('-' leaves a variable unset)"
        raise errors.UsageError("there is only one setting: nothing to compare", hint)
    return runner.Sweep(
        options.settings, tuple(arguments), tuple(environments), options.rounds,
        options.runs[0].seed, options.label or "", options.tolerance, tuple(backends),
    )  # fmt: skip


def _require_one_case(setting: swept.Setting, plan: Plan) -> None:
    """Raise UsageError where a varied option makes several cases of what is one case under another
    setting: `--vary timing=both`."""
    cases = [case for case in plan.cases() if not is_beside(case, setting)]
    varied = varied_fields([setting], cases)
    seen = Counter((case.title_without(*varied), case.size_bytes) for case in cases)
    if varied and max(seen.values(), default=1) > 1:
        given = " ".join(f"{name}={value}" for name, value in setting.options)
        why = f"--vary {given} makes several cases that are one case under other settings"
        hint = "give single values, such as --vary timing=isolated,pipelined"
        raise errors.UsageError(why, hint)


def _run(
    sweep: runner.Sweep, folder: Path, rounds: runner.Rounds, export: str | None, plots: bool,
    notify: Notify,
) -> results.SweepResult:  # fmt: skip
    """Run what is missing of a sweep, then draw and export all its results."""
    total = len(sweep.settings) * sweep.rounds
    before = len(rounds)
    done = f", {before} of them measured before" if before else ""
    notify(
        f"{format_count(len(sweep.settings), 'setting')} x {format_count(sweep.rounds, 'round')} = "
        f"{format_count(total, 'run')}{done}; in {folder}"
    )
    errors.raise_at_signals(NOTHING_MEASURED)
    progress = work_listener(0, 1, has_cases=True, done_before=before / total, least=1 / total)
    try:
        runner.run_missing_rounds(sweep, folder, rounds, progress)
    except errors.Interrupted as stopped:
        errors.ignore_interruptions()
        stopped.texts = stopped.texts[0], f"`commbench sweep --resume {folder}` continues it"
        # A run may complete after the signal.
        rounds |= runner.read_rounds(sweep, folder)
        stopped.run = results.make_result(sweep, folder, rounds) if rounds else None
        raise
    finally:
        progress.close()
    result = results.make_result(sweep, folder, rounds)
    if not rounds:
        name, why = next(iter(result.failures.items()))
        why = f"no setting could be measured; {name}: {runner.plain_reason(why)}"
        raise errors.UnavailableError(why, f"the whole error messages are in {folder}")
    results.write_csv(result)
    files: list[Path] = []
    if plots and (len(rounds) > before or not list(folder.glob("*.png"))):
        from commbench.answers.sweep.plot import sweep_pictures
        from commbench.views.draw import write_pictures

        files += write_pictures(sweep_pictures(result), folder, is_again=True)
    if export:
        files.append(results.export_tuner(result.compared, folder))
    for file in files:
        notify(str(file))
    notify(f"results are in {folder}")
    results.require_correct(result)
    return result
