"""The checks of a soak: each is a line of the journal, whose kind is `check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commbench.results.samples import without_samples
from commbench.results.schema import OK, WRONG, Batch, Measurement, Run, WrongElement


class Check(NamedTuple):
    """Some calls of a case that were checked in a soak, one after another, each with new data."""

    case: int
    """The index of the case."""
    cycle: int
    """As that of a batch; 0 before the first cycle."""
    start_s: float
    """As of a batch."""
    elapsed_s: float
    """How long it took, with filling and comparing."""
    calls: int
    """How many calls were checked."""
    wrong_ranks: tuple[int, ...] = ()
    """The ranks that had wrong elements, in ascending order."""
    wrong_elements: tuple[int, ...] = ()
    """How many elements were wrong on each of them."""
    first_wrong: WrongElement | None = None
    first_call: int = 0
    """Which of the case's checked calls the first wrong element is of, from 1."""


def with_checks(measurement: Measurement, checks: Sequence[Check]) -> Measurement:
    """The measurement of a case, with the outcome of all its checks in a soak."""
    if not checks or measurement.status not in (OK, WRONG):
        return measurement
    found = measurement._replace(wrong=sum(sum(check.wrong_elements) for check in checks))
    first = next((check for check in checks if check.first_wrong), None)
    if first is None:
        return found
    reason = describe_wrong(first.first_wrong, first.first_call)
    return found._replace(status=WRONG, reason=reason, first_wrong=first.first_wrong)


def describe_wrong(first: WrongElement | None, call: int) -> str:
    """A wrong element, and of which checked call it is, from 1; 0 where no call is named."""
    if first is None:
        return ""
    which = f", in checked call {call}" if call else ""
    where = f"rank {first.rank}, element {first.element}"
    return f"{where}: expected {first.expected}, got {first.got}{which}"


def soaked_s(run: Run) -> float:
    """Seconds that a soak has lasted, without the time in which it was cut off."""
    found: list[Batch | Check] = [*run.checks]
    for measurement in run.measurements:
        found += without_samples(measurement.batches)
    return max(((each.start_s or 0.0) + each.elapsed_s for each in found), default=0.0)
