"""`commbench pairs`: which rank, host or link is slow."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from commbench import api
from commbench.api.measuring import (
    PAIRS_DEFAULTS,
    PAIRS_OPTIONS,
    QUICK_ITERATIONS,
    pairs_options,
)
from commbench.cli.run import RunPrinter, print_plan
from commbench.cli.run_parameters import given_options, make_parameter, make_signature


def pairs(context: typer.Context, **_: object) -> None:
    """Find a slow rank, host or link: latency and bandwidth of every pair of ranks.

    The pairs are measured in rounds, in which each rank has one pair: n - 1 rounds of n ranks. All
    pairs of a round call at once, first from the lower rank to the higher one, then back. It is an
    ordinary run, and all commands read it. Its folder also has pairs.csv, the matrices
    latency.csv and bandwidth.csv, and heat maps.

    \b
    commbench pairs --nproc-per-node 8
    commbench pairs --nproc-per-node 8 --quick           some of the rounds
    commbench pairs --sizes 64M                          fast links: NVLink
    commbench pairs --groups 0-28:4 --nproc-per-node 32  one rank of each 4
    commbench pairs --pairs 0-5+1-7                      these pairs only
    commbench pairs --pairs 0-5,5-0                      one pair, both directions
    """
    is_quick = context.params.pop("quick")
    options = pairs_options(is_quick=is_quick, **given_options(context))
    if options.dry_run:
        print_plan(options)
    else:
        api.run_options(options, RunPrinter(options))


_TEXTS = {"iters": f"{PAIRS_DEFAULTS['iters']}; {QUICK_ITERATIONS} with --quick"}
"""What the help says of a default that depends on another option."""
pairs.__signature__ = make_signature(  # type: ignore[attr-defined]
    inspect.Parameter(
        "quick",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[
            bool,
            typer.Option(
                "--quick",
                help="Look at some rounds, then measure again where a rank or a link looks slow.  "
                "[default: off]",
                show_default=False,
                rich_help_panel="What to measure",
            ),
        ],
    ),
    *(
        make_parameter(name, default=(), default_text=", ".join(value))
        if isinstance(value := PAIRS_DEFAULTS[name], tuple)
        else make_parameter(name, default=value, cli_default=_TEXTS.get(name, value))
        for name in PAIRS_DEFAULTS
        if name in PAIRS_OPTIONS
    ),
    *(make_parameter(name) for name in PAIRS_OPTIONS if name not in PAIRS_DEFAULTS),
)
