"""`commbench replay`: the collectives of a training step."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import typer

from commbench import api
from commbench.api.measuring import REPLAY_DEFAULTS, REPLAY_OPTIONS, replay_options
from commbench.cli.run import RunPrinter, print_plan
from commbench.cli.run_parameters import given_options, make_parameter, make_signature


def replay(context: typer.Context, **_: object) -> None:
    """Replay the collectives of your training step: what the network needs, what can be saved.

    Each different call is measured alone, and then the whole step, in order, with and without the
    gaps between its calls, with buckets of other sizes, and with reduce_scatter + all_gather. The
    result is compared with the trace. It is an ordinary run, and all commands read it.

    \b
    commbench workload import traces/ -o step.json   the step of your trace
    commbench replay step.json                       on as many ranks
    commbench replay step.json --variant calls,gaps,bucket:50M
    commbench replay step.json --fit shrink --nproc-per-node 2
    commbench replay step.json --peak 400Gbit/s      what the network allows
    """
    options = replay_options(**given_options(context))
    if options.dry_run:
        print_plan(options)
    else:
        api.run_options(options, RunPrinter(options))


replay.__signature__ = make_signature(  # type: ignore[attr-defined]
    inspect.Parameter(
        "workload",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            Path | None,
            typer.Argument(
                metavar="WORKLOAD",
                help="The file of a step that `commbench workload` wrote.",
                show_default=False,
            ),
        ],
    ),
    *(make_parameter(name, default=value) for name, value in REPLAY_DEFAULTS.items()),
    *(make_parameter(name) for name in REPLAY_OPTIONS if name not in REPLAY_DEFAULTS),
)
