"""Which cases of a plan cannot be measured, as far as the tables tell, before any rank starts."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from commbench.errors import UnavailableError, UsageError
from commbench.spec.allocators import ALLOCATORS, REGISTERED
from commbench.spec.backends import BACKENDS
from commbench.spec.call_forms import DIRECT, ONE_TENSOR, why_form_unsupported
from commbench.spec.case import READY, SKIPPED, UNSUPPORTED, Case
from commbench.spec.computations import why_no_computation
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS
from commbench.spec.pairs import BATCH, SEND, why_no_pairs
from commbench.spec.reduce_ops import REDUCE_OPS
from commbench.spec.splits import why_no_splits
from commbench.spec.timing_modes import EAGER, GRAPH, ISOLATED

if TYPE_CHECKING:
    from commbench.spec.plan import Plan

_ONE_RANK = "a group of one rank has no other to talk to"


def mark_impossible(case: Case, backend: str, device: str, group_sizes: Collection[int]) -> Case:
    """The case, marked with the reason where it cannot be measured. `group_sizes` are those of its
    groups."""
    if case.group and case.ranks == 1:
        return case._replace(status=SKIPPED, reason=_ONE_RANK)
    reason = _why_unsupported(case, backend, device)
    if case.matrix and len(set(group_sizes)) > 1:
        reason = f"{case.imbalance} is for groups of one size"
    return case._replace(status=UNSUPPORTED, reason=reason) if reason else case


def _why_unsupported(case: Case, backend_name: str, device: str) -> str:
    """Why a case cannot be measured, as far as the tables tell; empty where it may."""
    operation, dtype = OPERATIONS[case.operation], DTYPES.get(case.dtype)
    backend, reduce_op = BACKENDS.get(backend_name), REDUCE_OPS.get(case.reduce_op)
    if case.ranks < operation.min_ranks:
        return f"{operation.name} needs at least {operation.min_ranks} ranks"
    if _never_ends(case):
        return f"{operation.name} with blocking calls never ends: {operation.deadlock}"
    if reason := why_no_pairs(case.pairs, case.ranks):
        return reason
    if operation.backends and backend_name not in operation.backends:
        return f"{backend_name} has no {operation.name}"
    if reason := why_no_splits(case.imbalance, case.ranks, case.matrix):
        return reason
    if backend_name in operation.equal_only and case.load and case.load.is_unequal:
        return f"{backend_name} has {operation.name} with equal blocks only"
    if why := why_form_unsupported(case.form, operation, backend_name, device):
        return why
    if case.overlap and (why := _why_no_overlap(case) or why_no_computation(case.overlap, device)):
        return why
    if case.placement not in operation.placements:
        return f"torch.distributed has no {case.placement} {operation.name}"
    if case.launch_mode == GRAPH and device == "cpu":
        return _NO_GRAPHS
    if reason := ALLOCATORS[case.memory].why_unavailable(backend_name, device):
        return reason
    if reason := _why_not_registered(case):
        return reason
    if case.call_form.calls_before is not None and (case.timing, case.launch_mode) != _ONE_BY_ONE:
        return f"the {case.form} calls on new groups are timed one by one, and not in a graph"
    if case.launch_mode == GRAPH and (operation.is_on_host or operation.blocks_host):
        return f"{operation.name} works or waits on the host, so no graph can capture it"
    if dtype and backend and dtype.name in backend.refused_dtypes:
        return f"{backend.name} does not support {dtype.name}"
    if dtype and reduce_op and dtype.kind not in reduce_op.kinds:
        return f"{reduce_op.name} is not defined for {dtype.name}"
    if reduce_op and backend and reduce_op.name in backend.refused_reduce_ops:
        return f"{backend.name} has no {reduce_op.name}"
    return ""


def _why_not_registered(case: Case) -> str:
    """Why a call would not use memory that is registered with its group's communicator, though its
    buffers are in it; empty where it may."""
    if case.memory not in REGISTERED:
        return ""
    if case.p2p_call not in ("", BATCH):
        return (
            f"{case.p2p_call} is a call on a communicator of two ranks, which has no registered "
            "memory; --p2p-call batch is not"
        )
    if OPERATIONS[case.operation].moves_objects:
        return "torch copies objects into memory of its own, which is not registered"
    return "a new group has no registered memory" if case.uses_new_group else ""


def _why_no_overlap(case: Case) -> str:
    """Why nothing can be computed beside a case; empty where it can."""
    operation = OPERATIONS[case.operation]
    has_steps = operation.prepare and not operation.block_counts
    if has_steps or operation.is_on_host or operation.memory:
        return f"{operation.name} is no call with async_op=True, beside which one can compute"
    if not operation.has_data:
        return f"{operation.name} moves no data that a computation could hide"
    if case.form != DIRECT or case.tensors != ONE_TENSOR:
        return "an overlap is measured with the direct call of one tensor"
    if case.timing != ISOLATED or case.launch_mode != EAGER:
        return "an overlap is measured with --timing isolated and --launch eager"
    return ""


def _never_ends(case: Case) -> bool:
    """Whether every rank waits in a blocking call for another one that waits, too."""
    return case.p2p_call == SEND and bool(OPERATIONS[case.operation].deadlock)


_ONE_BY_ONE = (ISOLATED, EAGER)
_NO_GRAPHS = "a CPU has no CUDA graphs"


def require_ready_case(plan: Plan) -> None:
    """Raise UnavailableError when every case is known to be impossible here, UsageError when no
    other machine could measure them: where a dtype has no such reduce operation, where sizes are
    too small, where blocking calls never end, where a pair has ranks that do not exist, and where a
    matrix or a computation is for others."""
    cases = plan.cases()
    if any(case.status == READY for case in cases):
        return
    reasons = dict.fromkeys(case.reason for case in cases)
    is_wrong = all(
        (case.status == SKIPPED and case.reason != _ONE_RANK)
        or (
            case.reduce_op in REDUCE_OPS
            and DTYPES[case.dtype].kind not in REDUCE_OPS[case.reduce_op].kinds
        )
        for case in cases
    )
    hint = "try another operation, dtype, reduce operation, placement or size"
    if list(reasons) == [_NO_GRAPHS]:
        hint = "leave out --launch graph, or measure on GPUs"
    elif all(ALLOCATORS[c.memory].why_unavailable(plan.backend, plan.device) for c in cases):
        hint = "measure on GPUs with NCCL, or choose other operations and --memory default"
    elif all(map(_never_ends, cases)):
        is_wrong, hint = True, "leave out --p2p-call send, or write --p2p-call isend"
    elif plan.world_size == 1 and all(case.pairs for case in cases):
        is_wrong, hint = True, "start at least two ranks: --nproc-per-node 2"
    elif all(why_no_pairs(case.pairs, case.ranks) for case in cases):
        is_wrong, hint = True, "write --pairs halves, or start more ranks"
    elif all(case.reason == _ONE_RANK for case in cases):
        hint = "choose groups of at least two ranks"
    elif all(c.matrix and why_no_splits(c.imbalance, c.ranks, c.matrix) for c in cases):
        is_wrong, hint = True, "give a matrix with a line for each rank of a group, or other ranks"
    elif all(case.overlap and why_no_computation(case.overlap, plan.device) for case in cases):
        is_wrong, hint = True, "write --overlap matmul, or a shape as in matmul:256x256x256"
    elif all(case.overlap and _why_no_overlap(case) for case in cases) or any(
        case.matrix for case in cases
    ):
        hint = "the reason above names what to change"
    raise (UsageError if is_wrong else UnavailableError)(
        f"nothing is left to measure: {'; '.join(list(reasons)[:3])}", hint
    )
