"""Makes the call of a case in its form, and what forms need besides the buffers of their tensors:
copies and steps. Makes the calls of a step of a workload, as its ranks made them (plan.replay)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from commbench.plan import pairs, replay, workload
from commbench.plan.operation import BlockPosition, Extent, Works
from commbench.plan.operations import OPERATIONS
from commbench.worker.device import Call, Device

if TYPE_CHECKING:
    from commbench.worker.buffers import Buffers, GroupBuffers, Steps

Start = Callable[[], Any]
"""Starts a call, and returns what `wait()` is called on."""


def make_call(buffers: Buffers) -> Call:
    """The function that runs the operation of a case once, in the case's form."""
    operation, form = OPERATIONS[buffers.case.operation], buffers.case.call_form
    if not form.is_reference:
        return partial(form.run, operation.call, dist, buffers)
    prepare: Callable[..., Call] | None = operation.prepare
    return prepare(dist, buffers) if prepare else partial(operation.call, dist, buffers)


def make_async_call(buffers: Buffers) -> Start:
    """The function that starts the operation of a case once, in the case's form, and returns what
    `wait()` is called on: torch's Work. Raises RuntimeError for a form whose calls follow one
    another, and for a call that torch cannot start by itself."""
    operation, form = OPERATIONS[buffers.case.operation], buffers.case.call_form
    if operation.is_on_host:
        raise NotImplementedError(f"torch has no async_op for {operation.name}")
    if form.is_reference:
        return partial(operation.call, dist, buffers, async_op=True)
    if form.start is None:
        raise NotImplementedError(f"the calls of form {form.name} follow one another")
    return partial(form.start, operation.call, dist, buffers)


def make_steps(names: Sequence[str], buffers: Buffers) -> Steps:
    """The calls of a composition. The first one has the case's send buffer. The others work in
    place on its receive buffer, which is the whole tensor, and on this rank's block of it."""
    whole = buffers.receive
    blocks = list(whole.tensor_split(buffers.ranks))
    nothing, is_root = whole[:0], buffers.rank == buffers.root
    of_extent = {
        Extent.NOTHING: nothing,
        Extent.BLOCK: blocks[buffers.rank],
        Extent.WHOLE: whole,
        Extent.AT_ROOT: whole if is_root else nothing,
    }
    steps = []
    for number, name in enumerate(names):
        operation = OPERATIONS[name]
        send, receive = of_extent[operation.send], of_extent[operation.receive]
        if number == 0 and send.numel():
            send = buffers.send
        own = buffers._replace(
            send=send,
            receive=receive,
            send_blocks=blocks if operation.blocks and send.numel() else None,
            receive_blocks=blocks if operation.blocks and receive.numel() else None,
        )
        steps.append((operation.call, own))
    return tuple(steps)


def make_copies(parts: Sequence[Buffers], flat: Buffers) -> tuple[Call, Call]:
    """The functions that copy several tensors into a flat one, and back: each block of a tensor is
    a part of the same block of the flat one."""
    expected = OPERATIONS[flat.case.operation].expected
    into, out, begin = [], [], 0
    for part in parts:
        count = 0
        for send, whole in zip(part.send_blocks or (), flat.send_blocks or (), strict=True):
            count = send.numel()
            into.append((whole[begin : begin + count], send))
        both = zip(part.receive_blocks or (), flat.receive_blocks or (), strict=True)
        for block, (receive, whole) in enumerate(both):
            count = receive.numel()
            if expected(BlockPosition(flat.rank, block, flat.ranks, flat.root)) is not None:
                out.append((receive, whole[begin : begin + count]))
        begin += count
    return _copies(into), _copies(out)


def _copies(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Call:
    """Copies to each target from its source: on a GPU with few kernels."""
    targets, sources = [to for to, _ in pairs], [source for _, source in pairs]
    return partial(torch._foreach_copy_, targets, sources) if pairs else lambda: None


def make_step(step: replay.ReplayedStep, parts: GroupBuffers, device: Device) -> Call:
    """The function that makes the calls of a step once; `parts` has the buffers of each."""
    begins = [_begin(step.calls, index, parts) for index in range(len(step.calls))]
    both = zip(step.calls, begins, strict=True)
    actions = [(one.call.compute_s, begin, one.waits) for one, begin in both]

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


def _begin(calls: Sequence[replay.ReplayedCall], index: int, parts: GroupBuffers) -> Start | None:
    """What begins a call, or a batch of messages, and returns what `wait()` is called on, or None
    where nothing is left to wait for; None for one that an earlier one begins."""
    one = calls[index]
    if one.call.is_message:
        batch = range(index, index + one.together)
        transfers = [_transfer(calls[i].call, parts[i]) for i in batch]
        kind = pairs.BATCH if one.together > 1 else pairs.ISEND
        begin = pairs.make_begin(dist, kind, transfers, parts[index])
        return (lambda: Works(begin())) if transfers else None
    if one.waits == (index,) and not one.call.asynchronous:
        return partial(_finish, make_call(parts[index]))
    if parts[index].steps:
        return partial(_begin_steps, parts[index])
    return make_async_call(parts[index])


def _finish(call: Call) -> None:
    """Make a call that ends before it returns."""
    call()


def _transfer(call: workload.Call, buffers: Buffers) -> pairs.Transfer:
    """The message of a SEND or RECV."""
    assert call.peer is not None
    is_send = call.operation == workload.SEND
    return pairs.Transfer(is_send, buffers.send if is_send else buffers.receive, call.peer)


def _begin_steps(buffers: Buffers) -> Works:
    """Begin the first operation of a composition; `wait()` does the others, which need it."""
    (first, whole), *later = buffers.steps

    def do_others() -> None:
        for call, own in later:
            call(dist, own)

    return Works([first(dist, whole, async_op=True)], do_others)
