"""The entry point of `commbench`: registers the commands, and is the only place that prints errors
and exits."""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer import Option

from commbench import __version__, errors
from commbench.cli.commands import COMMANDS, HELP_SETTINGS, LazyGroup, declared_commands
from commbench.output.ci import OWN_JUNIT, UNJUDGED, JUnitCase, JUnitSuite, junit_xml
from commbench.output.console import OutputClosedError, print_error, print_result
from commbench.results.files import remove_replaced, write_new

app = typer.Typer(
    name="commbench",
    cls=LazyGroup,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], **HELP_SETTINGS},
)


# Typer carries its own Click: the base of its errors is reached through one of them.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


@app.callback(invoke_without_command=True)
def commbench(
    context: typer.Context,
    version: bool = Option(False, "--version", help="Print the version and exit."),
) -> None:
    """Benchmark the collectives of torch.distributed: how long each takes, and how sure that is.

    Start with the first two of these:

    \b
    commbench smoke                              # does every collective work?
    commbench run --op all_reduce --sizes 1K-1M  # measure: table, CSV and plots
    commbench run --op all --dry-run             # print what would be measured
    commbench show                               # the table of the newest run
    commbench compare RUN OTHER                  # which is faster, by how much
    commbench sweep --vary cpu-mode=quiet,plain  # which setting is fastest
    commbench doctor                             # what disturbs measurements?
    """
    if version:
        print_result(f"commbench {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print_result(context.get_help())
        raise typer.Exit(2)


def main() -> NoReturn:
    """Run the command line; every error becomes two lines and an exit code."""
    _prepare_streams()
    errors.CommbenchError.worded = worded
    refuse = partial(_refuse, _new_report())
    try:
        code = app(standalone_mode=False, prog_name="commbench")
        if code == errors.SIGNALLED + signal.SIGINT:  # what Typer makes of it
            raise KeyboardInterrupt
        sys.stdout.flush()
    except _UsageError as error:
        refuse(*describe_usage_error(error))
        code = 2
    except (BrokenPipeError, OutputClosedError, SystemExit) as error:
        # Typer exits where the reader of its help has gone.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _give_up_output()
        code = errors.SIGNALLED + signal.SIGPIPE
    except errors.CommbenchError as error:
        if isinstance(error, errors.Interrupted):
            errors.ignore_interruptions()
        if error.is_reporter and os.environ.get("COMMBENCH_TRACEBACK") == "1":
            raise
        if error.is_reporter:
            of_folder = "-o" in sys.argv and getattr(error, "about", "") == "--reduce-op"
            hint = error.hint + "; a folder is --output" * of_folder
            refuse(error.message, hint, error.details)
        code = error.exit_code
    except (Exception, KeyboardInterrupt) as error:
        if stopped := errors.find_interruption(error):
            refuse(stopped.message, stopped.hint)
            _leave(stopped.exit_code)
        if os.environ.get("COMMBENCH_TRACEBACK") == "1":
            raise
        if isinstance(error, OSError | MemoryError | ImportError):
            known = errors.from_os_error(error)
            refuse(known.message, known.hint)
            code = known.exit_code
        else:
            hint = "report it, with what COMMBENCH_TRACEBACK=1 makes the same command print"
            refuse(f"commbench itself has failed: {errors.first_line(error)}", hint)
            code = errors.DEFECT
        _give_up_output()
    _leave(code if isinstance(code, int) else 0)


def _new_report() -> Path | None:
    """The file of --junit, of a command that has it. A report of commbench that is there is
    removed: it must not stay as the answer to a command that is refused."""
    name, *words = [*sys.argv[1:], ""]
    given = [
        word.partition("=")[2] if "=" in word else after
        for word, after in pairwise(words)
        if re.match(r"--junit(=|$)", word)
    ]
    command = declared_commands().get(name) if given else None
    if not (command and "junit" in command.all_options() and given[-1]):
        return None
    remove_replaced(path := Path(given[-1]), OWN_JUNIT)
    return path


def _refuse(report: Path | None, message: str, hint: str, details: str = "") -> None:
    """Print an error, and write it into the report of a command that did not write it."""
    print_error(message, hint, details)
    if report:
        suite, lines = f"commbench {sys.argv[1]}", f"error: {message}\nhint: {hint}"
        case = JUnitCase("verdict", UNJUDGED, message, "refused", body=lines)
        with suppress(errors.RecordsError):
            write_new(report, junit_xml([JUnitSuite(suite, [case])], suite))


def _prepare_streams() -> None:
    """Make both streams accept any text: characters that the terminal does not have become question
    marks, and text for a closed stream is lost."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - for good
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _give_up_output() -> None:
    """Redirect standard output to /dev/null if it cannot be written, so that flushing it at exit
    does not fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(code: int) -> NoReturn:
    """Exit. If torch was imported, skip Python's finalization, as slow as a small run."""
    if "torch" in sys.modules:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


_CLICK_MESSAGES = (
    (r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)$", "too many arguments: {0}"),
    (r"Invalid value.*: '(.*)' is not a valid int\w*\.", "{parameter} '{0}' is not a whole number"),
    (r"Invalid value.*: '(.*)' is not a valid float\.", "{parameter} '{0}' is not a number"),
    (r"Missing parameter|Missing argument|Missing option", "{parameter} is missing"),
    (r"Option '(.*)' requires an argument", "{0} needs a value"),
    (r"Option '(.*)' does not take a value", "{0} takes no value"),
    (r"No such command (.*?)\.?$", "unknown command {0}"),
    (r"No such option:? '?([^\s'.]+)", "there is no option {0}"),
)
"""What Click says, and what commbench says instead; other messages stay as they are."""

_MEANT = {"-o": "--output", "--ranks": "--nproc-per-node"}


def describe_usage_error(error: Any) -> tuple[str, str]:
    """The message and the hint of a usage error of Typer's Click."""
    from commbench.plan.operations import OPERATIONS
    from commbench.runner.run_options import RUN_OPTIONS

    # Some errors of Click's parser do not name their command.
    path = f"commbench {sys.argv[1]}" if sys.argv[1:] and sys.argv[1] in COMMANDS else "commbench"
    path = str(error.ctx.command_path) if error.ctx else path
    option = getattr(error, "option_name", "")
    known = {name.lstrip("-"): name for name in getattr(error, "possibilities", None) or ()}
    guess = known.get(errors.closest(option.lstrip("-"), known, similarity=0.7), "")
    meant = _MEANT.get(option, "")  # commands that do not measure have -o and --ranks
    if error.ctx and any(meant in each.opts for each in error.ctx.command.params):
        guess = meant
    error.possibilities = None  # the message would list them all
    text = str(getattr(error, "format_message", error.__str__)())
    message = f"{text[:1].lower()}{text[1:]}".removesuffix(".")
    for pattern, words in _CLICK_MESSAGES:
        if found := re.match(pattern, text):
            message = words.format(*found.groups(), parameter=_parameter(error))
            break
    hint = (f"did you mean {guess}? " if guess else "") + f"`{path} --help` lists the options"
    of_run = {flag for each in RUN_OPTIONS.values() for flag in "/".join(each.all_flags).split("/")}
    if path.startswith("commbench job ") and option in of_run:
        example = f"{path} --nodes 2 --nproc-per-node 8 -- {option} …"
        hint = f"options of `commbench run` go after two dashes: {example}"
    elif path == "commbench check" and option in ("--op", "--size", "--sizes", "--dtype"):
        hint = "write which rows into the limit: --max-slowdown all_reduce:1M-1G:10%"
    elif option == "--env":
        hint = "set the variable before the command, or compare values: `commbench sweep --env`"
    elif path == "commbench" and option in of_run:
        hint = f"name the command first, as in `commbench run {option} …`"
    elif message.endswith("is not a number"):
        hint = "write a number without a unit, for example 60; a time is in seconds"
    elif message.endswith("is not a whole number"):
        hint = "write a whole number, for example 20"
    elif message.startswith(("missing command", "unknown command")):
        hint = f"write one of these: {', '.join(error.ctx.command.commands)}"
    elif re.match(r"too many arguments: \d+[KMGT]?\b", message) and "sizes" in error.ctx.params:
        hint = "put a value with blanks in quotes, and commas between several: --sizes 1K,1M"
    elif message.startswith("too many arg") and (word := message.split()[3]) in OPERATIONS:
        if "op" in error.ctx.params:
            hint = f"write --op {word}; {hint}"
    elif message.endswith(" is missing") and (example := _example(error)):
        hint = f"write for example: {example}; {hint}"
    return message, hint


def worded(text: str) -> str:
    """A text with the flags that were typed, where it has another one of the same option."""
    from commbench.runner.run_options import RUN_OPTIONS

    typed = {word.partition("=")[0] for word in sys.argv if word.startswith("--")}
    for option in RUN_OPTIONS.values():
        for flag in typed.intersection(option.all_flags[1:]):
            text = re.sub(rf"{option.flag}(?![\w-])", flag, text)
    return text


def _parameter(error: Any) -> str:
    """The option or argument that an error is about: `--iters`, `RUN`."""
    parameter = getattr(error, "param", None)
    if not parameter:
        return "a value"
    if parameter.param_type_name == "option":
        return str(parameter.opts[0])
    return str(parameter.make_metavar(error.ctx)).strip("[]{}").removesuffix("...")


def _example(error: Any) -> str:
    """The first example in the help of the command; empty if there is none."""
    text = (error.ctx.command.epilog or "") if error.ctx else ""
    lines = (line.strip() for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines())
    found = next((line for line in lines if line.startswith("commbench ")), "")
    return re.split(r" {3,}", found)[0]  # what follows explains it
