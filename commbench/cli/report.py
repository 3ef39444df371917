"""`commbench report`: one file about runs, for a browser, paper or a ticket."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from commbench.cli.options import Dtype, Op, Ranks


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
            help="A file that does not exist.  [default: print it]",
        ),
    ] = None,
    format_: str | None = Option(
        None,
        "--format",
        metavar="FORMAT",
        help="html or markdown.  [default: markdown for FILE.md, else html]",
    ),
    against: str | None = Option(
        None, metavar="BASELINE", help="Check RUN against this run, as `commbench check` does."
    ),
    max_slowdown: list[str] | None = Option(
        None, metavar="[OP:][SIZES:]PART", help="A limit, as in `commbench check`."
    ),
    min_busbw: list[str] | None = Option(
        None, metavar="[OP:][SIZES:]GB/s", help="A limit, as in `commbench check`."
    ),
    max_time: list[str] | None = Option(
        None, metavar="[OP:][SIZES:]TIME", help="A limit, as in `commbench check`."
    ),
    rules: Path | None = Option(
        None, metavar="FILE.toml", help="Limits from a file, as in `commbench check`."
    ),
    undecided: str | None = Option(
        None, metavar="pass|fail", help="What an undecided row counts as, as in `commbench check`."
    ),
    allow_unmatched: bool = Option(
        False, "--allow-unmatched", help="Ignore unmatched rows, as in `commbench check`."
    ),
    tolerance: str = Option(
        "5%", metavar="PART", help="Ratios within this of 1 count as the same."
    ),
    force: bool = Option(
        False, "--force", help="Compare runs that differ in what should be the same."
    ),
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:
    """Write one file about a run, a comparison of runs, a check of a run, or a sweep.

    The file needs no network and no script, and holds the recorded data. Several runs are
    compared with the first. The exit code is 0 also where a limit is broken.

    \b
    commbench report mine -o report.html
    commbench report before after -o comparison.html
    commbench report new --against old --max-slowdown 10% -o check.html
    commbench report results/20261121-120000-sweep -o sweep.html
    commbench report before after --format markdown      for a ticket
    """
    from commbench import api
    from commbench.api.reports import load_rows
    from commbench.errors import UsageError
    from commbench.output.console import print_result, print_status
    from commbench.results.run_folder import find_sweep

    is_check = bool(against or rules or max_slowdown or min_busbw or max_time)
    if is_check and len(runs) > 1:
        raise UsageError("a check is of one run", "name one RUN, and the other with --against")
    write = partial(api.report, output=output, format=format_)
    find = partial(load_rows, ranks=ranks, op=op, dtype=dtype, notify=print_status)
    if is_check:
        gate = api.check(
            find(runs[0]), rules, against=None if against is None else find(against), force=force,
            max_slowdown=max_slowdown or (), min_busbw=min_busbw or (), max_time=max_time or (),
            undecided=undecided, allow_unmatched=allow_unmatched,
        )  # fmt: skip
        text = write(gate)
    elif len(runs) > 1:
        first, *others = map(find, runs)
        compare = partial(api.compare, first, tolerance=tolerance, force=force)
        text = write(*map(compare, others))
    else:
        text = write(runs[0] if find_sweep(runs[0]) else find(runs[0]))
    if output is None:
        print_result(text, end="")
    else:
        print_result(output)
