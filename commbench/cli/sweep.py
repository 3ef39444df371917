"""`commbench sweep`: the same measurement under several settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Option

from commbench.cli.run_parameters import parse_words
from commbench.errors import CommbenchError, UsageError
from commbench.output.console import print_error, print_result, print_status, wrap_on_terminal
from commbench.runner.run_options import VARIED_OPTIONS, RunOptions
from commbench.units import parse_tolerance

if TYPE_CHECKING:
    from commbench.sweep.result import SweepResult
    from commbench.sweep.settings import Setting

_VARIED = ", ".join(VARIED_OPTIONS)
CONTEXT = {"ignore_unknown_options": True, "allow_extra_args": True}
RUN_OPTIONS_USER = "sweep"


def sweep(
    context: typer.Context,
    env: list[str] | None = Option(
        None,
        "--env",
        metavar="NAME=V,V",
        help="Environment variable and its values; '-' leaves it unset. Repeat it for more "
        "variables: every combination is measured. NAME:=VALUE is one value, commas included.",
    ),
    vary: list[str] | None = Option(
        None,
        "--vary",
        metavar="OPTION=V,V",
        help=f"Option of `commbench run` and its values: {_VARIED}.",
    ),
    rounds: int = Option(3, metavar="N", help="Measure each setting N times; use 3 or more."),
    tolerance: str | None = Option(
        None, metavar="PART", help="Smaller differences count as ties.  [default: 5%]"
    ),
    label: str | None = Option(None, metavar="NAME", help="Name of the sweep."),
    output: Path | None = Option(
        None,
        metavar="DIR",
        help="Folder of the sweep, new or empty.  [default: results/TIME-sweep]",
    ),
    resume: str | None = Option(
        None,
        metavar="SWEEP",
        help="Continue the sweep in this folder: measure what is missing. With it, only "
        "--tolerance and --export are accepted.",
    ),
    export: str | None = Option(
        None,
        "--export",
        metavar="nccl-tuner",
        help="Also write the best settings as a configuration of NCCL's tuner plugin.",
    ),
    force: bool = Option(False, "--force", help="Accept variables that the backend does not read."),
) -> None:
    """Measure the same cases under several settings, and print which setting is the fastest.

    Every combination of values is a setting. Each setting is measured in processes of its own, in
    several rounds of random order. All other options are those of `commbench run`.

    \b
    commbench sweep --env NCCL_ALGO=RING,TREE --op all_reduce --sizes 1K-1G
    commbench sweep --vary cpu-mode=quiet,plain --sizes 1K-1M --backend gloo
    commbench sweep --env NCCL_ALGO=RING,TREE --workload step.json
    commbench sweep --resume results/20261121-120000-sweep
    """
    from commbench import api
    from commbench.stats.verdict import TOLERANCE
    from commbench.sweep.session import SweepOptions
    from commbench.sweep.settings import make_settings, parse_values

    within = None if tolerance is None else parse_tolerance(tolerance)
    printer = SweepPrinter()
    if resume is not None:
        if env or vary or context.args:
            raise UsageError(
                "--resume continues with the settings that the folder describes",
                "leave out --env, --vary and options of a run",
            )
        result = api.resume_sweep(resume, printer, tolerance=within, export=export)
    else:
        settings = make_settings(parse_values(env or (), "env"), parse_values(vary or (), "vary"))
        options = SweepOptions(
            settings=settings,
            runs=tuple(_run_options(context.args, setting) for setting in settings),
            rounds=rounds, tolerance=TOLERANCE if within is None else within, label=label,
            output=output, export=export, force=force,
        )  # fmt: skip
        result = api.run_sweep(options, printer)
    if failed := result.failures:
        again = f"`commbench sweep --resume {result.path}`"
        print_error(
            f"{len(failed)} of {len(result.settings)} settings failed: {', '.join(failed)}",
            f"{again} fails again unless you change this host or its software"
            if result.fails_again
            else f"{again} tries again",
        )
        raise typer.Exit(1)


def _run_options(words: Sequence[str], setting: Setting) -> RunOptions:
    """The options of `commbench run` under a setting."""
    return parse_words([*words, *(f"--{name}={value}" for name, value in setting.options)], "sweep")


class SweepPrinter:
    """Prints what a sweep tells: the result on standard output, all else on standard error."""

    def status(self, line: str) -> None:
        print_status(wrap_on_terminal(line))

    def ended(self, result: SweepResult, error: CommbenchError | None) -> None:  # noqa: ARG002
        print_result(result.text)


def show_sweep(folder: Path, warnings: bool = False) -> None:
    """Print the result of a sweep until now, with all `warnings` if asked; measure nothing."""
    from commbench import api
    from commbench.sweep.text import sweep_text

    result = api.load_sweep(folder)
    print_result(sweep_text(result, None) if warnings else result.text)
    if missing := result.missing_rounds:
        runs = f"{missing} of {len(result.settings) * result.sweep.rounds} runs"
        if result.fails_again:
            print_status(f"{runs} failed; they fail again unless you change this host")
        else:
            print_status(f"{runs} are missing;")
            print_status(f"`commbench sweep --resume {result.path}` measures them")
