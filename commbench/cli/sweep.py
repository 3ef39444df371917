"""`commbench sweep`: the same measurement under several settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from commbench.cli.command import Show
from commbench.cli.run_parameters import parse_words
from commbench.errors import CommbenchError, UsageError
from commbench.output.console import print_error, print_status, wrap_on_terminal
from commbench.runner.run_options import RunOptions
from commbench.units import parse_tolerance

if TYPE_CHECKING:
    from commbench.sweep.result import SweepResult
    from commbench.sweep.settings import Setting


def sweep(
    show: Show,
    context: typer.Context,
    env: list[str],
    vary: list[str],
    tolerance: str | None,
    output: Path | None,
    resume: str | None,
    export: str | None,
    **given: Any,
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
    measure: Callable[..., SweepResult]
    if resume is not None:
        if env or vary or context.args:
            raise UsageError(
                "--resume continues with the settings that the folder describes",
                "leave out --env, --vary and options of a run",
            )
        measure = partial(api.resume_sweep, resume, tolerance=within, export=export)
    else:
        settings = make_settings(parse_values(env, "env"), parse_values(vary, "vary"))
        options = SweepOptions(
            settings=settings,
            runs=tuple(_run_options(context.args, setting) for setting in settings),
            tolerance=TOLERANCE if within is None else within, output=output, export=export,
            **given,
        )  # fmt: skip
        measure = partial(api.run_sweep, options)
    try:
        result = measure(notify=lambda line: print_status(wrap_on_terminal(line)))
    except CommbenchError as error:
        if error.run:
            show(error.run)
        raise
    show(result)
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
