"""The cases of a plan without a workload: products of the values of all dimensions, with sizes
rounded down to what each can move, and with the reason where one cannot be measured; and LIMITS,
the least and the largest values of a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.errors import UnavailableError, UsageError
from commbench.plan import call_forms
from commbench.plan.backends import ALLOCATORS, BACKENDS, REGISTERED
from commbench.plan.call_forms import DIRECT, ONE_TENSOR, CallForm
from commbench.plan.case import READY, SKIPPED, UNSUPPORTED, Case
from commbench.plan.compression import SUMS
from commbench.plan.computations import why_no_computation
from commbench.plan.dimensions import DIMENSIONS, EAGER, GRAPH, ISOLATED
from commbench.plan.dtypes import DTYPES, REDUCE_OPS
from commbench.plan.groups import TOGETHER, Layout, common_blocks
from commbench.plan.operation import Operation
from commbench.plan.operations import OPERATIONS
from commbench.plan.own_calls import find_forms
from commbench.plan.pairs import BATCH, SEND, why_no_pairs
from commbench.plan.splits import FILE, why_no_splits
from commbench.units import LARGEST_SIZE, MONTH_S, format_about, format_count
from commbench.validation import LARGEST_INTEGER

if TYPE_CHECKING:
    from commbench.plan.plan import Plan


def count_product(plan: Plan) -> int:
    """How many products there are, before those of the same bytes become one case."""
    operations = [OPERATIONS[name] for name in plan.operations]
    return sum(prod(len(d.values(plan, each)) for d in DIMENSIONS) for each in operations)


def product_cases(plan: Plan) -> tuple[Case, ...]:
    """For each operation the product of its values in all DIMENSIONS, in their order. Sizes that
    round down to the same bytes become one case."""
    cases: dict[tuple[Any, ...], Case] = {}
    fields = [dimension.field for dimension in DIMENSIONS]
    joint = [dimension.joint for dimension in DIMENSIONS if dimension.joint]
    for operation, own_plan in _parts(plan):
        blocks = common_blocks(own_plan.layout, plan.world_size)
        wanted = {*plan.tensors, ONE_TENSOR}
        own = {call.name: call for call in own_plan.own if call.operation == operation.name}
        forms = {text: call_forms.choose_forms(plan.forms, operation, text) for text in wanted}
        beside = {text: find_forms(names, own.values()) for text, names in forms.items()}
        for values in product(*(d.values(own_plan, operation) for d in DIMENSIONS)):
            dimensions = dict(zip(fields, values, strict=True))
            for names in joint:
                dimensions |= zip(names, dimensions[names[0]], strict=True)
            case = Case(index=len(cases), **dimensions, count=0)
            if case.imbalance.startswith(FILE):
                case = case._replace(matrix=plan.matrix)
            if case.form not in forms[case.tensors] or (case.call and case.tensors != ONE_TENSOR):
                continue
            if case.call:
                case = case._replace(own=tuple(own[case.call]))
            group_sizes = {len(group) for group in plan.groups_of(case)}
            case = case._replace(ranks=max(group_sizes))
            case = round_size(case, plan.rounding, beside[case.tensors], blocks[case.group])
            case = mark_impossible(case, plan, group_sizes)
            if case.status == READY and case.uses_new_group and not _has_all_ranks(plan, case):
                case = case._replace(status=UNSUPPORTED, reason=_ALL_MAKE_GROUPS)
            cases.setdefault(case.key(), case)
    return tuple(cases.values())


def _has_all_ranks(plan: Plan, case: Case) -> bool:
    """Whether each rank is in one of the groups that call at once, together with others."""
    groups = plan.groups_of(case)
    members = [rank for group in groups for rank in group]
    alone = plan.world_size > 1 and min(map(len, groups)) == 1
    return sorted(members) == list(range(plan.world_size)) and not alone


def _parts(plan: Plan) -> Iterator[tuple[Operation, Plan]]:
    """Each operation, and the plan that has its values."""
    for name in plan.operations:
        yield OPERATIONS[name], plan
    if any(name in REGISTERED for name in plan.memory):
        size = tuple(sorted(plan.sizes)[-1:])
        largest = replace(plan, sizes=size, concurrency=TOGETHER, **Layout()._asdict())
        for operation in OPERATIONS.values():
            if operation.registers and operation.name not in plan.operations:
                yield operation, largest


EXACT = "exact"
NCCL_TESTS = "nccl-tests"
ROUNDING_CHOICES = (EXACT, NCCL_TESTS)
NCCL_TESTS_CHUNK = 16
"""nccl-tests makes each rank's block a multiple of so many bytes. Source: its src/*.cu."""


def round_size(case: Case, rounding: str, forms: tuple[CallForm, ...], common: int) -> Case:
    """The case with its requested size rounded down to whole elements per block of each tensor, or,
    where the operation has blocks and nccl-tests' rounding is wanted, to blocks of a multiple of 16
    bytes. It is skipped where nothing is left.

    All `forms` that are measured side by side move the same bytes: if a step of one has blocks, the
    tensor is rounded to as many parts as there are ranks. Groups of different numbers of ranks move
    the same bytes, too: each number divides `common`.
    """
    operation = OPERATIONS[case.operation]
    if not operation.has_data:
        return case
    element = DTYPES[case.dtype].size_bytes
    in_chunks = operation.blocks and rounding == NCCL_TESTS
    chunk = NCCL_TESTS_CHUNK // element if in_chunks else case.elements_at_once
    step = chunk * call_forms.size_step(operation, forms, case.tensors, common)
    if case.blocks > 1:
        step *= common // case.ranks
    count = case.size_bytes // case.granule_bytes // step * step
    if count:
        case = case._replace(size_bytes=count * case.granule_bytes, count=count)
        return _require_several(case)
    least = f"{chunk * element} bytes" if chunk > 1 else f"one {case.dtype}"
    step_of_one = call_forms.size_step(operation, forms, ONE_TENSOR, case.ranks)
    is_per_rank = case.blocks > 1 or step_of_one > 1
    if is_per_rank and common > case.ranks:
        least, is_per_rank = f"{common} times {least}, which groups of all sizes divide,", False
    per = " and ".join(["rank"] * is_per_rank + ["tensor"] * (case.tensors != ONE_TENSOR))
    return case._replace(status=SKIPPED, reason=f"less than {least}{per and f' per {per}'}")


def _require_several(case: Case) -> Case:
    """The case; it is skipped where a split makes one tensor of it, or too many."""
    if case.tensors == ONE_TENSOR or case.call_form.is_reference:
        return case
    number = case.num_tensors
    if 1 < number <= call_forms.MOST_TENSORS:
        return case
    many = "one tensor" if number == 1 else f"{number} tensors, more than {call_forms.MOST_TENSORS}"
    return case._replace(status=SKIPPED, reason=f"{case.tensors} makes {many}")


class _Refusal(NamedTuple):
    """Why a case cannot be measured."""

    reason: str
    hint: str = "try another operation, dtype, reduce operation, placement or size"
    is_wrong: bool = False
    """Whether no other machine could measure it."""


_ONE_BY_ONE = (ISOLATED, EAGER)
_OF_OVERLAP = "leave out --overlap, or choose another operation, form or timing"
_OF_MATRIX = "give a matrix with a line for each rank of a group, or other ranks"
_ALL_MAKE_GROUPS = (
    "all ranks take part in making a group: measure groups together, with each rank in one"
)


def _find_refusal(case: Case, plan: Plan, group_sizes: Collection[int]) -> _Refusal | None:
    """Why a case cannot be measured, as far as the tables tell; None where it may. `group_sizes`
    are those of its groups."""
    if case.group and case.ranks == 1:
        reason = "a group of one rank has no other to talk to"
        return _Refusal(reason, "choose groups of at least two ranks")
    if case.matrix and len(set(group_sizes)) > 1:
        return _Refusal(f"{case.imbalance} is for groups of one size", _OF_MATRIX)
    for reason, *others in _reasons(case, OPERATIONS[case.operation], plan.backend, plan.device):
        if reason:
            return _Refusal(reason, *others)
    if case.status != SKIPPED:
        return None
    hint = "give another size, --dtype or --tensors"
    if case.tensors == ONE_TENSOR:
        hint = "give a larger size, or a --dtype of fewer bytes"
    return _Refusal(case.reason, hint, is_wrong=True)


def _reasons(case: Case, operation: Operation, backend_name: str, device: str) -> Iterator[Any]:
    """For each rule a text, empty where the case keeps it, perhaps with the other fields of the
    refusal."""
    name, dtype = operation.name, DTYPES.get(case.dtype)
    backend, reduce_op = BACKENDS.get(backend_name), REDUCE_OPS.get(case.reduce_op)
    if case.ranks < operation.min_ranks:
        hint = "start at least two ranks: --nproc-per-node 2"
        yield f"{name} needs at least {operation.min_ranks} ranks", hint, True
    if case.p2p_call == SEND and operation.deadlock:
        hint = "leave out --p2p-call send, or write --p2p-call isend"
        yield f"{name} with blocking calls never ends: {operation.deadlock}", hint, True
    yield why_no_pairs(case.pairs, case.ranks), "write --pairs halves, or start more ranks", True
    if operation.backends and backend_name not in operation.backends:
        yield (f"{backend_name} has no {name}",)
    yield why_no_splits(case.imbalance, case.ranks, case.matrix), _OF_MATRIX, True
    if backend_name in operation.equal_only and case.load and case.load.is_unequal:
        yield (f"{backend_name} has {name} with equal blocks only",)
    yield (call_forms.why_form_unsupported(case.form, operation, backend_name, device),)
    if compression := case.call_form.compression:
        yield compression.why_not(case.dtype, case.reduce_op), "write --dtype float32 --via int8"
    if case.overlap:
        yield _why_no_overlap(case, operation), _OF_OVERLAP
        hint = "write --overlap matmul, or a shape as in matmul:256x256x256"
        yield why_no_computation(case.overlap, device), hint, True
    if case.placement not in operation.placements and not case.call:
        yield (f"torch.distributed has no {case.placement} {name}",)
    if case.launch_mode == GRAPH and device == "cpu":
        yield "a CPU has no CUDA graphs", "leave out --launch graph, or measure on GPUs"
    hint = "measure on GPUs with NCCL, or choose other operations and --memory default"
    yield ALLOCATORS[case.memory].why_unavailable(backend_name, device), hint
    if case.memory in REGISTERED:
        if case.p2p_call not in ("", BATCH):
            yield (
                f"{case.p2p_call} is a call on a communicator of two ranks, which has no "
                "registered memory; --p2p-call batch is not",
            )
        if case.uses_new_group:
            yield ("a new group has no registered memory",)
    if case.call_form.calls_before is not None and (case.timing, case.launch_mode) != _ONE_BY_ONE:
        yield (f"the {case.form} calls on new groups are timed one by one, and not in a graph",)
    if case.launch_mode == GRAPH and (operation.is_on_host or operation.blocks_host):
        yield (f"{name} works or waits on the host, so no graph can capture it",)
    if dtype and backend and dtype.name in backend.refused_dtypes:
        yield (f"{backend.name} does not support {dtype.name}",)
    if dtype and reduce_op and dtype.kind not in reduce_op.kinds:
        known = "an integer dtype: --dtype int32" if "int" in reduce_op.kinds else "--dtype float32"
        yield f"{reduce_op.name} is not defined for {dtype.name}", f"take {known}", True
    if reduce_op and backend and reduce_op.name in backend.refused_reduce_ops:
        yield (f"{backend.name} has no {reduce_op.name}",)


def _why_no_overlap(case: Case, operation: Operation) -> str:
    """Why nothing can be computed beside a case; empty where it can."""
    has_steps = operation.prepare and not operation.block_counts
    if has_steps or operation.is_on_host or operation.memory:
        return f"{operation.name} is no call with async_op=True, beside which one can compute"
    if not operation.has_data:
        return f"{operation.name} moves no data that a computation could hide"
    if case.form != DIRECT or case.tensors != ONE_TENSOR:
        return "an overlap is measured with the direct call of one tensor"
    if (case.timing, case.launch_mode) != _ONE_BY_ONE:
        return "an overlap is measured with --timing isolated and --launch eager"
    return ""


def mark_impossible(case: Case, plan: Plan, group_sizes: Collection[int]) -> Case:
    """The case, marked with the reason where it cannot be measured. `group_sizes` are those of its
    groups."""
    refusal = _find_refusal(case, plan, group_sizes)
    if not refusal or refusal.reason == case.reason:
        return case
    is_alone = case.group and case.ranks == 1
    return case._replace(status=SKIPPED if is_alone else UNSUPPORTED, reason=refusal.reason)


def require_ready_case(plan: Plan) -> None:
    """Raise UnavailableError when every case is known to be impossible here, UsageError when no
    other machine could measure any of them."""
    cases = plan.cases()
    if any(case.status == READY for case in cases):
        return
    refusals = []
    for case in cases:
        groups = {len(group) for group in plan.groups_of(case)}
        refusals.append(_find_refusal(case, plan, groups) or _Refusal(case.reason))
    hints = {refusal.hint for refusal in refusals}
    reasons = list(dict.fromkeys(case.reason for case in cases))[:3]
    error = UsageError if all(r.is_wrong for r in refusals) else UnavailableError
    hint = hints.pop() if len(hints) == 1 else _Refusal("").hint
    raise error(f"nothing is left to measure: {'; '.join(reasons)}", hint)


def has_numerics(plan: Plan, case: Case) -> bool:
    """Whether the result of a case is compared with the exact sum: of one tensor of floating-point
    numbers in equal blocks, where the plan asks for it or the form is not exact."""
    operation, dtype = OPERATIONS[case.operation], DTYPES.get(case.dtype)
    is_float = dtype is not None and dtype.kind == "float" and dtype.size_bytes > 1
    is_plain = case.tensors == ONE_TENSOR and not (case.step or case.part or case.uses_new_group)
    is_plain = is_plain and not (operation.block_counts or case.own_call.send)
    is_sum = is_float and is_plain and case.reduce_op in SUMS
    return is_sum and (plan.numerics or case.call_form.compression is not None)


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
    there = f"{format_about(free)} free on {memory}"
    for case in cases:
        needed = kinds * plan.needed_bytes(case, ranks) if case.status == READY else 0
        if needed > free * (1 - RESERVED):
            pieces = f" for {case.pieces} pieces (--buffers hot: 1)" if case.pieces > 1 else ""
            reasons[case.index] = f"{format_about(needed)} needed{pieces}{times}, {there}"
    return reasons


def nothing_left(cases: Sequence[Case], free: int | None) -> UnavailableError:
    """The error of a run none of whose cases can be measured; `free` are the bytes of memory."""
    first, *more = dict.fromkeys(f"{case.title}: {case.reason}" for case in cases)
    least = min(case.size_bytes for case in cases)
    hint = "ask for smaller --sizes" + " or fewer ranks" * (free is None or least <= free)
    if all(case.status == UNSUPPORTED for case in cases):
        hint = "try another operation, dtype, reduce operation, placement or backend"
    elif any(case.step for case in cases):
        hint = "use a host with more memory, or fewer ranks: --fit shrink --nproc-per-node N"
    first += f", and {format_count(len(more), 'more case')}" if more else ""
    return UnavailableError(f"nothing is left to measure: {first}", hint)


MOST_CASES = 100_000
MOST_RANKS = 1 << 20
MOST_ITERATIONS = 10_000_000
"""Of one case: every sample is kept, and a batch makes one line of the journal."""
MOST_WINDOW = 1 << 16
LIMITS = {
    "world_size": (1, MOST_RANKS),
    "launches": (1, MOST_RANKS),
    "iterations": (1, MOST_ITERATIONS),
    "warmup": (0, MOST_ITERATIONS),
    "root": (0, inf),
    "group_size": (1, MOST_RANKS),
    "group_stride": (1, MOST_RANKS),
    "window": (1, MOST_WINDOW),
    "open_groups": (0, 4096),
    "seed": (0, LARGEST_INTEGER),
    "latency_size": (1, LARGEST_SIZE),
    "timeout_s": (1e-3, MONTH_S),
    "budget_s": (1e-6, MONTH_S),
    "precision": (1e-12, 1 - 1e-12),
    "overlap_ratio": (0.01, 100),
    "soak_s": (1.0, MONTH_S),
    "cycles": (1, MOST_ITERATIONS),
    "check_share": (0.0, 0.9),
}
"""The least and the largest value of fields of a Plan; None is allowed too."""
