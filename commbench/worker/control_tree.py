"""What ranks tell each other beside what is measured.

Control traffic (agreeing on what follows, collecting samples) goes over a gloo group of its own,
never over the group that is measured. It goes along a binomial tree, so that no rank talks to more
than log2(n) others, and rank 0 does not grow with what the ranks hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

from commbench.errors import CommbenchError, from_wire, to_wire
from commbench.worker.groups import GroupView

_TAG, _SHARE_TAG, _GROUP_TAG = 1, 2, 3
"""Of the messages that go up and down the tree of all ranks, and up that of a group."""


class ControlTree:
    """One rank's place in the tree of all ranks. `control` is a gloo group of them."""

    def __init__(self, rank: int, ranks: int, control: Any) -> None:
        self.rank = rank
        self.ranks = ranks
        self.control = control
        self._parent, self._children = _binomial_tree(rank, ranks)

    def share(self, tensor: torch.Tensor, source: int = 0) -> torch.Tensor:
        """The tensor of rank `source`, on every rank."""
        # gloo's broadcast takes the same way, and twice the processor's time.
        parent, children = self._parent, self._children
        if source:
            parent, children = _binomial_tree((self.rank - source) % self.ranks, self.ranks)
        if parent is not None:
            self.control.recv([tensor], (parent + source) % self.ranks, _SHARE_TAG).wait()
        for child, _ in reversed(children):  # the largest subtree first
            self.control.send([tensor], (child + source) % self.ranks, _SHARE_TAG).wait()
        return tensor

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Every rank's `tensor` (same shape and dtype everywhere), stacked by rank, on rank 0;
        empty elsewhere."""
        parts = [tensor.unsqueeze(0)]
        for child, size in self._children:
            part = torch.empty((size, *tensor.shape), dtype=tensor.dtype)
            self.control.recv([part], child, _TAG).wait()
            parts.append(part)
        gathered = torch.cat(parts)
        if self._parent is None:
            return gathered
        self.control.send([gathered], self._parent, _TAG).wait()
        return gathered[:0]

    def reduce_max(self, tensor: torch.Tensor, view: GroupView | None = None) -> torch.Tensor:
        """The maximum of each element over all ranks, on rank 0; a part of it elsewhere. With
        `view` over the ranks of that group, on its first rank; the ranks that are in several groups
        call this in the same order.

        Along a binomial tree: a rank holds one more tensor, however many ranks there are.
        """
        ranks: Sequence[int] = view.ranks if view else range(self.ranks)
        tag = _GROUP_TAG if view else _TAG
        parent, children = _binomial_tree(view.rank if view else self.rank, len(ranks))
        result, part = tensor.clone(), torch.empty_like(tensor)
        for child, _ in children:
            self.control.recv([part], ranks[child], tag).wait()
            torch.maximum(result, part, out=result)
        if parent is not None:
            self.control.send([result], ranks[parent], tag).wait()
        return result

    def all_reduce_max(self, tensor: torch.Tensor) -> torch.Tensor:
        """The maximum of each element over all ranks, on every rank."""
        return self.share(self.reduce_max(tensor))

    def first_rank(self, flags: Sequence[bool]) -> list[int | None]:
        """For each flag the lowest rank on which it is set, None where there is none; the same on
        every rank. All ranks have equally many flags."""
        if not flags:
            return []
        own = torch.tensor([flag * (self.ranks - self.rank) for flag in flags])
        found = self.all_reduce_max(own).tolist()
        return [self.ranks - number if number else None for number in found]

    def share_value(self, value: Any, source: int = 0) -> Any:
        """The JSON value of rank `source`, of any size, on every rank."""
        data = bytearray(json.dumps(value).encode() if self.rank == source else b"")
        size = int(self.share(torch.tensor(len(data)), source))
        found = self.share(_as_bytes(data or bytearray(size)), source)
        return json.loads(bytes(found.numpy()))

    def gather_values(self, value: Any) -> list[Any]:
        """The JSON value of each rank, in the order of ranks and without None, on rank 0; empty
        elsewhere. On the way they stay text, which only rank 0 reads."""
        texts: list[bytes | bytearray] = [] if value is None else [json.dumps(value).encode()]
        for child, _ in self._children:
            size = torch.tensor(0)
            self.control.recv([size], child, _TAG).wait()
            if size:
                data = bytearray(int(size))
                self.control.recv([_as_bytes(data)], child, _TAG).wait()
                texts.append(data)
        joined = bytearray(b",".join(texts))
        if self._parent is None:
            return list(json.loads(f"[{joined.decode()}]"))
        self.control.send([torch.tensor(len(joined))], self._parent, _TAG).wait()
        if joined:
            self.control.send([_as_bytes(joined)], self._parent, _TAG).wait()
        return []

    def all_gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Every rank's `tensor` (same shape and dtype everywhere), stacked by rank."""
        gathered, shape = self.gather(tensor), (self.ranks, *tensor.shape)
        return self.share(torch.empty(shape, dtype=tensor.dtype) if self.rank else gathered)

    def first_alike(self, values: Sequence[Any]) -> torch.Tensor:
        """For each of these JSON values, and each rank, the first rank that has the same: int64
        [values, ranks], the same on every rank. Ranks compare 64 bits of a hash."""
        hashes = [hashlib.sha256(json.dumps(value).encode()).digest()[:8] for value in values]
        own = torch.tensor([int.from_bytes(each, "big", signed=True) for each in hashes])
        first = torch.empty((len(values), self.ranks), dtype=torch.int64)
        for found, column in zip(first, self.gather(own).T, strict=True):
            if self.rank:
                continue
            _, kinds = torch.unique(column, return_inverse=True)
            lowest = torch.full_like(kinds, self.ranks)
            found[:] = lowest.scatter_reduce(0, kinds, torch.arange(self.ranks), "amin")[kinds]
        return self.share(first)

    def agree(self, part: Any, decide: Callable[[list[Any]], Any]) -> Any:
        """What `decide` makes, on rank 0, of every rank's `part` but None; the same on every rank.

        Parts and decision are JSON values. A CommbenchError that `decide` raises is raised on every
        rank. What can be reduced (first_rank, first_alike, reduce_max) is cheaper than a list of
        parts.
        """
        parts = self.gather_values(part)
        decision, error = None, None
        if not self.rank:
            try:
                decision = decide(parts)
            except CommbenchError as caught:
                error = to_wire(caught)
        decision, error = self.share_value((decision, error))
        if error:
            raise from_wire(error)
        return decision


def _binomial_tree(rank: int, ranks: int) -> tuple[int | None, list[tuple[int, int]]]:
    """The parent of a rank in the tree that gloo's broadcast from rank 0 uses too (None for rank
    0), and each child with the number of ranks below and including it.

    The subtree of a child consists of the ranks that follow it, so that parts arrive in order.
    """
    children, step = [], 1
    while step < ranks and not rank & step:
        if rank + step < ranks:
            children.append((rank + step, min(step, ranks - rank - step)))
        step *= 2
    return (rank - step if rank else None), children


def _as_bytes(data: bytearray) -> torch.Tensor:
    return torch.frombuffer(data, dtype=torch.uint8)
