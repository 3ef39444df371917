"""Latency, peak and half-bandwidth size of curves whose figures are known."""

from __future__ import annotations

import pytest
from synthetic_rows import batches, row

from commbench.analysis.curve import CurveSummary, summarise_curve
from commbench.analysis.rows import ResultRow


def rows(times_s: dict[int, float], operation: str = "broadcast") -> list[ResultRow]:
    """A row for each size; the bus bandwidth of a broadcast is size over time."""
    return [
        row(*batches([time] * 9), operations=(operation,), sizes=(size,))
        for size, time in times_s.items()
    ]


def summary(times_s: dict[int, float], operation: str = "broadcast") -> CurveSummary:
    return summarise_curve(rows(times_s, operation))


def size(found: ResultRow | None) -> int:
    assert found
    return found.measurement.case.size_bytes


def test_the_half_bandwidth_size_of_a_line_is_latency_times_bandwidth() -> None:
    # t = a + S / b reaches half of b at S = a b (Hockney): here 1e-4 s x 1e9 bytes/s.
    line = {1 << n: 1e-4 + (1 << n) / 1e9 for n in range(10, 31)}
    found = summary(line)
    assert size(found.smallest) == 1 << 10
    assert size(found.peak) == 1 << 30
    assert found.half_bytes == pytest.approx(1e5, rel=0.03)
    assert not found.is_below


def test_between_two_sizes_the_bandwidth_is_linear_on_logarithmic_axes() -> None:
    # 1, 4 and 16 bytes/s: half of the peak lies where log(8 / 4) / log(16 / 4) is one half.
    found = summary({64: 64.0, 256: 64.0, 1024: 64.0})
    assert found.half_bytes == pytest.approx(512)


def test_noise_before_the_last_crossing_does_not_count() -> None:
    found = summary({64: 1.0, 128: 1e3, 256: 1.0, 512: 2.0})
    assert 128 < (found.half_bytes or 0) < 256


def test_a_curve_that_starts_above_half_of_its_peak_has_a_bound_only() -> None:
    found = summary({64: 1.0, 128: 1.5})
    assert (found.half_bytes, found.is_below) == (64, True)


def test_sizes_after_the_peak_and_the_order_of_rows_do_not_matter() -> None:
    times = {64: 64.0, 256: 64.0, 1024: 64.0, 4096: 1e4}
    found = summarise_curve(rows(times)[::-1])
    assert found.half_bytes == pytest.approx(512)
    assert size(found.peak) == 1024


def test_what_has_no_bandwidth_or_one_size_has_no_half_bandwidth_size() -> None:
    barrier = summary({1024: 1e-4}, "barrier")
    assert (barrier.peak, barrier.half_bytes) == (None, None)
    assert barrier.smallest
    one = summary({1024: 1e-4})
    assert (size(one.peak), one.half_bytes) == (1024, None)
    assert summarise_curve([row()]) == CurveSummary(None, None, None)
