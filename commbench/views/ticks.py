"""Round numbers for the ticks of axes, and their labels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, log10

from commbench.units import GB, format_about, format_bytes

_MULTIPLES: tuple[tuple[float, ...], ...] = (
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,),
)  # fmt: skip
"""The ticks within a power of ten, from many to few."""


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers within a range above 0, about evenly spread on a logarithmic axis."""
    if high / low < 4:
        return linear_ticks(low, high, most)
    powers = [10.0**e for e in range(floor(log10(low)), ceil(log10(high)) + 1)]
    found = [
        [m * power for power in powers for m in multiples if low <= m * power <= high]
        for multiples in _MULTIPLES
    ]
    fewest = found[-1]
    return next(
        (ticks for ticks in found if len(ticks) <= most), fewest[:: ceil(len(fewest) / most) or 1]
    )


def linear_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers within a range, with a step of 1, 2 or 5 times a power of ten."""
    span = high - low
    power = 10.0 ** floor(log10(span / most))
    step = next(m * power for m in (1, 2, 5, 10, 20) if span / (m * power) <= most)
    numbers = range(ceil(low / step * (1 - 1e-9)), floor(high / step + 1e-9) + 1)
    return [round(n * step, 12) for n in numbers]


def every_nth(places: Sequence[float], widths: Sequence[float]) -> range:
    """The indices of every n-th label, with the least n that keeps them apart; places and widths in
    the same unit, places in ascending order."""
    for step in range(1, len(places)):
        chosen = range(0, len(places), step)
        if all(
            places[b] - places[a] > (widths[a] + widths[b]) / 2 + 0.1 for a, b in pairwise(chosen)
        ):
            return chosen
    return range(min(1, len(places)))


def size_label(size: float) -> str:
    """A size, rounded where the exact one is long."""
    exact = format_bytes(int(size))
    return exact if len(exact) <= len("1023 KiB") else format_about(size)


def count_label(value: float) -> str:
    """A number of ranks."""
    return f"{value:,.0f}"


def time_label(seconds: float) -> str:
    """A round time: `20 us`, `1.5 ms`."""
    for limit, unit, factor in ((1e-6, "ns", 1e9), (1e-3, "us", 1e6), (1.0, "ms", 1e3)):
        if 0 < seconds < limit * 0.9999:
            return f"{number_label(seconds * factor)} {unit}"
    return f"{number_label(seconds)} s" if seconds else "0"


def bandwidth_label(bytes_per_second: float) -> str:
    """A round bandwidth in GB/s."""
    return number_label(bytes_per_second / GB)


def number_label(value: float) -> str:
    """A number, without an exponent if it is 0.0001 or more: `1e-6`, `0.0001`, `1500`."""
    if 0 < value < 0.9999e-4:
        return f"{value:.3g}".replace("e-0", "e-")
    return f"{value:.6g}" if value < 1e6 else f"{value:,.0f}"
