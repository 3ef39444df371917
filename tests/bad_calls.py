"""Calls of a user's own that are wrong in one way each, and a few that are right."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from commbench.worker.own_calls import Witness


class Direct:
    """The operation's own call: right."""

    operation = "all_reduce"

    def setup(self, group: Any, device: torch.device, dtype: torch.dtype, count: int) -> None:
        self.group, self.rank, self.calls = group, dist.get_rank(group), 0
        self.given = device, dtype, count

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        if output is not input:
            output.copy_(input)
        dist.all_reduce(output, group=self.group)
        self.calls += 1


class ReturnsEarly(Direct):
    """Another thread does the work, when the main one has noted what the call left."""

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        result = input.clone()

        def work() -> None:
            while not _main_thread_is_in(Witness.judge):
                time.sleep(1e-3)
            dist.all_reduce(result, group=self.group)
            output.copy_(result)

        threading.Thread(target=work).start()


def _main_thread_is_in(function: Callable[..., object]) -> bool:
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    return any(each.f_code is function.__code__ for each, _ in traceback.walk_stack(frame))


class WritesBehind(Direct):
    """Rank 1 writes one element behind its output."""

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        super().__call__(output, input)
        if self.rank == 1:
            output.as_strided((1,), (1,), output.storage_offset() + output.numel()).fill_(7)


class WritesBefore(Direct):
    """Rank 1 writes three elements before its output."""

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        super().__call__(output, input)
        if self.rank == 1:
            output.as_strided((1,), (1,), output.storage_offset() - 3).fill_(7)


class WritesOnce(Direct):
    """Rank 1 leaves its output as it is in all calls but the first."""

    operation = "all_gather"

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        is_stale = self.rank == 1 and self.calls
        target = torch.empty_like(output) if is_stale else output
        dist.all_gather(list(target.chunk(dist.get_world_size(self.group))), input, self.group)
        self.calls += 1


class KeepsResult(Direct):
    """Every call gives the result of the first."""

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        if self.calls:
            output.copy_(self.kept)
            dist.barrier(self.group)
        else:
            super().__call__(output, input)
            self.kept = output.clone()
        self.calls += 1


class AddsUp(Direct):
    """On rank 1 the number of earlier calls is in the result."""

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        earlier = self.calls
        super().__call__(output, input)
        if self.rank == 1:
            output += earlier


class WrongElement(Direct):
    """Element 5 on rank 1 is wrong."""

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        super().__call__(output, input)
        if self.rank == 1:
            output[5] += 1


class HangsAt2K(Direct):
    """Rank 1 never ends for one size."""

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        if self.rank == 1 and output.numel() == 512:
            time.sleep(1000)
        super().__call__(output, input)


class RaisesLater(Direct):
    """Rank 1 raises in its fourth call."""

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        if self.rank == 1 and self.calls == 3:
            raise ValueError("no more buffers")
        super().__call__(output, input)


class RefusesLate(Direct):
    """Rank 1 refuses each call, and not in `setup`."""

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        if self.rank == 1:
            raise NotImplementedError("2 KiB at least")
        super().__call__(output, input)


class ChangesStream(Direct):
    """Rank 1 leaves another stream of the stand-in for a GPU as the current one."""

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        super().__call__(output, input)
        if self.rank == 1:
            import fake_device

            fake_device.CURRENT["stream"] = "side"


class SetupRaises(Direct):
    """It cannot be set up on rank 1."""

    def setup(self, group: Any, device: torch.device, dtype: torch.dtype, count: int) -> None:
        super().setup(group, device, dtype, count)
        if self.rank == 1:
            raise KeyError("topology")


class UpTo4K(Direct):
    """It refuses more than 4 KiB."""

    def setup(self, group: Any, device: torch.device, dtype: torch.dtype, count: int) -> None:
        super().setup(group, device, dtype, count)
        if count * dtype.itemsize > 4096:
            raise NotImplementedError("at most 4 KiB")


class OnRank0(Direct):
    """Rank 1 refuses it."""

    def setup(self, group: Any, device: torch.device, dtype: torch.dtype, count: int) -> None:
        super().setup(group, device, dtype, count)
        if self.rank == 1:
            raise NotImplementedError("rank 0 only")


class HalfSum(Direct):
    """Half of the sum, by a reference, sizes and a factor of its own."""

    operation, name = "all_to_all", "half-sum"
    sizes, factor = ("S", "S/n"), "2(n-1)/n"

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        whole = input.clone()
        dist.all_reduce(whole, group=self.group)
        output.copy_(whole.chunk(dist.get_world_size(self.group))[self.rank] / 2)

    def reference(self, inputs: list[torch.Tensor], rank: int) -> torch.Tensor:
        return torch.stack(inputs).sum(0).chunk(len(inputs))[rank] / 2


class HalfSumWrong(HalfSum):
    """Its reference says something else."""

    name = "half-sum-wrong"

    def reference(self, inputs: list[torch.Tensor], rank: int) -> torch.Tensor:
        return super().reference(inputs, rank) + (rank == 1)


class Divided(Direct):
    """It wants whole elements for each rank, and starts by itself."""

    divided = True

    def setup(
        self,
        group: Any,
        device: torch.device,
        dtype: torch.dtype,
        count: int,
        reduce_op: str = "",
    ) -> None:
        super().setup(group, device, dtype, count)
        assert count % dist.get_world_size(group) == 0
        self.op = getattr(dist.ReduceOp, reduce_op.upper())

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None:
        self.start(output, input).wait()

    def start(self, output: torch.Tensor, input: torch.Tensor) -> Any:
        assert output is input
        return dist.all_reduce(output, self.op, group=self.group, async_op=True)


class NoOperation:
    """It does not say whose result it gives."""

    def __call__(self, output: torch.Tensor, input: torch.Tensor) -> None: ...


class UnknownOperation(NoOperation):
    """No operation has that name."""

    operation = "all_redcue"


class NoCall:
    """It cannot be called."""

    operation = "all_reduce"


class NoReference(NoOperation):
    """Its sizes are its own, and nobody knows its result."""

    operation, sizes = "all_to_all", ("S", "S/n")


class BadName(NoOperation):
    """Its name could be part of no title."""

    operation, name = "all_reduce", "my call"
