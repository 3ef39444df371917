"""The tables of a plan and of the operations, at most 100 columns wide."""

from __future__ import annotations

from commbench.output.table import format_facts, table
from commbench.spec.case import READY, Case
from commbench.spec.operations import OPERATIONS
from commbench.spec.plan import Plan
from commbench.units import format_bytes


def plan_text(plan: Plan, torchrun_line: str) -> str:
    """A plan, its cases, the bytes that each rank needs, and the torchrun command."""
    cases = plan.cases()
    facts = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else value
        for name, value in plan.as_json().items()
        if name != "sizes"
    }
    largest = max((max(_needed_bytes(case)) for case in cases if case.status == READY), default=0)
    return "\n\n".join(
        (
            format_facts(facts),
            "\n".join(
                table(
                    ("case", "size", "count", "bytes per rank", ""),
                    [_plan_cells(case) for case in cases],
                    left="case,",
                )
            ),
            f"Cases: {len(cases)}; a rank needs at most {format_bytes(largest)} for buffers.",
            f"The same with torchrun{_times(plan.launches)}:\n{torchrun_line}",
        )
    )


def _times(launches: int) -> str:
    return f", to be run {launches} times" if launches > 1 else ""


def _plan_cells(case: Case) -> tuple[str, ...]:
    size, count = (format_bytes(case.size_bytes), str(case.count)) if case.dtype else ("", "")
    if case.status != READY:
        return case.title, size, "", case.status, case.reason
    needs = _needed_bytes(case)
    other = f"at the root; {format_bytes(min(needs))} elsewhere" if min(needs) < max(needs) else ""
    return case.title, size, count, format_bytes(max(needs)), other


def _needed_bytes(case: Case) -> list[int]:
    """Bytes of buffers on the root and on another rank."""
    ranks = {case.root or 0, case.ranks - 1, 0}
    return [case.needed_bytes(rank) for rank in ranks]


def operations_text() -> str:
    """The operations: what each does, its size convention and bus-bandwidth factor."""
    rows = [
        (
            operation.name,
            operation.summary,
            operation.send.value,
            operation.receive.value,
            operation.busbw_formula or "-",
        )
        for operation in OPERATIONS.values()
    ]
    headings = ("operation", "what it does", "sends", "receives", "busbw/\nalgbw")
    return "\n".join(
        (
            *table(headings, rows, left="operation,what it does,sends,receives"),
            "",
            "S is the printed size in bytes: the larger of what one rank sends and receives, as in",
            "nccl-tests. n is the number of ranks. algbw = S / t, busbw = algbw x factor.",
        )
    )
