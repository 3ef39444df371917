"""Finds out what can be measured, before it is: which kinds of case the backend refuses, for which
some rank has too little memory, and what NCCL selects for a call."""

from __future__ import annotations

import re
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from commbench.analysis.nccl_log import SELECTIONS, selection_entries, selection_key
from commbench.errors import NCCL_ERROR, RankError, first_line, reason_of
from commbench.plan import dimensions, groups, operations
from commbench.plan.case import READY, SKIPPED, UNSUPPORTED, Case
from commbench.plan.cases import find_oversized
from commbench.plan.computations import AT_ONCE, COMPUTATION
from commbench.plan.plan import Plan
from commbench.results.schema import FAILED
from commbench.worker.buffers import Arena
from commbench.worker.call_forms import make_call
from commbench.worker.communicator import Communicator
from commbench.worker.entrypoint import LaunchTask
from commbench.worker.groups import NcclLog, find_reset, may_log, uses_nccl
from commbench.worker.measure import make_iterations
from commbench.worker.watchdog import hangs, rank_state
from commbench.worker.watchdog.rank_state import CASE, ITERATION, set_phase

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
_UNKNOWN = (1 << 63) - 1
"""Stands for a number of free bytes that is not known."""

Cases: TypeAlias = tuple[Case, ...]


def mark_unsupported(cases: Cases, comm: Communicator) -> Cases:
    """The cases; those whose kind the backend refuses are marked unsupported, on all ranks alike.

    A trial moves one element per block; it also makes the connections. Raises RankError where only
    some ranks refuse, and what the backend raises for a fault.
    """
    trials: dict[str, Case] = {}
    for case in cases:
        if case.status == READY and not case.call:
            together = case.concurrency and groups.TOGETHER
            trials.setdefault(_kind(case), case._replace(concurrency=together, group_ranks=""))
    agreed = _refusals(trials, lambda trial: _try_once(trial, comm), comm)
    ready = [case for case in cases if case.status == READY]
    return _mark(cases, UNSUPPORTED, {case.index: agreed.get(_kind(case), "") for case in ready})


def set_up_calls(cases: Cases, comm: Communicator, arena: Arena) -> Cases:
    """The cases; the user's own calls are set up, each for its size. Those that cannot do it, as
    NotImplementedError says, are marked unsupported, on all ranks alike."""

    def set_up(case: Case) -> str:
        try:
            arena.of_groups(case)
        except NotImplementedError as error:
            return reason_of(error)[:MAX_REASON]
        return ""

    own = {case.name: case for case in cases if case.status == READY and case.call}
    agreed = _refusals(own, set_up, comm)
    return _mark(cases, UNSUPPORTED, {own[name].index: why for name, why in agreed.items()})


def _refusals(
    trials: Mapping[str, Case], run: Callable[[Case], str], comm: Communicator
) -> dict[str, str]:
    """Why each of these trials is refused, as `run` says on the lowest rank that refuses it, on all
    ranks alike; empty where none does. Raises RankError where another rank has accepted it."""
    reasons, has_accepted, state = {}, [], comm.state
    for title, trial in trials.items():
        state[ITERATION], state[CASE] = state[ITERATION] + 1, trial.index
        reasons[title] = run(trial)
        has_accepted.append(not reasons[title] and bool(comm.views(trial)))
    first = comm.first_rank([*map(bool, reasons.values()), *has_accepted])
    agreed = dict.fromkeys(reasons, "")
    for title, refused, accepted in zip(reasons, first, first[len(reasons) :], strict=False):
        if refused is None:
            continue
        agreed[title] = comm.share_value(reasons[title], refused)
        if accepted is not None:
            hint = "find out what differs on that rank: device, driver, versions"
            raise RankError(f"{title} failed on rank {refused} only: {agreed[title]}", hint)
    return agreed


def _mark(cases: Cases, status: str, reasons: Mapping[int, str]) -> Cases:
    """The cases; those with a reason not to be measured, by their index, get it, and a status."""
    reasoned = ((case, reasons.get(case.index)) for case in cases)
    return tuple(c._replace(status=status, reason=why) if why else c for c, why in reasoned)


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
        for buffers in arena.of_groups(case):
            make_iterations(comm.device, buffers.case, [make_call(buffers)], 1)[0]()
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


def skip_oversized(plan: Plan, cases: Cases, comm: Communicator) -> Cases:
    """The cases; those for which some rank's device or host has too little memory are marked
    skipped, on all ranks alike. Buffers of ranks that share memory add up."""
    device, free = comm.device, comm.device.free_bytes()
    (first,) = comm.first_alike([device.identity])
    free_of_all = comm.all_gather(torch.tensor(_UNKNOWN if free is None else free))
    own: dict[int, str] = {}
    if first[comm.rank] == comm.rank:  # one rank looks at each memory
        sharing = (first == comm.rank).nonzero().flatten()
        least = int(free_of_all[sharing].min())
        if least < _UNKNOWN:
            name = f"{socket.gethostname()} {device.torch_device if device.is_async else ''}"
            own = find_oversized(plan, cases, name.strip(), sharing.tolist(), least)
    refusing = comm.first_rank([case.index in own for case in cases])
    reasons: dict[int, str] = {}
    for rank in sorted({rank for rank in refusing if rank is not None}):
        for index, reason in comm.share_value(list(own.items()), rank):
            reasons.setdefault(index, reason)
    return _mark(cases, SKIPPED, reasons)


def allocate_arena(cases: Cases, comm: Communicator) -> tuple[Arena, Cases]:
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
        too_large = [case.index for case in ready if case.size_bytes == largest]
        cases = _mark(cases, FAILED, dict.fromkeys(too_large, failure))


def out_of_memory(rank: int, error: BaseException) -> str:
    """The reason of a case for which a rank has run out of memory."""
    return f"out of memory on rank {rank} ({reason_of(error)[:MAX_REASON]})"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that no memory was left; for host memory torch has no type."""
    is_of_host = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return is_of_host or isinstance(error, MemoryError | torch.OutOfMemoryError)


def learn_selections(
    task: LaunchTask, cases: Sequence[Case], comm: Communicator, arena: Arena
) -> dict[str, Any]:
    """Call each kind and size of case once, and read NCCL's log of it: a fact for the run's
    environment, on rank 0; empty elsewhere, and where nothing may be logged. All ranks call this.

    NCCL logs a line for each call if the subsystem TUNING is on (analysis.nccl_log), which costs
    time. So it is on during one untimed call of each case only, and what the log grows by belongs
    to that case: a line has a function and bytes, but not the form, the memory or the dtype of the
    call. Cases in graphs are not learned.
    """
    may_learn = task.logs_nccl and may_log(task.plan) and not comm.rank
    reset = find_reset() if may_learn else None
    if not uses_nccl(task.plan) or not comm.share_value(bool(reset)):  # as rank 0 says
        return {}
    found = {}
    with tempfile.TemporaryDirectory(prefix="commbench-nccl-") as folder:
        log = NcclLog(Path(folder) / "nccl.log", "TUNING", reset) if reset else None
        if reset:
            reset()
        try:
            for case in _calls_to_make(cases):
                expected_s = hangs.longest_check_s(case.size_bytes * case.parts)
                set_phase(comm.state, rank_state.CHECKING, case.index, expected_s=expected_s)
                if log:
                    log.read_more()  # of earlier calls
                for buffers in arena.of_groups(case):
                    comm.device.in_stream(make_call(buffers))()
                comm.device.synchronize()
                if log and (entries := selection_entries(log.read_more())):
                    found[selection_key(case)] = entries
        finally:
            if log:
                log.remove()
    return {SELECTIONS: found} if found else {}


def _calls_to_make(cases: Sequence[Case]) -> list[Case]:
    """One case of all for which NCCL selects alike."""
    found: dict[str, Case] = {}
    for case in cases:
        operation = operations.OPERATIONS[case.operation]
        is_call = operation.nccl_function and not (case.uses_new_group or operation.registers)
        is_measured = case.status == READY and case.part not in (COMPUTATION, AT_ONCE)
        if is_measured and is_call and case.launch_mode == dimensions.EAGER:
            found.setdefault(selection_key(case), case)
    return list(found.values())
