"""What a person asks of `commbench explain`, read and answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from commbench.analysis.rows import ResultRow, make_row
from commbench.errors import RecordsError, UsageError
from commbench.explain.row_text import explain
from commbench.explain.run_text import explain_run
from commbench.results.files import path_exists
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import find_run
from commbench.results.schema import OK, Batch, Measurement, RunHeader
from commbench.spec.case import READY
from commbench.spec.dtypes import find_dtype
from commbench.spec.links import Peak, parse_peak
from commbench.spec.operations import Operation, find_operation
from commbench.spec.plan import Plan
from commbench.spec.timing_modes import DEFAULT_TIMING, TIMING_MODES
from commbench.units import parse_size, parse_time
from commbench.validation import choose


class QuotedCall(NamedTuple):
    """The options about a call that somebody timed; None where nothing was said."""

    ranks: int | None
    size: str | None
    time: str | None
    dtype: str | None
    timing: str | None
    nodes: int | None


def answer(
    what: str, quoted_call: QuotedCall, op: str | None, peak: str | None, say: Callable[[str], None]
) -> str:
    """The explanation of a run, or of an operation's call.

    A path comes first, then an operation, then a run's label. `say` is told which of several runs
    of a label it is.
    """
    against = parse_peak(peak) if peak is not None else None
    found = None if path_exists(Path(what)) else _operation_or_run(what, say)
    if isinstance(found, Operation):
        return _of_claim(found, quoted_call, op, against)
    return _of_run(found or Path(what), quoted_call, op, against)


def _operation_or_run(what: str, say: Callable[[str], None]) -> Operation | Path:
    try:
        return find_operation(what)
    except UsageError as error:
        try:
            return find_run(what, say)
        except RecordsError:
            if "/" in what or what.endswith(".jsonl"):
                raise
        raise UsageError(
            f"{what!r} is neither an operation nor a run",
            f"{error.hint}; a run is a folder, its run.jsonl, or a label under results/",
        ) from None


def _of_claim(
    operation: Operation, quoted_call: QuotedCall, op: str | None, peak: Peak | None
) -> str:
    if op is not None:
        raise UsageError(f"--op {op} is for a run, and {operation.name} is none", "leave --op out")
    _refuse_missing(operation, quoted_call)
    timing = DEFAULT_TIMING if quoted_call.timing is None else quoted_call.timing
    choose("timing", timing, TIMING_MODES)
    try:
        row = make_quoted_row(
            operation,
            ranks=quoted_call.ranks or 0,
            seconds=parse_time(quoted_call.time or ""),
            size_bytes=None if quoted_call.size is None else parse_size(quoted_call.size),
            dtype=find_dtype(quoted_call.dtype or "float32").name,
            timing=timing,
            nodes=1 if quoted_call.nodes is None else quoted_call.nodes,
        )
    except UsageError as error:
        raise error.with_option_names({"world_size": "--ranks"}) from None
    return explain(row, peak)


def _refuse_missing(operation: Operation, quoted_call: QuotedCall) -> None:
    needed = {"--ranks": quoted_call.ranks, "--time": quoted_call.time}
    idle = {"--size": quoted_call.size, "--dtype": quoted_call.dtype}
    example = "--ranks 8 --time 120us"
    if operation.has_data:
        needed, idle = (
            {"--ranks": quoted_call.ranks, "--size": quoted_call.size, "--time": quoted_call.time},
            {},
        )
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


def _of_run(path: Path, quoted_call: QuotedCall, op: str | None, peak: Peak | None) -> str:
    run = read_run(path)
    for option, value in quoted_call._asdict().items():
        if value is not None and option != "size":
            raise UsageError(
                f"--{option} {value} is for an operation, and {path} is a run, which knows it",
                f"leave --{option} out",
            )
    operation = None if op is None else find_operation(op)
    size = None if quoted_call.size is None else parse_size(quoted_call.size)
    return explain_run(run, operation, size, peak)


def make_quoted_row(
    operation: Operation,
    *,
    ranks: int,
    seconds: float,
    size_bytes: int | None = None,
    dtype: str = "float32",
    timing: str = DEFAULT_TIMING,
    nodes: int = 1,
) -> ResultRow:
    """The row of one call that is said to take `seconds`; the size is rounded as a Plan does it.

    Raises UsageError for what cannot be, such as fewer bytes than ranks.
    """
    plan = Plan(
        operations=(operation.name,),
        dtypes=(dtype,),
        sizes=(size_bytes,) if size_bytes else (),
        backend="",
        device="",
        world_size=ranks,
        timing=timing,
    )
    if not 1 <= nodes <= ranks:
        raise UsageError(f"{ranks} ranks cannot be on {nodes} nodes", "each node has at least one")
    case = plan.cases()[0]
    if case.status != READY:
        raise UsageError(
            f"{case.name} cannot be measured: {case.reason}", "ask for more bytes or ranks"
        )
    header = RunHeader(plan=plan, label="", started="", launcher="", num_nodes=nodes)
    measurement = Measurement(case=case, status=OK, batches=(Batch(samples_s=(seconds,)),))
    return make_row(header, measurement)
