"""`commbench check`: does a run keep limits, and is it as fast as an earlier run? For CI and
acceptance tests."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument, Option

from commbench.cli.options import (
    OUTPUT,
    VERDICT,
    Against,
    AllowUnchecked,
    AllowUnmatched,
    AnyFormat,
    Dtype,
    Expect,
    MaxSlowdown,
    MaxTime,
    MinBusbw,
    Op,
    OutputFile,
    Ranks,
    Rules,
    Tolerance,
    Undecided,
)


def check(
    run: str = Argument(metavar="RUN", help="Run folder, run.jsonl, results.csv, or label."),
    against: Against = None,
    max_slowdown: MaxSlowdown = None,
    min_busbw: MinBusbw = None,
    max_time: MaxTime = None,
    expect: Expect = None,
    tolerance: Tolerance = None,
    rules: Rules = None,
    undecided: Undecided = None,
    allow_unmatched: AllowUnmatched = False,
    allow_unchecked: AllowUnchecked = False,
    force: bool = Option(
        False,
        "--force",
        help="Compare with BASELINE although ranks, nodes, device or CPU mode differ.",
        rich_help_panel=VERDICT,
    ),
    junit: Path | None = Option(
        None,
        metavar="FILE.xml",
        help="Write JUnit XML to a new file.",
        rich_help_panel=OUTPUT,
    ),
    json: Path | None = Option(
        None,
        metavar="FILE.json",
        help="Write the verdict, the rules and all rows to a new file.",
        rich_help_panel=OUTPUT,
    ),
    verbose: bool = Option(
        False,
        "--verbose",
        help="Print every row.  [default: the rows that fail or are undecided, 20 per rule]",
        rich_help_panel=OUTPUT,
    ),
    format_: AnyFormat = None,
    output: OutputFile = None,
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:
    """Check a run against limits or an earlier run.

    A row fails if its whole 95% interval is beyond the limit, or if it has no valid result.
    Exit code 0: every rule passes. 1: a row fails, or the run is incomplete. 7: no verdict,
    because too few rows are decided, or only one of the two runs has a row.

    \b
    commbench check results/new --against results/old --max-slowdown 10%
    commbench check new --min-busbw all_reduce:1M-1G:3GB/s --max-time barrier:1ms
    commbench check new --expect run --tolerance 10%
    commbench check new --against old --rules limits.toml --junit report.xml
    """
    from commbench import api
    from commbench.gate.document import VIEW
    from commbench.output.console import print_status, print_workflow_command
    from commbench.output.table import runs_in_actions
    from commbench.results.files import require_new, write_new
    from commbench.views.formats import JSON, MARKDOWN, choose_format, show

    VIEW.require(choose_format(format_, output))
    for file in filter(None, (junit, json, output)):
        require_new(file)  # before the check, so that a verdict is never lost
    gate = api.check(
        run, rules, against=against, max_slowdown=max_slowdown or (), min_busbw=min_busbw or (),
        max_time=max_time or (), expect=expect, tolerance=tolerance, undecided=undecided,
        allow_unmatched=allow_unmatched, allow_unchecked=allow_unchecked, force=force,
        ranks=ranks, op=op, dtype=dtype, notify=print_status,
    )  # fmt: skip
    show(VIEW, gate, format_, output, verbose)
    if junit or json or runs_in_actions():
        from commbench.gate import ci
        from commbench.output.github import add_to_summary

        if junit:
            write_new(junit, ci.gate_junit(gate))
        if json:
            write_new(json, VIEW.write(gate, JSON))
        if runs_in_actions():
            for line in ci.make_annotations(gate):
                print_workflow_command(line)
            add_to_summary(VIEW.write(gate, MARKDOWN))
    raise typer.Exit(gate.exit_code)
