"""Explains a run: chosen rows in full, else how to read the table and the largest of each kind."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.analysis.peak import find_peak_fraction, why_no_peak_fraction
from commbench.analysis.rows import ResultRow, make_rows
from commbench.errors import UsageError
from commbench.explain.row_text import explain_row, is_of_size
from commbench.output.paragraphs import Paragraph, gbps, list_some, paragraphs, seconds, wrapped
from commbench.results.schema import Run, RunHeader
from commbench.spec.links import Peak
from commbench.spec.operations import OPERATIONS, Operation
from commbench.spec.timing_modes import describe_timing
from commbench.units import format_bytes, format_percent, format_sizes

_COLUMNS = (
    ("size", "S: the larger of what one rank's call sends and receives, as in nccl-tests."),
    ("count", "Elements of the tensor, or of one rank's block where S is cut into blocks."),
    ("time", "t: per iteration the slowest rank, then the median over the iterations."),
    ("interval", "Where the true median of this run lies with 95 % confidence. A wide one: noise."),
    ("n", "Iterations timed."),
    ("algbw", "S / t: how fast the data of a call get done."),
    ("busbw", "algbw x factor: what a rank's link had to carry at least; compare that to a link."),
    ("wrong", "Elements of the result that differ from what they must be; empty: not checked."),
)


def explain_run(
    run: Run,
    operation: Operation | None = None,
    size_bytes: int | None = None,
    peak: Peak | None = None,
) -> str:
    """The chosen rows in full; without a choice, the table and the largest size of each kind."""
    rows = make_rows(run)
    kinds = _group_by_kind(_choose(rows, run.name, operation, size_bytes))
    largest = [
        max(rows, key=lambda row: (row.time is not None, row.measurement.case.size_bytes))
        for rows in kinds.values()
    ]
    others = ""
    if size_bytes is None and len(rows) > len(kinds):
        others = "\n\n" + wrapped(
            "That is the largest size of each kind. For others, with everything about them: "
            f"commbench explain {run.path} --op {operation.name if operation else 'OP'} --size SIZE"
        )
    if operation or size_bytes or len(rows) == 1:
        where = _where(run.header)
        return "\n\n\n".join(explain_row(row, peak, where) for row in largest) + others
    timings = dict.fromkeys(row.measurement.case.timing for row in largest)
    parts = [
        Paragraph("where", [_where(run.header)]),
        *(Paragraph(label, [text]) for label, text in _COLUMNS),
        *(
            Paragraph("timing", [f"{name}: {describe_timing(name).explanation}"])
            for name in timings
        ),
    ]
    blocks = [wrapped(_compact(row, peak)) for row in largest]
    return "\n\n".join((wrapped(run.name), paragraphs(parts), *blocks)) + others


def _choose(
    rows: Sequence[ResultRow], name: str, operation: Operation | None, size: int | None
) -> Sequence[ResultRow]:
    """The rows of this operation and size; UsageError where the run `name` has none."""
    if not rows:
        raise UsageError(f"{name} has no finished case yet", "wait, or name another run")
    names = dict.fromkeys(row.measurement.case.operation for row in rows)
    if operation:
        rows = [row for row in rows if row.measurement.case.operation == operation.name]
        if not rows:
            raise UsageError(f"{name} has no {operation.name}", f"it has {', '.join(names)}")
    if size is None:
        return rows
    sizes = sorted({row.measurement.case.size_bytes for row in rows} - {0})
    rows = [row for row in rows if is_of_size(row, size)]
    if not rows:
        has = f"it has {format_sizes(tuple(sizes))}" if sizes else "nothing in it has a size"
        raise UsageError(f"{name} has no row of {format_bytes(size)}", has)
    return rows


def _group_by_kind(rows: Sequence[ResultRow]) -> dict[tuple[str, str], list[ResultRow]]:
    kinds: dict[tuple[str, str], list[ResultRow]] = {}
    for row in rows:
        case = row.measurement.case
        kinds.setdefault((case.title, case.timing), []).append(row)
    return kinds


def _where(header: RunHeader) -> str:
    plan, facts = header.plan, header.environment
    hosts = list_some(header.hosts, 3) or "an unknown host"
    models = dict.fromkeys(rank.device.partition(" ")[2] for rank in header.ranks)
    device = ", ".join(model for model in models if model) or plan.device
    if plan.device == "cpu" and facts.get("processor"):
        device = str(facts["processor"])
    torch = f"torch {facts['torch']}, " if facts.get("torch") else ""
    return (
        f"{plan.world_size} {plan.backend} ranks on {hosts} ({device}), "
        f"{torch}cpu mode {plan.cpu_mode}, {header.started}."
        f"{' Ranks share a GPU: no measure of performance.' if header.gpu_shared else ''}"
    )


def _compact(row: ResultRow, peak: Peak | None) -> str:
    """The figures of a row with their formulas, in a few lines."""
    case, time, ranks = row.measurement.case, row.time, row.measurement.case.ranks
    operation = OPERATIONS[case.operation]
    if time is None:
        return f"{case.title}: {row.measurement.status}: {row.measurement.reason}"
    interval = "" if time.precision is None else f" ± {format_percent(time.precision)}"
    took = f"t = {seconds(time.median)}{interval}, {case.timing}, {time.iterations} iterations"
    if row.algbw is None or row.busbw is None or operation.busbw_factor is None:
        return f"{case.title}: {operation.summary}. {took}. It has no bandwidth."
    size = f"S = {format_bytes(case.size_bytes)}"
    formula, factor = operation.busbw_formula, operation.busbw_factor(ranks)
    product = f"algbw x {formula} = {gbps(row.algbw)} x {factor:.5g} = {gbps(row.busbw)} GB/s"
    busbw = "algbw" if formula == "1" else f"{product} (n = {ranks})"
    return (
        f"{case.title}: {operation.summary}. {size}, {took}. "
        f"algbw = S / t = {gbps(row.algbw)} GB/s. busbw = {busbw}.{_peak_sentence(row, peak)}"
    )


def _peak_sentence(row: ResultRow, peak: Peak | None) -> str:
    if peak is None:
        return ""
    found = find_peak_fraction(row, peak)
    if found is None:
        return f" No percentage of {peak.name}: {why_no_peak_fraction(row, peak)}."
    return f" That is {format_percent(found.fraction)} of {peak.name} ({found.bound} bound)."
