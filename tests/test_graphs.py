"""Graphs: what cannot be captured, captures that fail, and checks of the graphs that are timed,
on stand-ins for a GPU and for torch's module of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import Commbench
from fake_device import Fake, run_on_fake

from commbench.plan.case import Case
from commbench.plan.operation import BlockOrigin
from commbench.plan.operations import COLLECTIVES
from commbench.plan.plan import Plan
from commbench.worker.buffers import Arena, Buffers
from commbench.worker.communicator import Communicator
from commbench.worker.device import Accelerator, Device
from commbench.worker.verify import VerificationData, fill, verify_together

GRAPHS = ("--sizes", "1K", "--iters", "2", "--warmup", "0", "--launch", "graph")


def test_an_operation_that_blocks_the_host_is_refused_in_a_graph_before_any_rank_starts() -> None:
    plan = Plan(
        operations=tuple(COLLECTIVES), sizes=(1024,), backend="nccl",
        device="cuda", world_size=2, launch_mode="graph",
    )  # fmt: skip
    refused = {case.operation: case.reason for case in plan.cases() if case.reason}
    why = "barrier works or waits on the host, so no graph can capture it"
    assert refused == {"barrier": why}


def case_and_buffers(operation: str, size: int) -> tuple[Case, Buffers]:
    """A case of float16 with two ranks, and the buffers of rank 1."""
    plan = Plan(
        operations=(operation,), dtypes=("float16",), sizes=(size,), backend="gloo", device="cpu",
        world_size=2,
    )  # fmt: skip
    (case,) = plan.cases()
    return case, Arena(Communicator(1, 2, Device()), (case,)).of_groups(case)[0]


class Module:
    """What Accelerator needs of a module such as torch.cuda."""

    def __init__(self) -> None:
        self.current, self.fails, self.reset = self.Stream(), True, set[object]()
        module = self

        class CUDAGraph:
            def replay(self) -> str:
                return "replayed"

            def reset(self) -> None:
                module.reset.add(self)
                raise RuntimeError("this graph was never captured")

        self.CUDAGraph = CUDAGraph

    def Stream(self) -> Any:  # noqa: N802 - as torch calls it
        return SimpleNamespace(wait_stream=lambda _: None)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_: SimpleNamespace()

    def current_stream(self) -> Any:
        return self.current

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def graph(self, _: Any, stream: Any, **__: Any) -> Iterator[None]:
        """As torch.cuda.graph: where the capture cannot end, the stream stays."""
        before, self.current = self.current, stream
        yield
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.current = before


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Module:
    made = Module()
    monkeypatch.setattr(torch, "get_device_module", lambda _: made)
    return made


def test_a_gpu_releases_its_graphs_while_a_traceback_refers_to_them(module: Module) -> None:
    device, module.fails = Accelerator("cuda", 0), False
    device.capture([lambda: None])()  # nobody refers to this one
    kept: list[Any] = [device.capture([lambda: None]) for _ in range(2)]
    device.release_graphs()
    assert module.reset == {replay.__self__ for replay in kept}


def test_a_capture_that_fails_leaves_the_stream_for_the_next_case(module: Module) -> None:
    device, before, used = Accelerator("cuda", 0), module.current, []

    def call() -> None:
        used.append(module.current)

    with pytest.raises(RuntimeError, match="not permitted"):
        device.capture([call])
    assert module.current is before
    module.fails = False
    device.in_stream(call)()
    assert used[-1] is before
    assert device.capture([call, call])() == "replayed"
    assert module.current is before
    assert before not in used[-3:]


@pytest.mark.parametrize("buffers", ["hot", "rotating"])
def test_the_graph_of_several_calls_is_checked(program: Commbench, buffers: str) -> None:
    options = ("--timing", "pipelined", "--buffers", buffers, "--op", "all_reduce,all_gather")
    ended = run_on_fake(program, Fake(corrupts_graphs_of=2), *GRAPHS, *options)
    assert ended.code == 5
    for case in ended.cases():
        assert case["wrong"] > 100
        first = case["first_wrong"]
        assert float(first["got"]) == 77 != float(first["expected"])


@pytest.mark.parametrize("buffers", ["hot", "rotating"])
def test_graphs_that_use_memory_again_are_right(program: Commbench, buffers: str) -> None:
    # What is reduced in place grows with each call of the graph; a half soon becomes infinite.
    options = ("--op", "all_reduce,reduce,reduce_scatter,gather", "--placement", "both")
    kinds = ("--dtype", "float32,float16", "--timing", "pipelined", "--buffers", buffers)
    ended = run_on_fake(program, Fake(enqueue_s=0.0), *GRAPHS, *options, *kinds)
    assert ended.code == 0, ended.err
    assert {row["wrong"] for row in ended.rows() if row["status"] == "ok"} == {"0"}
    assert max(int(row["calls"]) for row in ended.rows() if row["calls"]) > 1


@pytest.mark.parametrize(
    ("expected", "found", "wrong"),
    [
        ([3000.0, 8.0, 0.0], [3002.0, 8.0, 0.0], 0),  # rounded in another order
        ([3000.0, 65504.0, -65504.0], [3000.0, inf, -inf], 0),
        ([3000.0, inf, nan], [3000.0, inf, nan], 0),
        ([3000.0, 2000.0, 8.0], [1500.0, 4000.0, 8.0], 2),  # a call less, a call more
        ([3000.0, inf, 8.0], [3000.0, 8.0, nan], 2),
        ([3000.0, 2000.0, inf], [3000.0, 2000.0, -inf], 1),
    ],
)
def test_calls_queued_together_may_round_otherwise_than_one_by_one(
    expected: list[float], found: list[float], wrong: int
) -> None:
    _, buffers = case_and_buffers("all_reduce", 6)

    def leave(numbers: list[float]) -> Callable[[], object]:
        return lambda: buffers.receive.copy_(torch.tensor(numbers))

    result = verify_together([(buffers, 0)], 8, leave(expected), leave(found), Device())
    assert result.wrong == wrong
    assert (result.first is None) == (wrong == 0)


def test_a_graph_that_does_nothing_finds_no_result_of_the_calls_before() -> None:
    case, buffers = case_and_buffers("all_gather", 64)
    data = VerificationData(case, 1, 2, 0, torch.device("cpu"))

    def gather() -> None:
        for rank, block in enumerate(buffers.receive_blocks or ()):
            fill(block, data.expected(BlockOrigin(0, rank)))

    parts = [(buffers, 0)]
    assert verify_together(parts, 2, gather, gather, Device()).wrong == 0
    assert verify_together(parts, 2, gather, lambda: None, Device()).wrong == 32
