"""`commbench smoke`: does every collective work here? For continuous integration."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from commbench.cli.run_parameters import make_parameter, make_signature
from commbench.output.console import print_result
from commbench.output.junit import FAILURE, PASSED, JUnitCase, JUnitSuite, junit_xml, write_junit
from commbench.runner.smoke import OperationResult, plan_smoke, run_smoke

SUITE = "commbench smoke"


def smoke(context: typer.Context, **_: object) -> None:
    """Run every operation with several dtypes and sizes, and check every result. A few seconds.

    Prints a line per operation. The exit code says what is wrong: see README.

    \b
    commbench smoke
    commbench smoke --nproc-per-node 4 --junit report.xml
    """

    started = time.monotonic()
    given = dict(context.params)
    junit = given.pop("junit")
    if junit:
        write_junit(junit, _report((), 0.0))  # fails now if it cannot be written
    plan, target = plan_smoke(given)
    print_result(f"{plan.world_size} {plan.backend} ranks on {plan.device} ({target.why})")
    result = run_smoke(plan)
    for operation in result.operations:
        print_result(_line(operation))
    seconds = time.monotonic() - started
    working = sum(not operation.failure for operation in result.operations)
    print_result(f"{working} of {len(result.operations)} work; {seconds:.1f} s")
    if junit:
        write_junit(junit, _report(result.operations, seconds))
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
            Path | None, typer.Option(metavar="FILE", help="Write a JUnit report there.")
        ],
    ),
)


def _report(operations: Sequence[OperationResult], seconds: float) -> bytes:
    cases = [
        JUnitCase(o.name, FAILURE if o.failure else PASSED, o.failure, seconds=o.seconds)
        for o in operations
    ]
    return junit_xml([JUnitSuite(SUITE, cases, seconds=seconds)])


def _line(operation: OperationResult) -> str:
    cases = f"{operation.cases} case{'s' * (operation.cases != 1)}"
    outcome = f"FAILED  {operation.failure}" if operation.failure else f"ok      {cases}"
    return f"  {operation.name:<15} {outcome}"
