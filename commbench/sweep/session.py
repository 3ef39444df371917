"""One `commbench sweep` from request to verdict: settings, rounds, choices, table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.errors import RecordsError, UnavailableError, UsageError, WrongResultError
from commbench.output.console import print_result, print_status
from commbench.runner.run_options import RunOptions
from commbench.sweep.settings import MOST_ROUNDS, Setting, settings_of, unread
from commbench.units import parse_percentage

if TYPE_CHECKING:
    from commbench.sweep.runner import SettingResult, Sweep

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
            raise UsageError(
                f"--rounds is {self.rounds}", "it must be at least 1; 3 or more compare"
            )
        if self.rounds > MOST_ROUNDS:
            raise UsageError(f"--rounds is {self.rounds}", f"it must be at most {MOST_ROUNDS}")
        if self.label is not None:
            require_label(self.label)
        if self.export not in (None, TUNER):
            raise UsageError(f"unknown export {self.export!r}", f"known: {TUNER}")
        if self.tolerance is not None:
            parse_percentage(self.tolerance, "--tolerance")


def begin(ask: SweepOptions) -> None:
    """Carry out a new sweep."""
    from commbench.results.run_folder import empty_folder, new_folder
    from commbench.sweep.runner import write_sweep

    settings = settings_of(ask.variables, ask.options)
    requests = [_request(ask.others, setting) for setting in settings]
    sweep = _judged(_sweep(ask, settings, requests), ask)
    name = "sweep" + (f"-{ask.label}" if ask.label else "")
    folder = empty_folder(ask.output or new_folder(name))
    write_sweep(folder, sweep)
    _finish(sweep, folder, ask)


def go_on(folder: Path, ask: SweepOptions) -> None:
    """Carry out what is left of a sweep."""
    from commbench.sweep.runner import read_sweep

    if ask.variables or ask.options or ask.others:
        raise UsageError(
            "--resume goes on with the settings that the folder describes",
            "leave out --env, --vary and options of a run",
        )
    _finish(_judged(read_sweep(folder), ask), folder, ask)


def find_sweep(text: str) -> Path | None:
    """The folder of a sweep that `text` names, as a path or under results/; None for no sweep."""
    from commbench.results.files import is_file
    from commbench.results.run_folder import RESULTS
    from commbench.sweep.runner import DESCRIPTION

    return next((f for f in (Path(text), RESULTS / text) if is_file(f / DESCRIPTION)), None)


def show(folder: Path) -> None:
    """Print again what a sweep found so far; measures and draws nothing."""
    from commbench.sweep.runner import outcomes, read_sweep, rounds_left
    from commbench.sweep.text import sweep_text

    sweep = read_sweep(folder)
    found = tuple(outcomes(sweep, folder))
    goes_on = f"`commbench sweep --resume {folder}` goes on with it"
    if not any(outcome.run for outcome in found):
        raise RecordsError(f"no round of the sweep {folder} was completed", goes_on)
    print_result(sweep_text(found, sweep.tolerance, folder if _uses_nccl(found) else None))
    if left := rounds_left(sweep, folder):
        print_status(
            f"{left} of {len(sweep.settings) * sweep.rounds} rounds are missing; {goes_on}"
        )


def _judged(sweep: Sweep, ask: SweepOptions) -> Sweep:
    """The sweep with the tolerance that was asked for, if any was."""
    if ask.tolerance is None:
        return sweep
    return sweep._replace(tolerance=parse_percentage(ask.tolerance))


def _uses_nccl(found: Sequence[SettingResult]) -> bool:
    return any(o.run.header.plan.backend == "nccl" for o in found if o.run)


def _sweep(ask: SweepOptions, settings: tuple[Setting, ...], requests: list[RunOptions]) -> Sweep:
    from commbench.launch.devices import choose, find_offer
    from commbench.launch.torch_import import import_torch
    from commbench.sweep.nccl_tuning import ALGORITHM, value_for
    from commbench.sweep.runner import Sweep

    import_torch()
    offer = find_offer()
    arguments, environments = [], []
    for setting, request in zip(settings, requests, strict=True):
        place = choose(offer, request.backend, request.device, request.ranks_per_node)
        idle = unread(settings, place.backend)
        if idle and not ask.force:
            raise UsageError(
                f"{', '.join(idle)} is not read by {place.backend}: settings would not differ",
                "name the --backend that reads it, or say --force to sweep it all the same",
            )
        variables, operations = [], request.operations
        for name, value in setting.variables:
            if name == ALGORITHM and place.backend == "nccl":
                value, operations = value_for(operations, value, _nccl_version())
                if not operations:
                    raise UnavailableError(
                        f"{setting.name} applies to none of these operations",
                        "see `commbench ops`; all_reduce has every algorithm",
                    )
            variables.append((name, value))
        words = request.arguments()[1:]
        arguments.append(
            (f"--op={','.join(operations)}", *words, f"--nproc-per-node={place.ranks_per_node}")
        )
        environments.append(tuple(variables))
    return Sweep(
        settings=settings,
        arguments=tuple(arguments),
        environments=tuple(environments),
        rounds=ask.rounds,
        seed=requests[0].seed,
        label=ask.label or "",
    )


def _nccl_version() -> tuple[int, ...]:
    import torch

    return tuple(torch.cuda.nccl.version())


def _finish(sweep: Sweep, folder: Path, ask: SweepOptions) -> None:
    from commbench.sweep.runner import carry_out, outcomes
    from commbench.sweep.text import sweep_text

    print_status(f"{len(sweep.settings)} settings, {sweep.rounds} rounds; in {folder}")
    new = carry_out(sweep, folder, print_status)
    found = tuple(outcomes(sweep, folder))
    measured = [outcome for outcome in found if outcome.run]
    if not measured:
        raise UnavailableError(
            f"no setting could be measured; {found[0].setting.name}: {found[0].failure}",
            f"what was tried is in {folder}",
        )
    uses_nccl = _uses_nccl(found)
    if uses_nccl:
        from commbench.sweep.nccl_selection import learn_choices

        learn_choices(sweep, folder)
    print_result(sweep_text(found, sweep.tolerance, folder if uses_nccl else None))
    if new or not list(folder.glob("*.png")):
        _draw(measured, folder)
    if ask.export:
        _export(measured, found, folder, sweep.tolerance)
    print_status(f"results are in {folder}")
    _refuse_wrong(measured)


def _draw(measured: Sequence[SettingResult], folder: Path) -> None:
    from commbench.report.plots import draw, has_curve

    runs = [outcome.run for outcome in measured if outcome.run]
    for file in draw(runs, folder) if has_curve(runs) else ():
        print_status(str(file))


def _export(
    measured: Sequence[SettingResult],
    found: Sequence[SettingResult],
    folder: Path,
    tolerance: float,
) -> None:
    from commbench.sweep.nccl_selection import export_tuner
    from commbench.sweep.ranking import places_of

    header = next(outcome.run.header for outcome in measured if outcome.run)
    places = places_of(found, tolerance)
    print_status(str(export_tuner(places, folder, header.num_nodes, header.plan.world_size)))


def _refuse_wrong(measured: Sequence[SettingResult]) -> None:
    """Raise WrongResultError where a setting gave wrong results: forcing a protocol can do that."""
    for outcome in measured:
        for measurement in outcome.run.measurements if outcome.run else ():
            if measurement.wrong:
                raise WrongResultError(
                    f"under {outcome.setting.name} {measurement.case.name} is wrong: "
                    f"{measurement.reason}",
                    "never use this setting; the table leaves such rows out",
                )
