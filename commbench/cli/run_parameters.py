"""Turns RUN_OPTIONS into parameters of commands, and parses run options from a list of words."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from commbench.runner.run_options import RUN_OPTIONS, RunOptions, parse_options


def make_parameter(name: str, **changes: Any) -> inspect.Parameter:
    """A run option as a parameter of a command; `changes` are of its declaration."""
    option = RUN_OPTIONS[name]._replace(**changes)
    default = option.cli_default if option.cli_type else option.default
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if option.is_switch else default,
        annotation=Annotated[
            option.cli_type or option.type,
            typer.Option(
                *option.flags,
                metavar=option.metavar or None,
                help=option.help_text,
                show_default=False,
                rich_help_panel=option.group,
            ),
        ],
    )


def given_options(context: typer.Context) -> dict[str, Any]:
    """The run options that are given on the command line, by their Python names."""
    given = {
        name: value
        for name, value in context.params.items()
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE"
    }
    switches = {name for name in given if RUN_OPTIONS[name].is_switch}
    return given | {name: not RUN_OPTIONS[name].default for name in switches}


def parse_words(words: Sequence[str], *users: str) -> RunOptions:
    """The options of `commbench run WORDS`, for other commands that take them."""
    from commbench.cli.lazy_group import command

    context = command("run").make_context("commbench run", list(words))
    return parse_options(given_options(context), *users)
