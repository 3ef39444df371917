"""Compares the result of a sum with the exact one, and its bits on all ranks and in several calls.

Data are made in chunks of CHUNK elements, by seed, group, chunk and rank, so that a rank makes
those of all others without communication. The first MOST_CHUNKS chunks repeat behind them. So many
chunks of a result are compared at most, over all ranks together: each rank compares its share, so
that the cost of a case does not grow with the ranks.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from math import log10, sqrt
from typing import Any, NamedTuple

import numpy as np
import torch

from commbench.plan import compression, operations
from commbench.plan.case import Case
from commbench.plan.dtypes import DATA, ROW
from commbench.results.records import Numerics
from commbench.worker import measure, reduction
from commbench.worker.buffers import Buffers, GroupBuffers
from commbench.worker.communicator import Communicator
from commbench.worker.device import Call
from commbench.worker.measure import Timer

CHUNK = 1 << 14
MOST_CHUNKS = 256
"""4 Mi elements."""
CALLS = 3
"""Calls of the same data whose bits are compared."""
SAMPLE, SAMPLE_BYTES = 1024, 4096
"""Elements, and bytes, of a sample at most."""
CODEC_NS = 100_000_000
LEAST_TIMES, MOST_TIMES = 6, 30
"""Encoding and decoding is timed for so long, but so many times."""
_DIGEST_BITS = 62


class Source(NamedTuple):
    """Where the data of a case come from."""

    data: str
    dtype: str
    seed: int
    group: int
    """The number of the group among those of its dimension."""

    @property
    def wide(self) -> type:
        """The type of exact sums: the next wider one than FP64 for sums of FP64."""
        return np.longdouble if self.dtype == "float64" else np.float64


@lru_cache(maxsize=2 * MOST_CHUNKS)
def make_chunk(source: Source, rank: int, number: int) -> torch.Tensor:
    """A chunk of the data that a rank sends, as its element type; the number is any."""
    kind, number = DATA[source.data], number % MOST_CHUNKS
    shared = np.random.default_rng([source.seed, source.group, number])
    own = np.random.default_rng([source.seed, source.group, number, rank + 1])
    is_wide = source.wide is not np.float64
    values = own.standard_normal(CHUNK, dtype=np.float64 if is_wide else np.float32)
    if kind.row_spread:
        scales = np.exp(kind.row_spread * shared.standard_normal(CHUNK // ROW))
        values = (values.reshape(-1, ROW) * scales[:, None].astype(values.dtype)).reshape(-1)
    if kind.outlier_share:
        values[own.random(CHUNK) < kind.outlier_share] *= kind.outlier_factor
    return torch.from_numpy(values).to(getattr(torch, source.dtype))


@lru_cache(maxsize=MOST_CHUNKS)
def exact_chunk(source: Source, ranks: int, is_mean: bool, number: int) -> Any:
    """The exact sum, or mean, over all ranks of a chunk that is one of the first."""
    total: Any = np.zeros(CHUNK, dtype=source.wide)
    for rank in range(ranks):
        total += make_chunk.__wrapped__(source, rank, number).double().numpy()
    return total / ranks if is_mean else total


def fill(send: torch.Tensor, source: Source, rank: int) -> None:
    """Fill a send buffer with the data of a rank."""
    first = send[: MOST_CHUNKS * CHUNK]
    for number, part in enumerate(first.split(CHUNK)):
        part.copy_(make_chunk(source, rank, number)[: part.numel()])
    for part in send[first.numel() :].split(MOST_CHUNKS * CHUNK):
        part.copy_(first[: part.numel()])


class Errors(NamedTuple):
    """What the errors of some elements add up to."""

    elements: int = 0
    not_finite: int = 0
    squares: float = 0.0
    total: float = 0.0
    exact_squares: float = 0.0
    largest: float = 0.0
    largest_ulp: float = 0.0
    differs: float = 0.0
    """1 where ranks have other bits than others."""
    changes: float = 0.0
    """1 where a call had other bits than the first."""


SUMMED = Errors._fields.index("largest")
"""So many fields are sums over elements; of those behind them the largest counts."""


def add_errors(parts: Sequence[Errors]) -> Errors:
    """The errors of all these elements together."""
    columns = [*zip(*parts, strict=True)]
    return Errors(*map(sum, columns[:SUMMED]), *map(max, columns[SUMMED:]))


def find_errors(result: torch.Tensor, exact: Any) -> Errors:
    """The errors of elements against exact ones."""
    info = torch.finfo(result.dtype)
    found = result.cpu().double().numpy().astype(exact.dtype)
    is_finite = np.isfinite(found)
    found, exact = found[is_finite], exact[is_finite]
    errors = found - exact
    if not len(errors):
        return Errors(0, len(is_finite))
    _, exponents = np.frexp(exact)
    ulp = info.eps * np.maximum(np.ldexp(1.0, exponents - 1), info.tiny)
    return Errors(
        len(errors), len(is_finite) - len(errors), float((errors**2).sum()), float(errors.sum()),
        float((exact**2).sum()), float(abs(errors).max()), float((abs(errors) / ulp).max()),
    )  # fmt: skip


def results(buffers: Buffers) -> Iterator[tuple[torch.Tensor, int]]:
    """The blocks of the receive buffer that hold a sum, and the number of their first element among
    those that a rank sends."""
    case = buffers.case
    for block, origin in buffers.results(operations.OPERATIONS[case.operation]):
        yield block, origin.block * case.count


def is_everywhere(case: Case) -> bool:
    """Whether all ranks have the same elements of the result."""
    operation = operations.OPERATIONS[case.operation]
    return compression.exchanges(operation) > 1 and not operation.rooted


def compare(buffers: Buffers, source: Source) -> Errors:
    """The errors of this rank's share of the result: of some chunks, evenly spaced."""
    share, is_mean = max(1, MOST_CHUNKS // buffers.ranks), buffers.case.reduce_op == "avg"
    every, first = (buffers.ranks, buffers.rank) if is_everywhere(buffers.case) else (1, 0)
    parts = []
    for block, start in results(buffers):
        end = start + block.numel()
        own = [*range(start // CHUNK + first, -(-end // CHUNK), every)]
        for number in own[:: -(-len(own) // share) or 1]:
            low, high = max(start, number * CHUNK), min(end, (number + 1) * CHUNK)
            exact = exact_chunk(source, buffers.ranks, is_mean, number % MOST_CHUNKS)
            within = exact[low - number * CHUNK : high - number * CHUNK]
            parts.append(find_errors(block[low - start : high - start], within))
    return add_errors(parts)


def digest(buffers: Buffers) -> int:
    """A hash of the bits of some chunks of the result, evenly spaced: the same ones on all ranks
    that have the same elements."""
    found = hashlib.blake2b(digest_size=8)
    for block, _ in results(buffers):
        chunks = block.split(CHUNK)
        for chunk in chunks[:: -(-len(chunks) // MOST_CHUNKS) or 1]:
            found.update(chunk.view(torch.uint8).cpu().numpy())
    return int.from_bytes(found.digest(), "little") >> (64 - _DIGEST_BITS)


def take_sample(buffers: Buffers) -> str:
    """The bits of elements of the result, evenly spaced; base64."""
    for block, _ in results(buffers):
        number = min(block.numel(), SAMPLE, SAMPLE_BYTES // block.element_size())
        places = torch.arange(number, device=block.device) * block.numel() // max(1, number)
        return base64.b64encode(block[places].view(torch.uint8).cpu().numpy()).decode()
    return ""


def measure_case(
    case: Case, parts: GroupBuffers, call: Call, comm: Communicator, timer: Timer, source: Source
) -> Numerics:
    """What the numbers of a case are; all ranks take part, and the record is that of all on rank 0.
    `parts` are the buffers of this rank's groups, which `call` uses."""
    device, seen = comm.device, []
    for _ in range(CALLS):
        for buffers in parts:
            own = _of_group(source, buffers)
            device.in_stream(partial(fill, buffers.send, own, buffers.rank))()
        device.synchronize()
        call()
        device.synchronize()
        seen.append([digest(part) for part in parts])
    # An own call with a reference has another result than its operation.
    alike = [p for p in parts if not (p.own and hasattr(p.own.entry, "reference"))]
    found = [compare(part, _of_group(source, part)) for part in alike]
    sample = next(filter(None, map(take_sample, parts)), "")
    codec: list[Call] = [b.compressed.compute for b in parts if b.compressed]
    is_compressed = case.call_form.compression is not None
    times = _time_codec(codec, comm, timer) if is_compressed else ()
    return _combine(case, found, seen, sample, comm, source)._replace(codec_s=times)


def _of_group(source: Source, buffers: Buffers) -> Source:
    return source._replace(group=buffers.group_number)


def _combine(
    case: Case, own: list[Errors], seen: list[list[int]], sample: str, comm: Communicator,
    source: Source,
) -> Numerics:  # fmt: skip
    """The record of all ranks."""
    first = comm.first_rank([bool(sample)])[0] or 0
    sample = comm.share_value(sample, first)
    differs = False
    for view, found in zip(comm.views(case), seen[0], strict=False):
        ends = comm.reduce_max(torch.tensor([found, -found]), view)
        differs |= not view.rank and int(ends.sum()) != 0
    errors = add_errors(own)._replace(differs=differs, changes=seen != [seen[0]] * len(seen))
    of_ranks = comm.gather(torch.tensor(errors, dtype=torch.float64)).tolist()
    every = add_errors([Errors(*each) for each in of_ranks])
    exact = every.exact_squares
    rms = sqrt(every.squares / exact) if exact else 0.0
    return Numerics(
        data=source.data, seed=source.seed, elements=int(every.elements),
        not_finite=int(every.not_finite), max_abs_error=every.largest, rms_relative_error=rms,
        max_ulp=every.largest_ulp, sqnr_db=-20 * log10(rms) if rms else None,
        bias=every.total / every.elements / sqrt(exact / every.elements) if exact else 0.0,
        same_on_ranks=not every.differs if is_everywhere(case) else None,
        repeats=not every.changes, sample=sample,
    )  # fmt: skip


def _time_codec(codec: list[Call], comm: Communicator, timer: Timer) -> tuple[float, ...]:
    """Seconds until all ranks have done the work of a compressed call, without communication, all
    at once; on rank 0. A rank without such work waits.

    Ranks may share cores, and one may begin when another has ended. So the ranks are aligned after
    the work, too, and the time of that alone is taken off.
    """
    call = measure.back_to_back([*codec, timer.aligner])

    def run(times: int, call: Call = call) -> torch.Tensor:
        if not codec:
            return torch.zeros(times, dtype=torch.int64)
        return measure.time_calls(timer, call, times, comm.state)

    idle = run(measure.ALIGNER_ITERATIONS, timer.aligner)
    idle_ns = comm.all_reduce_max(idle).median()
    shortest = max(1, int(comm.all_reduce_max(run(2)).min()))
    times = min(max(CODEC_NS // shortest, LEAST_TIMES), MOST_TIMES)
    return reduction.slowest_durations_s((run(times) - idle_ns).clamp(min=1), comm)
