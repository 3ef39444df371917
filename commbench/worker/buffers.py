"""The memory of a rank: an arena for all cases, and the buffers of each case as views of it.

The arena is as large as the largest case needs and is allocated once, for each kind of memory that
the cases have. Pages that no case has touched yet cost nothing, and no case waits for pages that an
earlier case has touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias, cast

import torch
import torch.distributed as dist

from commbench.errors import CommbenchError
from commbench.plan import call_forms, dtypes, pairs, replay
from commbench.plan.backends import ALLOCATORS, DEFAULT_MEMORY
from commbench.plan.case import PAGE, TENSOR_ALIGNMENT, Case
from commbench.plan.operation import IN_PLACE, BlockOrigin, BlockPosition, Operation, Peer
from commbench.stats import collect
from commbench.worker.call_forms import make_copies, make_step, make_steps
from commbench.worker.communicator import Communicator
from commbench.worker.compression import SPACE_RESERVE, Compressed, make_compressed
from commbench.worker.device import Call, Memory
from commbench.worker.groups import GroupView, NewGroups
from commbench.worker.own_calls import BoundCall, bind, set_up

ALIGNMENT = PAGE


class Buffers(NamedTuple):
    """The arguments of an operation's call; tensors are one-dimensional."""

    case: Case
    """The case as the rank's group runs it."""
    send: torch.Tensor
    receive: torch.Tensor
    send_blocks: list[torch.Tensor] | None
    """The send buffer cut into blocks; a single one for an operation without blocks. None where it
    is empty: in a barrier, or on a rank that is not the root."""
    receive_blocks: list[torch.Tensor] | None
    reduce_op: Any
    reduce_name: str
    """As the operations of torch.ops.symm_mem want it."""
    root: int
    """Rank of the root within the group, as the other ranks."""
    rank: int
    ranks: int
    group: Any
    global_ranks: Sequence[int]
    device_ids: list[int] | None
    """The index of the rank's accelerator, which a barrier wants; None on a CPU."""
    symm_mem: Any
    """torch.ops.symm_mem."""
    register: Call
    """Allocates and registers as much memory as `send` has, of the same kind."""
    new_groups: NewGroups
    """Makes process groups of the same ranks, for a case whose calls use new ones."""
    group_number: int = 0
    """The number of the group among those of its dimension: each has its own test data."""
    peer: Peer | None = None
    """The other rank of this rank's pair; None for a rank without one."""
    several: tuple[Buffers, ...] = ()
    """Those of each tensor, where S is cut into several with memory of their own; the other fields
    are then those of the last one."""
    flat: Buffers | None = None
    """Those of the flat tensor that the tensors are copied into."""
    copy_in: Call = lambda: None
    """Copies the send buffers of all tensors into the flat one."""
    copy_out: Call = lambda: None
    """Copies the flat receive buffer, where its content is defined, into those of all tensors."""
    steps: Steps = ()
    """The calls of a form that consists of other operations, with the buffers of each."""
    own: BoundCall | None = None
    """The user's own call with these buffers, where a case has one."""
    compressed: Compressed | None = None
    """What runs a compressed form."""
    run_step: Call = lambda: None
    """Makes the calls of the step that a case replays."""
    replayed: GroupBuffers = ()
    """The buffers of each of those calls."""

    @property
    def tensors(self) -> tuple[Buffers, ...]:
        """The buffers of each tensor."""
        return self.several or (self,)

    @property
    def has_one_memory(self) -> bool:
        """Whether one tensor is both sent and received."""
        send, receive = self.send, self.receive
        return (send.data_ptr(), send.numel()) == (receive.data_ptr(), receive.numel())

    def results(self, operation: Operation) -> Iterator[tuple[torch.Tensor, BlockOrigin]]:
        """The blocks of the receive buffer whose content an operation defines, each with the origin
        of what it must hold."""
        for number, block in enumerate(self.receive_blocks or ()):
            at = BlockPosition(self.rank, number, self.ranks, self.root, self.peer)
            if origin := operation.expected(at):
                yield block, origin

    def on_new_group(self) -> Buffers:
        """The same for the process group that was made last, or for one that is made now."""
        return self._replace(group=self.new_groups.last())

    @property
    def global_root(self) -> int:
        """The root's number in the default process group, as torch.distributed wants it."""
        return self.global_ranks[self.root]


Steps: TypeAlias = tuple[tuple[Callable[..., Any], Buffers], ...]
"""Calls of operations, each with its buffers."""
GroupBuffers: TypeAlias = Sequence[Buffers]
"""The buffers of a case in each of a rank's groups; empty for a rank in none."""
Pieces: TypeAlias = Sequence[GroupBuffers]
"""The buffers of each piece of memory that a case uses in turn."""


class Arena:
    """One allocation of each kind on the rank's device, used for one case after another.

    As a context manager it releases them where the ranks leave it together, and nothing is under
    way: after a CommbenchError too, but after no other.
    """

    def __init__(self, comm: Communicator, cases: tuple[Case, ...], is_trial: bool = False) -> None:
        """`is_trial`: of each case only the smallest of its kind is run."""
        self._comm, self._is_trial = comm, is_trial
        self._memories: dict[str, Memory] = {}
        self._spare: Memory | None = None
        self._dtypes: dict[str, str] = {}
        self._new_groups: dict[str, NewGroups] = {}
        """By the dimension of groups."""
        self._own: dict[tuple[int, int], Any] = {}
        """The user's objects that make own calls, by case and group."""
        self._space = torch.empty(0, dtype=torch.uint8)
        """The memory of compressed data, which all compressed calls share."""
        spaces = (self._in_group(c, v).space_bytes for c in cases for v in comm.views(c))
        kinds = collect((case.memory, case) for case in cases) or {DEFAULT_MEMORY: []}
        needed = dict[str, int]()
        for kind, own in kinds.items():
            needed[kind] = max((c.pieces * sum(self._group_bytes(c)) for c in own), default=0)
            if ALLOCATORS[kind].is_symmetric and any(case.group for case in cases):
                needed[kind] = int(comm.all_reduce_max(torch.tensor(needed[kind])))
        try:
            for kind, own in kinds.items():
                # All ranks come to the groups that they share in the same order.
                groups = [*dict.fromkeys(view.group for c in own for view in comm.views(c))]
                # A rank in none of the groups registers nothing.
                used = kind if groups else DEFAULT_MEMORY
                self._memories[kind] = self._allocate(used, needed[kind] + ALIGNMENT, groups)
            if space := max(spaces, default=0):
                size, device = space + SPACE_RESERVE, comm.device.torch_device
                self._space = torch.empty(size, dtype=torch.uint8, device=device)
        except BaseException:
            self.release()
            raise

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None or isinstance(error, CommbenchError):
            self.release()

    def register(self) -> None:
        """Register the memory where its kind asks for it. All ranks call it together."""
        for memory in self._memories.values():
            memory.register()

    def release(self) -> None:
        """Give up all memory, before the process group ends."""
        self.release_spare()
        self._space = torch.empty(0, dtype=torch.uint8)
        while self._own:
            if close := getattr(self._own.popitem()[1], "close", None):
                close()
        for made in self._new_groups.values():
            made.release()
        while self._memories:
            self._memories.popitem()[1].release()

    def _allocate(self, kind: str, size: int, groups: Sequence[Any]) -> Memory:
        return cast(Memory, ALLOCATORS[kind].make(self._comm.device, size, groups))

    def _register_spare(self, case: Case, group: Any) -> None:
        self._spare = self._allocate(case.memory, case.size_bytes, [group])
        self._spare.register()

    def release_spare(self) -> None:
        """Release what an operation registered that does only that."""
        if self._spare:
            self._spare.release()
        self._spare = None

    def is_stale(self, case: Case) -> bool:
        """Whether the memory holds data of another dtype: read as this case's, they could be
        denormal numbers, which are slow to add."""
        return _contents(case) != self._dtypes.get(case.memory, "")

    def mark_used(self, case: Case) -> None:
        """Note that the memory now holds data of a case."""
        self._dtypes[case.memory] = _contents(case) or self._dtypes.get(case.memory, "")

    def pieces(self, case: Case) -> Pieces:
        """The buffers of a case in each of its pieces of memory, which share no byte."""
        return [self.of_groups(case, piece) for piece in range(case.pieces)]

    def of_groups(self, case: Case, piece: int = 0) -> GroupBuffers:
        """The buffers of a case in one piece of memory, with what the last case left there, for
        each of the groups that this rank is in."""
        sizes = self._group_bytes(case)
        starts = accumulate(sizes, initial=piece * sum(sizes))
        views = zip(self._comm.views(case), starts, strict=False)
        return [self._of_group(self._in_group(case, view), view, start) for view, start in views]

    def _in_group(self, case: Case, view: GroupView) -> Case:
        own = case.in_group(len(view.ranks))
        return own.smallest if self._is_trial else own

    def _group_bytes(self, case: Case) -> list[int]:
        """For each of this rank's groups, the bytes from one piece of a case to the next: each of
        its buffers begins on a page, or each tensor at a multiple of TENSOR_ALIGNMENT."""
        if case.step:
            return [self._replayed(case).size_bytes]
        found = []
        for view in self._comm.views(case):
            own, rank = self._in_group(case, view), _layout_rank(case, view.rank)
            if _has_several(own):
                found.append(_align(own.piece_bytes(rank) + ALIGNMENT, ALIGNMENT))
                continue
            sizes = [_align(size, ALIGNMENT) for size in own.kept_bytes(rank)]
            found.append(sum(sizes) + (len(sizes) + 1) * _guard_bytes(own))
        return found

    def _of_group(self, case: Case, view: GroupView, begin: int) -> Buffers:
        if case.step:
            return self._of_step(case, view, begin)
        if _has_several(case):
            return self._several(case, view, begin)
        buffers, steps = self._buffers(case, view, begin), case.call_form.steps
        if case.call:
            return buffers._replace(own=self._bind(buffers, view, begin))
        if case.call_form.compression:
            return buffers._replace(compressed=make_compressed(buffers, self._space))
        return buffers._replace(steps=make_steps(steps, buffers)) if steps else buffers

    def _bind(self, buffers: Buffers, view: GroupView, begin: int) -> BoundCall:
        """The user's own call with these buffers, in the memory from byte `begin`."""
        case = buffers.case
        key = case.index, view.number
        if key not in self._own:
            self._own[key] = set_up(case, view, self._comm.device)
        memory, end = self._memories[case.memory].tensor, begin
        guards = []
        own = sorted(self._spans(case, view.rank, ALIGNMENT))
        last = max(start + size for start, size in own) + _guard_bytes(case)
        for start, size in [*own, (_align(last, ALIGNMENT), 0)]:
            guards.append(memory[end : max(end, begin + start)])
            end = max(end, begin + start + size)
        return bind(self._own[key], buffers, self._comm.device, (*guards,))

    def _buffers(
        self, case: Case, view: GroupView, begin: int, alignment: int = ALIGNMENT
    ) -> Buffers:
        """The buffers of one tensor, in the memory from byte `begin`."""
        rank, ranks = view.rank, len(view.ranks)
        index = self._comm.device.torch_device.index
        send_counts, receive_counts = case.block_counts(rank)
        spans = self._spans(case, rank, alignment)
        send, receive = (self._view(case, begin + start, size) for start, size in spans)
        return Buffers(
            case=case,
            send=send,
            receive=receive,
            send_blocks=_blocks(send, send_counts),
            receive_blocks=_blocks(receive, receive_counts),
            reduce_op=_reduce_op(case.reduce_op),
            reduce_name=case.reduce_op,
            root=case.root or 0,
            rank=rank,
            ranks=ranks,
            group=view.group,
            global_ranks=view.global_ranks,
            device_ids=None if index is None else [index],
            group_number=view.number,
            symm_mem=torch.ops.symm_mem,
            register=partial(self._register_spare, case, view.group),
            new_groups=self._new_groups.setdefault(
                case.group, NewGroups(view.group, self._comm.all_groups(case), self._comm.device)
            ),
            peer=pairs.find_peer(case.pairs, rank, ranks),
        )

    def _replayed(self, case: Case) -> replay.ReplayedStep:
        assert self._comm.plan is not None
        return replay.replayed_step(self._comm.plan, case, self._comm.rank, self._is_trial)

    def _of_step(self, case: Case, view: GroupView, begin: int) -> Buffers:
        """What replays a step, with the buffers of each of its calls on this rank."""
        step = self._replayed(case)
        views = [self._comm.views(one.case)[0] for one in step.calls]
        placed = zip(step.calls, views, strict=True)
        parts = [self._of_group(one.case, own, begin + one.begin) for one, own in placed]
        run_step = make_step(step, parts, self._comm.device)
        return self._buffers(case, view, begin)._replace(run_step=run_step, replayed=parts)

    def _several(self, case: Case, view: GroupView, begin: int) -> Buffers:
        """The buffers of several tensors, one after another, and behind them those of the flat one
        if the form has one."""
        parts, end = [], begin
        for part in case.tensor_cases:
            parts.append(self._buffers(part, view, end, TENSOR_ALIGNMENT))
            kept = part.kept_bytes(_layout_rank(case, view.rank))
            end += sum(_align(bytes_, TENSOR_ALIGNMENT) for bytes_ in kept)
        buffers = parts[-1]._replace(case=case, several=tuple(parts))
        if not case.call_form.has_flat:
            return buffers
        whole = case._replace(tensors=call_forms.ONE_TENSOR, form=call_forms.DIRECT)
        flat = self._buffers(whole, view, _align(end, ALIGNMENT))
        copy_in, copy_out = make_copies(parts, flat)
        return buffers._replace(flat=flat, copy_in=copy_in, copy_out=copy_out)

    def _spans(self, case: Case, rank: int, alignment: int) -> list[tuple[int, int]]:
        """Where the send and the receive buffer begin, and their bytes."""
        sizes, guard = case.buffer_bytes(rank), _guard_bytes(case)
        begins = [guard, 2 * guard + _align(sizes[0], alignment)]
        if case.placement == IN_PLACE:  # the smaller one is this rank's block of the other
            own_block = guard + rank * case.block_bytes
            begins = [own_block if 0 < size < max(sizes) else guard for size in sizes]
        return [*zip(begins, sizes, strict=True)]

    def _view(self, case: Case, start: int, size: int) -> torch.Tensor:
        memory = self._memories[case.memory].tensor
        return memory[start : start + size].view(getattr(torch, case.dtype or "uint8"))


def _contents(case: Case) -> str:
    """What its data are: their element type, or the step whose calls have them."""
    return case.dtype or (case.title if case.step else "")


def _layout_rank(case: Case, rank: int) -> int:
    """The rank whose buffers say where those of `rank` begin. In symmetric memory they begin at the
    same place on all ranks: where the root's do, which has the largest."""
    root = case.root if ALLOCATORS[case.memory].is_symmetric else None
    return rank if root is None else root


def _guard_bytes(case: Case) -> int:
    """Bytes before, between and behind the buffers of an own call, which must leave them alone."""
    return ALIGNMENT if case.call else 0


def _has_several(case: Case) -> bool:
    """Whether the case has several tensors with memory of their own."""
    return bool(case.call_form.has_tensors and case.dtype and case.num_tensors > 1)


def _align(size_bytes: int, alignment: int) -> int:
    return -(-size_bytes // alignment) * alignment


def _blocks(buffer: torch.Tensor, counts: Sequence[int]) -> list[torch.Tensor] | None:
    return list(buffer.split(list(counts))) if counts else None


def _reduce_op(name: str) -> Any:
    if not name:
        return None
    if dtypes.REDUCE_OPS[name].factor != 1:
        return dist._make_nccl_premul_sum(float(dtypes.REDUCE_OPS[name].factor))
    return getattr(dist.ReduceOp, dtypes.REDUCE_OPS[name].torch_name or name.upper())
