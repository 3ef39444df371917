"""What an option of a command is, and those that several commands take.

Those of `commbench run` are in runner/run_options.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Option(NamedTuple):
    """An option of a command, or an argument."""

    metavar: str
    help: str | Callable[[], str]
    """Or what makes it, where that takes long to import."""
    panel: str = ""
    """The heading under which the help lists it."""
    type: Any = None
    """By default that of the parameter of the Python function, which then has the default, too."""
    default: Any = None
    """`...` for one that must be given."""
    flags: str = ""
    """By default made of its name."""
    is_argument: bool = False


class OfRun(NamedTuple):
    """An option of `commbench run`, with what is different here."""

    changes: Mapping[str, Any] = {}


def argument(metavar: str, text: str, kind: Any = str, default: Any = ...) -> Option:
    """An argument of a command."""
    return Option(metavar, text, type=kind, default=default, is_argument=True)


def switch(text: str, panel: str = "") -> Option:
    """An option without a value, off by default."""
    return Option("", text, panel, bool, False)


FOREIGN, RULE, VERDICT, OUTPUT = "Files of other tools", "Rules", "Verdict", "Output"
RUN = argument("RUN", "Run folder, run.jsonl, results.csv, or label.")
RUNS = argument("RUN...", "Run folders, run.jsonl, labels, or other tools' files.", list[str])
FILE_HINTS = {
    "ranks": Option("N", "Number of ranks, if the file does not say it.", FOREIGN, int),
    "op": Option("OP", "Operation, if the file does not say it.", FOREIGN, str),
    "dtype": Option("DTYPE", "Element type, if the file does not say it.", FOREIGN, str),
}
"""What describes another tool's file."""
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
LIMITS = {
    "against": Option("BASELINE", "The earlier run that --max-slowdown refers to.", RULE),
    "max_slowdown": Option(
        "[OP:][SIZES:]PERCENT", "How much slower than in BASELINE a row may be.  [default: 10% "
        "with --against]", RULE,
    ),
    "min_busbw": Option(
        "[OP:][SIZES:]GB/s", "Least bus bandwidth: all_reduce:1M-1G:3.0GB/s.", RULE
    ),
    "max_time": Option(
        "[OP:][SIZES:]TIME", "Longest time: all_reduce:-64K:80us; of the step of a replay, "
        "step=NAME:120ms or step=NAME:variant=HOW:120ms.", RULE,
    ),
    "expect": Option(
        "run|GPU[:NICS][:K nodes]", "Compare with what others published and what is possible on "
        "the hardware that the run names, or on this: h100:8x400G.", RULE,
    ),
}  # fmt: skip
RULES_FILE = Option("FILE.toml", "Read rules from a file; docs/comparing.md shows one.", RULE, Path)
LENIENCE = {
    "undecided": Option(
        "pass|fail", "Count a row whose interval contains the limit as passed or failed.  "
        "[default: neither; such a row prevents a verdict (exit code 7), unless its value is "
        "within the limit and another row passes]", VERDICT,
    ),
    "allow_unmatched": switch(
        "Ignore rows that only one of the two runs has, and rules that match no row.", VERDICT
    ),
    "allow_unchecked": switch("Let rows pass that nobody checked.", VERDICT),
}  # fmt: skip


def print_or_write(content: str | bytes, output: Path | None) -> None:
    """Print a text, or write it or bytes to a file that does not exist yet and print its path."""
    from commbench.output.console import print_result
    from commbench.results.files import write_new

    if output is None:
        print_result(content, end="")
    else:
        write_new(output, content)
        print_result(output)
