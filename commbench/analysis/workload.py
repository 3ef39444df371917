"""What a workload moves, for each operation of each set of groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from commbench.importers.traces.base import union_length
from commbench.spec.operations import OPERATIONS
from commbench.spec.workload import Call, Step, Workload


class OperationTotals(NamedTuple):
    """All calls of an operation in a set of groups, for one step of one rank: the sums over the
    calls, which have the medians over steps and ranks; means over the ranks of several programs."""

    step: str
    """The name of the step."""
    group: str
    ranks: int | None
    """Ranks of a group; None where they are not known."""
    operation: str
    calls: float
    size_bytes: float | None
    """S of all calls together; None where the size of one is not known."""
    time_s: float | None
    transfer_s: float | None
    waiting_s: float | None
    busbw: float | None
    """Bus bandwidth in bytes/s, of the transfer where it is known, else of the time."""
    share: float | None
    """The part of the step during which such a call was under way."""


def workload_totals(workload: Workload, step: Step) -> tuple[OperationTotals, ...]:
    """The calls of a step by set of groups and operation, those that take longest first."""
    ranks = sum(len(program.ranks) for program in step.programs) or 1
    by_row: dict[tuple[str, str], list[tuple[int, list[Call]]]] = {}
    for program in step.programs:
        own: dict[tuple[str, str], list[Call]] = defaultdict(list)
        for call in program.calls:
            own[call.group, call.operation].append(call)
        for key, calls in own.items():
            by_row.setdefault(key, []).append((len(program.ranks), calls))
    rows = []
    for (group, operation), parts in by_row.items():
        sizes = {len(each) for each in workload.groups.get(group, ())}
        group_ranks = sizes.pop() if len(sizes) == 1 else None

        def mean(name: str, parts: list[tuple[int, list[Call]]] = parts) -> float | None:
            total = known_sum(
                None if (value := getattr(call, name)) is None else value * weight
                for weight, calls in parts
                for call in calls
            )
            return None if total is None else total / ranks

        size, time, transfer = mean("size_bytes"), mean("time_s"), mean("transfer_s")
        waiting = None if time is None or transfer is None else max(0.0, time - transfer)
        seconds = time if transfer is None else transfer
        under_way = known_sum(
            None if (busy := _under_way(calls)) is None else busy * weight
            for weight, calls in parts
        )
        rows.append(OperationTotals(
            step.name, group, group_ranks, operation,
            sum(weight * len(calls) for weight, calls in parts) / ranks, size, time, transfer,
            waiting, bus_bandwidth(operation, group_ranks, size, seconds),
            under_way / (step.time_s * ranks) if step.time_s and under_way is not None else None,
        ))  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-(row.time_s or 0.0), -(row.size_bytes or 0.0))))


def _under_way(calls: Iterable[Call]) -> float | None:
    """How long at least one of these calls of a program was under way; None where not known."""
    known = list(calls)
    if any(call.start_s is None or call.time_s is None for call in known):
        return None
    return union_length(call.interval_s for call in known)


def known_sum(values: Iterable[float | None]) -> float | None:
    """The sum; None where a value is not known."""
    found = list(values)
    return None if None in found else float(sum(v for v in found if v is not None))


def bus_bandwidth(
    operation: str, ranks: int | None, size_bytes: float | None, seconds: float | None
) -> float | None:
    """Bus bandwidth in bytes/s, by the factor of the operation; None where it has none or not
    enough is known. A message moves its size once."""
    if not size_bytes or not seconds:
        return None
    if operation not in OPERATIONS:
        return size_bytes / seconds
    factor = OPERATIONS[operation].busbw_factor
    return size_bytes * factor(ranks) / seconds if factor and ranks else None
