"""Process groups that are made in order to time how they are made, and their first calls."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist

from commbench.worker.device import Device

MOST_KEPT = 4
"""New groups that exist at once. The memory of a group is measured over all of them, because that
of one is smaller than what else a process takes and frees."""


class NewGroups:
    """Makes process groups with the same ranks as others, and ends them.

    Every rank makes all of `groups`, in the same order, as torch demands and its DeviceMesh does;
    they are lists of ranks, and this rank is in one of them. They have torch's default options.
    With gloo all ranks of a group connect when it is made, unless the environment variable
    TORCH_GLOO_LAZY_INIT says otherwise.
    """

    def __init__(self, group: Any, groups: Sequence[Sequence[int]], device: Device) -> None:
        """`group` is the process group of this rank that exists already."""
        self._group, self._groups, self._device = group, groups, device
        self._made: list[Any] = []

    def __len__(self) -> int:
        return len(self._made)

    def make(self) -> Any:
        """The new process group of this rank. Raises RuntimeError where ranks are missing."""
        if sum(map(len, self._groups)) < dist.get_world_size():
            raise NotImplementedError("all ranks of the job take part in making a group")
        for ranks in self._groups:
            made = dist.new_group(list(ranks))
            if dist.get_rank() in ranks:
                self._made.append(made)
        return self._made[-1]

    def split(self) -> Any:
        """A new process group that is split off, with the same ranks. Raises RuntimeError where the
        backend or this torch cannot do it."""
        default = dist.distributed_c10d._get_default_group()
        before, default.bound_device_id = default.bound_device_id, self._device.torch_device
        try:  # torch splits only where the default group has a device
            ranks = list(range(dist.get_world_size(self._group)))
            self._made.append(dist.split_group(self._group, [ranks]))
        finally:
            default.bound_device_id = before
        return self._made[-1]

    def last(self) -> Any:
        """The group that was made last."""
        return self._made[-1] if self._made else self.make()

    def prepare(self, calls_before: int | None, call: Callable[[], object]) -> None:
        """Before a call is timed: make its group, and run so many calls there. None: the call makes
        its group itself."""
        if len(self._made) >= MOST_KEPT:
            self.release()
        if calls_before is None:
            return
        self.make()
        for _ in range(calls_before):
            call()

    def release(self) -> None:
        """End all of them. All ranks come to this together: one that still connects to another must
        find it."""
        if self._made:
            index = self._device.torch_device.index
            dist.barrier(self._group, device_ids=None if index is None else [index])
        while self._made:
            dist.destroy_process_group(self._made.pop())


def memory_without(made: Sequence[NewGroups], device: Device) -> int | None:
    """End these groups; the memory that is then in use, in bytes. None where there are none, or
    that is unknown."""
    for groups in made:
        groups.release()
    return _held_bytes(device) if made else None


def memory_of_each(made: Sequence[NewGroups], device: Device, before: int | None) -> int | None:
    """The memory of each of these groups, in bytes, where `before` was in use without them."""
    number = sum(map(len, made))
    held = _held_bytes(device) if number and before is not None else None
    return None if held is None or before is None else max(0, held - before) // number


def _held_bytes(device: Device) -> int | None:
    gc.collect()
    device.synchronize()
    return device.held_bytes()
