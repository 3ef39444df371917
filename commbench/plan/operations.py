"""The table of operations. Adding an operation is adding one entry here, or to the tables that this
one includes, plan.pairs.

An entry says everything about its operation, and nothing else in the program tests its name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from commbench.errors import name_error
from commbench.plan.operation import IN_PLACE, OUT_OF_PLACE, BlockOrigin, Extent, Operation, Works
from commbench.plan.pairs import POINT_TO_POINT
from commbench.validation import by_name


def all_gather(dist: Any, b: Any, async_op: bool = False) -> Any:
    """torch's all_gather of one tensor into another."""
    # torch 2.13 renamed all_gather_into_tensor; the old name warns there.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(b.receive, b.send, group=b.group, async_op=async_op)


def _reduce_scatter(dist: Any, b: Any, async_op: bool = False) -> Any:
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return scatter(b.receive, b.send, op=b.reduce_op, group=b.group, async_op=async_op)


def _ring_shift(dist: Any, b: Any, async_op: bool = False) -> Works | None:
    following, previous = (b.global_ranks[(b.rank + step) % b.ranks] for step in (1, -1))
    transfers = [
        dist.P2POp(dist.isend, b.send, following, b.group),
        dist.P2POp(dist.irecv, b.receive, previous, b.group),
    ]
    works = Works(dist.batch_isend_irecv(transfers))
    return works if async_op else works.wait()


_NO_DATA: Any = {"send": Extent.NOTHING, "receive": Extent.NOTHING, "placements": ("",)}

COLLECTIVES = by_name(
    Operation(
        name="all_reduce", summary="every rank gets the reduction of all tensors",
        torch_call="all_reduce",
        call=lambda dist, b, async_op=False: dist.all_reduce(
            b.receive, op=b.reduce_op, group=b.group, async_op=async_op),
        expected=lambda _: BlockOrigin(block=0), busbw_formula="2(n-1)/n", placements=(IN_PLACE,),
        reduces=True, compositions=(("reduce_scatter", "all_gather"), ("reduce", "broadcast")),
        compressions=("parts", "matrix"), is_coalesced=True, nccl_function="AllReduce",
        nccl_tests="all_reduce_perf",
        nccl_algorithms=("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree"),
    ),
    Operation(
        name="all_gather", summary="every rank gets the blocks of all ranks",
        torch_call="all_gather_into_tensor", send=Extent.BLOCK, call=all_gather,
        expected=lambda at: BlockOrigin(rank=at.block, block=0), busbw_formula="(n-1)/n",
        placements=(OUT_OF_PLACE, IN_PLACE), blocks=True, compositions=(("gather", "broadcast"),),
        is_coalesced=True, nccl_function="AllGather", nccl_tests="all_gather_perf",
        nccl_algorithms=("ring", "collnetdirect", "nvls", "pat"),
    ),
    Operation(
        name="reduce_scatter", summary="every rank gets one block of the reduction",
        torch_call="reduce_scatter_tensor", receive=Extent.BLOCK, call=_reduce_scatter,
        expected=lambda at: BlockOrigin(block=at.rank), busbw_formula="(n-1)/n",
        placements=(OUT_OF_PLACE, IN_PLACE), blocks=True, reduces=True, is_coalesced=True,
        compressions=("parts",), nccl_function="ReduceScatter", nccl_tests="reduce_scatter_perf",
        nccl_algorithms=("ring", "collnetdirect", "nvls", "pat"),
    ),
    Operation(
        name="broadcast", summary="every rank gets the root's tensor", torch_call="broadcast",
        call=lambda dist, b, async_op=False: dist.broadcast(
            b.receive, src=b.global_root, group=b.group, async_op=async_op),
        expected=lambda at: BlockOrigin(rank=at.root, block=0), busbw_formula="1",
        placements=(IN_PLACE,), rooted=True, compositions=(("scatter", "all_gather"),),
        nccl_function="Broadcast", nccl_tests="broadcast_perf", nccl_algorithms=("ring",),
    ),
    Operation(
        name="all_to_all", summary="rank i sends its block j to rank j",
        torch_call="all_to_all_single",
        call=lambda dist, b, async_op=False: dist.all_to_all_single(
            b.receive, b.send, group=b.group, async_op=async_op),
        expected=lambda at: BlockOrigin(rank=at.block, block=at.rank), busbw_formula="(n-1)/n",
        blocks=True, is_transfers=True, nccl_tests="alltoall_perf",
    ),
    Operation(
        name="reduce", summary="the root gets the reduction of all tensors", torch_call="reduce",
        call=lambda dist, b, async_op=False: dist.reduce(
            b.receive, dst=b.global_root, op=b.reduce_op, group=b.group,
            async_op=async_op),
        expected=lambda at: BlockOrigin(block=0) if at.rank == at.root else None, busbw_formula="1",
        placements=(IN_PLACE,), reduces=True, rooted=True,
        compositions=(("reduce_scatter", "gather"),), nccl_function="Reduce",
        nccl_tests="reduce_perf", nccl_algorithms=("ring",),
    ),
    Operation(
        name="gather", summary="the root gets the blocks of all ranks", torch_call="gather",
        send=Extent.BLOCK, receive=Extent.AT_ROOT,
        call=lambda dist, b, async_op=False: dist.gather(
            b.send, b.receive_blocks, dst=b.global_root, group=b.group,
            async_op=async_op), expected=lambda at: BlockOrigin(rank=at.block, block=0),
        busbw_formula="(n-1)/n", placements=(OUT_OF_PLACE, IN_PLACE), blocks=True, rooted=True,
        nccl_tests="gather_perf",
    ),
    Operation(
        name="scatter", summary="every rank gets one block of the root's tensor",
        torch_call="scatter", send=Extent.AT_ROOT, receive=Extent.BLOCK,
        call=lambda dist, b, async_op=False: dist.scatter(
            b.receive, b.send_blocks, src=b.global_root, group=b.group,
            async_op=async_op), expected=lambda at: BlockOrigin(rank=at.root, block=at.rank),
        busbw_formula="(n-1)/n", placements=(OUT_OF_PLACE, IN_PLACE), blocks=True, rooted=True,
        nccl_tests="scatter_perf",
    ),
    Operation(
        name="send_recv", summary="every rank sends to the next one, in a ring",
        torch_call="batch_isend_irecv", call=_ring_shift,
        expected=lambda at: BlockOrigin(rank=(at.rank - 1) % at.ranks, block=0), is_batch=True,
        busbw_formula="1", min_ranks=2, messages="1", nccl_tests="sendrecv_perf",
    ),
    Operation(
        name="barrier", summary="no rank returns before all have called it", torch_call="barrier",
        call=lambda dist, b, async_op=False: dist.barrier(
            b.group, async_op=async_op, device_ids=b.device_ids), blocks_host=True, **_NO_DATA,
    ),
)  # fmt: skip


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
            _counts(b.send_blocks)), name="all_to_all_v",
        summary="all_to_all with unequal blocks (--imbalance)", torch_call="all_to_all_single",
        expected=lambda at: BlockOrigin(rank=at.block, block=at.rank),
        block_counts=lambda splits, rank: (
            splits.matrix[rank], tuple(row[rank] for row in splits.matrix)),
    ),
    _entry(
        lambda dist, b: (dist.all_gather, b.receive_blocks, b.send), name="all_gather_v",
        summary="all_gather with unequal blocks (--imbalance)", torch_call="all_gather",
        send=Extent.BLOCK, equal_only=("gloo",),
        expected=lambda at: BlockOrigin(rank=at.block, block=0),
        block_counts=lambda splits, rank: ((splits.vector[rank],), splits.vector),
    ),
    _entry(
        lambda dist, b: (partial(dist.reduce_scatter, op=b.reduce_op), b.receive, b.send_blocks),
        name="reduce_scatter_v", summary="reduce_scatter with unequal blocks (--imbalance)",
        torch_call="reduce_scatter", receive=Extent.BLOCK, reduces=True,
        expected=lambda at: BlockOrigin(block=at.rank),
        block_counts=lambda splits, rank: (splits.vector, (splits.vector[rank],)),
    ),
)  # fmt: skip


HOST_CALLS = by_name(
    Operation(
        name="new_group", summary="the ranks make a process group", torch_call="new_group",
        call=lambda _, b: b.new_groups.make(), is_on_host=True, makes_group=True, **_NO_DATA,
    ),
    Operation(
        name="split_group", summary="the ranks split a process group off their own",
        torch_call="split_group", call=lambda _, b: b.new_groups.split(), is_on_host=True,
        makes_group=True, backends=("nccl",), **_NO_DATA,
    ),
)  # fmt: skip


_SYMM_MEM: Any = {"memory": "symm_mem", "block_multiple": 16, "messages": "1"}
"""What they have in common. They take blocks of 4 bytes too, but then copy in smaller steps. Their
calls are queued when they return: torch starts none with async_op."""

SYMM_MEM = by_name(
    Operation(
        name="one_shot_all_reduce", summary="all_reduce: each rank reads all of all tensors",
        torch_call="one_shot_all_reduce_out",
        call=lambda _, b: b.symm_mem.one_shot_all_reduce_out(
            b.send, b.reduce_name, b.group.group_name, b.receive),
        expected=lambda _: BlockOrigin(block=0), busbw_formula="2(n-1)/n", reduces=True,
        **_SYMM_MEM,
    ),
    Operation(
        name="two_shot_all_reduce", summary="all_reduce: each rank reduces a part for all",
        torch_call="two_shot_all_reduce_",
        call=lambda _, b: b.symm_mem.two_shot_all_reduce_(
            b.receive, b.reduce_name, b.group.group_name), expected=lambda _: BlockOrigin(block=0),
        busbw_formula="2(n-1)/n", placements=(IN_PLACE,), reduces=True, **_SYMM_MEM,
    ),
    Operation(
        name="multimem_all_reduce", summary="all_reduce: the switch reduces and multicasts",
        torch_call="multimem_all_reduce_",
        call=lambda _, b: b.symm_mem.multimem_all_reduce_(
            b.receive, b.reduce_name, b.group.group_name), expected=lambda _: BlockOrigin(block=0),
        busbw_formula="2(n-1)/n", placements=(IN_PLACE,), reduces=True, **_SYMM_MEM,
    ),
    Operation(
        name="multimem_all_gather", summary="all_gather: the switch multicasts each block",
        torch_call="multimem_all_gather_out", send=Extent.BLOCK,
        call=lambda _, b: b.symm_mem.multimem_all_gather_out(
            b.send, b.group.group_name, b.receive),
        expected=lambda at: BlockOrigin(rank=at.block, block=0), busbw_formula="(n-1)/n",
        blocks=True, **_SYMM_MEM,
    ),
)  # fmt: skip

REGISTRATION = by_name(
    Operation(
        name="register", summary="memory is allocated and registered with NCCL",
        torch_call="register_mem_pool", receive=Extent.NOTHING,
        call=lambda _, b: b.register(), placements=("",), messages="0", registers=True,
    ),
)  # fmt: skip
SINGLE_CALLS: dict[str, Operation] = (
    COLLECTIVES | POINT_TO_POINT | UNEVEN | HOST_CALLS | SYMM_MEM | REGISTRATION
)

REPLAY = "replay"
OPERATIONS: dict[str, Operation] = SINGLE_CALLS | by_name(
    Operation(
        name=REPLAY, summary="the calls of a training step (`commbench replay`)",
        torch_call="the calls of the step", call=lambda _, b: b.run_step(), is_on_host=True,
        **_NO_DATA,
    ),
)  # fmt: skip


OPERATION_SETS: dict[str, tuple[str, ...]] = {
    "all": tuple(COLLECTIVES),
    "p2p": tuple(POINT_TO_POINT),
    "uneven": tuple(UNEVEN),
    "symm_mem": tuple(SYMM_MEM),
    "init": (
        "new_group", "split_group", "all_reduce", "all_gather", "reduce_scatter", "broadcast",
        "all_to_all", "send_recv",
    ),
}  # fmt: skip
"""Names for several operations. `all` has no operation with options or memory of its own."""

LATENCY = next(o.name for o in POINT_TO_POINT.values() if o.is_latency)
"""The operation whose time is that of one message."""
PAIR_OPERATIONS = tuple(o.name for o in POINT_TO_POINT.values() if o.is_latency or o.is_one_way)
"""What says how two ranks reach each other: one operation for latency, one for bandwidth."""

DEFAULT_OPERATION = next(iter(OPERATIONS))
"""What is measured by default."""


SYNONYMS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all",
    "reducescatter": "reduce_scatter", "bcast": "broadcast", "sendrecv": "send_recv",
    "p2p": "send_recv", "all_to_all_single": "all_to_all",
    "all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter",
}  # fmt: skip
"""Names in other libraries, for the hint of a message."""


def find_operation(name: str) -> Operation:
    """The operation called `name`; `-` may stand for `_`; UsageError if there is none."""
    known = name.strip().lower().replace("-", "_")
    if known not in OPERATIONS:
        known_by = {o.nccl_tests: o.name for o in OPERATIONS.values() if o.nccl_tests} | SYNONYMS
        raise name_error("operation", name, list(OPERATIONS), known_by, "`commbench ops`")
    return OPERATIONS[known]
