"""What a person asks of `commbench explain`, read and answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from commbench.analysis.claim import claimed_row
from commbench.analysis.sources import find_source
from commbench.dtypes import find_dtype
from commbench.errors import RecordsError, UsageError, name_error
from commbench.links import Peak, parse_peak
from commbench.operations import Operation, find_operation
from commbench.plan import ISOLATED
from commbench.records.files import is_something
from commbench.records.journal import read_run
from commbench.report.explained_run import explain_run
from commbench.report.explanation import TIMINGS, explain
from commbench.units import parse_size, parse_time


class Claim(NamedTuple):
    """The options about a call that somebody timed; None where nothing was said."""

    ranks: int | None
    size: str | None
    time: str | None
    dtype: str | None
    timing: str | None
    nodes: int | None


def answer(
    what: str, claim: Claim, op: str | None, peak: str | None, say: Callable[[str], None]
) -> str:
    """The explanation of a run, or of an operation's call.

    A path comes first, then an operation, then a run's label. `say` is told which of several runs
    of a label it is.
    """
    against = parse_peak(peak) if peak is not None else None
    found = None if is_something(Path(what)) else _operation_or_run(what, say)
    if isinstance(found, Operation):
        return _of_claim(found, claim, op, against)
    return _of_run(found or Path(what), claim, op, against)


def _operation_or_run(what: str, say: Callable[[str], None]) -> Operation | Path:
    try:
        return find_operation(what)
    except UsageError as error:
        try:
            return find_source(what, say)
        except RecordsError:
            if "/" in what or what.endswith(".jsonl"):
                raise
        raise UsageError(
            f"{what!r} is neither an operation nor a run",
            f"{error.hint}; a run is a folder, its run.jsonl, or a label under results/",
        ) from None


def _of_claim(operation: Operation, claim: Claim, op: str | None, peak: Peak | None) -> str:
    if op is not None:
        raise UsageError(f"--op {op} is for a run, and {operation.name} is none", "leave --op out")
    _refuse_missing(operation, claim)
    timing = ISOLATED if claim.timing is None else claim.timing
    if timing not in TIMINGS:
        raise name_error("timing", timing, list(TIMINGS))
    try:
        row = claimed_row(
            operation,
            ranks=claim.ranks or 0,
            seconds=parse_time(claim.time or ""),
            size_bytes=None if claim.size is None else parse_size(claim.size),
            dtype=find_dtype(claim.dtype or "float32").name,
            timing=timing,
            nodes=1 if claim.nodes is None else claim.nodes,
        )
    except UsageError as error:
        raise error.named({"world_size": "--ranks"}) from None
    return explain(row, peak)


def _refuse_missing(operation: Operation, claim: Claim) -> None:
    needed = {"--ranks": claim.ranks, "--time": claim.time}
    idle = {"--size": claim.size, "--dtype": claim.dtype}
    example = "--ranks 8 --time 120us"
    if operation.has_data:
        needed, idle = {"--ranks": claim.ranks, "--size": claim.size, "--time": claim.time}, {}
        example = "--ranks 8 --size 1G --time 4.2ms"
    missing = [option for option, value in needed.items() if value is None]
    if missing:
        raise UsageError(
            f"{operation.name} cannot be explained without {', '.join(missing)}",
            f"write for example: commbench explain {operation.name} {example}",
        )
    for option, value in idle.items():
        if value is not None:
            raise UsageError(
                f"{operation.name} moves no data, and {option} {value} says nothing of it",
                f"leave {option} out",
            )


def _of_run(path: Path, claim: Claim, op: str | None, peak: Peak | None) -> str:
    run = read_run(path)
    for option, value in claim._asdict().items():
        if value is not None and option != "size":
            raise UsageError(
                f"--{option} {value} is for an operation, and {path} is a run, which knows it",
                f"leave --{option} out",
            )
    operation = None if op is None else find_operation(op)
    size = None if claim.size is None else parse_size(claim.size)
    return explain_run(run, operation, size, peak)
