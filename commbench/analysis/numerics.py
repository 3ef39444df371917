"""Figures of the numbers of a case: how far results differ, and when compressing pays."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from commbench.analysis.statistics import median, median_ci
from commbench.plan.dtypes import DTYPES
from commbench.results.numerics import Numerics
from commbench.stats.estimate import Estimate

if TYPE_CHECKING:
    from commbench.plan.case import Case
    from commbench.results.schema import Measurement

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
    width = DTYPES[dtype].size_bytes
    first, second = (_in_order(each.sample, width) for each in (a, b))
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
    samples = sorted(second for each in launches for second in each)
    return Estimate(median(samples), *median_ci(launches, launches)) if samples else None


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
