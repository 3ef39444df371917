"""Ticks: round numbers, plain labels, and labels of sizes that leave each other room."""

from __future__ import annotations

from itertools import pairwise
from math import log10

import pytest

from commbench.views import ticks
from commbench.views.lettering import TEXT, text_width


@pytest.mark.parametrize(
    ("seconds", "label"),
    [
        (2e-7, "200 ns"), (1e-6, "1 us"), (2e-5, "20 us"), (1e-3, "1 ms"), (0.0015, "1.5 ms"),
        (0.3, "300 ms"), (1.0, "1 s"), (500.0, "500 s"), (100_000.0, "100000 s"),
    ],
)  # fmt: skip
def test_a_time_is_a_plain_number_with_its_unit(seconds: float, label: str) -> None:
    assert ticks.time_label(seconds) == label


@pytest.mark.parametrize(
    ("value", "label"), [(0.0, "0"), (1e-4, "0.0001"), (0.3, "0.3"), (1.5, "1.5"), (450.0, "450")]
)
def test_a_number_has_no_exponent(value: float, label: str) -> None:
    assert ticks.number_label(value) == label


@pytest.mark.parametrize(
    "limits",
    [
        (0.9, 1.1),
        (0.5, 1.7),
        (1e-4, 2e-4),
        (1e-5, 0.3),
        (1e-9, 1e4),
        (0.97, 60),
        (3, 3.1),
        (2, 8.5),
    ],
)
def test_ticks_are_few_round_and_within_the_limits(limits: tuple[float, float]) -> None:
    low, high = limits
    for found in (ticks.log_ticks(low, high), ticks.linear_ticks(low, high)):
        assert 2 <= len(found) <= 7
        assert low * 0.999999 <= found[0] < found[-1] <= high * 1.000001
        for tick in found:
            assert len(f"{tick:.5e}".partition("e")[0].replace(".", "").rstrip("0")) <= 3


@pytest.mark.parametrize("width", [1.0, 2.2, 7.0])
@pytest.mark.parametrize(
    "sizes",
    [
        tuple(1 << k for k in range(34)), tuple(range(1 << 20, 17 << 20, 1 << 20)), (8, 16),
        (1000, 1024, 1048572, 1048576), tuple(range(10_000, 10_100)), (1 << 20,),
    ],
)  # fmt: skip
def test_labels_of_sizes_leave_each_other_room(sizes: tuple[int, ...], width: float) -> None:
    inches = width / log10(sizes[-1] * 1.12 / sizes[0])
    places = [log10(size) * inches for size in sizes]
    widths = [text_width(ticks.size_label(size), TEXT) for size in sizes]
    chosen = ticks.every_nth(places, widths)
    assert chosen
    for a, b in pairwise(chosen):
        assert places[b] - places[a] > (widths[a] + widths[b]) / 2
