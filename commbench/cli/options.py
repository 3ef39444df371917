"""What a command takes, and the options that several commands take.

Those of `commbench run` are in runner/run_options.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from commbench.runner.option import Option


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
    function gets what shows it; --format, --output and --verbose are for that, where the function
    does not name them itself."""
    typer_settings: Mapping[str, Any] = {}
    """What Typer is told besides, of a command that options of `commbench run` may follow."""


def argument(metavar: str, text: str, kind: Any = str, default: Any = ...) -> Option:
    """An argument of a command."""
    return Option(metavar, text, type=kind, default=default, is_argument=True)


def switch(text: str, panel: str = "") -> Option:
    """An option without a value, off by default."""
    return Option("", text, panel, bool, False)


OUTPUT = "Output"
AS_DOCUMENT = {
    "format": Option(
        "FORMAT", "text, markdown, html or json.  [default: by the ending of FILE, else text]",
        OUTPUT, str,
    ),
    "output": Option(
        "FILE", "New file to write: .txt, .md, .html or .json.  [default: print the text]",
        OUTPUT, Path, flags="--output -o",
    ),
}  # fmt: skip
NEW_FILE = Option(
    "FILE", "New file to write.  [default: print the text]", type=Path, flags="--output -o"
)
JUNIT = Option("FILE.xml", "Write JUnit XML to a new file.", OUTPUT, Path)


def print_or_write(content: str | bytes, output: Path | None) -> None:
    """Print a text, or write it or bytes to a file that does not exist yet and print its path."""
    from commbench.output.console import print_result
    from commbench.results.files import write_new

    if output is None:
        print_result(content, end="")
    else:
        write_new(output, content)
        print_result(output)
