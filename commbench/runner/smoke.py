"""One `commbench smoke`: a small run of everything into a folder of its own, and its verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from commbench.errors import (
    CommbenchError,
    UnavailableError,
    UsageError,
    WrongResultError,
)
from commbench.output.console import print_result
from commbench.output.junit import (
    FAILURE,
    PASSED,
    JUnitCase,
    JUnitSuite,
    junit_xml,
    write_junit,
)
from commbench.results.schema import OK, WRONG, Measurement
from commbench.spec.operations import OPERATIONS
from commbench.spec.plan import Plan

SUITE = "commbench smoke"
DTYPES = ("float32", "bfloat16", "int64")
SIZES = (1000, 64 << 10, 1 << 20)
"""Bytes: one that does not divide, one within a segment of gloo's, one beyond it."""


class OperationResult(NamedTuple):
    """The outcome of one operation."""

    name: str
    cases: int
    seconds: float
    failure: str
    """What is wrong with its first case that failed; empty if all are ok."""


def run(
    backend: str | None,
    device: str | None,
    ranks: int | None,
    timeout_s: float,
    junit: Path | None,
) -> None:
    """Run everything once, print a line per operation, write the report.

    Raises WrongResultError for wrong results, UnavailableError where an operation cannot be run,
    and whatever ended the run; the report is written in any case.
    """
    from commbench.launch.process_setup import import_torch

    began = time.monotonic()
    if ranks is not None and ranks < 1:
        raise UsageError(f"ranks per node is {ranks}", "it must be at least 1")
    if junit:
        write_junit(junit, _report((), 0.0))  # so that it is known to be writable
    import_torch()
    from commbench.launch.devices import choose_target, detect_capabilities
    from commbench.launch.temporary_run import run_in_temporary_folder

    place = choose_target(detect_capabilities(), backend, device, ranks)
    plan = Plan(
        operations=tuple(OPERATIONS),
        dtypes=DTYPES,
        sizes=SIZES,
        backend=place.backend,
        device=place.device,
        world_size=place.ranks_per_node,
        cpu_mode="quiet" if place.device == "cpu" else "plain",
        iterations=2,
        warmup=0,
        order="ascending",
        timeout_s=timeout_s,
    )
    print_result(f"{plan.world_size} {plan.backend} ranks on {plan.device} ({place.why})")
    finished, ended = run_in_temporary_folder(plan, "smoke")
    measurements = finished.measurements if finished else ()
    results = [_summarise(name, measurements) for name in OPERATIONS]
    seconds = time.monotonic() - began
    for result in results:
        print_result(_line(result))
    print_result(f"{sum(not r.failure for r in results)} of {len(results)} work; {seconds:.1f} s")
    if junit:
        write_junit(junit, _report(results, seconds))
    _raise_failure(results, measurements, ended)


def _summarise(name: str, measurements: Sequence[Measurement]) -> OperationResult:
    """One operation: its cases, and what is wrong with the first that is not as it should be."""
    found = [m for m in measurements if m.case.operation == name]
    bad = [m for m in found if m.status != OK]
    failure = f"{bad[0].case.name}: {bad[0].status}, {bad[0].reason}" if bad else ""
    if not found:
        failure = "not reached"
    seconds = sum(batch.elapsed_s for m in found for batch in m.batches)
    return OperationResult(name=name, cases=len(found), seconds=seconds, failure=failure)


def _report(results: Sequence[OperationResult], seconds: float) -> bytes:
    cases = [
        JUnitCase(r.name, FAILURE if r.failure else PASSED, r.failure, seconds=r.seconds)
        for r in results
    ]
    return junit_xml([JUnitSuite(SUITE, cases, seconds=seconds)])


def _line(result: OperationResult) -> str:
    cases = f"{result.cases} case{'s' * (result.cases != 1)}"
    found = f"FAILED  {result.failure}" if result.failure else f"ok      {cases}"
    return f"  {result.name:<15} {found}"


def _raise_failure(
    results: Sequence[OperationResult],
    measurements: Sequence[Measurement],
    ended: CommbenchError | None,
) -> None:
    if ended:
        raise ended
    wrong = [m for m in measurements if m.status == WRONG]
    if wrong:
        raise WrongResultError(
            f"{len(wrong)} cases gave wrong results; first {wrong[0].case.name}: {wrong[0].reason}",
            "do not trust this machine's communication before it is explained",
        )
    failed = [result for result in results if result.failure]
    if failed:
        raise UnavailableError(
            f"{failed[0].name} cannot be run here: {failed[0].failure}",
            "`commbench env` says what this torch has",
        )
