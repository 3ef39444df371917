"""Makes the calls of a step of a workload, as its ranks made them (plan.replay)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from commbench.plan.case import Case
from commbench.plan.operation import Works
from commbench.plan.replay import ReplayedCall, ReplayedStep
from commbench.plan.workload import SEND
from commbench.worker.call_forms import make_async_call, make_call
from commbench.worker.device import Device

if TYPE_CHECKING:
    from commbench.worker.buffers import Buffers

_Begin = Callable[[], Any]
"""Begins a call, and returns what `wait()` is called on; None where nothing is left to wait for."""


def make_step(
    step: ReplayedStep, parts: Sequence[tuple[Case, Buffers]], device: Device
) -> Callable[[], None]:
    """The function that makes the calls of a step once; `parts` has the buffers of each."""
    begins = [_begin(step.calls, index, parts) for index in range(len(step.calls))]
    actions = [
        (one.call.compute_s, begin, one.waits)
        for one, begin in zip(step.calls, begins, strict=True)
    ]

    def run() -> None:
        works: list[Any] = [None] * len(actions)
        for index, (compute_s, begin, waits) in enumerate(actions):
            if compute_s:
                device.compute(compute_s)
            if begin:
                works[index] = begin()
            for waited in waits:
                if works[waited] is not None:
                    works[waited].wait()
                    works[waited] = None
        if step.compute_s:
            device.compute(step.compute_s)

    return run


def _begin(
    calls: Sequence[ReplayedCall], index: int, parts: Sequence[tuple[Case, Buffers]]
) -> _Begin | None:
    """What begins a call, or a batch of messages; None for one that an earlier one begins."""
    one = calls[index]
    if one.call.is_message:
        batch = range(index, index + one.together)
        return _begin_messages([_message(calls[i], parts[i][1]) for i in batch]) if batch else None
    case, buffers = parts[index]
    if one.waits == (index,) and not one.call.asynchronous:
        return partial(_finish, make_call(case, buffers))
    if case.call_form.steps:
        return partial(_begin_steps, buffers)
    return make_async_call(case, buffers)


def _finish(call: Callable[[], object]) -> None:
    """Make a call that ends before it returns."""
    call()


def _message(one: ReplayedCall, buffers: Buffers) -> tuple[Any, Any, int, Any]:
    """The function, tensor, rank and group of a message."""
    assert one.call.peer is not None
    is_send = one.call.operation == SEND
    tensor = buffers.send if is_send else buffers.receive
    call = dist.isend if is_send else dist.irecv
    return call, tensor, buffers.global_ranks[one.call.peer], buffers.group


def _begin_messages(messages: Sequence[tuple[Any, Any, int, Any]]) -> _Begin:
    if len(messages) == 1:
        ((call, *arguments),) = messages
        return partial(call, *arguments)
    batch = [dist.P2POp(*message) for message in messages]
    return lambda: Works(dist.batch_isend_irecv(batch))


class _StepsUnderWay:
    """A composition whose first operation has begun; `wait()` does the others, which need it."""

    def __init__(self, first: Any, buffers: Buffers) -> None:
        self._first, self._buffers = first, buffers

    def wait(self) -> None:
        self._first.wait()
        for call, own in self._buffers.steps[1:]:
            call(dist, own)


def _begin_steps(buffers: Buffers) -> _StepsUnderWay:
    call, own = buffers.steps[0]
    return _StepsUnderWay(call(dist, own, async_op=True), buffers)
