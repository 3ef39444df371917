"""`commbench sweep`: the same measurement under several settings."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Option

from commbench.cli.run_parameters import parse_words
from commbench.runner.run_options import VARIED_OPTIONS, RunOptions
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
        help="Variable and the values to try; '-' leaves it unset. May be repeated: every "
        "combination is measured. NAME:=VALUE takes a value with its commas.",
    ),
    vary: list[str] | None = Option(
        None,
        "--vary",
        metavar="OPTION=V,V",
        help=f"Option of `commbench run` to try values of: {_VARIED}.",
    ),
    rounds: int = Option(3, metavar="N", help="How often each setting is measured, in turn."),
    tolerance: str | None = Option(
        None, metavar="PART", help="Differences up to this count as the same.  [default: 5%]"
    ),
    label: str | None = Option(None, metavar="NAME", help="Name of the sweep."),
    output: Path | None = Option(
        None,
        metavar="DIR",
        help="Folder of the sweep, new or empty.  [default: results/TIME-sweep]",
    ),
    resume: Path | None = Option(
        None, metavar="DIR", help="Go on with the sweep in this folder; nothing else."
    ),
    export: str | None = Option(
        None,
        "--export",
        metavar="nccl-tuner",
        help="Write the winners as a configuration of NCCL's tuner plugin, in the folder.",
    ),
    force: bool = Option(
        False, "--force", help="Sweep variables that the backend does not read, too."
    ),
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
