"""Pictures of runs: bus bandwidth and time against size.

Colour is the operation, or the run where there is one operation; marker and dashes are run and
variant. What all curves have in common is in the title. A band is the 95 % interval of the median.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.peak import find_peak_fraction
from commbench.errors import UnavailableError
from commbench.output import plot_axes, plot_style
from commbench.output.plot_style import INK, Grid, Head, Picture, plain
from commbench.report import curves as curve_text
from commbench.report.curves import Curve, Curves, find_curves
from commbench.report.dot_plot import dot_figure
from commbench.report.pairs_plots import pair_pictures
from commbench.report.replay_plot import replay_pictures
from commbench.results.files import is_folder, unused_path, write_new
from commbench.results.schema import Run
from commbench.spec.links import Peak, parse_peak
from commbench.units import GB, format_GBps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_IN_ONE_PANEL = 12
MOST_OTHERS = 12
"""Runs and variants of one operation that are drawn; more could not be told apart."""
PEAK_NEARBY = 3.0
"""The linear axis reaches up to the peak if that is at most so many times the highest value."""
FAR_APART = 4.0
"""A logarithmic axis is drawn, too, where the highest bandwidth is more times the lowest."""
BUSBW, TIME = "busbw", "time"


class PanelKind(NamedTuple):
    """What a panel shows."""

    quantity: str
    label: str
    is_log: bool
    height_inches: float


LINEAR_BUSBW = PanelKind(BUSBW, "Bus bandwidth, GB/s", False, 2.8)
LOG_BUSBW = PanelKind(BUSBW, "The same on a logarithmic axis, GB/s", True, 2.2)
LOG_TIME = PanelKind(TIME, "Time of a call", True, 3.4)


class Panel(NamedTuple):
    """One panel of a picture, and its curves."""

    kind: PanelKind
    curves: Sequence[Curve]
    title: str = ""
    """The operation, where each has a panel of its own."""


def run_figures(runs: Sequence[Run], peak: Peak | None = None) -> list[Picture]:
    """The pictures `busbw` and `time` of runs, and before them heat maps of pairs, and replays.

    There is no `busbw` where no bus bandwidth is above 0, and where no curve has two sizes; then
    `time` has a row for each kind of call. There is no picture of a single time. `peak` is drawn as
    a line; None is the peak that the runs were made with."""
    found, curves = pair_pictures(runs) + replay_pictures(runs), find_curves(runs)
    if not curves.with_sizes:
        singles = find_curves(runs, least=1)
        return found + ([dot_figure(runs, singles)] if len(singles.curves) > 1 else [])
    if any(curve.peak for curve in curves.curves):
        found.append(_picture(BUSBW, runs, curves, _busbw_kinds(curves, runs, peak), peak))
    found.append(_picture(TIME, runs, curves, (LOG_TIME,), peak))
    return found


def whole_figure(runs: Sequence[Run], peak: Peak | None = None) -> Picture | None:
    """What run_figures draws, in one picture; None where it draws none."""
    curves = find_curves(runs)
    if not curves.with_sizes:
        return next(iter(run_figures(runs, peak)), None)
    has_busbw = any(curve.peak for curve in curves.curves)
    kinds = (*_busbw_kinds(curves, runs, peak), LOG_TIME) if has_busbw else (LOG_TIME,)
    return _picture("plot", runs, curves, kinds, peak)


def draw(runs: Sequence[Run], output: Path, peak: Peak | None = None) -> list[Path]:
    """Draw runs into new files `busbw.png` and `time.png` of a folder, or into one new file, whose
    name ends in .png, .svg or .pdf. Returns the paths; raises UnavailableError without curves."""
    whole = None
    if output.suffix.lower() in plot_style.OTHER_ENDINGS:
        plot_style.require_ending(output)
    if output.suffix.lower() in plot_style.ENDINGS and not is_folder(output):
        pictures = [whole] if (whole := whole_figure(runs, peak)) else []
    else:
        pictures = run_figures(runs, peak)
    if not pictures:
        why = curve_text.why_no_picture(runs)
        raise UnavailableError(why, "measure several sizes: --sizes 1K-64M")
    paths = []
    for picture in pictures:
        path = output if whole else unused_path(output, picture.name, ".png")
        write_new(path, plot_style.render(picture.figure, path.suffix))
        paths.append(path)
    return paths


def _picture(
    name: str, runs: Sequence[Run], found: Curves, kinds: Sequence[PanelKind], peak: Peak | None
) -> Picture:
    others = found.others[:MOST_OTHERS]
    curves = found._replace(curves=tuple(c for c in found.curves if c.other in others))
    if name == BUSBW:
        curves = curves._replace(curves=tuple(c for c in curves.curves if c.peak))
    panels, columns = _panels(curves, kinds)
    has_bands = all(curves.may_have_bands(panel.curves) for panel in panels)
    left_out = len(found.others) - len(others)
    lines = _peak_lines(curves, runs, peak) if BUSBW in (k.quantity for k in kinds) else []
    title = _title(kinds, curves.operations)
    notes = [
        *curve_text.make_subtitles(runs, curves.common),
        _statistic(runs, has_bands),
        *curve_text.explain_thick_lines([panel.curves for panel in panels]),
        *([f"{left_out} more runs or variants are not drawn"] if left_out else []),
    ]
    with plot_style.styled():
        rows = ceil(len(panels) / columns)
        grid = Grid(
            rows, columns, [panels[row * columns].kind.height_inches for row in range(rows)]
        )  # fmt: skip
        head = Head(title, notes, list(_legends(curves, columns > 1)))
        figure, axes = plot_style.make_figure(head, grid)
        for unused in axes[len(panels) :]:
            unused.set_visible(False)
        width = (plot_style.WIDTH - plot_style.LEFT - plot_style.RIGHT) / columns * 0.9
        for place, (panel, each) in enumerate(zip(panels, axes, strict=False)):
            same = [p for p in panels if p.kind == panel.kind]
            is_last = place + columns >= len(panels)
            _draw_panel(each, panel, curves, has_bands)
            _set_axis(each, panel, [c for p in same for c in p.curves], lines, has_bands)
            sizes = [p.size for c in curves.with_sizes for p in c.points]
            heading = _heading(panel, lines, each.get_ylim()[1], has_bands)
            plot_axes.set_heading(each, heading, 0 if columns > 1 else plot_style.MARGIN)
            plot_axes.set_size_axis(each, sizes, width, has_labels=is_last)
            if place % columns:
                each.tick_params(axis="y", labelleft=False)
            if panel.kind.quantity == BUSBW and not panel.kind.is_log:
                _label_peaks(each, panel, curves, is_single=columns > 1)
        plot_axes.name_size_axis(figure)
    return Picture(name, title, _describe(kinds, curves, lines), figure)


def _busbw_kinds(curves: Curves, runs: Sequence[Run], peak: Peak | None) -> tuple[PanelKind, ...]:
    """A linear axis, and a logarithmic one where the values are far apart."""
    values = [point.busbw for curve in curves.curves for point in curve.timed if point.busbw > 0]
    values += [line.busbw for line in _peak_lines(curves, runs, peak)]
    is_wide = max(values) > FAR_APART * min(values)
    return (LINEAR_BUSBW, LOG_BUSBW) if is_wide else (LINEAR_BUSBW,)


def _title(kinds: Sequence[PanelKind], operations: Sequence[str]) -> str:
    words = list(dict.fromkeys({BUSBW: "Bus bandwidth", TIME: "Time"}[k.quantity] for k in kinds))
    shown = operations if len(operations) <= 3 else [f"{len(operations)} operations"]
    what = " and ".join([words[0], *(word.lower() for word in words[1:])])
    return f"{what} of {' and '.join([', '.join(shown[:-1]), shown[-1]]).removeprefix(' and ')}"


def _statistic(runs: Sequence[Run], has_bands: bool) -> str:
    texts = curve_text.statistic(runs)
    if has_bands and any(m.batches for run in runs for m in run.measurements):
        texts.append("band: 95 % interval")
    text = "; ".join(texts)
    return text[:1].upper() + text[1:]


def _describe(kinds: Sequence[PanelKind], curves: Curves, lines: Sequence[PeakLine]) -> str:
    texts = []
    if kinds[0].quantity == BUSBW:
        texts.append(curve_text.describe_busbw(curves.curves))
        texts += [f"A line marks {line.text}." for line in lines]
    if kinds[-1].quantity == TIME:
        texts.append(curve_text.describe_time(curves.curves))
    return " ".join(texts)


def _panels(curves: Curves, kinds: Sequence[PanelKind]) -> tuple[list[Panel], int]:
    """The panels, row by row, and the number of columns: one column, or, where all curves would be
    too many for one panel, a panel for each operation."""
    others, drawn = len(curves.others), curves.curves
    is_crowded = len(drawn) > MOST_IN_ONE_PANEL or others > len(plot_style.DASHES)
    if len(curves.operations) == 1 or others == 1 or not is_crowded:
        return [Panel(kind, drawn if kind.quantity == TIME else _sized(drawn)) for kind in kinds], 1
    columns = 3
    panels: list[Panel] = []
    for kind in kinds:
        if kind == LOG_BUSBW:
            continue
        small = kind._replace(height_inches=1.6)
        for operation in curves.operations:
            same = [curve for curve in drawn if curve.operation == operation]
            panels.append(Panel(small, same, operation))
    return panels, columns


def _sized(curves: Sequence[Curve]) -> list[Curve]:
    return [curve for curve in curves if curve.peak]


def _legends(curves: Curves, has_titles: bool) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The legends: operations, unless panels name them, and runs with variants; nothing of which
    there is only one."""
    drawn, others = curves.curves, curves.others
    if len(curves.operations) > 1 and not has_titles:
        if len(others) == 1:
            yield [(c.operation, curves.look(c)) for c in drawn]
        else:
            first = {c.operation: curves.style(c).colour for c in drawn}
            yield [(name, {"color": first[name], "linewidth": 4}) for name in curves.operations]
    if len(others) > 1:
        styles = {c.other: curves.style(c) for c in drawn if c.has_size}
        if len(curves.operations) > 1 and not curves.is_colour_free:
            styles = {other: style._replace(colour=INK) for other, style in styles.items()}
        yield [(_other_text(other, others), style.line) for other, style in styles.items()]
    if any(point.is_bad for curve in drawn for point in curve.points):
        yield [("failed or wrong: no time", {**BAD, "color": INK})]


BAD: dict[str, Any] = {"marker": "x", "linestyle": "", "markersize": 6, "markeredgewidth": 1.4}


def _other_text(other: tuple[str, str], others: Sequence[tuple[str, str]]) -> str:
    parts = [part for place, part in enumerate(other) if len({each[place] for each in others}) > 1]
    return plot_style.tag(", ".join(filter(None, parts)))


def _draw_panel(axes: Axes, panel: Panel, curves: Curves, has_bands: bool) -> None:
    for place, curve in enumerate(panel.curves):
        look = curves.look(curve)
        if panel.title:
            look["markersize"] = 3
        if curve_text.is_covered(panel.curves, place):
            look |= {"linewidth": 4.5, "markersize": look.get("markersize", 5) + 4}
        name = " ".join([curve.operation, *curve.other])
        if not curve.has_size:
            axes.axhline(curve.points[0].time, label=name, **look)
            continue
        sizes = [point.size for point in curve.points]
        if panel.kind.quantity == TIME:
            columns = [(p.time, p.low, p.high) for p in curve.points]
        else:
            columns = [(p.busbw / GB, p.busbw_low / GB, p.busbw_high / GB) for p in curve.points]
        values, low, high = zip(*columns, strict=True)
        if has_bands:
            axes.fill_between(sizes, low, high, color=look["color"], alpha=0.18, linewidth=0)
        axes.plot(sizes, values, label=name, **look)
        bad = [point.size for point in curve.points if point.is_bad]
        axes.plot(bad, [0.04] * len(bad), transform=axes.get_xaxis_transform(), color=look["color"],
                  clip_on=False, gid="bad", **BAD)  # fmt: skip


class PeakLine(NamedTuple):
    """The bus bandwidth that corresponds to a peak."""

    busbw: float
    """In bytes/s."""
    text: str


def _peak_lines(curves: Curves, runs: Sequence[Run], peak: Peak | None) -> list[PeakLine]:
    """A line for each bus bandwidth that is the whole peak: the peak of a node allows operations
    different ones."""
    if peak is None:
        recorded = {run.header.plan.peak for run in runs}
        text = recorded.pop() if len(recorded) == 1 else None
        peak = parse_peak(text) if text else None
    if peak is None:
        return []
    values: dict[float, list[str]] = {}
    for curve in curves.curves:
        if curve.row.busbw and (part := find_peak_fraction(curve.row, peak)):
            values.setdefault(round(curve.row.busbw / part.fraction, -3), []).append(
                curve.operation
            )
    name = plain(peak.name, 30)
    lines = []
    for value, operations in sorted(values.items()):
        speed = f"{value / GB:g} GB/s" if value >= 1e8 else f"{format_GBps(value)} GB/s"
        text = f"peak {speed}" if name.startswith(speed) else f"peak {name}: {speed}"
        if len(values) > 1:
            text += f" ({', '.join(dict.fromkeys(operations))})"
        lines.append(PeakLine(value, text))
    return lines


def _set_axis(
    axes: Axes, panel: Panel, curves: Sequence[Curve], lines: Sequence[PeakLine], has_bands: bool
) -> None:
    """Limits, which are the same for all panels of a kind, ticks, and the line of the peak."""
    if panel.kind.quantity == TIME:
        values = [
            value
            for curve in curves
            for p in curve.timed
            for value in ((p.low, p.time, p.high) if has_bands else (p.time,))
            if value > 0
        ]
        low, high = min(values) / 1.25, max(values) * 1.25
        plot_axes.set_log_times(axes, low, high)
        return
    values = [p.busbw / GB for c in curves for p in c.timed if p.busbw > 0]
    top = max(values)
    bands = [p.busbw_high / GB for c in curves for p in c.timed if has_bands and p.busbw_high > 0]
    peaks = [line.busbw / GB for line in lines]
    if panel.kind.is_log:
        low, high = min([*values, *peaks]), max([*values, *bands, *peaks])
        pad = max(1.1, (high / low) ** 0.08)
        low, high = low / pad, high * pad
        ticks = plot_axes.log_ticks(low, high)
        axes.set_yscale("log")
    else:
        near = [1.15 * value for value in peaks if value <= PEAK_NEARBY * top]
        low = 0.0
        high = max([1.18 * top, *(min(1.04 * band, 1.6 * top) for band in bands), *near])
        ticks = plot_axes.linear_ticks(low, high, 6)
    axes.set_ylim(low, high)
    plot_axes.set_ticks(axes, ticks, [plot_axes.number(tick) for tick in ticks])
    for line in lines:
        if line.busbw / GB < high:
            _draw_peak(axes, line)


def _draw_peak(axes: Axes, line: PeakLine) -> None:
    value = line.busbw / GB
    axes.axhline(value, color=INK, linewidth=1.1, linestyle=(0, (2, 1.5)), gid="peak", zorder=1.5)
    axes.annotate(
        line.text, (0.01, value), xycoords=axes.get_yaxis_transform(), xytext=(0, 2),
        textcoords="offset points", size=plot_style.SMALL, color=INK, va="bottom",
    )  # fmt: skip


def _heading(panel: Panel, lines: Sequence[PeakLine], high: float, has_bands: bool) -> str:
    """What a panel shows, and which bands and peaks are beyond its axis."""
    if panel.title:
        text = panel.title + (", GB/s" if panel.kind.quantity == BUSBW else ", time of a call")
    else:
        text = panel.kind.label
    if has_bands and panel.kind.quantity == BUSBW:
        text += curve_text.bands_beyond(panel.curves, high * GB)
    beyond = [line.text for line in lines if line.busbw / GB >= high]
    if beyond and panel.kind.quantity == BUSBW and not panel.title:
        are = "is" if len(beyond) == 1 else "are"
        text += f". Above this picture {are}: {', '.join(beyond)}"
    return text


def _label_peaks(axes: Axes, panel: Panel, curves: Curves, is_single: bool) -> None:
    """Write the highest bus bandwidth at its point: of every curve if they are few."""
    from matplotlib.patheffects import withStroke

    peaks = sorted(
        ((curve.peak, curve) for curve in panel.curves if curve.peak),
        key=lambda each: -each[0].busbw,
    )
    if len(curves.operations) > 1:  # the highest curve of each operation
        peaks = list({curve.operation: (point, curve) for point, curve in peaks[::-1]}.values())
        peaks.sort(key=lambda each: -each[0].busbw)
    if is_single or len(peaks) > plot_style.MOST_BANDS:
        peaks = peaks[:1]
    has_names = len(curves.operations) > 1 and not is_single
    drawn = [[(p.size, p.busbw / GB) for p in c.timed if p.busbw > 0] for c in panel.curves]
    taken: list[Any] = []
    canvas: Any = axes.figure.canvas
    renderer = canvas.get_renderer()
    for point, curve in peaks:
        style = curves.style(curve)
        place = axes.transData.transform((point.size, point.busbw / GB))
        at = axes.transAxes.inverted().transform(place)
        text = f"{curve.operation} " * has_names + f"{point.busbw_text} GB/s"
        crossed = partial(plot_axes.count_crossed, axes, drawn, text, place)
        side = "right" if at[0] > 0.85 else "left" if at[0] < 0.1 else "center"
        for above in sorted((6, -15, 20, -29), key=crossed):
            label = axes.annotate(
                text, (point.size, point.busbw / GB),
                xytext=(0, above), textcoords="offset points", ha=side, color=INK,
                size=plot_style.TEXT, weight="bold", zorder=6, gid="peak-label",
                path_effects=[withStroke(linewidth=2.5, foreground="white")],
            )  # fmt: skip
            box = label.get_window_extent(renderer)
            if not any(box.overlaps(other) for other in taken):
                taken.append(box)
                axes.plot(
                    [point.size], [point.busbw / GB], marker="o", markersize=9, fillstyle="none",
                    color=style.colour, markeredgewidth=1.2, linestyle="", gid="peak-ring",
                )  # fmt: skip
                break
            label.remove()
