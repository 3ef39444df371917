"""The commands: the help of all of them, and what Typer calls for the one that is used.

Only the module of that command is imported. The help is plain text: the package rich would take as
long to import as the whole help to print.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from commbench.errors import UsageError, name_error
from commbench.runner.option import SPECIAL_GROUPS, Option

if TYPE_CHECKING:
    from commbench.runner.run_options import RunOptions


class Command(NamedTuple):
    """What a command takes and shows. The function of its name in `module` carries it out:
    `history_add` for `history add`."""

    module: str
    """In commbench/cli/."""
    options: Mapping[str, Option] | Callable[[], Mapping[str, Option]]
    """By their names in Python; or what makes them, where that takes long to import."""
    api: tuple[str, ...] = ()
    """The Python functions that have these parameters, by name in commbench.api, or dotted."""
    view: str = ""
    """The module, in commbench/, whose VIEW shows the result, or `module:NAME` of another view. The
    function gets what shows it; the options of SHOWN are for that, where the function does not name
    them itself."""
    typer_settings: Mapping[str, Any] = {}
    """What Typer is told besides, of a command that options of `commbench run` may follow."""

    def all_options(self) -> Mapping[str, Option]:
        """The options, by their names in Python: also AS_DOCUMENT, where a view shows the result,
        and no option of its own says how or where."""
        own = self.options() if callable(self.options) else self.options
        is_document = self.view and own.keys().isdisjoint(AS_DOCUMENT)
        return {**own, **AS_DOCUMENT} if is_document else own


def argument(metavar: str, text: str, kind: Any = str, default: Any = ...) -> Option:
    """An argument of a command."""
    return Option(metavar, text, "Arguments", kind, default, is_argument=True)


def switch(text: str, panel: str = "") -> Option:
    """An option without a value, off by default."""
    return Option("", text, panel, bool, False)


OUTPUT, FOREIGN = "Output", "Files of other tools"
AS_DOCUMENT = {
    "format": Option(
        "FORMAT", "text, markdown, html or json.  [default: by the ending of FILE, else text]",
        OUTPUT, str,
    ),
    "output": Option(
        "FILE", "New file to write: .txt, .md, .html or .json.  [default: print the text]",
        OUTPUT, Path,
    ),
}  # fmt: skip
NEW_FILE = Option("FILE", "New file to write.  [default: print the text]", type=Path)
JUNIT = Option(
    "FILE.xml",
    "Write JUnit XML. Overwrites a JUnit file of commbench, no other file.",
    OUTPUT,
    Path,
)


SHOWN = ("format", "output", "verbose", "junit", "json")
"""The options that say how a result is shown, where a command does not name them itself."""
SHORT_FLAGS = {"output": "--output -o", "verbose": "--verbose -v"}
"""The flags of options that have a short one in every command; but -o is --reduce-op where options
of `commbench run` are taken, as in nccl-tests."""
COMMAND_GROUPS = {
    "Measure": {
        "run": "Measure collectives: table, journal, CSV and plots.",
        "sweep": "Measure under several settings, and say which is fastest.",
        "replay": "Replay the collectives of your training step, and compare with its trace.",
        "pairs": "Find a slow rank, host or link: all pairs of ranks.",
        "soak": "Measure and check for hours: wrong results, drift, slow minutes.",
        "init": "Measure how long ranks and process groups take to start.",
        "smoke": "Check that every collective works here, in less than a minute.",
        "preflight": "Say which hosts may take part in a job, before it starts.",
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
        "fleet": "Say which nodes are slower than their peers, from a run of each.",
        "history": "Keep runs; say what became slower, when, and what changed then.",
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
"""The commands by the heading under which the help lists them, each with its line there."""
COMMANDS = {name: text for group in COMMAND_GROUPS.values() for name, text in group.items()}
HELP_SETTINGS = {"max_content_width": 120}
"""The help is as wide as the terminal, at most so many columns."""
_TYPES = {
    "Sequence[str]": list[str], "tuple[str": list[str], "Path": Path, "AnyRun": str, "str": str,
    "Literal": str, "float": float, "int": int, "bool": bool,
}  # fmt: skip
"""The type on the command line, by the first word that the annotation in Python contains."""
Show = Callable[..., None]
"""Shows the result of a command, as its options ask for; of a command that has an --output of its
own, into `output` if that is given."""


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
            subcommands = {n.split()[-1]: n for n in declared_commands() if " " in n}
            raise name_error("command", args[0], list(COMMANDS), subcommands, "`commbench --help`")
        return super().resolve_command(ctx, args)


class GroupedCommand(TyperCommand):
    """A command whose help lists each option under the heading of its group (its help panel): what
    all need first, what describes other tools' files last."""

    run_options_user = ""
    """The name under which it also takes options of `commbench run`: those that do not refuse it
    (Option.refused_by). Empty if it takes none."""
    measures = False
    """Whether it starts ranks."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given, _, parameters = self.make_parser(ctx).parse_args([*args])
        options = {flag for each in self.get_params(ctx) for flag in each.opts if flag[0] == "-"}
        for flag, value in [(each.opts[0], given.get(each.name or "")) for each in parameters]:
            values = value if isinstance(value, list) else [value]
            hint = f"give a value, or leave out {flag}"
            if flag[0] == "-" and "" in values:
                raise UsageError(f"{flag} is empty", hint)
            if found := next((each for each in values if each in options), None):
                raise UsageError(f"{flag} has no value: {found} is an option", hint)
        # A line that measures may be repeated with other values at its end.
        repeated = (each for each, n in Counter(parameters).items() if n > 1)
        for each in () if self.measures else repeated:
            if not any(getattr(each, name, False) for name in ("multiple", "is_flag", "count")):
                raise UsageError(f"{each.opts[0]} is given several times", "give it once")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        own = self.get_params(ctx)
        self._write(ctx, formatter, own, "Options")
        if user := self.run_options_user:
            from commbench.runner.run_options import RUN_OPTIONS

            flags = {flag for parameter in own for flag in parameter.opts}
            others = [
                p for p in command("run").params
                if p.name in RUN_OPTIONS and user not in RUN_OPTIONS[p.name].refused_by
                and flags.isdisjoint(p.opts)
            ]  # fmt: skip
            self._write(ctx, formatter, others, "", "Options of `commbench run`: ")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        formatter.write(f"\nExamples:\n{indent(self.epilog or '', '  ')}\n")

    def _write(
        self, ctx: Any, formatter: Any, parameters: list[Any], other: str, before: str = ""
    ) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in parameters:
            panel = getattr(parameter, "rich_help_panel", None) or other
            if record := parameter.get_help_record(ctx):
                sections.setdefault(panel, []).append(record)
        has_own = len(sections.get(other, ())) > 1  # besides --help
        places = {"Arguments": 0, other: 1 if has_own else 5, FOREIGN: 4}
        places |= dict.fromkeys(SPECIAL_GROUPS, 3)
        for name, records in sorted(sections.items(), key=lambda item: places.get(item[0], 2)):
            with formatter.section(before + (name[0].lower() + name[1:] if before else name)):
                formatter.write_dl(records, col_max=20)


def declared_commands() -> Mapping[str, Command]:
    """What each command takes and shows, by the words that call it."""
    from commbench.cli import measuring_options, reading_options

    return measuring_options.COMMANDS | reading_options.COMMANDS


def command(name: str) -> Any:
    """The command of that name, or the group of commands, as Typer's Click has it."""
    declared = declared_commands()
    app = typer.Typer(add_completion=False, rich_markup_mode=None, help=COMMANDS[name])
    for path, entry in declared.items():
        group, _, word = path.partition(" ")
        if group == name:
            function, settings = make_function(path), entry.typer_settings
            about, _, examples = inspect.cleandoc(function.__doc__ or "").partition("\b\n")
            context = HELP_SETTINGS | settings.get("context_settings", {})
            app.command(
                word or name, cls=GroupedCommand, help=about, epilog=examples,
                **{**settings, "context_settings": context},
            )(function)  # fmt: skip
    if name not in declared:
        return typer.main.get_group(app)
    made: Any = typer.main.get_command(app)
    made.run_options_user = name if declared[name].typer_settings else ""
    made.measures = declared[name].module == "measuring"
    return made


def make_function(name: str) -> Callable[..., None]:
    """The function of a command, such as `job slurm`, with the parameters that Typer reads."""
    entry, words = declared_commands()[name], name.replace(" ", "_")
    module = import_module(f"commbench.cli.{entry.module}")
    carry_out = getattr(module, words, None) or getattr(module, f"{words}_")  # Python has `import`
    own = inspect.signature(carry_out).parameters

    def function(**given: Any) -> None:
        chosen = {key: option for key, option in options.items() if not option.is_argument}
        for values in (given, given["context"].params) if "context" in given else (given,):
            _join(values, options)
        flags = {o._replace(name=key).flag: given.get(key) for key, o in chosen.items()}
        try:
            if entry.view:
                keys = [key for key in SHOWN if key not in own]
                show = _shown_by(entry.view, **{key: given.pop(key, None) for key in keys})
                carry_out(show, **given)
            else:
                carry_out(**given)
        except UsageError as error:
            error.name_option(flags)
            raise

    known: dict[str, inspect.Parameter] = {}
    for dotted in entry.api:
        of, _, api_name = dotted.rpartition(".")
        python = inspect.signature(getattr(import_module(of or "commbench.api"), api_name))
        known = {**python.parameters, **known}
    options = entry.all_options()
    parameters = [_declare(key, option, known.get(key)) for key, option in options.items()]
    if "context" in own:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter("context", kind, annotation=typer.Context))
    function.__name__, function.__doc__ = carry_out.__name__, carry_out.__doc__
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def _shown_by(
    view_module: str,
    format: str | None = None,
    output: Path | None = None,
    verbose: bool | None = False,
    **files: Path | None,
) -> Show:
    """What shows a result of a command in that way. UsageError or RecordsError, before anything is
    computed, where that is not possible."""
    from commbench.output.ci import OWN_JUNIT
    from commbench.results.files import require_new
    from commbench.views.formats import choose_format, find_view, show

    view = find_view(view_module)
    view.require(choose_format(format, output, endings=view.endings))
    for name, file in {"output": output, **files}.items():
        if file:
            require_new(file, OWN_JUNIT if name == "junit" else None)
    return partial(show, view, format_=format, output=output, is_verbose=bool(verbose), **files)


def _declare(name: str, option: Option, python: inspect.Parameter | None) -> inspect.Parameter:
    """The parameter that declares an option or an argument to Typer. An option of `commbench run`
    has no default: what is not given is left out."""
    is_of_run, kind = bool(option.name), option.type
    if kind is None:
        assert python, f"{name} is no parameter of the Python function, and has no type"
        kind = next(kind for text, kind in _TYPES.items() if text in str(python.annotation))
        if option.default is None:
            default = ... if python.default is python.empty else python.default
            option = option._replace(default=default)
    elif is_of_run:
        kind = list[str] if get_origin(kind) is tuple else str if option.parse else kind
    flags = option.flags or ("" if is_of_run else SHORT_FLAGS.get(name, ""))
    option = option._replace(name=name, flags=flags)
    default = None if is_of_run else option.default
    if option.separator:
        kind, default = list[str], [default] if isinstance(default, str) else default
    if kind == list[str] and not default:
        default = []
    declare: Any = typer.Argument if option.is_argument else typer.Option
    declaration = declare(
        *([] if option.is_argument else option.all_flags),
        metavar=option.metavar or None, help=option.help_text, show_default=False,
        rich_help_panel=option.group or None,
        readable=False,  # what opens a file says what is wrong with it
    )  # fmt: skip
    if default is ...:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default,
        annotation=Annotated[kind | None if default is None else kind, declaration],
    )  # fmt: skip


def _join(values: dict[str, Any], options: Mapping[str, Option]) -> None:
    """Make one text of all values of an option that has a separator; None if it was not given."""
    for name, option in options.items():
        if option.separator:
            values[name] = option.separator.join(values[name]) if values[name] else None


def given_options(context: typer.Context) -> dict[str, Any]:
    """The run options that are given on the command line, by their Python names."""
    return {
        name: value
        for name, value in context.params.items()
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE"
    }


def parse_words(words: Sequence[str], *users: str, varied: Sequence[str] = ()) -> RunOptions:
    """The options of `commbench run WORDS`, for other commands that take them; of a sweep with
    those that it varies."""
    from commbench.runner.run_options import RUN_OPTIONS, parse_options

    name = "commbench sweep" if "sweep" in users else "commbench run"
    contexts = [command("run").make_context(name, list(part)) for part in (words, varied)]
    for context in contexts:
        _join(context.params, RUN_OPTIONS)
    given, more = map(given_options, contexts)
    return parse_options(given, *users, varied=more)
