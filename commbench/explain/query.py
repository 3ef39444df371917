"""Answers `commbench explain`: finds the run, or makes a row of the call that the user quotes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from commbench.analysis.load import open_run
from commbench.analysis.rows import ResultRow, make_row
from commbench.errors import RecordsError, UsageError
from commbench.explain.explanation import Explanation, explain_row, explain_run
from commbench.importers.hints import ImportHints
from commbench.models.machine_file import read_machine
from commbench.results.files import path_exists
from commbench.results.run_folder import find_run, find_sweep
from commbench.results.schema import (
    OK,
    Batch,
    Measurement,
    Run,
    RunHeader,
    tell_incomplete,
)
from commbench.spec.case import READY
from commbench.spec.dtypes import find_dtype
from commbench.spec.links import parse_peak
from commbench.spec.operations import Operation, find_operation
from commbench.spec.plan import Plan
from commbench.spec.timing_modes import DEFAULT_TIMING, TIMING_MODES
from commbench.units import parse_size, parse_time
from commbench.validation import choose


class QuotedCall(NamedTuple):
    """The options that describe a call which the user timed; None where not given."""

    ranks: int | None
    size: str | None
    time: str | None
    dtype: str | None
    timing: str | None
    nodes: int | None


def answer(
    what: str | Run,
    quoted_call: QuotedCall,
    op: str | None,
    peak: str | None,
    model: str | Path | None,
    notify: Callable[[str], None],
) -> Explanation:
    """The explanation of a run, or of an operation's call; `model` is a machine file.

    A text `what` is a path, else an operation, else a run's label. `notify` gets a message where
    the newest of several runs of a label was chosen.
    """
    parsed_peak = parse_peak(peak) if peak is not None else None
    machine = read_machine(model) if model is not None else None
    if isinstance(what, str):
        found = None if path_exists(Path(what)) else _operation_or_run(what, notify)
        if isinstance(found, Operation):
            row = _quoted_row(found, quoted_call, op)
            explained = explain_row(row, (), parsed_peak, machine)
            return Explanation("", (explained,))
        what = open_run(found or find_run(what, notify), ImportHints(operation=op))
        tell_incomplete(what, notify)
    for option, value in quoted_call._asdict().items():
        if value is not None and option != "size":
            raise UsageError(
                f"--{option} {value} describes a call of an operation, but {what.name} is a run",
                f"leave out --{option}",
            )
    operation = None if op is None else find_operation(op)
    size = None if quoted_call.size is None else parse_size(quoted_call.size)
    return explain_run(what, operation, size, parsed_peak, machine)


def _operation_or_run(what: str, notify: Callable[[str], None]) -> Operation | Path:
    try:
        return find_operation(what)
    except UsageError as error:
        try:
            return find_run(what, notify)
        except RecordsError:
            if "/" in what or what.endswith(".jsonl") or find_sweep(what):
                raise
        raise UsageError(
            f"{what!r} is neither an operation nor a run",
            f"{error.hint}; a run is a folder, its run.jsonl, or a label under results/",
        ) from None


def _quoted_row(operation: Operation, quoted_call: QuotedCall, op: str | None) -> ResultRow:
    """The row of the call that the options describe."""
    if op is not None:
        raise UsageError(
            f"--op {op} chooses rows of a run, but {operation.name} is an operation",
            "leave out --op",
        )
    _require_options(operation, quoted_call)
    timing = DEFAULT_TIMING if quoted_call.timing is None else quoted_call.timing
    choose("timing", timing, TIMING_MODES)
    try:
        return make_quoted_row(
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


def _require_options(operation: Operation, quoted_call: QuotedCall) -> None:
    """Raise UsageError where an option is missing, or has no meaning for the operation."""
    given = quoted_call._asdict()
    needed: tuple[str, ...] = ("ranks", "size", "time")
    unused: tuple[str, ...] = ()
    example = "--ranks 8 --size 1G --time 4.2ms"
    if not operation.has_data:
        needed, unused, example = ("ranks", "time"), ("size", "dtype"), "--ranks 8 --time 120us"
    if missing := [f"--{name}" for name in needed if given[name] is None]:
        raise UsageError(
            f"{operation.name} cannot be explained without {', '.join(missing)}",
            f"write for example: commbench explain {operation.name} {example}",
        )
    for name in unused:
        if given[name] is not None:
            raise UsageError(
                f"--{name} {given[name]} has no meaning for {operation.name}, which moves no data",
                f"leave out --{name}",
            )


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
    """The row of one call that took `seconds`, by the user's word; a Plan rounds the size.

    Raises UsageError for an impossible call, such as one of fewer bytes than ranks.
    """
    plan = Plan(
        operations=(operation.name,), dtypes=(dtype,), sizes=(size_bytes,) if size_bytes else (),
        backend="", device="", world_size=ranks, timing=timing,
    )  # fmt: skip
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
