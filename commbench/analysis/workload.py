"""What a workload moves, for each operation of each set of groups."""

from __future__ import annotations

from collections import defaultdict

from commbench.analysis.trace import OperationTotals, bus_bandwidth, known_sum
from commbench.spec.workload import Call, Step, Workload


def workload_totals(workload: Workload, step: Step) -> tuple[OperationTotals, ...]:
    """The calls of a step by set of groups and operation, means over the ranks of its programs. The
    share of the step is not known: a workload has no record of which calls overlap."""
    ranks = sum(len(program.ranks) for program in step.programs) or 1
    by_row: dict[tuple[str, str], list[tuple[Call, int]]] = defaultdict(list)
    for program in step.programs:
        for call in program.calls:
            by_row[call.group, call.operation].append((call, len(program.ranks)))
    rows = []
    for (group, operation), own in by_row.items():
        sizes = {len(each) for each in workload.groups.get(group, ())}
        group_ranks = sizes.pop() if len(sizes) == 1 else None
        sums = [
            known_sum(None if value is None else value * weight for value, weight in values)
            for values in (
                [(call.size_bytes, weight) for call, weight in own],
                [(call.time_s, weight) for call, weight in own],
                [(call.transfer_s, weight) for call, weight in own],
            )
        ]
        size, time, transfer = (None if total is None else total / ranks for total in sums)
        waiting = None if time is None or transfer is None else max(0.0, time - transfer)
        seconds = time if transfer is None else transfer
        rows.append(OperationTotals(
            group, group_ranks, operation, sum(weight for _, weight in own) / ranks, size, time,
            transfer, waiting, bus_bandwidth(operation, group_ranks, size, seconds), None,
        ))  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-(row.time_s or 0.0), -(row.size_bytes or 0.0))))
