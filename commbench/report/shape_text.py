"""What the numbers of a kind of case mean where it is not one call of all ranks: a line each."""

from __future__ import annotations

from collections.abc import Iterator

from commbench.spec.case import Case, Load
from commbench.spec.operations import OPERATIONS
from commbench.spec.pairs import EVERY_PAIR, QUICK, count_pairs, count_rounds
from commbench.units import format_count


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


def _describe_load(load: Load) -> str:
    worst = "all ranks alike" if load.worst_rank is None else f"worst rank {load.worst_rank}"
    return (
        f"Max/mean sent {load.sent:.2f}, received {load.received:.2f}; {worst}: "
        f"{load.worst_link:.2f} x S on the wire."
    )
