"""One `commbench sweep` from its options to its results, and showing those of an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.errors import RecordsError, UnavailableError, UsageError, WrongResultError
from commbench.output.console import print_result, print_status
from commbench.results.run_folder import empty_folder, new_folder
from commbench.results.schema import WRONG
from commbench.sweep import nccl_tuning, ranking, runner
from commbench.sweep.settings import MOST_ROUNDS, Setting, parse_settings, require_read
from commbench.sweep.text import sweep_text
from commbench.units import parse_percentage

if TYPE_CHECKING:
    from commbench.runner.run_options import RunOptions

TUNER = "nccl-tuner"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """The options of `commbench sweep`."""

    variables: tuple[str, ...]
    options: tuple[str, ...]
    rounds: int
    tolerance: str | None
    label: str | None
    output: Path | None
    export: str | None
    force: bool
    others: tuple[str, ...]
    """Options of `commbench run`."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            hint = "it must be at least 1; 3 or more compare"
            raise UsageError(f"--rounds is {self.rounds}", hint)
        if self.rounds > MOST_ROUNDS:
            raise UsageError(f"--rounds is {self.rounds}", f"it must be at most {MOST_ROUNDS}")
        if self.label is not None:
            from commbench.runner.option import require_label

            require_label(self.label)
        if self.export not in (None, TUNER):
            raise UsageError(f"unknown export {self.export!r}", f"known: {TUNER}")
        if self.tolerance is not None:
            parse_percentage(self.tolerance, "--tolerance")


def start(
    options: SweepOptions, make_run_options: Callable[[tuple[str, ...], Setting], RunOptions]
) -> None:
    """Run a new sweep and print its results.

    `make_run_options` parses the options of `commbench run` under a setting.
    """
    settings = parse_settings(options.variables, options.options)
    runs = [make_run_options(options.others, setting) for setting in settings]
    sweep = _with_tolerance(_make_sweep(options, settings, runs), options)
    name = "sweep" + (f"-{options.label}" if options.label else "")
    folder = empty_folder(options.output or new_folder(name))
    runner.write_sweep(folder, sweep)
    _run(sweep, folder, options)


def resume(folder: Path, options: SweepOptions) -> None:
    """Run the missing rounds of the sweep in a folder and print its results."""
    if options.variables or options.options or options.others:
        raise UsageError(
            "--resume goes on with the settings that the folder describes",
            "leave out --env, --vary and options of a run",
        )
    _run(_with_tolerance(runner.read_sweep(folder), options), folder, options)


def show(folder: Path) -> None:
    """Print the results of a sweep so far; run and draw nothing."""
    sweep = runner.read_sweep(folder)
    rounds = runner.read_rounds(sweep, folder)
    hint = f"`commbench sweep --resume {folder}` goes on with it"
    if not rounds:
        raise RecordsError(f"no round of the sweep {folder} was completed", hint)
    _print(sweep, folder, runner.make_results(sweep, folder, rounds))
    expected = len(sweep.settings) * sweep.rounds
    if missing := expected - len(rounds):
        print_status(f"{missing} of {expected} rounds are missing; {hint}")


def _with_tolerance(sweep: runner.Sweep, options: SweepOptions) -> runner.Sweep:
    """The sweep with the tolerance of the options, where they give one."""
    if options.tolerance is None:
        return sweep
    return sweep._replace(tolerance=parse_percentage(options.tolerance))


def _is_nccl(results: Sequence[runner.SettingResult]) -> bool:
    return any(r.run.header.plan.backend == "nccl" for r in results if r.run)


def _print(
    sweep: runner.Sweep, folder: Path, results: Sequence[runner.SettingResult]
) -> tuple[tuple[ranking.SweepPoint, ...], nccl_tuning.Selections]:
    """Print the results; return them by case, and NCCL's selections."""
    points = ranking.make_points(results, sweep.tolerance)
    selections = nccl_tuning.read_selections(sweep.settings, folder) if _is_nccl(results) else None
    print_result(sweep_text(results, points, sweep.tolerance, selections))
    return points, selections or {}


def _make_sweep(
    options: SweepOptions, settings: tuple[Setting, ...], runs: list[RunOptions]
) -> runner.Sweep:
    from commbench.launch.devices import choose_target, detect_capabilities
    from commbench.launch.process_setup import import_torch

    import_torch()
    import torch

    capabilities = detect_capabilities()
    arguments, environments = [], []
    for setting, run in zip(settings, runs, strict=True):
        target = choose_target(capabilities, run.backend, run.device, run.nproc_per_node)
        if not options.force:
            require_read(settings, target.backend)
        variables, operations = [], run.op
        for name, value in setting.variables:
            if name == nccl_tuning.ALGORITHM and target.backend == "nccl":
                value, operations = nccl_tuning.make_value(
                    operations, value, tuple(torch.cuda.nccl.version())
                )
                if not operations:
                    raise UnavailableError(
                        f"{setting.name} applies to none of these operations",
                        "see `commbench ops`; all_reduce has every algorithm",
                    )
            variables.append((name, value))
        words = run.arguments()[1:]
        arguments.append(
            (f"--op={','.join(operations)}", *words, f"--nproc-per-node={target.ranks_per_node}")
        )
        environments.append(tuple(variables))
    return runner.Sweep(
        settings=settings,
        arguments=tuple(arguments),
        environments=tuple(environments),
        rounds=options.rounds,
        seed=runs[0].seed,
        label=options.label or "",
    )


def _run(sweep: runner.Sweep, folder: Path, options: SweepOptions) -> None:
    """Run what is missing of a sweep, then print, draw and export all its results."""
    from commbench.report.plots import draw, has_curve

    print_status(f"{len(sweep.settings)} settings, {sweep.rounds} rounds; in {folder}")
    rounds = runner.read_rounds(sweep, folder)
    new = runner.run_missing_rounds(sweep, folder, rounds, print_status)
    results = runner.make_results(sweep, folder, rounds)
    if not rounds:
        raise UnavailableError(
            f"no setting could be measured; {results[0].setting.name}: {results[0].failure}",
            f"what was tried is in {folder}",
        )
    if _is_nccl(results):
        nccl_tuning.log_selections(sweep, folder)
    points, selections = _print(sweep, folder, results)
    runs = [result.run for result in results if result.run]
    if (new or not list(folder.glob("*.png"))) and has_curve(runs):
        for file in draw(runs, folder):
            print_status(str(file))
    if options.export:
        header = runs[0].header
        nodes, ranks = header.num_nodes, header.plan.world_size
        print_status(str(nccl_tuning.export_tuner(points, selections, folder, nodes, ranks)))
    print_status(f"results are in {folder}")
    _require_correct(results)


def _require_correct(results: Sequence[runner.SettingResult]) -> None:
    """Raise WrongResultError where a setting gave wrong results: forcing a protocol can do that."""
    for result in results:
        for measurement in result.run.measurements if result.run else ():
            if measurement.status == WRONG:
                raise WrongResultError(
                    f"under {result.setting.name} {measurement.case.name} is wrong: "
                    f"{measurement.reason}",
                    "never use this setting; the table leaves such rows out",
                )
