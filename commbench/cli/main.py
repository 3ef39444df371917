"""The entry point of `commbench`: registers the commands, and is the only place that prints errors
and exits."""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from typing import NoReturn

import typer
from typer import Option

from commbench import __version__
from commbench.cli.lazy_group import HELP_SETTINGS, LazyGroup
from commbench.errors import CommbenchError, Interrupted, from_os_error, ignore_interruptions
from commbench.output.console import OutputClosedError, print_error, print_result

app = typer.Typer(
    name="commbench",
    cls=LazyGroup,
    add_completion=False,
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

    \b
    commbench run --op all_reduce --sizes 1K-1G   measure: table, CSV and plots
    commbench run --op all --dry-run              print what would be measured
    commbench show                                the table of the newest run
    commbench compare RUN OTHER                   which is faster, by how much
    commbench sweep --env NCCL_ALGO=RING,TREE     which setting is fastest
    commbench smoke                               does every collective work here?
    commbench doctor                              what disturbs measurements here?
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
    try:
        code = app(standalone_mode=False, prog_name="commbench")
        sys.stdout.flush()
    except _UsageError as error:
        from commbench.cli.usage_errors import describe_usage_error

        print_error(*describe_usage_error(error))
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        print_error("stopped by SIGINT", "")
        code = Interrupted("").exit_code
    except (BrokenPipeError, OutputClosedError):
        _give_up_output()
        code = 128 + signal.SIGPIPE
    except CommbenchError as error:
        if isinstance(error, Interrupted):
            ignore_interruptions()
        if error.is_reporter and os.environ.get("COMMBENCH_TRACEBACK") == "1":
            raise
        if error.is_reporter:
            print_error(error.message, error.hint, error.details)
        code = error.exit_code
    except (OSError, MemoryError, ImportError) as error:
        if os.environ.get("COMMBENCH_TRACEBACK") == "1":
            raise
        known = from_os_error(error)
        print_error(known.message, known.hint)
        code = known.exit_code
        _give_up_output()
    _leave(code if isinstance(code, int) else 0)


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
