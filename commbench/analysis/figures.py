"""Figures of rows: how much of a communication a computation hides, the fraction of a link's speed
that a bandwidth needs, and how bandwidth grows with size.

**Overlap** of a communication (a: its time alone) and a computation (b); t is the time of both at
once, a' that from the beginning of both to the end of the communication, and b' that of the
computation beside it. All are medians over iterations of the slowest rank.

    hidden share                  (a + b - t) / min(a, b), from 0 to 1
    slowdown of the computation   b' / b - 1
    slowdown of the communication a' / a - 1
    gain                          (a + b) / t

min(a, b) is the most that can be hidden: this is the overlap of the IMB-NBC guide of Intel MPI
Benchmarks. Others divide otherwise:

    IMB-NBC (its source)          (a + b - t) / max(a, b), from 0 to 1
    OSU Micro-Benchmarks          1 - (t - b) / a, at least 0

The interval of a figure of medians follows from theirs (see stats.estimate). The medians are those
of different iterations, except that a' and b' do not enter a figure together with t.

**Peak.** With any algorithm, factor(n) x S bytes pass the link of some rank of n in one direction,
and factor(k) x S bytes the network of some node of k. In all_to_all each rank of a node adds blocks
of its own, which cannot be merged within the node. Where the network itself reduces (NVLS, SHARP),
a rank moves S instead, which is less if the factor exceeds 1. Bounds: Chan et al. 2007; factors:
nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from itertools import chain
from math import inf, log
from typing import TYPE_CHECKING, Literal, NamedTuple

from commbench.analysis.statistics import Samples, Summary, summarise
from commbench.plan.dtypes import DTYPES
from commbench.plan.operation import Operation
from commbench.plan.operations import OPERATIONS
from commbench.stats import Estimate, collect, combine, combine_ratio

if TYPE_CHECKING:
    from commbench.analysis.rows import ResultRow
    from commbench.plan.case import Case
    from commbench.plan.links import Peak
    from commbench.results.records import Numerics
    from commbench.results.schema import Batch, Measurement


class Overlap(NamedTuple):
    """The figures of one row of both at once; shares and slowdowns are fractions."""

    communication_s: Estimate | None
    """From the beginning of both to the end of the communication, in seconds; None where the
    backend does not tell when that was."""
    computation_s: Estimate
    """Of the computation, while the communication goes on."""
    hidden: Estimate
    computation_slowdown: Estimate
    communication_slowdown: Estimate | None
    gain: Estimate
    imb_hidden: float
    osu_hidden: float


def find_overlap(
    communication: Summary, computation: Summary, both: Summary, batches: Sequence[Batch],
    usual_spread: float = 0.0,
) -> Overlap | None:  # fmt: skip
    """The figures, from the times of each alone and of both, and the batches of both; None where a
    time is 0 or the batches do not tell when the computation ended. `usual_spread` is that of
    statistics.launch_half_width."""
    a, b, t = communication.estimate, computation.estimate, both.estimate
    ended = median_of([batch.computation_s for batch in batches], batches, usual_spread)
    if not (ended and a.value and b.value and t.value):
        return None
    arrivals = [batch.communication_s for batch in batches]
    arrived = median_of(arrivals, batches, usual_spread) if all(arrivals) else None
    saved = a.value + b.value - t.value
    return Overlap(
        communication_s=arrived,
        computation_s=ended,
        hidden=combine(_hidden, a, b, t).map(_clip),
        computation_slowdown=_slowdown(ended, b),
        communication_slowdown=_slowdown(arrived, a) if arrived else None,
        gain=combine_ratio(lambda a, b, t: (a + b) / t, a, b, t),
        imb_hidden=_clip(saved / max(a.value, b.value)),
        osu_hidden=max(0.0, saved / a.value),
    )


def _hidden(a: float, b: float, t: float) -> float:
    return (a + b - t) / min(a, b) if a and b else 0.0


def _slowdown(together: Estimate, alone: Estimate) -> Estimate:
    return combine_ratio(lambda x, y: x / y, together, alone).map(lambda ratio: ratio - 1)


def _clip(value: float) -> float:
    return max(0.0, min(1.0, value))


def median_of(samples: Samples, batches: Sequence[Batch], usual_spread: float) -> Estimate | None:
    """The median of samples that come in these batches, with its interval; None without samples.
    `usual_spread` is that of statistics.launch_half_width."""
    if not any(map(any, samples)):
        return None
    by_launch = collect(zip((batch.launch for batch in batches), samples, strict=True))
    launches = [sorted(chain.from_iterable(own)) for own in by_launch.values()]
    return summarise(samples, launches, usual_spread).estimate


BUS_BOUND = "bus bandwidth"
NODE_BOUND = "node bandwidth"


class PeakFraction(NamedTuple):
    """The fraction of a peak that a measured bandwidth needs."""

    bound: str
    """What is compared with the peak: BUS_BOUND or NODE_BOUND."""
    factor: float
    """The bytes that must pass the link, over S."""
    rate_bytes_per_s: float
    """Those bytes over the time: the least that the link carried."""
    fraction: float
    """The rate over the peak; 1 is all of it."""
    ceiling: float
    """The largest possible fraction: above 1 where a network that reduces could move less."""


def find_peak_fraction(row: ResultRow, peak: Peak) -> PeakFraction | None:
    """The fraction of the peak that a row needed; None if `why_no_peak_fraction` says why."""
    if row.algbw is None or why_no_peak_fraction(row, peak):
        return None
    case = row.case
    operation = OPERATIONS[case.operation]
    if operation.block_counts:
        factor = case.busbw_factor or 0.0
        rate = factor * row.algbw
        return PeakFraction(BUS_BOUND, factor, rate, rate / peak.bytes_per_second, 1.0)
    return peak_fraction(operation, case.ranks, row.header.num_nodes, row.algbw, peak)


def peak_fraction(
    operation: Operation, ranks: int, nodes: int, algbw: float, peak: Peak
) -> PeakFraction | None:
    """The fraction of the peak that `algbw` (bytes/s) needs; None for one without bandwidth.

    The peak of a node is compared with what nodes exchange, any other with the bus bandwidth.
    """
    if operation.busbw_factor is None:
        return None
    factor = operation.busbw_factor(nodes if peak.is_per_node else ranks)
    ceiling = max(factor, 1.0) if operation.reduces else 1.0
    if peak.is_per_node and operation.is_personalized:
        factor *= ranks / nodes
    rate = factor * algbw
    bound = NODE_BOUND if peak.is_per_node else BUS_BOUND
    return PeakFraction(bound, factor, rate, rate / peak.bytes_per_second, ceiling)


def why_no_peak_fraction(row: ResultRow, peak: Peak) -> str:
    """Why a row cannot be compared with the peak; empty if it can."""
    if row.busbw is None:
        return "it has no bandwidth"
    if row.case.ranks == 1:
        return "with one rank nothing crosses a link"
    if row.header.gpu_shared:
        return "ranks shared a GPU, so its time does not measure performance"
    if peak.is_per_node and row.header.num_nodes == 1:
        return "all ranks are on one node, so nothing crosses the network between nodes"
    operation = OPERATIONS[row.case.operation]
    if peak.is_per_node and operation.is_paired:
        return "it is not known which pairs are on two nodes"
    if peak.is_per_node and operation.block_counts:
        return "unequal blocks have no bound per node"
    return ""


LARGEST_LATENCY = 8 << 10
"""Bytes up to which the time of a call is called its latency; beyond, bandwidth is a part of it."""


FAR_APART = 8
"""Between sizes with a larger ratio a bandwidth is not interpolated."""


class CurveSummary(NamedTuple):
    """The figures of rows that differ only in size; None where nothing was measured."""

    latency: ResultRow | None
    """The row with the least time of the sizes up to LARGEST_LATENCY; None without such a size."""
    peak: ResultRow | None
    """The row of the highest bus bandwidth; None for an operation without bandwidth."""
    half: Estimate | None
    """The half-bandwidth size in bytes; None where fewer than two sizes have a bandwidth."""
    is_below: bool = False
    """Whether all smaller sizes reach half of the peak too, so that `half` is the smallest
    measured size, and the half-bandwidth size lies below it."""


def summarise_curve(rows: Sequence[ResultRow]) -> CurveSummary:
    """The summary of rows of one kind, in any order. Rows that were not timed are left out.

    The half-bandwidth size, n-half, is the size from which on the bus bandwidth is at least half of
    its peak. Hockney defines it by the asymptotic bandwidth of a fitted line (Parallel Computing
    20, 1994, p. 389: "The communication challenge for MPP"); here the peak is the highest measured
    bandwidth. Between the two measured sizes on either side, the logarithm of the bandwidth is
    taken as linear in the logarithm of the size. Its interval is that of all rows up to the peak,
    which may reach half of it or not, within their sizes. Of sizes more than FAR_APART, nothing is
    known between them, so the interval has both.
    """
    timed = sorted((row for row in rows if row.time), key=lambda row: row.case.size_bytes)
    curve = [(r.case.size_bytes, r.busbw, r) for r in timed if r.busbw]
    small = (row for row in timed if row.case.size_bytes <= LARGEST_LATENCY)
    latency = min(small, key=lambda row: row.time.median if row.time else inf, default=None)
    if not curve:
        return CurveSummary(latency, None, None)
    largest, _, peak = max(curve, key=lambda point: point[1])
    if len(curve) == 1:
        return CurveSummary(latency, peak, None)
    rising = [row for size, _, row in curve if size <= largest]
    sizes = [row.case.size_bytes for row in rising]
    speeds = [speed for row in rising if (speed := row.known_busbw)]
    below = _last_below_half([speed.value for speed in speeds])
    if below is None:
        return CurveSummary(latency, peak, Estimate(sizes[0]), True)
    half = combine_ratio(partial(_half_size, sizes), *speeds)
    if sizes[below + 1] > FAR_APART * sizes[below]:
        low, high = half.ends
        half = Estimate(half.value, min(low, sizes[below]), max(high, sizes[below + 1]))
    return CurveSummary(latency, peak, half.map(lambda size: min(max(size, sizes[0]), largest)))


def _last_below_half(speeds: Sequence[float]) -> int | None:
    """The index of the last speed below half of the last one; None where there is none."""
    return max((i for i, speed in enumerate(speeds) if speed < speeds[-1] / 2), default=None)


def _half_size(sizes: Sequence[int], *speeds: float) -> float:
    """The size from which on the bandwidth is at least half of the last one, interpolated between
    the two sizes on either side; the first size where all are."""
    if (below := _last_below_half(speeds)) is None:
        return float(sizes[0])
    around = [*zip(speeds, sizes, strict=True)][below : below + 2]
    return interpolate(around, speeds[-1] / 2) or 0.0


def interpolate(points: Sequence[tuple[float, float]], size: float) -> float | None:
    """The value at a size, of points in ascending order: between two sizes, the logarithm of the
    value is taken as linear in the logarithm of the size. None beyond the ends."""
    index = bisect_left(points, (size,))
    if index < len(points) and points[index][0] == size:
        return points[index][1]
    if not 0 < index < len(points):
        return None
    (low, first), (high, last) = points[index - 1 : index + 1]
    return float(first * (last / first) ** (log(size / low) / log(high / low)))


_WIDTHS: dict[int, Literal["h", "i", "q"]] = {2: "h", 4: "i", 8: "q"}


class Difference(NamedTuple):
    """How two samples of the same elements differ."""

    share: float
    """The share of elements whose bits differ."""
    max_ulp: int
    """The most numbers of the element type between two of them, one of both counted."""


def worst_numerics(found: Sequence[Numerics]) -> Numerics | None:
    """The launch with the largest error; it repeats, and has the same bits on all ranks, only where
    all launches do. None where nothing was measured."""
    if not found:
        return None
    worst = max(found, key=lambda each: (each.not_finite, each.rms_relative_error))
    is_same = all(each.same_on_ranks is not False for each in found)
    return worst._replace(
        same_on_ranks=None if worst.same_on_ranks is None else is_same,
        repeats=all(each.repeats for each in found),
    )


def find_difference(a: Numerics, b: Numerics, dtype: str) -> Difference | None:
    """How two results differ; None where they are not sums of the same data."""
    if (a.data, a.seed) != (b.data, b.seed):
        return None
    first, second = (_in_order(each.sample, DTYPES[dtype].size_bytes) for each in (a, b))
    if not first or len(first) != len(second):
        return None
    apart = [abs(x - y) for x, y in zip(first, second, strict=True)]
    return Difference(sum(map(bool, apart)) / len(apart), max(apart))


def _in_order(sample: str, width: int) -> list[int]:
    """For each number of a sample an integer, such that neighbours differ by 1: of a negative one
    the complement of its magnitude."""
    try:
        bits = memoryview(base64.b64decode(sample, validate=True)).cast(_WIDTHS[width])
    except (binascii.Error, TypeError, KeyError):
        return []
    least = -1 << (8 * width - 1)
    return [each if each >= 0 else least - each for each in bits.tolist()]


def launches_difference(found: Sequence[Numerics], dtype: str) -> Difference | None:
    """The largest difference of a launch from the first; None where there is only one."""
    pairs = (find_difference(found[0], each, dtype) for each in found[1:])
    return max(filter(None, pairs), default=None)


def codec_time(found: Sequence[Numerics]) -> Estimate | None:
    """Seconds of the work of a compressed call without communication: the median with its
    interval; None for another call."""
    launches = [sorted(each.codec_s) for each in found if each.codec_s]
    return summarise(launches, launches).estimate if launches else None


def plain_wire_bytes(case: Case) -> float | None:
    """Bytes that a rank sends in the direct call."""
    factor = case.busbw_factor
    return None if factor is None else factor * case.size_bytes


def paying_speed(measurement: Measurement) -> Estimate | None:
    """Bytes per second of the link below which a compressed form is faster: the bytes that a rank
    does not send over the time of its own work. None for another form, and where it sends no less,
    or the interval of that time says nothing."""
    case, codec = measurement.case, codec_time(measurement.numerics)
    plain, sent = plain_wire_bytes(case), case.wire_bytes
    if codec is None or plain is None or sent is None or not codec.value or codec.is_unknown:
        return None
    saved = plain - sent
    return codec.map(lambda seconds: saved / seconds) if saved > 0 else None
