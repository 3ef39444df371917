"""The memory of a rank: one arena for all cases, and the buffers of each case as views of it.

The arena is as large as the largest case needs and is allocated once. Pages that no case has
touched yet cost nothing, and no case waits for pages that an earlier case has touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from commbench.spec.case import Case
from commbench.spec.operations import IN_PLACE, OPERATIONS
from commbench.spec.reduce_ops import REDUCE_OPS
from commbench.worker.communicator import Communicator
from commbench.worker.groups import GroupView

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
    root: int
    """Rank of the root within the group, as the other ranks."""
    rank: int
    ranks: int
    group: Any
    global_ranks: Sequence[int]
    device_ids: list[int] | None
    """The index of the rank's accelerator, which a barrier wants; None on a CPU."""
    group_index: int = 0
    """The number of the group among those of its dimension: each has its own test data."""

    @property
    def global_root(self) -> int:
        """The root's number in the default process group, as torch.distributed wants it."""
        return self.global_ranks[self.root]


Parts: TypeAlias = list[tuple[Case, Buffers]]
"""A case as each of a rank's groups runs it, with its buffers."""


class Arena:
    """One allocation on the rank's device, used for the buffers of one case after another."""

    def __init__(self, comm: Communicator, cases: tuple[Case, ...]) -> None:
        self._comm = comm
        needed = max((case.pieces * sum(self._parts_bytes(case)) for case in cases), default=0)
        self._memory = torch.empty(
            needed + ALIGNMENT, dtype=torch.uint8, device=comm.device.torch_device
        )
        self._dtype = ""

    def is_stale(self, case: Case) -> bool:
        """Whether the memory holds data of another dtype: read as this case's, they could be
        denormal numbers, which are slow to add."""
        return case.dtype != self._dtype

    def mark_used(self, case: Case) -> None:
        """Note that the memory now holds data of a case."""
        self._dtype = case.dtype or self._dtype

    def pieces(self, case: Case) -> list[Parts]:
        """The parts of a case in each of its pieces of memory, which share no byte."""
        return [self.parts(case, piece) for piece in range(case.pieces)]

    def parts(self, case: Case, piece: int = 0) -> Parts:
        """The case as each of this rank's groups runs it, with its buffers in one piece of memory;
        none where the rank takes no part. The contents are what the last case left there."""
        sizes = self._parts_bytes(case)
        starts = accumulate(sizes, initial=piece * sum(sizes))
        return [
            (own := case.in_group(len(view.ranks)), self._buffers(own, view, start))
            for view, start in zip(self._comm.views(case), starts, strict=False)
        ]

    def buffers(self, case: Case, piece: int = 0) -> Buffers:
        """The buffers of a case in one piece of memory, on a rank that is in one of its groups."""
        ((_, buffers),) = self.parts(case, piece)
        return buffers

    def _buffers(self, case: Case, view: GroupView, start: int) -> Buffers:
        index = self._comm.device.torch_device.index
        send_bytes, receive_bytes = case.buffer_bytes(view.rank)
        send_start, receive_start = self._starts(case, view.rank, send_bytes, receive_bytes)
        send = self._view(start + send_start, send_bytes, case.dtype)
        receive = self._view(start + receive_start, receive_bytes, case.dtype)
        return Buffers(
            send=send,
            receive=receive,
            send_blocks=_blocks(case, send),
            receive_blocks=_blocks(case, receive),
            reduce_op=_reduce_op(case.reduce_op),
            root=case.root or 0,
            rank=view.rank,
            ranks=len(view.ranks),
            group=view.group,
            global_ranks=view.global_ranks,
            device_ids=None if index is None else [index],
            group_index=view.number,
        )

    def _parts_bytes(self, case: Case) -> list[int]:
        """For each of this rank's groups, bytes from one piece of a case to the next: each of its
        buffers begins on a page."""
        found = []
        for view in self._comm.views(case):
            own = case.in_group(len(view.ranks)).buffer_bytes(view.rank)
            send, receive = (-(-size // ALIGNMENT) * ALIGNMENT for size in own)
            found.append(max(send, receive) if case.placement == IN_PLACE else send + receive)
        return found

    def _starts(
        self, case: Case, rank: int, send_bytes: int, receive_bytes: int
    ) -> tuple[int, int]:
        if case.placement != IN_PLACE:
            return 0, -(-send_bytes // ALIGNMENT) * ALIGNMENT
        own_block = rank * case.block_bytes
        if 0 < send_bytes < receive_bytes:
            return own_block, 0
        if 0 < receive_bytes < send_bytes:
            return 0, own_block
        return 0, 0

    def _view(self, start: int, size: int, dtype: str) -> torch.Tensor:
        return self._memory[start : start + size].view(getattr(torch, dtype or "uint8"))


def make_call(case: Case, buffers: Buffers) -> Callable[[], object]:
    """The function that runs the operation of a case once."""
    return partial(OPERATIONS[case.operation].call, dist, buffers)


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
