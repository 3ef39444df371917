"""What `commbench explain` finds: the facts about each chosen row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from commbench.analysis.row_names import named_bytes
from commbench.analysis.rows import ResultRow, make_rows, worst_alone
from commbench.errors import UsageError
from commbench.explain.facts import Fact, is_of_size, row_facts
from commbench.explain.why import why_facts
from commbench.models.machine import Machine
from commbench.results.schema import Run
from commbench.spec.links import Peak
from commbench.spec.operations import OPERATIONS, Operation
from commbench.units import format_bytes, format_sizes


class RowExplanation(NamedTuple):
    """A row with its facts."""

    row: ResultRow
    facts: tuple[Fact, ...]

    def get(self, name: str) -> Any:
        """The value of the fact of that name; None where there is none."""
        return next((fact.value for fact in self.facts if fact.name == name), None)

    @property
    def operation(self) -> Operation:
        """What the row calls."""
        return OPERATIONS[self.row.measurement.case.operation]

    def as_json(self) -> dict[str, Any]:
        """What was called, and the facts."""
        case, nodes = self.row.measurement.case, self.row.header.num_nodes
        return {"call": case.title, "ranks": case.ranks, "nodes": nodes, "facts": self.facts}


class Explanation(NamedTuple):
    """Rows of a run, or a call that a user quotes, explained."""

    name: str
    """The run's name; empty for a call."""
    rows: tuple[RowExplanation, ...]
    """The largest size of each kind among those that were asked for."""
    every: tuple[ResultRow, ...] = ()
    """All rows of the run."""
    is_overview: bool = False
    """Whether no row was asked for."""
    more: str = ""
    """The command that explains another size; empty where there is none."""

    def as_json(self) -> dict[str, Any]:
        """The name and the rows."""
        return {"name": self.name, "rows": self.rows}


def explain_row(
    row: ResultRow, every: Sequence[ResultRow] = (), peak: Peak | None = None,
    machine: Machine | None = None,
) -> RowExplanation:  # fmt: skip
    """Everything about a row, by all rows of its run and the models of a machine."""
    facts = row_facts(row, every, peak) + why_facts(row, every, machine)
    return RowExplanation(row, tuple(fact for fact in facts if not _is_missing(fact.value)))


def explain_run(
    run: Run,
    operation: Operation | None = None,
    size_bytes: int | None = None,
    peak: Peak | None = None,
    machine: Machine | None = None,
) -> Explanation:
    """The largest size of each kind of call, of the chosen rows. With a `machine`, its models say
    what bounds each row."""
    every = worst_alone(make_rows(run))
    chosen = _choose(every, run.name, operation, size_bytes)
    largest: dict[tuple[str, str], ResultRow] = {}
    for row in chosen:
        kind = row.measurement.case.title, row.measurement.case.timing
        if kind not in largest or _order(row) > _order(largest[kind]):
            largest[kind] = row
    name = operation.name if operation else "OP"
    has_more = size_bytes is None and len(chosen) > len(largest)
    return Explanation(
        run.name,
        tuple(explain_row(row, every, peak, machine) for row in largest.values()),
        every,
        not (operation or size_bytes or len(every) == 1),
        f"commbench explain {run.path} --op {name} --size SIZE" if has_more else "",
    )


def _is_missing(value: Any) -> bool:
    return value is None or value is False or value == ""


def _order(row: ResultRow) -> tuple[bool, int]:
    return row.time is not None, row.measurement.case.size_bytes


def _choose(
    rows: Sequence[ResultRow], name: str, operation: Operation | None, size: int | None
) -> Sequence[ResultRow]:
    """The rows of this operation and size; UsageError where the run `name` has none."""
    if not rows:
        raise UsageError(f"{name} has no finished case yet", "wait, or give another run")
    names = dict.fromkeys(row.measurement.case.operation for row in rows)
    if operation:
        rows = [row for row in rows if row.measurement.case.operation == operation.name]
        if not rows:
            raise UsageError(f"{name} has no {operation.name}", f"it has {', '.join(names)}")
    if size is None:
        return rows
    sizes = sorted({named_bytes(row.measurement.case) for row in rows} - {0})
    rows = [row for row in rows if is_of_size(row, size)]
    if not rows:
        has = f"it has {format_sizes(tuple(sizes))}" if sizes else "none of its rows has a size"
        raise UsageError(f"{name} has no row of {format_bytes(size)}", has)
    return rows
