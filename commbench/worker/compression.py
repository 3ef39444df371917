"""Compressed calls on a rank: encode, exchange, decode, on tensors that are made once.

The casts are those of torch's hooks fp16_compress_hook and bf16_compress_hook, and float16 is
clamped as torch.distributed.algorithms._quantization does it. PowerSGD is that of torch's
powerSGD_hook, without error feedback and warm start: a call is then a function of its inputs.
"""

from __future__ import annotations

import sys
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.algorithms._quantization import quantization

from commbench.plan.compression import SCALED, exchanges, factors, padded, part_bytes
from commbench.plan.operation import Operation
from commbench.plan.operations import OPERATIONS, all_gather
from commbench.worker.device import Call

if TYPE_CHECKING:
    from commbench.worker.buffers import Buffers

ALIGNMENT = 256
_SEED = 1
"""Of the factor with which PowerSGD begins, the same on every rank."""


class Space:
    """Memory that is cut into tensors, one after another."""

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory, self._end = memory, 0

    def take(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        """The next tensor of that type and shape."""
        size_bytes = torch.Size(shape).numel() * dtype.itemsize
        begin, self._end = self._end, self._end + size_bytes
        self._end += -self._end % ALIGNMENT
        return self._memory[begin : begin + size_bytes].view(dtype).view(shape)


SPACE_RESERVE = 16 * ALIGNMENT
"""Bytes for the alignment of all tensors of a call."""


class Compressed(NamedTuple):
    """A compressed call: the work of the rank itself, and between any two parts of it an exchange
    with others."""

    local: tuple[Call, ...]
    remote: tuple[Call, ...]

    def run(self) -> None:
        """Make the call."""
        for work, exchange in zip(self.local, self.remote, strict=False):
            work()
            exchange()
        self.local[-1]()

    def compute(self) -> None:
        """Encode, add and decode only, as in the call."""
        for work in self.local:
            work()


def cast(operation: Operation, buffers: Buffers, space: Space, dtype: str) -> Compressed:
    """A cast to another element type, the operation's own call, and a cast back."""
    short = getattr(torch, dtype)
    sent = space.take(short, buffers.send.numel())
    received = sent if exchanges(operation) > 1 else space.take(short, buffers.receive.numel())
    work = space.take(buffers.send.dtype, buffers.send.numel())

    def encode() -> None:
        source = buffers.send
        if short is torch.float16:
            least, most = quantization.TORCH_HALF_MIN, quantization.TORCH_HALF_MAX
            source = torch.clamp(source, least, most, out=work)
        sent.copy_(source)
        if buffers.reduce_name == "avg":
            sent.div_(buffers.ranks)

    own = buffers._replace(send=sent, receive=received, reduce_op=dist.ReduceOp.SUM)
    decode = partial(buffers.receive.copy_, received)
    return Compressed((encode, decode), (partial(operation.call, dist, own),))


class _Parts(NamedTuple):
    """Parts of a tensor, one below the other, each as bytes and with the scales of its blocks."""

    wire: torch.Tensor
    """uint8, [parts, part_bytes]."""
    values: torch.Tensor
    """A view of it: [parts, blocks, SCALED], of the short type."""
    scales: torch.Tensor
    """A view of it: float32, [parts, blocks]."""

    @classmethod
    def of(cls, wire: torch.Tensor, short: torch.dtype, count: int) -> _Parts:
        """The views of these bytes, for parts of so many elements."""
        filled = padded(count)
        values = wire[:, :filled].view(short).unflatten(1, (-1, SCALED))
        return cls(wire, values, wire[:, filled:].view(torch.float32))

    def encode(self, source: torch.Tensor, work: torch.Tensor, largest: float) -> None:
        """Round float32 values, [parts, blocks, SCALED]; `work` has the same shape, and may be the
        same."""
        torch.linalg.vector_norm(source, float("inf"), dim=-1, out=self.scales)
        self.scales.div_(largest)
        # A block of zeros stays one: 0 / tiny.
        least = torch.finfo(torch.float32).tiny
        torch.div(source, self.scales.clamp(min=least).unsqueeze(-1), out=work)
        if not self.values.dtype.is_floating_point:
            work.round_()
        self.values.copy_(work.clamp_(-largest, largest))

    def decode(self, part: int, out: torch.Tensor) -> torch.Tensor:
        """The values of a part as float32, [blocks, SCALED]."""
        return out.copy_(self.values[part]).mul_(self.scales[part].unsqueeze(-1))


def scaled(
    operation: Operation, buffers: Buffers, space: Space, dtype: str, largest: float
) -> Compressed:
    """Blocks of a short type, each with a float32 scale, so that the largest magnitude of a block
    becomes `largest`: all_to_all of the parts, a sum in float32 in the order of the ranks, and,
    where all ranks get all parts, the same rounding again and an all_gather."""
    short, ranks = getattr(torch, dtype), buffers.ranks
    count = buffers.send.numel() // ranks
    wires = (space.take(torch.uint8, ranks, part_bytes(count)) for _ in "ab")
    sent, received = (_Parts.of(wire, short, count) for wire in wires)
    work = space.take(torch.float32, ranks, padded(count) // SCALED, SCALED)
    total = space.take(torch.float32, 1, padded(count) // SCALED, SCALED)
    added = space.take(torch.float32, padded(count) // SCALED, SCALED)
    is_whole = exchanges(operation) > 1
    is_direct = buffers.send.dtype == torch.float32 and count % SCALED == 0
    rows = buffers.send.view(ranks, count)

    def encode() -> None:
        source = rows.view(work.shape) if is_direct else work
        if not is_direct:
            flat = work.view(ranks, -1)
            flat[:, :count].copy_(rows)
            flat[:, count:].zero_()
        sent.encode(source, work, largest)

    def add() -> None:
        received.decode(0, total[0])
        for rank in range(1, ranks):
            total[0].add_(received.decode(rank, added))
        if buffers.reduce_name == "avg":
            total.div_(ranks)

    def keep() -> None:
        add()
        buffers.receive.copy_(total.view(-1)[:count])

    own = _Parts.of(received.wire[buffers.rank : buffers.rank + 1], short, count)

    def add_and_encode() -> None:
        add()
        own.encode(total, total, largest)

    def decode() -> None:
        out = buffers.receive.view(ranks, count)
        for rank in range(ranks):
            if is_direct:
                sent.decode(rank, out[rank].view(added.shape))
            else:
                out[rank].copy_(sent.decode(rank, added).view(-1)[:count])

    first = partial(dist.all_to_all_single, received.wire, sent.wire, group=buffers.group)
    if not is_whole:
        return Compressed((encode, keep), (first,))
    second = buffers._replace(send=own.wire.view(-1), receive=sent.wire.view(-1))
    return Compressed((encode, add_and_encode, decode), (first, partial(all_gather, dist, second)))


@lru_cache(maxsize=64)
def _first_factor(width: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Orthonormal columns of random numbers, the same everywhere: [width, columns]."""
    generator = torch.Generator().manual_seed(_SEED)
    found = torch.randn(1, width, columns, generator=generator, dtype=dtype)
    _orthogonalize(found)
    return found[0]


def _orthogonalize(matrices: torch.Tensor) -> None:
    """Make the columns orthonormal, as torch's hook does; [matrices, rows, columns]."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    powerSGD_hook._orthogonalize(matrices)


def powersgd(_: Operation, buffers: Buffers, space: Space, columns: int) -> Compressed:
    """The matrix M of the tensor as P Q': P is the orthonormal sum of M Q over all ranks, Q is the
    sum of M' P. Elements beyond the matrix are added as they are, with P."""
    send, dtype = buffers.send, buffers.send.dtype
    height, width, own = factors(send.numel(), columns)
    inside = height * width
    first_sum = space.take(dtype, height * own + send.numel() - inside)
    p = first_sum[: height * own].view(height, own)
    q, q_before = (space.take(dtype, width, own) for _ in "ab")
    q_before.copy_(_first_factor(width, own, dtype))
    matrix = send[:inside].view(height, width)

    def encode() -> None:
        torch.mm(matrix, q_before, out=p)
        first_sum[height * own :].copy_(send[inside:])

    def orthogonalise() -> None:
        _orthogonalize(p.unsqueeze(0))
        torch.mm(matrix.t(), p, out=q)

    def decode() -> None:
        if buffers.reduce_name == "avg":
            q.div_(buffers.ranks)
            first_sum[height * own :].div_(buffers.ranks)
        torch.mm(p, q.t(), out=buffers.receive[:inside].view(height, width))
        buffers.receive[inside:].copy_(first_sum[height * own :])

    calls = [partial(dist.all_reduce, t, group=buffers.group) for t in (first_sum, q)]
    return Compressed((encode, orthogonalise, decode), tuple(calls))


def make_compressed(buffers: Buffers, memory: torch.Tensor) -> Compressed:
    """What runs the case of these buffers in its compressed form."""
    how = buffers.case.call_form.compression
    assert how is not None
    operation = OPERATIONS[buffers.case.operation]
    made: Compressed = how.make(sys.modules[__name__], operation, buffers, Space(memory))
    return made
