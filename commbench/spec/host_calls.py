"""Calls of torch.distributed that work on the host: of Python objects, the monitored barrier, and
those that make process groups.

The object of a rank consists of the bytes of its send buffer, so that results can be checked. With
`is_pickled=True` a call sends bytes that were pickled before, and unpickles nothing: the difference
is the time of pickling.
"""

from __future__ import annotations

from typing import Any

from commbench.spec.operation import IN_PLACE, BlockOrigin, Extent, Operation
from commbench.validation import by_name


def _all_gather_object(dist: Any, b: Any, is_pickled: bool = False) -> None:
    if is_pickled:
        b.objects.all_gather_pickled(dist, b.group)
    else:
        dist.all_gather_object(b.objects.received, b.objects.sent, group=b.group)


def _broadcast_object_list(dist: Any, b: Any, is_pickled: bool = False) -> None:
    if is_pickled:
        b.objects.broadcast_pickled(dist, b.global_root, b.group)
    else:
        dist.broadcast_object_list(b.objects.received, src=b.global_root, group=b.group)


HOST_CALLS = by_name(
    Operation(
        name="all_gather_object", summary="every rank gets the Python objects of all ranks",
        torch_call="all_gather_object", send=Extent.BLOCK, receive=Extent.WHOLE,
        call=_all_gather_object, expected=lambda at: BlockOrigin(rank=at.block, block=0),
        busbw_formula="(n-1)/n", blocks=True, is_on_host=True, blocks_host=True,
        moves_objects=True,
    ),
    Operation(
        name="broadcast_object_list", summary="every rank gets the root's Python object",
        torch_call="broadcast_object_list", send=Extent.AT_ROOT, receive=Extent.WHOLE,
        call=_broadcast_object_list, expected=lambda at: BlockOrigin(rank=at.root, block=0),
        busbw_formula="1", placements=(IN_PLACE,), rooted=True, is_on_host=True,
        blocks_host=True, moves_objects=True,
    ),
    Operation(
        name="monitored_barrier", summary="a barrier that names the ranks that do not come",
        torch_call="monitored_barrier", call=lambda dist, b: dist.monitored_barrier(b.group),
        placements=("",), is_on_host=True, blocks_host=True,
        backends=("gloo",),
    ),
    Operation(
        name="new_group", summary="the ranks make a process group",
        torch_call="new_group", call=lambda _, b: b.new_groups.make(),
        placements=("",), is_on_host=True, makes_group=True,
    ),
    Operation(
        name="split_group", summary="the ranks split a process group off their own",
        torch_call="split_group", call=lambda _, b: b.new_groups.split(),
        placements=("",), is_on_host=True, makes_group=True,
        backends=("nccl",),
    ),
)  # fmt: skip
