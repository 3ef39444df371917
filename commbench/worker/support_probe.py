"""Which cases the backend supports: each kind is tried once before anything is measured."""

from __future__ import annotations

from commbench.errors import RankError, first_line
from commbench.spec.case import READY, UNSUPPORTED, Case
from commbench.worker.buffers import Arena
from commbench.worker.communicator import Communicator
from commbench.worker.coordinator import make_call
from commbench.worker.watchdog.rank_state import ITERATION, StateBuffer

MAX_REASON = 200
"""Characters of a backend's message in a reason, at most."""


def mark_unsupported(
    cases: tuple[Case, ...], comm: Communicator, state: StateBuffer
) -> tuple[Case, ...]:
    """The cases; those whose kind the backend refuses are marked unsupported, on all ranks alike.

    A trial moves one element per block; it also makes the connections. Raises RankError where only
    some ranks refuse.
    """
    titles: dict[str, Case] = {}
    for case in cases:
        if case.status == READY:
            titles.setdefault(case.title, case)
    reasons = {}
    for title, case in titles.items():
        state[ITERATION] += 1
        reasons[title] = _try_once(case, comm)
    has_refused = [bool(reason) for reason in reasons.values()]
    first = comm.first_rank([*has_refused, *(not refused for refused in has_refused)])
    refusing, accepting = first[: len(reasons)], first[len(reasons) :]
    for title, refused, accepted in zip(reasons, refusing, accepting, strict=True):
        if refused is None:
            continue
        reasons[title] = comm.share_value(reasons[title], refused)
        if accepted is not None:
            raise RankError(
                f"{title} failed on rank {refused} only: {reasons[title]}",
                "see what differs on that rank: device, driver, versions",
            )
    return tuple(
        case._replace(status=UNSUPPORTED, reason=reasons[case.title])
        if case.status == READY and reasons[case.title]
        else case
        for case in cases
    )


def _try_once(case: Case, comm: Communicator) -> str:
    """Why the backend refuses a kind of case; empty where it does not."""
    trial = case._replace(count=1, size_bytes=case.size_bytes // max(1, case.count))
    try:
        make_call(trial, Arena(comm, (trial,)).buffers(trial))()
        comm.synchronize()
    except (RuntimeError, ValueError, TypeError) as error:
        return first_line(error)[:MAX_REASON] or type(error).__name__
    return ""
