"""The replay of a workload: each different call is a case, and each step is one in each variant.

A step is run as its ranks made it: in order, each call in its group, with the waits of the trace.
A call has memory of its own as long as it is under way, and not after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.errors import UsageError
from commbench.plan import workload_variants as variants
from commbench.plan.call_forms import CALL_FORMS, DIRECT, ONE_TENSOR, why_form_unsupported
from commbench.plan.case import PAGE, READY, UNSUPPORTED, Case
from commbench.plan.cases import EXACT, mark_impossible, round_size
from commbench.plan.dimensions import ISOLATED
from commbench.plan.groups import TOGETHER, WORLD, GroupSet
from commbench.plan.operations import LATENCY, OPERATIONS, REPLAY
from commbench.plan.splits import FILE, UNIFORM
from commbench.plan.workload import RECV, SEND, Call, Step, Workload, make_workload

if TYPE_CHECKING:
    from commbench.plan.plan import Plan

_COALESCED = next(form for form in CALL_FORMS.values() if form.is_coalesced)
_ONE_BY_ONE = next(form for form in CALL_FORMS.values() if form.one and form.several)


class ReplayedCall(NamedTuple):
    """A call of a variant of a step, with what it takes to make it."""

    call: Call
    case: Case
    """What it does, as a group of `case.ranks` ranks does it."""
    begin: int
    """Where its buffers begin, in bytes."""
    waits: tuple[int, ...]
    """The indices of the calls that the rank waits for when it has begun this one; of a batch the
    first one."""
    together: int
    """How many messages, from this one on, begin as one batch; 0 within a batch."""


class ReplayedStep(NamedTuple):
    """What a rank does in a variant of a step."""

    calls: tuple[ReplayedCall, ...]
    compute_s: float
    """For how long it computes behind the last call."""
    size_bytes: int
    """The memory of the buffers of all its calls."""


@lru_cache(maxsize=4)
def replayed_workload(plan: Plan) -> Workload:
    """The workload of a plan; UsageError if it has none that can be read."""
    try:
        workload = make_workload(plan.workload)
    except ValueError as error:
        raise UsageError(f"the workload of this plan is damaged: {error}") from None
    if (ranks := workload.world_size) != plan.world_size:
        raise UsageError(f"the workload has {ranks} ranks, and there are {plan.world_size}")
    return workload


@lru_cache(maxsize=4)
def replay_group_sets(plan: Plan) -> tuple[GroupSet, ...]:
    """All ranks as one group, and each set of groups in which calls are made."""
    sets = (GroupSet(n, g) for n, g in replayed_workload(plan).groups.items() if n != WORLD)
    return (GroupSet("", (tuple(range(plan.world_size)),)), *sets)


def replay_cases(plan: Plan) -> tuple[Case, ...]:
    """The different calls of all steps, and then each step in its variants."""
    workload = replayed_workload(plan)
    found: dict[tuple[Any, ...], Case] = {}
    used: dict[str, dict[tuple[Any, ...], None]] = {}
    for step in workload.steps:
        keys = used.setdefault(step.name, {})
        for call, case, _ in step_calls(plan, step):
            if call.operation != RECV:
                found.setdefault(case.key(), case)
                keys[case.key()] = None
    for step in workload.steps:
        reasons = [
            f"{found[key].title}: {found[key].reason}"
            for key in used[step.name]
            if found[key].status != READY
        ]
        moved = [sum(call.size_bytes or 0 for call in p.calls) for p in step.programs]
        for variant in variants.expand_variants(plan.variants, step):
            case = Case(
                index=0, operation=REPLAY, dtype="", reduce_op="", root=None, placement="",
                timing=ISOLATED, size_bytes=max(moved, default=0), count=0, ranks=plan.world_size,
                step=step.name, variant=variant,
            )  # fmt: skip
            if why := (reasons[:1] or [variants.why_no_variant(variant, step)])[0]:
                case = case._replace(status=UNSUPPORTED, reason=why)
            found[case.key()] = case
    return tuple(case._replace(index=index) for index, case in enumerate(found.values()))


def step_calls(plan: Plan, step: Step) -> Iterator[tuple[Call, Case, int]]:
    """The calls of a step in the order of its programs, each with the case that measures it, which
    for a RECV is that of the message, and with the number of ranks that make it."""
    matrices = _matrices(plan, step.name)
    known: dict[tuple[Any, ...], Case] = {}
    for program in step.programs:
        for place, rank in enumerate(program.ranks):
            for index, call in enumerate(program.calls):
                # A message has other ranks on each rank of a program; all else is alike on them.
                is_message = call.is_message
                if place and not is_message:
                    continue
                matrix = matrices.get((rank, index), ())
                key = (*call.what(), rank if is_message else None, matrix)
                if key not in known:
                    known[key] = _call_case(plan, call, rank, matrix)
                yield call, known[key], 1 if is_message else len(program.ranks)


def _find_step(plan: Plan, name: str) -> Step:
    return next(step for step in replayed_workload(plan).steps if step.name == name)


@lru_cache(maxsize=64)
def _matrices(plan: Plan, step_name: str) -> dict[tuple[int, int], tuple[int, ...]]:
    """By rank and index of a call with unequal blocks, what each rank (row) of its group sends to
    each other, in elements, row by row."""
    workload, step = replayed_workload(plan), _find_step(plan, step_name)
    if not any(call.send_splits for program in step.programs for call in program.calls):
        return {}
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for match in variants.match_calls(workload, step):
        rows = [one.call.send_splits for one in match]
        if all(rows):
            matrix = tuple(number for row in rows for number in row)
            found |= {(one.rank, one.number): matrix for one in match}
    return found


def _call_case(
    plan: Plan, call: Call, rank: int, matrix: tuple[int, ...], form: str = DIRECT
) -> Case:
    """The case of a call that a rank makes."""
    workload = replayed_workload(plan)
    group = workload.group_of(call, rank)
    sizes = {len(group) for group in workload.groups[call.group]}
    operation = OPERATIONS[LATENCY if call.is_message else call.operation]
    imbalance = UNIFORM if operation.block_counts else ""
    if operation.block_counts and matrix:
        imbalance = f"{FILE}:{workload.name}#{sha256(repr(matrix).encode()).hexdigest()[:8]}"
    tensors = ONE_TENSOR
    if call.tensors > 1 and _COALESCED.suits(operation):
        why = why_form_unsupported(_COALESCED.name, operation, plan.backend, plan.device)
        form = _ONE_BY_ONE.name if why else _COALESCED.name
        tensors = str(call.tensors)
    pairs = f"{group.index(rank)}-{call.peer}" if call.operation == SEND else ""
    if call.operation == RECV:
        pairs = f"{call.peer}-{group.index(rank)}"
    case = Case(
        index=0, operation=operation.name, dtype=call.dtype if operation.has_data else "",
        reduce_op=call.reduce_op if operation.reduces else "",
        root=call.root if operation.rooted else None, placement=operation.placements[0],
        timing=ISOLATED, size_bytes=call.size_bytes or 0 if operation.has_data else 0, count=0,
        ranks=max(sizes), imbalance=imbalance, matrix=matrix if imbalance != UNIFORM else (),
        tensors=tensors, form=form, pairs=pairs,
        p2p_call=operation.p2p_calls[0] if operation.p2p_calls else "",
        group="" if call.group == WORLD else call.group,
        concurrency="" if call.group == WORLD else TOGETHER,
    )  # fmt: skip
    case = round_size(case, EXACT, (CALL_FORMS[form],), lcm(*sizes))
    return mark_impossible(case, plan, sizes)


@lru_cache(maxsize=256)
def replayed_step(plan: Plan, case: Case, rank: int, is_trial: bool = False) -> ReplayedStep:
    """What a rank does in the step and the variant of a case; `is_trial`: with the smallest buffers
    of each call, and without computing."""
    workload, step = replayed_workload(plan), _find_step(plan, case.step)
    traced = next((p.calls for p in step.programs if rank in p.ranks), ())
    calls, compute_s = variants.variant_calls(step, traced, case.variant)
    if is_trial:
        calls, compute_s = tuple(call._replace(compute_s=0.0) for call in calls), 0.0
    known_matrices = _matrices(plan, step.name)
    with_blocks = [number for number, call in enumerate(traced) if call.send_splits]
    matrices = iter([known_matrices.get((rank, number), ()) for number in with_blocks])
    waits = variants.waits_after(calls)
    until = {index: at for at, waited in enumerate(waits) for index in waited}
    known: dict[tuple[Any, ...], tuple[Case, int]] = {}
    """Of each different call its case, and the bytes of its buffers."""
    memory = _Memory()
    made: list[ReplayedCall] = []
    leaders: list[int] = []
    for index, (call, together) in enumerate(zip(calls, _batches(calls, until), strict=True)):
        matrix = next(matrices) if call.send_splits else ()
        key = (*call.what(), matrix)
        if key not in known:
            form = variants.COMPOSED.name if variants.is_composed(call, case.variant) else DIRECT
            group = workload.group_of(call, rank)
            own = _call_case(plan, call, rank, matrix, form)
            if own.status != READY:  # too few elements for the form
                own = _call_case(plan, call, rank, matrix)
            own = own.in_group(len(group))
            own = own.smallest if is_trial else own
            known[key] = own, own.piece_bytes(group.index(rank)) + 2 * PAGE
        own, size = known[key]
        begin = memory.take(own.dtype, size, index, until[index])
        leaders.append(index if together else leaders[-1])
        waited = tuple(dict.fromkeys(leaders[each] for each in waits[index]))
        made.append(ReplayedCall(call, own, begin, waited, together))
    return ReplayedStep(tuple(made), compute_s, memory.size_bytes)


def _batches(calls: Sequence[Call], until: dict[int, int]) -> Iterator[int]:
    """For each call how many messages begin together with it: those that follow one another in a
    group, all waited for after the last of them, as torch's batch_isend_irecv begins them."""
    index = 0
    while index < len(calls):
        end, group = index, calls[index].group
        while end < len(calls) and calls[end].is_message and calls[end].group == group:
            end += 1
        while end > index + 1 and min(until[i] for i in range(index, end)) < end - 1:
            end -= 1
        number = max(1, end - index)
        yield from (number, *[0] * (number - 1))
        index += number


class _Memory:
    """Places the buffers of calls so that those under way at once do not share a byte, and those of
    different element types never do: read as another type, data could be denormal numbers, which
    are slow to add."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._places: list[tuple[str, int, int, int]] = []
        """Of each place the element type, the size, the begin, and the last call that uses it."""

    def take(self, dtype: str, size: int, index: int, until: int) -> int:
        """The begin of the smallest free place that is large enough, or of a new one, for a call
        that is in use while the calls from `index` to `until` are begun."""
        size = -(-size // PAGE) * PAGE
        free = [each for each in self._places
                if each[0] == dtype and each[1] >= size and each[3] < index]  # fmt: skip
        if free:
            place = min(free, key=lambda each: each[1:3])
            self._places.remove(place)
        else:
            place = (dtype, size, self.size_bytes, until)
            self.size_bytes += size
        self._places.append((*place[:3], until))
        return place[2]


@lru_cache(maxsize=256)
def blocks_host(plan: Plan, case: Case) -> bool:
    """Whether the host waits for the device within a case: in its call, or in one of any rank in
    the step that it replays."""
    programs = _find_step(plan, case.step).programs if case.step else ()
    names = {call.operation for program in programs for call in program.calls} | {case.operation}
    return any(OPERATIONS[name].blocks_host for name in names & OPERATIONS.keys())


def replay_fields(plan: Plan) -> dict[str, Any]:
    """The fields of a plan that follow from its workload: operations, element types, reduce
    operations and sizes; without those that have no value."""
    cases = replay_cases(plan)
    found = {
        "operations": tuple(dict.fromkeys(case.operation for case in cases)),
        "dtypes": tuple(dict.fromkeys(case.dtype for case in cases if case.dtype)),
        "reduce_ops": tuple(dict.fromkeys(case.reduce_op for case in cases if case.reduce_op)),
        "sizes": tuple(sorted({case.size_bytes for case in cases if case.dtype})),
    }
    return {name: values for name, values in found.items() if values}


def replayed_bytes(plan: Plan, case: Case, ranks: frozenset[int]) -> int:
    """The memory that these ranks need together for the calls of a step: each as much as the first
    rank that makes the same calls."""
    programs = _find_step(plan, case.step).programs
    counted = [(program.ranks[0], len(ranks.intersection(program.ranks))) for program in programs]
    return sum(n * replayed_step(plan, case, first).size_bytes for first, n in counted if n)
