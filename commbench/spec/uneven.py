"""The operations whose blocks differ from rank to rank (spec.splits).

S is what a rank sends on average in all_to_all_v, and all blocks together in the other two, so that
`uniform` moves the bytes of the operation with equal blocks. Bus bandwidth counts the rank whose
link carries most: with any algorithm its blocks, without the one that it keeps, cross its link in
one direction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from commbench.spec.operation import BlockOrigin, Extent, Operation
from commbench.validation import by_name

WORST_LINK = "worst/S"
"""Bus-bandwidth formula: what the link of the rank with most to carry must carry, over S."""


def _counts(blocks: Any) -> list[int]:
    return [block.numel() for block in blocks]


def _entry(call: Callable[..., Any], **facts: Any) -> Operation:
    """`call(torch.distributed, buffers)` gives the function that is called, and its arguments."""

    def prepare(dist: Any, b: Any, **how: Any) -> Any:
        return partial(*call(dist, b), group=b.group, **how)

    return Operation(
        prepare=prepare,
        call=lambda dist, b, async_op=False: prepare(dist, b, async_op=async_op)(),
        blocks=True,
        messages="1",
        busbw_formula=WORST_LINK,
        **facts,
    )


UNEVEN = by_name(
    _entry(
        lambda dist, b: (
            dist.all_to_all_single, b.receive, b.send, _counts(b.receive_blocks),
            _counts(b.send_blocks)),
        name="all_to_all_v",
        summary="all_to_all with unequal blocks (--imbalance)",
        torch_call="all_to_all_single", send=Extent.WHOLE, receive=Extent.WHOLE,
        expected=lambda at: BlockOrigin(rank=at.block, block=at.rank),
        block_counts=lambda splits, rank: (
            splits.matrix[rank], tuple(row[rank] for row in splits.matrix)),
    ),
    _entry(
        lambda dist, b: (dist.all_gather, b.receive_blocks, b.send), name="all_gather_v",
        summary="all_gather with unequal blocks (--imbalance)",
        torch_call="all_gather", send=Extent.BLOCK, receive=Extent.WHOLE, equal_only=("gloo",),
        expected=lambda at: BlockOrigin(rank=at.block, block=0),
        block_counts=lambda splits, rank: ((splits.vector[rank],), splits.vector),
    ),
    _entry(
        lambda dist, b: (
            partial(dist.reduce_scatter, op=b.reduce_op), b.receive, b.send_blocks),
        name="reduce_scatter_v",
        summary="reduce_scatter with unequal blocks (--imbalance)",
        torch_call="reduce_scatter", send=Extent.WHOLE, receive=Extent.BLOCK, reduces=True,
        expected=lambda at: BlockOrigin(block=at.rank),
        block_counts=lambda splits, rank: (splits.vector, (splits.vector[rank],)),
    ),
)  # fmt: skip
