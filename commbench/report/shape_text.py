"""What the numbers of a kind of case mean where it is not one call of all ranks: a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from commbench.analysis.rows import ResultRow
from commbench.output.paragraphs import list_some
from commbench.spec.case import Case, Load
from commbench.spec.operations import OPERATIONS
from commbench.spec.pairs import EVERY_PAIR, QUICK, count_pairs, count_rounds
from commbench.units import format_bytes, format_count, format_GBps


def shape_lines(rows: Sequence[ResultRow], name: str) -> Iterator[str]:
    """Lines below the table of these rows, which are of one kind; none for most kinds. `name` is
    the run as a command takes it."""
    yield from describe_shape(rows[-1].measurement.case)
    if rows[-1].load:
        yield from _busiest(rows)
    if OPERATIONS[rows[-1].measurement.case.operation].has_window:
        yield from _rates(rows)
    if any(row.group_interference for row in rows):
        yield f"Interference of the slowest group; `commbench show {name} --groups` has all."
        yield from _larger_interference(rows)


def _larger_interference(rows: Sequence[ResultRow]) -> Iterator[str]:
    """The groups with the largest interference, at the sizes where the slowest one has less."""
    found = []
    for row in rows:
        ratios = row.group_interference
        if row.worst_group not in ratios:
            continue
        group = max(ratios, key=lambda ranks: ratios[ranks].value)
        if f"{ratios[group].value:.2f}" != f"{ratios[row.worst_group].value:.2f}":
            found.append(f"{_at_size(row)}group {group} has {ratios[group].value:.2f}")
    if found:
        yield f"Another group has a larger one: {list_some(found, 4)}."


def _at_size(row: ResultRow) -> str:
    return f"at {_size(row)} " if row.measurement.case.dtype else ""


def describe_shape(case: Case) -> Iterator[str]:
    """Sentences about what its time is of, its pairs, and the load of its ranks."""
    operation = OPERATIONS[case.operation]
    if operation.part != "call":
        window = f" of {case.window}" if operation.has_window and case.window else ""
        yield f"Time is that of {operation.part}{window}."
    if operation.is_paired:
        pairs = count_pairs(case.pairs, case.ranks)
        idle = case.ranks - 2 * pairs
        without = f"; {format_count(idle, 'rank')} without a pair" if idle else ""
        of = {EVERY_PAIR: ", in", QUICK: ", some of"}.get(case.pairs, "")
        named = case.pairs + (of and f"{of} {format_count(count_rounds(case.ranks), 'round')}")
        yield f"{format_count(pairs, 'pair')} at once ({named}){without}."
    if load := case.load:
        yield _describe_load(load)


def _rates(rows: Sequence[ResultRow]) -> Iterator[str]:
    """The highest rates of all pairs together."""
    timed = [row for row in rows if row.messages_per_s and row.aggregate_bandwidth]
    if not timed:
        return
    most = max(timed, key=lambda row: row.messages_per_s or 0.0)
    widest = max(timed, key=lambda row: row.aggregate_bandwidth or 0.0)
    yield (
        f"All pairs together: {most.messages_per_s:,.0f} messages/s ({_size(most)}), "
        f"{format_GBps(widest.aggregate_bandwidth or 0.0)} GB/s ({_size(widest)})."
    )


def _describe_load(load: Load) -> str:
    worst = "all ranks alike" if load.worst_rank is None else f"worst rank {load.worst_rank}"
    return (
        f"Max/mean sent {load.sent:.2f}, received {load.received:.2f}; {worst}: "
        f"{load.worst_link:.2f} x S on the wire."
    )


def _busiest(rows: Sequence[ResultRow]) -> Iterator[str]:
    timed = [row for row in rows if row.wire_bandwidth and row.logical_bandwidth]
    if timed:
        best = max(timed, key=lambda row: row.wire_bandwidth or 0.0)
        yield (
            f"Busiest rank: logical {format_GBps(best.logical_bandwidth)} GB/s, wire "
            f"{format_GBps(best.wire_bandwidth)} GB/s ({_size(best)})."
        )


def _size(row: ResultRow) -> str:
    return format_bytes(row.measurement.case.size_bytes)
