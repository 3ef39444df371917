"""What a workload moves, for each operation of each set of groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from commbench.plan.operations import OPERATIONS
from commbench.plan.workload import Call, Step, Workload
from commbench.readers.traces.base import union_length
from commbench.units import GB
from commbench.views.formats import fields_of


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
    step_share: float | None
    """The part of the step during which such a call was under way."""

    @property
    def waiting_s(self) -> float | None:
        """How long the calls waited for other ranks; None where that is not known."""
        if self.time_s is None or self.transfer_s is None:
            return None
        return max(0.0, self.time_s - self.transfer_s)

    @property
    def seconds(self) -> float | None:
        """The transfer where it is known, else the time."""
        return self.time_s if self.transfer_s is None else self.transfer_s

    @property
    def busbw(self) -> float | None:
        """Bus bandwidth in bytes/s; None where it has none or not enough is known."""
        return self.busbw_in(self.seconds)

    def busbw_in(self, seconds: float | None) -> float | None:
        """The same, if the calls took so long. A message moves its size once."""
        if not self.size_bytes or not seconds:
            return None
        if self.operation not in OPERATIONS:
            return self.size_bytes / seconds
        factor = OPERATIONS[self.operation].busbw_factor
        return self.size_bytes * factor(self.ranks) / seconds if factor and self.ranks else None

    def as_json(self) -> dict[str, Any]:
        """The fields, the waiting and the bus bandwidth."""
        return fields_of(self, "waiting_s") | {"busbw_GBps": self.busbw and self.busbw / GB}


def workload_totals(workload: Workload, *steps: Step) -> tuple[OperationTotals, ...]:
    """The calls of steps (none given: of all), by set of groups and operation; of each step those
    that take longest first."""
    return tuple(row for step in steps or workload.steps for row in _step_totals(workload, step))


def _step_totals(workload: Workload, step: Step) -> list[OperationTotals]:
    ranks = sum(len(program.ranks) for program in step.programs) or 1
    by_row: dict[tuple[str, str], list[tuple[int, list[Call]]]] = defaultdict(list)
    """For each program how many ranks it has, and its calls."""
    for program in step.programs:
        own: dict[tuple[str, str], list[Call]] = defaultdict(list)
        for call in program.calls:
            own[call.group, call.operation].append(call)
        for key, calls in own.items():
            by_row[key].append((len(program.ranks), calls))
    rows = []
    for (group, operation), parts in by_row.items():
        sizes = {len(each) for each in workload.groups.get(group, ())}
        every = [(call, weight) for weight, calls in parts for call in calls]
        sums = {
            name: _mean(((getattr(call, name), weight) for call, weight in every), ranks)
            for name in ("size_bytes", "time_s", "transfer_s")
        }
        under_way = _mean(((_under_way(calls), weight) for weight, calls in parts), ranks)
        share = None if under_way is None or not step.time_s else under_way / step.time_s
        rows.append(OperationTotals(
            step.name, group, sizes.pop() if len(sizes) == 1 else None, operation,
            sum(weight for _, weight in every) / ranks, **sums, step_share=share,
        ))  # fmt: skip
    return sorted(rows, key=lambda row: (-(row.time_s or 0.0), -(row.size_bytes or 0.0)))


def _mean(values: Iterable[tuple[float | None, int]], ranks: int) -> float | None:
    """The sum of values, each times how many ranks have it, over all ranks."""
    total = known_sum(None if value is None else value * weight for value, weight in values)
    return None if total is None else total / ranks


def _under_way(calls: Sequence[Call]) -> float | None:
    """How long at least one of these calls of a program was under way; None where not known."""
    is_known = all(call.end_s is not None for call in calls)
    return union_length(call.interval_s for call in calls) if is_known else None


def known_sum(values: Iterable[float | None]) -> float | None:
    """The sum; None where a value is not known."""
    found = list(values)
    return None if None in found else float(sum(v for v in found if v is not None))
