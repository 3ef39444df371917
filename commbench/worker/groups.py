"""Makes process groups: those of a plan, saying which of them a rank is in, and one of gloo."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.distributed as dist

from commbench.spec.groups import format_group
from commbench.spec.plan import Plan
from commbench.worker.device import Device
from commbench.worker.nccl_options import make_nccl_options

LAZY = "TORCH_GLOO_LAZY_INIT"


class GroupView(NamedTuple):
    """A group that is measured, as one of its ranks sees it."""

    group: Any
    """The process group."""
    rank: int
    """The number of this rank within the group."""
    ranks: Sequence[int]
    """The numbers of its ranks among all ranks."""
    global_ranks: Sequence[int]
    """Their numbers in the default process group, as torch.distributed wants them."""
    number: int = 0
    """The number of the group among those of its dimension."""


GroupViews: TypeAlias = dict[tuple[str, str], tuple[GroupView, ...]]
"""By the dimension and the group that is alone, as in a Case, the groups that a rank is in."""


def make_groups(plan: Plan, rank: int, default: Any, timeout: timedelta) -> GroupViews:
    """Make the process groups that the plan measures, and no others; the views of `rank`.

    Every rank calls new_group for every group, in the same order, as torch's DeviceMesh does; ranks
    outside of a group make nothing. A group of all ranks is the `default` one.
    """
    views: GroupViews = {}
    for name, groups in plan.group_sets:
        own = []
        for number, ranks in enumerate(groups if name else ()):
            if len(ranks) < 2:
                continue
            group = default
            if len(ranks) < plan.world_size:
                group = dist.new_group(
                    ranks,
                    timeout=timeout,
                    pg_options=make_nccl_options(plan, timeout),
                    group_desc=f"commbench_{name}",
                )
            if rank in ranks:
                view = GroupView(group, ranks.index(rank), ranks, ranks, number)
                own.append(view)
                views[name, format_group(ranks)] = (view,)
        views[name, ""] = tuple(own)
    return views


def open_idle_groups(plan: Plan, device: Device, timeout: timedelta) -> None:
    """Make the groups that a plan wants to be open while it measures, as a program makes them. On a
    device each makes its communicator in one call."""
    token = torch.zeros(1, device=device.torch_device)
    for _ in range(plan.open_groups):
        group = dist.new_group(timeout=timeout, pg_options=make_nccl_options(plan, timeout))
        if device.is_async:
            device.in_stream(lambda group=group: dist.all_reduce(token, group=group))()  # type: ignore[misc]
            device.synchronize()


@contextmanager
def lazy_gloo() -> Iterator[None]:
    """While this is open, new gloo groups connect two ranks only when they first talk: control
    traffic goes along trees, and a full mesh of n^2 connections would cost more than the rest of a
    start."""
    before = os.environ.get(LAZY)
    os.environ[LAZY] = "1"
    try:
        yield
    finally:
        os.environ.pop(LAZY, None)
        if before is not None:
            os.environ[LAZY] = before


def gloo_group(store: Any, rank: int, ranks: int, timeout: timedelta) -> Any:
    """A gloo group of the ranks that meet in `store`, unknown to torch.distributed; it ends when
    nothing refers to it any more."""
    with lazy_gloo():
        return dist.ProcessGroupGloo(store, rank, ranks, timeout)
