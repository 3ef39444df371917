"""`commbench check`: fails where a run breaks limits, with regard to noise. For CI and acceptance
tests."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument, Option

from commbench.cli.options import Dtype, Op, Ranks


def check(
    run: str = Argument(metavar="RUN", help="Run folder, run.jsonl, results.csv, or label."),
    against: str | None = Option(
        None, metavar="BASELINE", help="The run that --max-slowdown means."
    ),
    max_slowdown: list[str] | None = Option(
        None,
        metavar="[OP:][SIZES:]PART",
        help="By how much rows may be slower than in BASELINE.  [default: 10% with --against]",
    ),
    min_busbw: list[str] | None = Option(
        None, metavar="[OP:][SIZES:]GB/s", help="Least bus bandwidth: all_reduce:1M-1G:3.0GB/s."
    ),
    max_time: list[str] | None = Option(
        None, metavar="[OP:][SIZES:]TIME", help="Longest time: all_reduce:-64K:80us."
    ),
    rules: Path | None = Option(None, metavar="FILE.toml", help="Rules from a file: see docs."),
    undecided: str = Option(
        "pass", metavar="HOW", help="pass or fail: what an undecided row counts as."
    ),
    allow_unmatched: bool = Option(
        False, "--allow-unmatched", help="A rule need not match any row."
    ),
    force: bool = Option(False, "--force", help="Check although what must match does not."),
    junit: Path | None = Option(
        None, metavar="FILE.xml", help="Write JUnit XML; FILE must not exist."
    ),
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:
    """Hold a run against limits: exit 0 if it keeps them, 1 if the whole interval lies beyond one.

    \b
    commbench check results/new --against results/old --max-slowdown 10%
    commbench check new --min-busbw all_reduce:1M-1G:3.0GB/s --max-time barrier:200us
    commbench check new --against old --rules limits.toml --junit report.xml
    """
    from commbench import api
    from commbench.analysis.load import load
    from commbench.compare.comparison import COMPARED
    from commbench.gate import text
    from commbench.gate.gate import CHECKED
    from commbench.gate.rules import select_rules
    from commbench.importers.hints import ImportHints
    from commbench.output.console import print_result, print_status, print_workflow_command
    from commbench.output.table import runs_in_actions
    from commbench.results.files import write_new
    from commbench.results.run_folder import find_run
    from commbench.validation import choose

    undecided_fails = choose("--undecided", undecided, {"pass": False, "fail": True})
    limits = {"max_slowdown": max_slowdown, "min_busbw": min_busbw, "max_time": max_time}
    selected = select_rules(limits, rules, against is not None)
    run_path = find_run(run, print_status)
    baseline_path = find_run(against, print_status) if against is not None else None
    hints = ImportHints(ranks, op, dtype)
    baseline = load(baseline_path, COMPARED, hints) if baseline_path else None
    gate = api.check(
        load(run_path, CHECKED, hints), selected, against=baseline,
        allow_unmatched=allow_unmatched, force=force,
    )  # fmt: skip
    print_result(text.gate_text(gate))
    if gate.outcome == "undecided":
        print_status(f"undecided rows {undecided} (--undecided {undecided})")
    if junit:
        write_new(junit, text.gate_junit(gate, undecided_fails))
    if runs_in_actions():
        for line in text.make_annotations(gate, undecided_fails):
            print_workflow_command(line)
        text.add_summary(gate)
    if gate.outcome == "fail" or (gate.outcome == "undecided" and undecided_fails):
        raise typer.Exit(1)
