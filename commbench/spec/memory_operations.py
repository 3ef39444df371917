"""Operations with a kind of memory of their own: collectives of torch's symmetric memory, and the
registration of memory.

Sources of the former: torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu, torch 2.6 to
2.13: they sum float32 and bfloat16, two_shot_all_reduce_ on 2, 4 or 8 ranks; those named multimem
need multicast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from commbench.spec.operation import IN_PLACE, BlockOrigin, Extent, Operation
from commbench.validation import by_name


def _in_stream(call: Callable[[Any], Any]) -> Callable[..., Any]:
    """The call of an operation that is done, or queued, when it returns: torch starts no such one
    with async_op."""

    def run(_: Any, buffers: Any, async_op: bool = False) -> Any:
        if async_op:
            raise NotImplementedError("torch has no async_op for this operation")
        return call(buffers)

    return run


_SYMM_MEM: Any = {"memory": "symm_mem", "block_multiple": 16, "messages": "1"}
"""What they have in common. They take blocks of 4 bytes too, but then copy in smaller steps."""

SYMM_MEM = by_name(
    Operation(
        name="one_shot_all_reduce", summary="all_reduce: each rank reads all of all tensors",
        torch_call="one_shot_all_reduce_out", send=Extent.WHOLE, receive=Extent.WHOLE,
        call=_in_stream(lambda b: b.symm_mem.one_shot_all_reduce_out(
            b.send, b.reduce_name, b.group.group_name, b.receive)),
        expected=lambda _: BlockOrigin(block=0), busbw_formula="2(n-1)/n", reduces=True,
        **_SYMM_MEM,
    ),
    Operation(
        name="two_shot_all_reduce", summary="all_reduce: each rank reduces a part for all",
        torch_call="two_shot_all_reduce_", send=Extent.WHOLE, receive=Extent.WHOLE,
        call=_in_stream(lambda b: b.symm_mem.two_shot_all_reduce_(
            b.receive, b.reduce_name, b.group.group_name)),
        expected=lambda _: BlockOrigin(block=0), busbw_formula="2(n-1)/n",
        placements=(IN_PLACE,), reduces=True, **_SYMM_MEM,
    ),
    Operation(
        name="multimem_all_reduce", summary="all_reduce: the switch reduces and multicasts",
        torch_call="multimem_all_reduce_", send=Extent.WHOLE, receive=Extent.WHOLE,
        call=_in_stream(lambda b: b.symm_mem.multimem_all_reduce_(
            b.receive, b.reduce_name, b.group.group_name)),
        expected=lambda _: BlockOrigin(block=0), busbw_formula="2(n-1)/n",
        placements=(IN_PLACE,), reduces=True, **_SYMM_MEM,
    ),
    Operation(
        name="multimem_all_gather", summary="all_gather: the switch multicasts each block",
        torch_call="multimem_all_gather_out", send=Extent.BLOCK, receive=Extent.WHOLE,
        call=_in_stream(lambda b: b.symm_mem.multimem_all_gather_out(
            b.send, b.group.group_name, b.receive)),
        expected=lambda at: BlockOrigin(rank=at.block, block=0),
        busbw_formula="(n-1)/n", blocks=True, **_SYMM_MEM,
    ),
)  # fmt: skip

REGISTRATION = by_name(
    Operation(
        name="register", summary="memory is allocated and registered with NCCL",
        torch_call="register_mem_pool", send=Extent.WHOLE,
        call=_in_stream(lambda b: b.register()),
        placements=("",), messages="0", registers=True,
    ),
)  # fmt: skip
