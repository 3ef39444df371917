"""How much memory the buffers of a plan need, and which cases do not fit."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from commbench.spec.case import READY, Case
from commbench.spec.operations import OPERATIONS
from commbench.spec.plan import Plan
from commbench.units import format_memory

RESERVED = 0.05
"""The part of the free memory that is left to others, and to the backends' own allocations."""


def count_allocations(cases: Sequence[Case]) -> int:
    """How many allocations a rank has, each as large as its largest case: one for each kind of
    memory, and one more for what registers."""
    ready = [case for case in cases if case.status == READY]
    kinds = len({case.memory for case in ready})
    return kinds + any(OPERATIONS[case.operation].registers for case in ready)


def find_oversized(
    plan: Plan, cases: Sequence[Case], memory: str, ranks: Collection[int], free: int
) -> dict[int, str]:
    """Why cases do not fit into the memory that these ranks share, by index. `memory` is where it
    is, `free` its free bytes."""
    reasons = {}
    kinds = count_allocations(cases)
    times = f" for {kinds} allocations (--memory default: 1)" if kinds > 1 else ""
    for case in cases:
        needed = kinds * plan.needed_bytes(case, ranks) if case.status == READY else 0
        if needed > free * (1 - RESERVED):
            pieces = f" for {case.pieces} pieces (--buffers hot: 1)" if case.pieces > 1 else ""
            reasons[case.index] = (
                f"{format_memory(needed)} needed{pieces}{times}, "
                f"{format_memory(free)} free on {memory}"
            )
    return reasons
