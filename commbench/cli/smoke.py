"""`commbench smoke`: does every collective work on this machine? For continuous integration."""

from __future__ import annotations

import inspect
import time
from pathlib import Path
from typing import Annotated

import typer

from commbench.cli.run_parameters import make_parameter, make_signature
from commbench.output.console import print_result
from commbench.output.github import add_to_summary
from commbench.output.junit import FAILURE, PASSED, JUnitCase, JUnitSuite, junit_xml
from commbench.output.markdown import escape, table
from commbench.output.table import runs_in_actions
from commbench.results.files import require_new, write_new
from commbench.runner.smoke import OperationResult, SmokeResult, plan_smoke, run_smoke

SUITE = "commbench smoke"


def smoke(context: typer.Context, **_: object) -> None:
    """Run every operation with three dtypes and three sizes, and check every result, in seconds.

    Prints one line per operation. Exit code 0: all work. 3: an operation cannot be run here.
    4: a rank died or hung. 5: wrong results.

    \b
    commbench smoke
    commbench smoke --nproc-per-node 4 --junit report.xml
    """

    started = time.monotonic()
    given = dict(context.params)
    written = given.pop("junit")
    junit = None if written is None else Path(written)
    if junit:
        require_new(junit)  # before the measurement, which takes seconds
    plan, target = plan_smoke(given)
    print_result(f"{plan.world_size} {plan.backend} ranks on {plan.device} ({target.why})")
    result = run_smoke(plan)
    seconds = time.monotonic() - started
    print_result(_verdict(result, seconds))
    for operation in result.operations:
        print_result(f"  {operation.name:<15} {_outcome(operation)}")
    if junit:
        write_new(junit, _report(result, seconds))
    if runs_in_actions():
        add_to_summary(_markdown(result, seconds))
    if result.error:
        raise result.error


smoke.__signature__ = make_signature(  # type: ignore[attr-defined]
    make_parameter("backend", default="gloo"),
    make_parameter("device"),
    make_parameter(
        "nproc_per_node", help="Number of ranks.", default_text="one per GPU; 2 on the CPU"
    ),
    make_parameter("timeout", default=60.0, help="Seconds that one collective may take."),
    inspect.Parameter(
        "junit",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            Path | None,
            typer.Option(metavar="FILE.xml", help="Write JUnit XML to a file that does not exist."),
        ],
    ),
)


def _verdict(result: SmokeResult, seconds: float) -> str:
    working = sum(not operation.failure for operation in result.operations)
    word = "FAIL" if result.error else "PASS"
    return f"{word}: {working} of {len(result.operations)} operations work ({seconds:.1f} s)"


def _outcome(operation: OperationResult) -> str:
    if operation.failure:
        return f"FAIL: {operation.failure}"
    return f"ok, {operation.cases} case{'s' * (operation.cases != 1)}"


def _report(result: SmokeResult, seconds: float) -> bytes:
    cases = [
        JUnitCase(o.name, FAILURE if o.failure else PASSED, o.failure, seconds=o.seconds)
        for o in result.operations
    ]
    if result.error and not any(o.failure for o in result.operations):
        cases.append(JUnitCase("the run", FAILURE, result.error.message))
    return junit_xml([JUnitSuite(SUITE, cases, seconds=seconds)])


def _markdown(result: SmokeResult, seconds: float) -> str:
    mark = "🔴" if result.error else "🟢"
    rows = [(operation.name, _outcome(operation)) for operation in result.operations]
    lines = table(("operation", "outcome"), rows, left="operation,outcome")
    verdict = escape(f"{SUITE}: {_verdict(result, seconds)}")
    return "\n".join([f"### {mark} {verdict}", "", *lines, ""])
