"""Options that several commands share. Those of `commbench run` are in runner/run_options.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from commbench.report.formats import FORMAT_HELP, PEAK_HELP

Format = Annotated[str, Option("--format", metavar="HOW", help=FORMAT_HELP)]
Peak = Annotated[str | None, Option("--peak", metavar="SPEED", help=PEAK_HELP)]
_FOREIGN = "Files of other tools"
Ranks = Annotated[
    int | None,
    Option(
        "--ranks", metavar="N", help="How many ranks, if the file does not say it.",
        rich_help_panel=_FOREIGN,
    ),
]  # fmt: skip
Op = Annotated[
    str | None,
    Option(
        "--op", metavar="OP", help="Which operation, if the file does not say it.",
        rich_help_panel=_FOREIGN,
    ),
]  # fmt: skip
Dtype = Annotated[
    str | None,
    Option(
        "--dtype", metavar="DTYPE", help="Which dtype, if the file does not say it.",
        rich_help_panel=_FOREIGN,
    ),
]  # fmt: skip
Output = Annotated[
    Path | None, Option(metavar="FILE", help="A file that does not exist.  [default: print it]")
]


def print_or_write(content: str | bytes, output: Path | None) -> None:
    """Print a text, or write it or bytes to a file that does not exist yet and print its path."""
    from commbench.output.console import print_result
    from commbench.results.files import write_new

    if output is None:
        print_result(content, end="")
    else:
        write_new(output, content)
        print_result(output)
