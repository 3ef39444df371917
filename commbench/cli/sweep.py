"""`commbench sweep`: the same measurement under several settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from commbench.cli.run_parameters import parse_words
from commbench.runner.run_options import VARIED_OPTIONS, RunOptions
from commbench.sweep.settings import Setting

CONTEXT = {"ignore_unknown_options": True, "allow_extra_args": True}


def sweep(
    context: typer.Context,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME=V,V",
            help="Variable and the values to try; '-' leaves it unset. May be repeated: every "
            "combination is measured. NAME:=VALUE takes a value with its commas.",
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="OPTION=V,V",
            help=f"Option of `commbench run` to try values of: {', '.join(VARIED_OPTIONS)}.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(metavar="N", help="How often each setting is measured, in turn.")
    ] = 3,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="PART", help="Differences up to this count as the same.  [default: 5%]"
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the sweep.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the sweep, new or empty.  [default: results/TIME-sweep]"
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Go on with the sweep in this folder; nothing else."),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            "--export",
            metavar="nccl-tuner",
            help="Write the winners as a configuration of NCCL's tuner plugin, in the folder.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Sweep variables that the backend does not read, too.")
    ] = False,
) -> None:
    """Measure under every combination of settings, and say which is best for which sizes.

    Each setting is measured in processes of its own, all of them in turn in several rounds of
    random order. Every other option is one of `commbench run`.

    \b
    commbench sweep --env NCCL_ALGO=RING,TREE --op all_reduce --sizes 1K-1G --rounds 3
    commbench sweep --vary cpu-mode=quiet,plain --sizes 1K-1M --backend gloo
    commbench sweep --resume results/20261121-120000-sweep
    """
    from commbench.sweep import session

    options = session.SweepOptions(
        variables=tuple(env or ()), options=tuple(vary or ()), rounds=rounds, tolerance=tolerance,
        label=label, output=output, export=export, force=force, others=tuple(context.args),
    )  # fmt: skip
    session.resume(resume, options) if resume else session.start(options, _parse_run_options)


def _parse_run_options(words: tuple[str, ...], setting: Setting) -> RunOptions:
    """The options of `commbench run` under a setting."""
    varied = [f"--{name}={value}" for name, value in setting.options]
    return parse_words([*words, *varied], "sweep")
