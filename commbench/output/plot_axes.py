"""The axes of pictures: ticks at measured sizes, at round times and at round numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from commbench.output.plot_style import INK, LEFT, RIGHT, TEXT, WIDTH, text_width
from commbench.units import format_about, format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def set_size_axis(
    axes: Axes,
    sizes: Iterable[int],
    width: float,
    has_labels: bool = True,
    label: Callable[[int], str] | None = None,
) -> None:
    """Ticks at the measured sizes; as many have labels as fit into a width in inches. For other
    numbers than sizes, `label` gives the text of one."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

    ordered = sorted(set(sizes))
    low, high = ordered[0] / 1.12, ordered[-1] * 1.12
    if len(ordered) > 1:
        part = (ordered[-1] / ordered[0]) ** (0.03 if width > 4 else 0.07)
        low, high = ordered[0] / part, ordered[-1] * part
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, high)
    labels = thin_sizes(ordered, low, high, width, label)
    axes.xaxis.set_major_locator(FixedLocator(list(labels)))
    axes.xaxis.set_minor_locator(FixedLocator([size for size in ordered if size not in labels]))
    axes.xaxis.set_major_formatter(FixedFormatter(list(labels.values())))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelbottom=has_labels)


def thin_sizes(
    sizes: Sequence[int],
    low: float,
    high: float,
    width: float,
    label: Callable[[int], str] | None = None,
) -> dict[int, str]:
    """The sizes that get a label, each with its label, on a logarithmic axis from `low` to `high`
    that is `width` inches wide: every n-th size where each is a multiple of the one before, else
    those with the shortest labels."""
    inches = width / log10(high / low)
    texts = {size: (label or size_label)(size) for size in sizes}
    widths = {size: text_width(text, TEXT) for size, text in texts.items()}

    def fit(chosen: Sequence[int]) -> bool:
        return all(
            log10(b / a) * inches > (widths[a] + widths[b]) / 2 + 0.1 for a, b in pairwise(chosen)
        )

    steps = [b / a for a, b in pairwise(sizes)]
    if steps and max(steps) < 1.01 * min(steps):
        chosen = next((sizes[::n] for n in range(1, len(sizes)) if fit(sizes[::n])), sizes[:1])
        return {size: texts[size] for size in chosen}
    kept: list[int] = []
    for size in sorted(sizes, key=lambda size: (size & (size - 1) > 0, len(texts[size]), size)):
        if fit(sorted([*kept, size])):
            kept.append(size)
    return {size: texts[size] for size in sorted(kept)}


def size_label(size: int) -> str:
    """A size, rounded where the exact one is long."""
    exact = format_bytes(size)
    return exact if len(exact) <= len("1023 KiB") else format_about(size)


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers within a range above 0, about evenly spread on a logarithmic axis."""
    if high / low < 4:
        return linear_ticks(low, high, most)
    ticks: list[float] = []
    for multiples in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), *_FEW):
        exponents = range(floor(log10(low)), ceil(log10(high)) + 1)
        ticks = [m * 10.0**e for e in exponents for m in multiples if low <= m * 10.0**e <= high]
        if len(ticks) <= most:
            return ticks
    return ticks[:: ceil(len(ticks) / most)]


_FEW = ((1, 2, 5), (1, 3), (1,))


def linear_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers within a range, with a step of 1, 2 or 5 times a power of ten."""
    span = high - low
    power = 10.0 ** floor(log10(span / most)) if span > 0 else 1.0
    steps = (m * power for m in (1, 2, 5, 10, 20))
    step = next(s for s in steps if span / s <= most)
    numbers = range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)
    return [tick for n in numbers if low * (1 - 1e-9) <= (tick := round(n * step, 12))]


def set_ticks(axes: Axes, ticks: Sequence[float], labels: Sequence[str]) -> None:
    """Exactly these ticks on the vertical axis, with a line of the grid at each."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axes.yaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FixedFormatter(list(labels)))
    axes.grid(True, axis="y", which="major")


def set_log_times(axes: Axes, low: float, high: float) -> None:
    """A vertical axis of times in seconds, from `low` to `high`, labelled in us, ms and s."""
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    ticks = log_ticks(low, high)
    set_ticks(axes, ticks, [time_label(tick) for tick in ticks])


def set_heading(axes: Axes, text: str, left: float = 0.0) -> None:
    """Write above a panel what it shows, `left` inches to the left of its axis."""
    axes.annotate(
        text, (0, 1), xycoords="axes fraction", xytext=(-left * 72, 7), va="bottom", ha="left",
        textcoords="offset points", size=TEXT, color=INK, gid="heading",
    )  # fmt: skip


def count_crossed(
    axes: Axes, lines: Sequence[Sequence[tuple[float, float]]], text: str, at: Any, above: float
) -> int:
    """How many points of lines, also between their ends, a bold text would cover that is written
    `above` points over the place `at`, in the coordinates of the display."""
    dots = axes.figure.dpi
    half = text_width(text, TEXT, "bold") * dots / 2
    low, high = (at[1] + (above + each) * dots / 72 for each in (-1, TEXT + 1))
    crossed = 0
    for line in lines:
        ends: Any = axes.transData.transform(line) if line else []
        for (x, y), (next_x, next_y) in pairwise(ends):
            for part in range(8):
                across, up = (x + part / 8 * (next_x - x), y + part / 8 * (next_y - y))
                crossed += abs(across - at[0]) < half and low < up < high
    return crossed


def name_size_axis(figure: Figure) -> None:
    """Write below all panels what their horizontal axis is."""
    figure.text(
        (LEFT + WIDTH - RIGHT) / 2 / WIDTH, 0.09 / figure.get_figheight(),
        "size: the larger of what one rank sends and receives", ha="center", va="bottom",
    )  # fmt: skip


def time_label(seconds: float) -> str:
    """A round time: `20 us`, `1.5 ms`."""
    for limit, unit, factor in ((1e-6, "ns", 1e9), (1e-3, "us", 1e6), (1.0, "ms", 1e3)):
        if seconds < limit * 0.9999:
            return f"{number(seconds * factor)} {unit}"
    return f"{number(seconds)} s"


def number(value: float) -> str:
    """A number, without an exponent if it is 0.0001 or more: `1e-6`, `0.0001`, `1500`."""
    if 0 < value < 0.9999e-4:
        return f"{value:.3g}".replace("e-0", "e-")
    return (
        f"{value:.10f}".rstrip("0").rstrip(".")
        if value < 1
        else f"{value:.6g}"
        if value < 1e6
        else f"{value:,.0f}"
    )
