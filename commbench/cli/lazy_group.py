"""Imports only the command that the user calls."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from commbench.errors import name_error

COMMANDS = {
    "run": "Measure collectives: table, journal, CSV and plots.",
    "sweep": "Measure under several settings, and say which is best.",
    "job": "Print a job for Slurm or Kubernetes, ready to submit.",
    "smoke": "Check in a few seconds that every collective works here.",
    "show": "Print the table of a run, or what a sweep found.",
    "plot": "Draw curves of one or several runs.",
    "explain": "Explain a number: formulas with the figures put in.",
    "links": "Print the speed of links, to hold a number against.",
    "import": "Make a run folder of another tool's results.",
    "compare": "Say which of several runs is faster, and how sure that is.",
    "check": "Hold a run against limits, or against an earlier run.",
    "report": "Write one file for a browser, paper or a ticket.",
    "export": "Write a run in another format.",
    "ops": "Print the operations and their conventions.",
    "env": "Print what this machine offers.",
    "doctor": "Look for what is in the way of measuring on this host.",
}
"""The commands with their line in the help. Each is a function, or a group of commands, of its name
in the module of its name."""
NAMES = {"import": "import_"}
"""Names of the modules and functions of commands whose own name Python keeps for itself."""


class LazyGroup(TyperGroup):
    """Imports the module of a command when the command is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        return command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise name_error("command", args[0], list(COMMANDS))
        return super().resolve_command(ctx, args)


def command(name: str) -> Any:
    """The command of that name, as Typer's Click has it."""
    python_name = NAMES.get(name, name)
    module = import_module(f"commbench.cli.{python_name}")
    function = getattr(module, python_name)
    if isinstance(function, typer.Typer):
        return typer.main.get_command(function)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, context_settings=getattr(module, "CONTEXT", None))(function)
    return typer.main.get_command(app)
