"""The Python objects of an object collective, made of a rank's buffers and copied into them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import torch


class Objects:
    """The objects of one rank: `bytes` with what its buffers contain.

    A `send` without elements sends nothing. There are as many objects to receive as blocks.
    """

    def __init__(self, send: torch.Tensor, receive_blocks: Sequence[torch.Tensor]) -> None:
        self._send, self._blocks = send, receive_blocks
        self.sent = b""
        self.received: list[Any] = []
        self._pickled = torch.empty(0, dtype=torch.uint8)
        self._parts: list[torch.Tensor] = []
        """The pickled objects that came, one after another or each with others behind it."""
        self.load()

    def load(self) -> None:
        """Take what the send buffer contains, and forget what was received."""
        self.sent = _bytes_of(self._send)
        # A rank that broadcasts has its object in the list.
        is_root = len(self._blocks) == 1 and bool(self.sent)
        self.received = [self.sent] if is_root else [None] * len(self._blocks)
        text = bytearray(pickle.dumps(self.sent))
        self._pickled = torch.frombuffer(text, dtype=torch.uint8).to(self._send.device)
        self._parts = []

    def collect(self) -> None:
        """Copy what was received into the receive buffer."""
        if self._parts:
            self.received = [pickle.loads(_bytes_of(part)) for part in self._parts]
        for block, found in zip(self._blocks, self.received, strict=True):
            if found is not None:
                block.view(torch.uint8).copy_(torch.frombuffer(bytearray(found), dtype=torch.uint8))

    def all_gather_pickled(self, dist: Any, group: Any) -> None:
        """The calls of all_gather_object, without pickling: the sizes, then the bytes."""
        ranks, device = len(self._blocks), self._send.device
        own = torch.tensor([self._pickled.numel()], device=device)
        sizes = torch.empty(ranks, dtype=torch.long, device=device)
        dist.all_gather(list(sizes.split(1)), own, group=group)
        most = int(sizes.max())
        whole = torch.empty(most * ranks, dtype=torch.uint8, device=device)
        self._parts = list(whole.split(most))
        dist.all_gather(self._parts, self._pickled.resize_(most), group=group)

    def broadcast_pickled(self, dist: Any, root: int, group: Any) -> None:
        """The calls of broadcast_object_list, without pickling: the size, then the bytes."""
        pickled = self._pickled
        size = torch.tensor([pickled.numel()], device=self._send.device)
        dist.broadcast(size, src=root, group=group)
        if not self.sent:
            pickled = torch.empty(int(size), dtype=torch.uint8, device=self._send.device)
        dist.broadcast(pickled, src=root, group=group)
        self._parts = [pickled]


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.view(torch.uint8).cpu().numpy())
