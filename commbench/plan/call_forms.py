"""The table of forms of a call: ways to move the same bytes to the same result.

A form takes one tensor of S bytes, or S bytes in several tensors. The direct call of one tensor,
and of all bytes in one flat tensor, are the references with which the other forms are compared.
The functions take the operation's call, the module `torch.distributed` and the rank's buffers, so
that this file needs no torch. An entry says everything about its form, and nothing else in the
program tests its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from commbench.errors import wrong_value
from commbench.plan import compression
from commbench.plan.compression import Compression
from commbench.plan.operation import Operation, Works
from commbench.plan.operations import OPERATIONS
from commbench.units import format_size, parse_size
from commbench.validation import by_name, require_within

DIRECT = "direct"
ALL_FORMS = "all"
"""Choice of forms: each that applies."""


class CallForm(NamedTuple):
    """One form of a call."""

    name: str
    summary: str
    calls: str
    """What is timed, for the table of `commbench ops`; `call` is the operation's own function."""
    run: Callable[[Callable[..., Any], Any, Any], object] = lambda call, dist, b: call(dist, b)
    """`run(call, torch.distributed, buffers)` makes the operation's calls once and waits for
    them."""
    start: Callable[[Callable[..., Any], Any, Any], Any] | None = None
    """`start(call, torch.distributed, buffers)` only starts the calls and returns what `wait()` is
    called on. None for a reference, whose call has async_op, and where the calls follow one
    another, so that they cannot all be started at once."""
    one: bool = True
    """Whether it takes one tensor."""
    several: bool = False
    """Whether it takes several tensors."""
    is_reference: bool = False
    """Whether it is one direct call of all bytes. Other forms are compared with it."""
    operations: tuple[str, ...] = ()
    """The only operations that can be done in this way; empty for a form of every operation."""
    steps: tuple[str, ...] = ()
    """The operations that have its result together, one after another, in the same memory."""
    has_flat: bool = False
    """Whether it copies the tensors into one more buffer, a flat one, and back."""
    is_coalesced: bool = False
    """Whether the backend is given all calls as one."""
    is_divided_by_ranks: bool = False
    """Whether S must be whole elements for each rank, although none of its steps says so."""
    calls_before: int | None = None
    """It is a call on a process group that was made for it, after so many calls there. The host's
    clock times it, call by call. None for a call on the group that is measured."""
    compression: Compression | None = None
    """What it needs and promises where it sends fewer bytes, and its result is not exact."""

    @property
    def has_tensors(self) -> bool:
        """Whether each tensor of a case has memory of its own: not where one is a part of all."""
        return self.several and not self.is_reference

    @property
    def is_divided(self) -> bool:
        """Whether S must be whole elements for each rank: a step has blocks."""
        return self.is_divided_by_ranks or any(OPERATIONS[name].blocks for name in self.steps)

    def suits(self, operation: Operation) -> bool:
        """Whether an operation can be done in this way, on some backend."""
        if self.operations:
            return operation.name in self.operations
        own = operation.prepare or operation.is_on_host or operation.memory or operation.registers
        return self.is_reference or not own

    def takes(self, tensors: str) -> bool:
        """Whether it applies to the value of Case.tensors."""
        return self.one if tensors == ONE_TENSOR else self.several


def _start_all(call: Callable[..., Any], dist: Any, b: Any) -> Works:
    return Works([call(dist, part, async_op=True) for part in b.tensors])


def _coalesced(call: Callable[..., Any], dist: Any, b: Any, async_op: bool = False) -> Any:
    """The calls in torch's coalescing manager. What a backend refuses would leave torch's list of
    calls behind, and later calls would only be added to it."""
    c10d, device = dist.distributed_c10d, b.send.device
    try:
        # With a device, the backend itself groups the calls; a CPU's has no such function.
        of_backend = None if device.type == "cpu" else device
        with c10d._coalescing_manager(b.group, of_backend, async_op) as batch:
            for part in b.tensors:
                call(dist, part, async_op=async_op)
    except BaseException:
        c10d._world.pg_coalesce_state.pop(b.group or dist.group.WORLD, None)
        raise
    return batch


def _flat_copy(call: Callable[..., Any], dist: Any, b: Any) -> None:
    b.copy_in()
    call(dist, b.flat)
    b.copy_out()


def _sends_and_receives(_: Callable[..., Any], dist: Any, b: Any) -> None:
    transfers = []
    for peer in range(b.ranks):
        if peer != b.rank:
            number = b.global_ranks[peer]
            transfers.append(dist.P2POp(dist.isend, b.send_blocks[peer], number, b.group))
            transfers.append(dist.P2POp(dist.irecv, b.receive_blocks[peer], number, b.group))
    works = Works(dist.batch_isend_irecv(transfers) if transfers else ())
    b.receive_blocks[b.rank].copy_(b.send_blocks[b.rank])
    works.wait()


def _compressed(name: str, summary: str, calls: str, how: Compression, **facts: Any) -> CallForm:
    """A form that sends fewer bytes."""
    operations = tuple(o.name for o in OPERATIONS.values() if how.of in o.compressions)
    return CallForm(
        name, f"compressed: {summary}", calls, lambda _, __, b: b.compressed.run(),
        operations=operations, compression=how, **facts,
    )  # fmt: skip


CALL_FORMS = by_name(
    CallForm(
        DIRECT, "the operation's own call, of one tensor", "call", is_reference=True,
    ),
    CallForm(
        "flat", "one call of all bytes in one tensor, no copies", "call", one=False,
        several=True, is_reference=True,
    ),
    CallForm(
        "separate", "a call for each tensor, each waited for", "call, K times",
        lambda call, dist, b: [call(dist, part) for part in b.tensors], one=False, several=True,
    ),
    CallForm(
        "async", "a call for each with async_op=True, then waits",
        "call(async_op=True), K times; wait(), K times",
        lambda *given: _start_all(*given).wait(), _start_all, several=True,
    ),
    CallForm(
        "coalesced", "a call for each in torch's coalescing manager",
        "with _coalescing_manager(): call, K times", _coalesced,
        partial(_coalesced, async_op=True), one=False, several=True, is_coalesced=True,
    ),
    CallForm(
        "flat_copy", "copies into one tensor, one call, copies back",
        "copies, call, copies", _flat_copy, one=False, several=True, has_flat=True,
    ),
    *(
        CallForm(
            "+".join(steps), f"{o.name} as {' and '.join(steps)}",
            " + ".join(OPERATIONS[step].torch_call for step in steps),
            lambda _, dist, b: [call(dist, buffers) for call, buffers in b.steps],
            operations=(o.name,), steps=steps,
        )
        for o in OPERATIONS.values()
        for steps in o.compositions
    ),
    CallForm(
        "isend+irecv", "a send of each block and a receive of each block", "batch_isend_irecv",
        _sends_and_receives,
        operations=tuple(o.name for o in OPERATIONS.values() if o.is_transfers),
    ),
    *(
        CallForm(
            name, f"the {name} call on a new process group", "call",
            lambda call, dist, b: call(dist, b.on_new_group()), calls_before=before,
        )
        for before, name in enumerate(("first", "second"))
    ),
    _compressed("bf16", "cast to bfloat16", "cast, call, cast", compression.cast("bfloat16")),
    _compressed("fp16", "cast to float16", "cast, call, cast", compression.cast("float16")),
    *(
        _compressed(
            name, f"{dtype}, a scale for {compression.SCALED} elements",
            "all_to_all, float32 sum, all_gather", compression.scaled(dtype),
            is_divided_by_ranks=True,
        )
        for name, dtype in (("int8", "int8"), ("fp8", "float8_e4m3fn"))
    ),
    *(
        _compressed(
            f"powersgd:{columns}", f"two factors of rank {columns}", "all_reduce of each factor",
            compression.powersgd(columns),
        )
        for columns in compression.POWERSGD_RANKS
    ),
)  # fmt: skip


def is_compressed(name: str) -> bool:
    """Whether a name is that of a compressed form."""
    return name in CALL_FORMS and CALL_FORMS[name].compression is not None


ONE_TENSOR = "1"
MOST_TENSORS = 10_000
DDP = "ddp"
DDP_BUCKET = 25 << 20
DDP_FIRST_BUCKET = 1 << 20
"""The first bucket of DistributedDataParallel with its default bucket_cap_mb of 25 MiB is smaller,
so that communication starts early (torch/nn/parallel/distributed.py)."""


def parse_tensors(text: str) -> str:
    """The value of Case.tensors for a number of tensors or a split: `16`, `ddp:25M`. UsageError for
    another text."""
    text = text.strip().lower()
    if re.fullmatch(r"\d{1,9}", text):
        require_within("--tensors", int(text), 1, MOST_TENSORS)
        return str(int(text))
    name, _, bucket = text.partition(":")
    if name != DDP:
        hint = "write --tensors 16, or --split ddp:25M for the buckets of DistributedDataParallel"
        raise wrong_value(text, "is neither a number nor a split", hint, "--tensors")
    return f"{DDP}:{format_size(parse_size(bucket) if bucket else DDP_BUCKET)}"


def count_tensors(tensors: str, count: int, granule_bytes: int) -> int:
    """How many tensors split_count makes."""
    if tensors.isdigit():
        return int(tensors)
    first, most = _bucket_elements(tensors, granule_bytes)
    return 1 + max(0, -((first - count) // most))


def split_count(tensors: str, count: int, granule_bytes: int) -> tuple[int, ...]:
    """The elements of a block of each tensor, `count` together.

    `granule_bytes` are the bytes of one element in every block. The buckets of ddp are filled one
    after the other, each to whole elements, and the last has the rest.
    """
    if tensors.isdigit():
        return (count // int(tensors),) * int(tensors)
    first, most = _bucket_elements(tensors, granule_bytes)
    if count <= first:
        return (count,)
    full, rest = divmod(count - first, most)
    return (first, *(most,) * full, *((rest,) if rest else ()))


def _bucket_elements(split: str, granule_bytes: int) -> tuple[int, int]:
    """Elements of a block in the first bucket, and in each other bucket that is full."""
    bucket = parse_size(split.partition(":")[2])
    first = DDP_FIRST_BUCKET if bucket == DDP_BUCKET else bucket
    return max(1, first // granule_bytes), max(1, bucket // granule_bytes)


def choose_forms(chosen: Iterable[str], operation: Operation, tensors: str) -> tuple[str, ...]:
    """The forms of an operation that are measured with a value of Case.tensors: the reference, and
    those of `chosen` that take so many tensors. By default these are all for several tensors, and
    none for one. `all` are those that need no new process group and give the same result."""
    chosen, usable = tuple(chosen), [form for form in CALL_FORMS.values() if form.takes(tensors)]
    if ALL_FORMS in chosen or (not chosen and tensors != ONE_TENSOR):
        others = {f.name for f in usable if f.calls_before is not None or f.compression} - {*chosen}
        return tuple(f.name for f in usable if f.name not in others and f.suits(operation))
    return tuple(form.name for form in usable if form.is_reference or form.name in chosen)


def size_step(operation: Operation, forms: Iterable[CallForm], tensors: str, ranks: int) -> int:
    """The size of a case is a multiple of so many elements, or elements per block if the operation
    has blocks: all tensors are equal, and forms that are measured side by side move the same bytes.
    """
    is_divided = any(f.is_divided and f.suits(operation) for f in forms)
    step = ranks if is_divided and not operation.blocks else 1
    return step * (int(tensors) if tensors.isdigit() else 1)


def why_form_unsupported(form_name: str, operation: Operation, backend: str, device: str) -> str:
    """Why an operation does not have a form, as far as the tables tell; empty where it may."""
    form = CALL_FORMS[form_name]
    if not form.suits(operation):
        known = [own.name for own in CALL_FORMS.values() if operation.name in own.operations]
        others = f"; for {operation.name} use {' or '.join(known)}" if known else ""
        if not form.operations:
            return f"{operation.name} has no form {form.name}{others}"
        return f"{form.name} is a form of {' and '.join(form.operations)} only{others}"
    if form.is_coalesced and operation.is_batch:
        return f"{operation.name} is a batch of calls already, and batches do not nest"
    if form.is_coalesced and device == "cpu" and not operation.is_coalesced:
        names = ", ".join(name for name, o in OPERATIONS.items() if o.is_coalesced)
        return f"{backend} on a CPU coalesces only {names}"
    return ""
