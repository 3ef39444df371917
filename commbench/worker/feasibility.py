"""Marks the cases that cannot be measured: those that the backend refuses, and those for which some
rank has too little memory."""

from __future__ import annotations

import re
import socket
from typing import Any

import torch
import torch.distributed as dist

from commbench.errors import NCCL_ERROR, RankError, first_line, reason_of
from commbench.results.schema import FAILED
from commbench.spec.case import READY, SKIPPED, UNSUPPORTED, Case
from commbench.spec.groups import TOGETHER
from commbench.spec.memory_needs import find_oversized
from commbench.spec.plan import Plan
from commbench.worker.buffers import Arena
from commbench.worker.call_forms import make_call
from commbench.worker.communicator import Communicator
from commbench.worker.measure import make_iterations
from commbench.worker.watchdog.rank_state import CASE, ITERATION, StateBuffer

MAX_REASON = 200
"""Characters of an exception's message in a reason, at most."""
FAULTS = (torch.OutOfMemoryError, dist.DistNetworkError, dist.DistStoreError)
NCCL_REFUSALS = ("invalid usage", "invalid argument")
CUDA_ERROR = re.compile(r"\b(CUDA|CUDA driver|HIP) error:", re.IGNORECASE)
CUDA_REFUSALS = re.compile(r"captur|operation not supported", re.IGNORECASE)
TORCH_REFUSALS = re.compile(
    r"support|not implemented|no backend type|cannot use|captur|invalid scalar type|aligned"
    r"|\b(requires?|must|should|expected)\b",
    re.IGNORECASE,
)
"""How torch, gloo and CUDA word that they cannot do something. They have no type for that."""


def mark_unsupported(
    cases: tuple[Case, ...], comm: Communicator, state: StateBuffer
) -> tuple[Case, ...]:
    """The cases; those whose kind the backend refuses are marked unsupported, on all ranks alike.

    A trial moves one element per block; it also makes the connections. Raises RankError where only
    some ranks refuse, and what the backend raises for a fault.
    """
    titles: dict[str, Case] = {}
    for case in cases:
        if case.status == READY:
            titles.setdefault(_kind(case), case)
    reasons, has_accepted = {}, []
    for title, case in titles.items():
        state[ITERATION], state[CASE] = state[ITERATION] + 1, case.index
        trial = case._replace(concurrency=case.concurrency and TOGETHER, group_ranks="")
        reasons[title] = _try_once(trial, comm)
        has_accepted.append(not reasons[title] and bool(comm.views(trial)))
    has_refused = [bool(reason) for reason in reasons.values()]
    first = comm.first_rank([*has_refused, *has_accepted])
    refusing, accepting = first[: len(reasons)], first[len(reasons) :]
    for title, refused, accepted in zip(reasons, refusing, accepting, strict=True):
        if refused is None:
            continue
        reasons[title] = comm.share_value(reasons[title], refused)
        if accepted is not None:
            raise RankError(
                f"{title} failed on rank {refused} only: {reasons[title]}",
                "find out what differs on that rank: device, driver, versions",
            )
    return tuple(
        case._replace(status=UNSUPPORTED, reason=reasons[_kind(case)])
        if case.status == READY and reasons[_kind(case)]
        else case
        for case in cases
    )


def _kind(case: Case) -> str:
    """What is tried once, by all groups of a dimension together, and for all pairs of ranks."""
    return case.title_without("concurrency", "group_ranks", "pairs")


def _try_once(case: Case, comm: Communicator) -> str:
    """Why the backend refuses a kind of case; empty where it does not. Raises what it raises for
    any other reason: a fault."""
    arena, reason = None, ""
    try:
        arena = Arena(comm, (case,), is_trial=True)
        arena.register()
        for own, buffers in arena.of_groups(case):
            make_iterations(comm.device, own, [make_call(own, buffers)], 1)[0]()
        comm.device.synchronize()
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        if not is_refusal(error):
            raise
        reason = reason_of(error)[:MAX_REASON]
    if arena:
        arena.release()  # what was refused is not under way
    return reason


def is_refusal(error: Exception) -> bool:
    """Whether an exception says that a call cannot be made here, rather than that it failed."""
    if not isinstance(error, RuntimeError) or isinstance(error, NotImplementedError):
        return True
    line = first_line(error)
    if kind := NCCL_ERROR.search(line):
        return kind[1].strip() in NCCL_REFUSALS
    wording = CUDA_REFUSALS if CUDA_ERROR.search(line) else TORCH_REFUSALS
    return bool(wording.search(line)) and not isinstance(error, FAULTS)


def skip_oversized(plan: Plan, cases: tuple[Case, ...], comm: Communicator) -> tuple[Case, ...]:
    """The cases; those for which some rank's device or host has too little memory are marked
    skipped, on all ranks alike. Buffers of ranks that share memory add up."""
    device = comm.device
    own = {
        "memory": device.identity,
        "name": f"{socket.gethostname()} {device.torch_device if device.is_async else ''}".strip(),
        "free": device.free_bytes(),
    }
    reasons: dict[int, str] = {}

    def decide(parts: list[dict[str, Any]]) -> list[int]:
        ranks_by_memory: dict[tuple[str, ...], list[int]] = {}
        for rank, part in enumerate(parts):
            ranks_by_memory.setdefault(tuple(part["memory"]), []).append(rank)
        for ranks in ranks_by_memory.values():
            known = [parts[rank]["free"] for rank in ranks if parts[rank]["free"] is not None]
            if known:
                name = parts[ranks[0]]["name"]
                reasons.update(find_oversized(plan, cases, name, ranks, min(known)))
        return list(reasons)

    skipped = frozenset(comm.agree(own, decide))
    return tuple(
        case._replace(status=SKIPPED, reason=reasons.get(case.index, "too little memory"))
        if case.index in skipped
        else case
        for case in cases
    )


def allocate_arena(cases: tuple[Case, ...], comm: Communicator) -> tuple[Arena, tuple[Case, ...]]:
    """Memory for all cases that are ready, and the cases; the largest for which some rank gets no
    memory are marked failed, on all ranks alike."""
    while True:
        ready = tuple(case for case in cases if case.status == READY)
        failure, arena = "", None
        try:
            arena = Arena(comm, ready)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or not ready:
                raise
            failure = out_of_memory(comm.rank, error)
        (failing_rank,) = comm.first_rank([bool(failure)])
        if arena and failing_rank is None:
            arena.register()
            return arena, cases
        if arena:
            arena.release()
        failure = comm.share_value(failure, failing_rank or 0)
        largest = max(case.size_bytes for case in ready)
        cases = tuple(
            case._replace(status=FAILED, reason=failure)
            if case.status == READY and case.size_bytes == largest
            else case
            for case in cases
        )


def out_of_memory(rank: int, error: BaseException) -> str:
    """The reason of a case for which a rank has run out of memory."""
    return f"out of memory on rank {rank} ({reason_of(error)[:MAX_REASON]})"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that no memory was left; for host memory torch has no type."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )
