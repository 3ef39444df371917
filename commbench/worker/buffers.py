"""The memory of a rank: an arena for all cases, and the buffers of each case as views of it.

The arena is as large as the largest case needs and is allocated once, for each kind of memory that
the cases have. Pages that no case has touched yet cost nothing, and no case waits for pages that an
earlier case has touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist

from commbench.errors import CommbenchError
from commbench.spec.allocators import ALLOCATORS, DEFAULT_MEMORY
from commbench.spec.case import Case
from commbench.spec.operations import IN_PLACE, OPERATIONS
from commbench.spec.pairs import Peer, find_peer
from commbench.spec.reduce_ops import REDUCE_OPS
from commbench.worker.communicator import Communicator
from commbench.worker.memory import Memory

ALIGNMENT = 4096


@dataclass(frozen=True, slots=True)
class Buffers:
    """The arguments of an operation's call; tensors are one-dimensional."""

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
    register: Callable[[], object]
    """Allocates and registers as much memory as `send` has, of the same kind."""
    peer: Peer | None = None
    """The other rank of this rank's pair; None for a rank without one."""
    p2p_call: str = ""
    """The kind of call for point to point."""
    window: int = 1
    """Messages that are sent before the sender waits."""

    @property
    def global_root(self) -> int:
        """The root's number in the default process group, as torch.distributed wants it."""
        return self.global_ranks[self.root]


class Arena:
    """One allocation of each kind on the rank's device, used for one case after another.

    As a context manager it releases them where the ranks leave it together, and nothing is under
    way: after a CommbenchError too, but after no other.
    """

    def __init__(self, comm: Communicator, cases: tuple[Case, ...]) -> None:
        self._comm = comm
        self._memories: dict[str, Memory] = {}
        self._spare: Memory | None = None
        self._dtypes: dict[str, str] = {}
        needed = {} if cases else {DEFAULT_MEMORY: 0}
        for case in cases:
            size = case.pieces * self._piece_bytes(case)
            needed[case.memory] = max(needed.get(case.memory, 0), size)
        try:
            for kind, size in needed.items():
                self._memories[kind] = self._allocate(kind, size + ALIGNMENT)
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
        while self._memories:
            self._memories.popitem()[1].release()

    def _allocate(self, kind: str, size: int) -> Memory:
        made = ALLOCATORS[kind].make(self._comm.device, size, self._comm.group)
        return cast(Memory, made)

    def _register_spare(self, case: Case) -> None:
        self._spare = self._allocate(case.memory, case.size_bytes)
        self._spare.register()

    def release_spare(self) -> None:
        """Release what an operation registered that does only that."""
        if self._spare:
            self._spare.release()
        self._spare = None

    def is_stale(self, case: Case) -> bool:
        """Whether the memory holds data of another dtype: read as this case's, they could be
        denormal numbers, which are slow to add."""
        return case.dtype != self._dtypes.get(case.memory, "")

    def mark_used(self, case: Case) -> None:
        """Note that the memory now holds data of a case."""
        self._dtypes[case.memory] = case.dtype or self._dtypes.get(case.memory, "")

    def pieces(self, case: Case) -> list[Buffers]:
        """The buffers of a case in each of its pieces of memory, which share no byte."""
        return [self.buffers(case, piece) for piece in range(case.pieces)]

    def buffers(self, case: Case, piece: int = 0) -> Buffers:
        """The buffers of a case in one piece of memory, with what the last case left there."""
        comm = self._comm
        base = piece * self._piece_bytes(case)
        index = comm.device.torch_device.index
        send_bytes, receive_bytes = case.buffer_bytes(comm.rank)
        send_start, receive_start = self._starts(case, send_bytes, receive_bytes)
        send = self._view(case, base + send_start, send_bytes)
        receive = self._view(case, base + receive_start, receive_bytes)
        return Buffers(
            send=send,
            receive=receive,
            send_blocks=_blocks(case, send),
            receive_blocks=_blocks(case, receive),
            reduce_op=_reduce_op(case.reduce_op),
            reduce_name=case.reduce_op,
            root=case.root or 0,
            rank=comm.rank,
            ranks=comm.ranks,
            group=comm.group,
            global_ranks=comm.global_ranks,
            device_ids=None if index is None else [index],
            symm_mem=torch.ops.symm_mem,
            register=partial(self._register_spare, case),
            peer=find_peer(case.pairs, comm.rank, comm.ranks),
            p2p_call=case.p2p_call,
            window=case.window or 1,
        )

    def _piece_bytes(self, case: Case) -> int:
        """Bytes from one piece of a case to the next: each of its buffers begins on a page. In
        symmetric memory every rank has as many as the root."""
        root = case.root if ALLOCATORS[case.memory].is_symmetric else None
        rank = self._comm.rank if root is None else root
        send, receive = (-(-size // ALIGNMENT) * ALIGNMENT for size in case.buffer_bytes(rank))
        return max(send, receive) if case.placement == IN_PLACE else send + receive

    def _starts(self, case: Case, send_bytes: int, receive_bytes: int) -> tuple[int, int]:
        if case.placement != IN_PLACE:
            return 0, -(-send_bytes // ALIGNMENT) * ALIGNMENT
        own_block = self._comm.rank * case.block_bytes
        if 0 < send_bytes < receive_bytes:
            return own_block, 0
        if 0 < receive_bytes < send_bytes:
            return 0, own_block
        return 0, 0

    def _view(self, case: Case, start: int, size: int) -> torch.Tensor:
        memory = self._memories[case.memory].tensor
        return memory[start : start + size].view(getattr(torch, case.dtype or "uint8"))


def make_call(case: Case, buffers: Buffers) -> Callable[[], object]:
    """The function that runs the operation of a case once."""
    operation = OPERATIONS[case.operation]
    if operation.prepare:
        prepared: Callable[[], object] = operation.prepare(dist, buffers)
        return prepared
    return partial(operation.call, dist, buffers)


def make_async_call(case: Case, buffers: Buffers) -> Callable[[], Any]:
    """The function that starts the operation of a case once and returns what `wait()` is called on:
    torch's Work."""
    return partial(OPERATIONS[case.operation].call, dist, buffers, async_op=True)


def _blocks(case: Case, buffer: torch.Tensor) -> list[torch.Tensor] | None:
    return list(buffer.split(case.count)) if buffer.numel() else None


def _reduce_op(name: str) -> Any:
    if not name:
        return None
    return getattr(dist.ReduceOp, REDUCE_OPS[name].torch_name or name.upper())
