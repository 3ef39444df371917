"""Options that several commands share. Those of `commbench run` are in runner/run_options.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from commbench.report.formats import FORMAT_HELP, PEAK_HELP

Format = Annotated[
    str | None,
    Option(
        "--format", metavar="HOW",
        help=f"{FORMAT_HELP}  [default: by the ending of FILE, else text]",
    ),
]  # fmt: skip
Peak = Annotated[
    str | None, Option("--peak", metavar="SPEED", help=f"{PEAK_HELP}  [default: that of the run]")
]
FOREIGN = "Files of other tools"
RULES, VERDICT, OUTPUT = "Rules", "Verdict", "Output"
Ranks = Annotated[
    int | None,
    Option(
        "--ranks", metavar="N", help="Number of ranks, if the file does not say it.",
        rich_help_panel=FOREIGN,
    ),
]  # fmt: skip
Op = Annotated[
    str | None,
    Option(
        "--op", metavar="OP", help="Operation, if the file does not say it.",
        rich_help_panel=FOREIGN,
    ),
]  # fmt: skip
Dtype = Annotated[
    str | None,
    Option(
        "--dtype", metavar="DTYPE", help="Element type, if the file does not say it.",
        rich_help_panel=FOREIGN,
    ),
]  # fmt: skip
Against = Annotated[
    str | None,
    Option(
        "--against",
        metavar="BASELINE",
        help="The earlier run that --max-slowdown refers to.",
        rich_help_panel=RULES,
    ),
]
MaxSlowdown = Annotated[
    list[str] | None,
    Option(
        "--max-slowdown",
        metavar="[OP:][SIZES:]PERCENT",
        help="How much slower than in BASELINE a row may be.  [default: 10% with --against]",
        rich_help_panel=RULES,
    ),
]
MinBusbw = Annotated[
    list[str] | None,
    Option(
        "--min-busbw",
        metavar="[OP:][SIZES:]GB/s",
        help="Least bus bandwidth: all_reduce:1M-1G:3.0GB/s.",
        rich_help_panel=RULES,
    ),
]
MaxTime = Annotated[
    list[str] | None,
    Option(
        "--max-time",
        metavar="[OP:][SIZES:]TIME",
        help="Longest time: all_reduce:-64K:80us; of the step of a replay, "
        "step=NAME:120ms or step=NAME:variant=HOW:120ms.",
        rich_help_panel=RULES,
    ),
]
Expect = Annotated[
    str | None,
    Option(
        "--expect",
        metavar="run|GPU[:NICS][:K nodes]",
        help="Compare with what others published and what is possible on the hardware that the "
        "run names, or on this: h100:8x400G.",
        rich_help_panel=RULES,
    ),
]
Tolerance = Annotated[
    str | None,
    Option(
        "--tolerance",
        metavar="PERCENT",
        help="With --expect: how far below the lowest figure of others a row may be.  "
        "[default: 20%]",
        rich_help_panel=RULES,
    ),
]
Rules = Annotated[
    Path | None,
    Option(
        "--rules",
        metavar="FILE.toml",
        help="Read rules from a file; docs/comparing.md shows one.",
        rich_help_panel=RULES,
    ),
]
Undecided = Annotated[
    str | None,
    Option(
        "--undecided",
        metavar="pass|fail",
        help="Count a row whose interval contains the limit as passed or failed.  [default: "
        "neither; such a row prevents a verdict (exit code 7), unless its value is within the "
        "limit and another row passes]",
        rich_help_panel=VERDICT,
    ),
]
AllowUnmatched = Annotated[
    bool,
    Option(
        "--allow-unmatched",
        help="Ignore rows that only one of the two runs has, and rules that match no row.",
        rich_help_panel=VERDICT,
    ),
]
AllowUnchecked = Annotated[
    bool,
    Option("--allow-unchecked", help="Let rows pass that nobody checked.", rich_help_panel=VERDICT),
]
Output = Annotated[
    Path | None,
    Option("--output", "-o", metavar="FILE", help="New file to write.  [default: print the text]"),
]

AnyFormat = Annotated[
    str | None,
    Option(
        "--format", metavar="FORMAT",
        help="text, markdown, html or json.  [default: by the ending of FILE, else text]",
        rich_help_panel=OUTPUT,
    ),
]  # fmt: skip
OutputFile = Annotated[
    Path | None,
    Option(
        "--output", "-o", metavar="FILE",
        help="New file to write: .txt, .md, .html or .json.  [default: print the text]",
        rich_help_panel=OUTPUT,
    ),
]  # fmt: skip


def print_or_write(content: str | bytes, output: Path | None) -> None:
    """Print a text, or write it or bytes to a file that does not exist yet and print its path."""
    from commbench.output.console import print_result
    from commbench.results.files import write_new

    if output is None:
        print_result(content, end="")
    else:
        write_new(output, content)
        print_result(output)
