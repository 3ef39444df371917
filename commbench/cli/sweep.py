"""`commbench sweep`: the same measurement under several settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Option

from commbench.cli.run_parameters import parse_words
from commbench.errors import CommbenchError, UsageError
from commbench.output.console import print_error, print_status, wrap_on_terminal
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
        "--tolerance, --export, --format and --verbose are accepted.",
    ),
    export: str | None = Option(
        None,
        "--export",
        metavar="nccl-tuner",
        help="Also write the best settings as a configuration of NCCL's tuner plugin.",
    ),
    force: bool = Option(False, "--force", help="Accept variables that the backend does not read."),
    format_: str = Option(
        "text", "--format", metavar="FORMAT", help="text, markdown, html or json."
    ),
    verbose: bool = Option(
        False, "--verbose", help="Print all settings of each case, and explain every warning."
    ),
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
    from commbench.sweep.document import VIEW
    from commbench.sweep.session import SweepOptions
    from commbench.sweep.settings import make_settings, parse_values
    from commbench.views.formats import show

    VIEW.require(format_)
    within = None if tolerance is None else parse_tolerance(tolerance)
    measure: Callable[..., SweepResult]
    if resume is not None:
        if env or vary or context.args:
            raise UsageError(
                "--resume continues with the settings that the folder describes",
                "leave out --env, --vary and options of a run",
            )
        measure = partial(api.resume_sweep, resume, tolerance=within, export=export)
    else:
        settings = make_settings(parse_values(env or (), "env"), parse_values(vary or (), "vary"))
        options = SweepOptions(
            settings=settings,
            runs=tuple(_run_options(context.args, setting) for setting in settings),
            rounds=rounds, tolerance=TOLERANCE if within is None else within, label=label,
            output=output, export=export, force=force,
        )  # fmt: skip
        measure = partial(api.run_sweep, options)
    try:
        result = measure(notify=lambda line: print_status(wrap_on_terminal(line)))
    except CommbenchError as error:
        if error.run:
            show(VIEW, error.run, format_, is_verbose=verbose)
        raise
    show(VIEW, result, format_, is_verbose=verbose)
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
