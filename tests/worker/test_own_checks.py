"""What the witness of a checked call sees on a device: a call must keep the order of the stream."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fake_device import Fake, FakeDevice

from commbench.plan.plan import Plan
from commbench.worker.buffers import Arena
from commbench.worker.call_forms import make_call
from commbench.worker.communicator import Communicator
from commbench.worker.own_calls import Witness
from commbench.worker.verify import verify


class Copies:
    """An all_reduce of one rank."""

    operation = "all_reduce"

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        output.copy_(input)


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_call_that_does_not_wait_for_the_stream_has_wrong_results(is_ordered: bool) -> None:
    from commbench.plan.own_calls import describe_calls, parse_calls

    (source,) = calls = parse_calls(Copies)
    plan = Plan(
        operations=("all_reduce",), sizes=(4096,), placement="out_of_place", backend="gloo",
        device="cpu", world_size=1, calls=calls, own_calls=describe_calls(calls),
    )  # fmt: skip
    (case,) = (case for case in plan.cases() if case.call)
    device = FakeDevice(0, Fake())
    comm = Communicator(0, 1, device)
    arena = Arena(comm, (case,))
    buffers = arena.buffers(case)
    run = make_call(case, buffers)
    call: Callable[[], object] = device.in_stream(lambda: run()) if is_ordered else run
    found = verify(case, buffers, 7, call, device, Witness(case, buffers, comm))
    if is_ordered:
        assert (found.wrong, found.fault) == (0, "")
    else:
        assert found.wrong and found.wrong > 500
        assert found.fault.startswith("the call Copies on rank 0 ")
    assert source.endswith(":Copies")
