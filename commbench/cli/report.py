"""`commbench report`: one file about runs, for a browser, paper or a ticket."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from commbench.cli.options import (
    OUTPUT,
    VERDICT,
    Against,
    AllowUnchecked,
    AllowUnmatched,
    Dtype,
    Expect,
    MaxSlowdown,
    MaxTime,
    MinBusbw,
    Op,
    Ranks,
    Rules,
    Undecided,
)


def report(
    runs: list[str] = Argument(
        metavar="RUN...", help="Run folders, labels, other tools' files; or one sweep."
    ),
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            metavar="FILE",
            help="New file to write.  [default: print the text]",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    format_: str | None = Option(
        None,
        "--format",
        metavar="FORMAT",
        help="html or markdown.  [default: markdown for FILE.md and for a terminal, else html]",
        rich_help_panel=OUTPUT,
    ),
    against: Against = None,
    max_slowdown: MaxSlowdown = None,
    min_busbw: MinBusbw = None,
    max_time: MaxTime = None,
    expect: Expect = None,
    rules: Rules = None,
    undecided: Undecided = None,
    allow_unmatched: AllowUnmatched = False,
    allow_unchecked: AllowUnchecked = False,
    tolerance: str | None = Option(
        None,
        metavar="PERCENT",
        help="Of several runs: differences up to this count as the same.  [default: 5%] With "
        "--expect: how far below the lowest figure of others a row may be.  [default: 20%]",
        rich_help_panel=VERDICT,
    ),
    force: bool = Option(
        False,
        "--force",
        help="Compare runs although ranks, nodes, device or CPU mode differ.",
        rich_help_panel=VERDICT,
    ),
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:
    """Write one file about a run, a comparison, a check or a sweep, to send to other people.

    Several runs are compared with the first. With one of the options under Rules, one run is
    checked as `commbench check` does; the exit code is 0 even if the check fails. The HTML
    contains everything, also the recorded data, and needs no network. The Markdown is for tickets.

    \b
    commbench report mine -o report.html
    commbench report before after -o comparison.html
    commbench report new --against old --max-slowdown 10% -o check.html
    commbench report results/20261121-120000-sweep -o sweep.html
    commbench report before after --format markdown      for a ticket
    """
    from commbench import api
    from commbench.api.runs import load_rows
    from commbench.errors import UsageError
    from commbench.output.console import print_result, print_status
    from commbench.results.run_folder import find_sweep

    is_check = bool(against or rules or max_slowdown or min_busbw or max_time or expect)
    if is_check and len(runs) > 1:
        raise UsageError("a check is of one run", "name one RUN, and the other with --against")
    if output is None and format_ is None and sys.stdout.isatty():
        format_ = "markdown"
    write = partial(api.report, output=output, format=format_)
    find = partial(load_rows, ranks=ranks, op=op, dtype=dtype, notify=print_status)
    if is_check:
        gate = api.check(
            find(runs[0]), rules, against=None if against is None else find(against), force=force,
            max_slowdown=max_slowdown or (), min_busbw=min_busbw or (), max_time=max_time or (),
            expect=expect, tolerance=tolerance if expect else None, undecided=undecided,
            allow_unmatched=allow_unmatched, allow_unchecked=allow_unchecked,
        )  # fmt: skip
        text = write(gate)
    elif len(runs) > 1:
        first, *others = map(find, runs)
        compare = partial(api.compare, first, tolerance=tolerance or "5%", force=force)
        text = write(*map(compare, others))
    else:
        text = write(runs[0] if find_sweep(runs[0]) else find(runs[0]))
    if output is None:
        print_result(text, end="")
    else:
        print_result(output)
