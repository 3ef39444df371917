"""What a rank does from its first line to its last: settle, join, try, then case by case."""

from __future__ import annotations

from commbench.errors import RankError, first_line
from commbench.spec.case import READY, UNSUPPORTED, Case
from commbench.worker.buffers import Arena
from commbench.worker.communicator import Communicator
from commbench.worker.coordinator import call_of
from commbench.worker.watchdog.rank_state import (
    ITERATION,
    StateBuffer,
)

TRIAL_BYTES = 64 * 1024
"""Most bytes of the control message that carries the outcome of all trials."""


def _after_trials(
    cases: tuple[Case, ...], comm: Communicator, row: StateBuffer
) -> tuple[Case, ...]:
    """The cases, those marked unsupported whose kind the backend refuses when tried once.

    A trial moves one element per block; it also makes the connections.
    """
    refusals: dict[str, str] = {}
    titles: dict[str, Case] = {}
    for case in cases:
        if case.status == READY:
            titles.setdefault(case.title, case)
    for title, case in titles.items():
        row[ITERATION] += 1
        trial = case._replace(count=1, size_bytes=case.size_bytes // max(1, case.count))
        try:
            call_of(trial, Arena(comm, (trial,)).buffers(trial))()
            comm.synchronize()
        except (RuntimeError, ValueError, TypeError) as error:
            refusals[title] = first_line(error)[:200]

    def judge(parts: list[dict[str, str]]) -> dict[str, str]:
        for title in titles:
            refused = [rank for rank, part in enumerate(parts) if title in part]
            if refused and len(refused) < len(parts):
                raise RankError(
                    f"{title} failed on rank {refused[0]} only: {parts[refused[0]][title]}",
                    "see what differs on that rank: device, driver, versions",
                )
        return parts[0]

    agreed = comm.agree(refusals, judge, TRIAL_BYTES)
    return tuple(
        case._replace(status=UNSUPPORTED, reason=agreed[case.title])
        if case.status == READY and case.title in agreed
        else case
        for case in cases
    )
