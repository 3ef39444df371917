"""Imports only the command that the user calls, and writes the help of all of them.

The help is plain text: the package rich would take as long to import as the whole help to print.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from commbench.errors import name_error

COMMAND_GROUPS = {
    "Measure": {
        "run": "Measure collectives: table, journal, CSV and plots.",
        "sweep": "Measure under several settings, and say which is fastest.",
        "replay": "Replay the collectives of your training step, and compare with its trace.",
        "pairs": "Find a slow rank, host or link: all pairs of ranks.",
        "init": "Measure how long ranks and process groups take to start.",
        "smoke": "Check in a few seconds that every collective works here.",
        "job": "Print a batch script for Slurm, or a manifest for Kubernetes.",
    },
    "Read results": {
        "list": "List the runs in the folder results.",
        "show": "Print the table of a run, or the result of a sweep.",
        "plot": "Draw curves of one or several runs.",
        "report": "Write one file for a browser, for paper or for a ticket.",
        "explain": "Explain a number: the formulas with the figures put in.",
        "export": "Write a run in another format.",
        "import": "Make a run folder of another tool's results.",
        "workload": "Read the collectives of a training step, or generate them.",
    },
    "Compare and judge": {
        "compare": "Say which of several runs is faster, and how sure that is.",
        "check": "Check a run against limits or an earlier run, for CI.",
    },
    "Foresee": {
        "model": "Fit cost models to runs, and predict other sizes and ranks.",
        "advise": "Say which bucket size, form of call or setting is faster.",
    },
    "Look up": {
        "ops": "Print the operations and the torch calls that are timed.",
        "links": "Print the speed of links, to compare a bandwidth with.",
        "expect": "Say what bandwidth to expect, and whether one is plausible.",
        "env": "Print what this machine offers.",
        "doctor": "Find out what disturbs measurements on this host.",
    },
}
"""The commands by the heading under which the help lists them, each with its line there; what they
take is in commands.py, which the help of all of them does not need."""
COMMANDS = {name: text for group in COMMAND_GROUPS.values() for name, text in group.items()}
GROUPS = {
    "job": "Print a batch script for Slurm, or a manifest for Kubernetes.",
    "model": "Fit cost models to measured times, and predict other sizes and numbers of ranks.",
    "workload": "Read the collective calls of a training step from its traces, or generate them.",
}
"""What the help says at the top of a group of commands."""
HELP_SETTINGS = {"max_content_width": 120}
"""The help is as wide as the terminal, at most so many columns."""


class LazyGroup(TyperGroup):
    """Imports the module of a command when the command is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        widest = max(map(len, COMMANDS))
        for heading, commands in COMMAND_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), text) for name, text in commands.items()])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        return command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise name_error("command", args[0], list(COMMANDS))
        return super().resolve_command(ctx, args)


class GroupedCommand(TyperCommand):
    """A command whose help lists each option under the heading of its group (its help panel)."""

    run_options_user = ""
    """The name under which it also takes options of `commbench run`: those that do not refuse it
    (RunOption.refused_by). Empty if it takes none."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        own = [parameter for parameter in self.get_params(ctx) if not _is_hidden(parameter)]
        self._write(ctx, formatter, own, "Options")
        if self.run_options_user:
            flags = {flag for parameter in own for flag in parameter.opts}
            taken = [p for p in _run_options(self.run_options_user) if flags.isdisjoint(p.opts)]
            self._write(ctx, formatter, taken, "", "Options of `commbench run`: ")

    def _write(
        self, ctx: Any, formatter: Any, parameters: list[Any], other: str, before: str = ""
    ) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in parameters:
            panel = getattr(parameter, "rich_help_panel", None) or other
            if parameter.param_type_name == "argument":
                panel = "Arguments"
            if record := parameter.get_help_record(ctx):
                sections.setdefault(panel, []).append(record)
        help_last = [sections.pop(other)] if other in sections and len(sections) > 1 else []
        for name, records in [*sections.items(), *((other, found) for found in help_last)]:
            with formatter.section(before + (name[0].lower() + name[1:] if before else name)):
                formatter.write_dl(records)


def _is_hidden(parameter: Any) -> bool:
    return bool(getattr(parameter, "hidden", False))


def _run_options(user: str) -> list[Any]:
    """The parameters of `commbench run` that this user may give."""
    from commbench.runner.run_options import RUN_OPTIONS

    refused = {name for name, option in RUN_OPTIONS.items() if user in option.refused_by}
    return [p for p in command("run").params if p.name in RUN_OPTIONS and p.name not in refused]


def command(name: str) -> Any:
    """The command of that name, as Typer's Click has it."""
    from commbench.cli import commands
    from commbench.cli.command import make_function

    app = typer.Typer(add_completion=False, rich_markup_mode=None, help=GROUPS.get(name))
    if name in GROUPS:
        for path in commands.COMMANDS:
            group, _, word = path.partition(" ")
            if group == name:
                app.command(word, **commands.COMMANDS[path].typer_settings)(make_function(path))
        made: Any = typer.main.get_group(app)
    else:
        settings = commands.COMMANDS[name].typer_settings
        context = HELP_SETTINGS | settings.get("context_settings", {})
        app.command(name, cls=GroupedCommand, context_settings=context)(make_function(name))
        made = typer.main.get_command(app)
        made.run_options_user = name if settings is commands.BESIDE_OWN else ""
    for each in getattr(made, "commands", {name: made}).values():
        _leave_files_to_their_readers(each)
    return made


def _leave_files_to_their_readers(made: Any) -> None:
    """Let Typer's Click test no path: what opens a file says what is wrong with it, with the exit
    code of files."""
    for parameter in made.params:
        if hasattr(parameter.type, "readable"):
            parameter.type.readable = False
