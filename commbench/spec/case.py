"""What to measure: a Plan, validated and immutable, the same on every rank; it lists its Cases."""

from __future__ import annotations

from typing import NamedTuple

from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import IN_PLACE, OPERATIONS, Extent
from commbench.spec.timing_modes import describe_timing
from commbench.units import format_bytes

READY = "ready"


UNSUPPORTED = "unsupported"


SKIPPED = "skipped"


FINISHED = "finished"
"""Status of a case that a launch had finished before it was cut off and taken up again."""


class Case(NamedTuple):
    """One row to be: what is measured, at what size, or why it cannot be."""

    index: int  # type: ignore[assignment]  # a tuple's methods of these names are of no use here
    operation: str
    dtype: str
    """Empty for an operation without data."""
    reduce_op: str
    """Empty for an operation that does not reduce."""
    root: int | None
    placement: str
    timing: str
    size_bytes: int
    """nccl-tests' size: the larger of what one rank sends and receives, after rounding down to
    whole elements per block."""
    count: int  # type: ignore[assignment]
    """nccl-tests' count: elements in the tensor, or in one block of an operation with blocks."""
    status: str = READY
    """`ready`, `unsupported`, `skipped` or `finished`."""
    reason: str = ""

    @property
    def block_bytes(self) -> int:
        """Bytes of one block; of the whole tensor where the operation has no blocks."""
        return self.count * DTYPES[self.dtype].size_bytes if self.dtype else 0

    @property
    def kind(self) -> str:
        """What is called, without the size: `all_reduce float32 sum in_place`."""
        root = "" if self.root is None else f"root {self.root}"
        parts = (self.operation, self.dtype, self.reduce_op, self.placement, root)
        return " ".join(part for part in parts if part)

    @property
    def title(self) -> str:
        """What is measured, without the size: its kind, and the timing where calls are queued."""
        return f"{self.kind} {describe_timing(self.timing).tag}".rstrip()

    @property
    def name(self) -> str:
        """What is measured, with the size: `all_reduce float32 sum in_place 1 MiB`."""
        return f"{self.title} {format_bytes(self.size_bytes)}" if self.dtype else self.title

    def buffer_bytes(self, rank: int) -> tuple[int, int]:
        """Bytes of the send and the receive buffer on `rank`; the smaller lies within the
        larger in place."""
        operation = OPERATIONS[self.operation]
        send, receive = (
            _extent_bytes(extent, self.size_bytes, self.block_bytes, rank == self.root)
            for extent in (operation.send, operation.receive)
        )
        return send, receive

    def needed_bytes(self, rank: int) -> int:
        """Bytes of buffers that `rank` needs for this case."""
        send, receive = self.buffer_bytes(rank)
        return max(send, receive) if self.placement == IN_PLACE else send + receive


def _extent_bytes(extent: Extent, size: int, block: int, is_root: bool) -> int:
    return {
        Extent.NOTHING: 0,
        Extent.BLOCK: block,
        Extent.WHOLE: size,
        Extent.AT_ROOT: size if is_root else 0,
    }[extent]
