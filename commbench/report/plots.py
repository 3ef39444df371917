"""Pictures of runs: bus bandwidth and time against size, or a row for each kind of call.

Colour is the operation, or the run where there is one operation; marker and dashes are run and
variant. What all curves have in common is below the title. A band is the 95 % interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from commbench.analysis.peak import find_peak_fraction
from commbench.errors import UnavailableError
from commbench.output.paragraphs import join_words
from commbench.report import curves as curve_text
from commbench.report.curves import CurveSet, find_curves
from commbench.report.pairs_plots import pair_pictures
from commbench.report.replay_plot import replay_pictures
from commbench.results.schema import Run
from commbench.spec.links import Peak, parse_peak
from commbench.units import GB, format_bytes, format_GBps, format_known_time
from commbench.views import pictures as kinds
from commbench.views.draw import names_file, write_pictures
from commbench.views.pictures import BANDWIDTHS, LOG_BANDWIDTHS, TIMES, Axis, Look, Mark, Picture

MOST_OTHERS = 12
"""Runs and variants of one operation that are drawn; more could not be told apart."""
MOST_ROWS = 40
"""Kinds of call that are drawn of a single size."""
FAR_APART = 4.0
"""A logarithmic axis is drawn, too, where the highest bandwidth is more times the lowest."""
HEADINGS = {
    BANDWIDTHS: ("Bus bandwidth, GB/s", 2.8),
    LOG_BANDWIDTHS: ("The same on a logarithmic axis, GB/s", 2.2),
    TIMES: ("Time of a call", 3.4),
}
"""The headings of panels, and their heights in inches."""


def run_pictures(
    runs: Sequence[Run], peak: Peak | None = None, is_whole: bool = False
) -> list[Picture]:
    """The pictures `busbw` and `time` of runs, and before them heat maps of pairs, and replays.

    There is no `busbw` where no bus bandwidth is above 0, and where no curve has two sizes; then
    `time` has a row for each kind of call. There is no picture of a single time. `peak` is drawn as
    a line; None is the peak that the runs were made with. `is_whole`: at most one picture, of
    bandwidth and time where there are curves."""
    found = [*pair_pictures(runs), *replay_pictures(runs)]
    curves = find_curves(runs)
    if not any(curve.has_size for curve in curves.curves):
        singles = find_curves(runs, least=1)
        if len(singles.curves) > 1:
            found.append(_single_picture(runs, singles))
        return found[:1] if is_whole else found
    drawn = _curve_pictures(runs, curves, peak, is_whole)
    return drawn if is_whole else [*found, *drawn]


def why_no_picture(runs: Sequence[Run]) -> str:
    """Why run_pictures gives none."""
    is_timed = bool(find_curves(runs, least=1).curves)
    return f"no plot: {'there is only one time' if is_timed else 'nothing was timed'}"


def draw(runs: Sequence[Run], output: Path, peak: Peak | None = None) -> list[Path]:
    """Draw runs into new files `busbw.png` and `time.png` of a folder, or into one new file, whose
    name ends in .png, .svg or .pdf. Returns the paths; raises UnavailableError without curves."""
    pictures = run_pictures(runs, peak, is_whole=names_file(output))
    if not pictures:
        raise UnavailableError(why_no_picture(runs), "measure several sizes: --sizes 1K-64M")
    return write_pictures(pictures, output)


def _curve_pictures(
    runs: Sequence[Run], curves: CurveSet, peak: Peak | None, is_whole: bool
) -> list[Picture]:
    """`busbw` and `time`, or both in one picture."""
    others = curves.others[:MOST_OTHERS]
    drawn = curves._replace(curves=tuple(c for c in curves.curves if c.other in others))
    with_busbw = drawn._replace(curves=tuple(c for c in drawn.curves if c.peak))
    lines = _peak_lines(with_busbw, runs, peak)
    values = [row.busbw for curve in with_busbw.curves for row in curve.timed if row.busbw]
    values += [line.low for line in lines]
    busbw = [BANDWIDTHS] if values else []
    if values and max(values) > FAR_APART * min(values):
        busbw.append(LOG_BANDWIDTHS)
    asked = [("busbw", with_busbw, busbw), ("time", drawn, [TIMES])]
    if is_whole:
        asked = [("plot", drawn, [*busbw, TIMES])]
    left_out = len(curves.others) - len(others)
    notes = curve_text.describe_runs(runs, curves.common)
    notes += [f"{left_out} more runs or variants are not drawn"] * bool(left_out)
    return [_picture(name, own, scales, lines, notes) for name, own, scales in asked if scales]


def _picture(
    name: str, curves: CurveSet, scales: Sequence[Axis], lines: Sequence[Mark],
    notes: Sequence[str],
) -> Picture:  # fmt: skip
    """One column of panels, or, where all curves would be too many for one panel, a panel for each
    operation."""
    operations, is_split = curves.operations, curves.is_split
    has_busbw, has_time = BANDWIDTHS in scales, TIMES in scales
    what = join_words(["bus bandwidth"] * has_busbw + ["time"] * has_time).capitalize()
    shown = operations if len(operations) <= 3 else [f"{len(operations)} operations"]
    peaks = [curve_text.describe_busbw(curves)] if has_busbw else []
    texts = [*peaks, *(f"A line marks {line.text}." for line in lines if has_busbw)]
    texts += [curve_text.describe_time(curves)] if has_time else []
    panels = [
        _panel(curves, scale, lines, operation)
        for scale in scales
        if not (is_split and scale == LOG_BANDWIDTHS)
        for operation in (operations if is_split else [""])
    ]
    return Picture(
        name, f"{what} of {join_words(shown)}", " ".join(texts), panels, [*notes, *peaks],
        columns=3 if is_split else 1,
    )  # fmt: skip


def _panel(curves: CurveSet, scale: Axis, lines: Sequence[Mark], operation: str) -> kinds.Curves:
    """A panel of all curves, or of those of one operation."""
    drawn = [c for c in curves.curves if operation in ("", c.operation)]
    drawn = [c for c in drawn if scale == TIMES or c.peak]
    series = [
        kinds.Series(
            curves.name(curve),
            curves.look(curve),
            curve.times if scale == TIMES else curve.busbws,
        )
        for curve in drawn
        if curve.has_size
    ]
    marks = [*lines] if scale != TIMES else [
        Mark(curves.look(curve), time.value, name=curves.name(curve))
        for curve in drawn if not curve.has_size
        for _, time in curve.times[:1] if time
    ]  # fmt: skip
    heading, inches = HEADINGS[scale]
    if operation:
        heading, inches = f"{operation}, {'time of a call' if scale == TIMES else 'GB/s'}", 1.6
    return kinds.Curves(heading, series, scale, marks=marks, inches=inches)


def _peak_lines(curves: CurveSet, runs: Sequence[Run], peak: Peak | None) -> list[Mark]:
    """A line for each bus bandwidth that is the whole peak: the peak of a node allows operations
    different ones."""
    recorded = {run.header.plan.peak for run in runs}
    if peak is None and len(recorded) == 1 and (text := recorded.pop()):
        peak = parse_peak(text)
    if peak is None:
        return []
    values: dict[float, dict[str, None]] = {}
    for curve in curves.curves:
        row = curve.rows[0]
        if row.busbw and (part := find_peak_fraction(row, peak)):
            values.setdefault(round(row.busbw / part.fraction, -3), {})[curve.operation] = None
    lines = []
    for value, operations in sorted(values.items()):
        speed = f"{value / GB:g} GB/s" if value >= 1e8 else f"{format_GBps(value)} GB/s"
        text = f"peak {speed}" if peak.name.startswith(speed) else f"peak {peak.name}: {speed}"
        text += f" ({', '.join(operations)})" if len(values) > 1 else ""
        lines.append(Mark(Look(kinds.INK, dashes=(2, 1.5), width=1.1), value, text=text))
    return lines


def _single_picture(runs: Sequence[Run], curves: CurveSet) -> Picture:
    """The times of curves that have one point each, from top to bottom."""
    shown, operations = curves.curves[:MOST_ROWS], curves.operations
    sizes = {curve_text.size_of(curve.timed[0]) for curve in shown if curve.has_size}
    at = f" at {format_bytes(min(sizes))}" if len(sizes) == 1 else ""
    what = operations[0] if len(operations) == 1 else f"{len(operations)} operations"
    rows = []
    for curve in shown:
        name = curves.name(curve, is_alone=len(operations) > 1)
        size, time = next((size, time) for size, time in curve.times if time)
        if len(sizes) > 1 and curve.has_size:
            name += f" {format_bytes(int(size))}"
        look = curves.look(curve)._replace(size=7, marker=curves.look(curve).marker or "o")
        bar = kinds.Bar(time, format_known_time(*time)[0], ("", look))
        rows.append(kinds.BarRow(name, [bar]))
    notes = [*curve_text.describe_runs(runs, curves.common), "Line: 95 % interval, where known"]
    if left_out := len(curves.curves) - len(shown):
        notes.append(f"{left_out} more are not drawn")
    panels = [kinds.Bars("Time of a call", rows, TIMES)]
    return Picture("time", f"Time of {what}{at}", curve_text.describe_time(curves), panels, notes)
