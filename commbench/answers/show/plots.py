"""Pictures of runs: bus bandwidth and time against size, or a row for each kind of call.

Colour is the operation, or the run where there is one operation; marker and dashes are run and
variant. What all curves have in common is below the title. A band is the 95 % interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import truediv
from pathlib import Path
from typing import NamedTuple

from commbench.analysis.diagnostics import has_waited, waited_answer
from commbench.analysis.figures import find_peak_fraction
from commbench.analysis.load import as_loaded_run
from commbench.analysis.row_names import LONGEST, name_rows
from commbench.analysis.rows import ResultRow, make_rows, right_rows
from commbench.answers.expect.curve_document import curves_text
from commbench.answers.expect.curves import compare_run, load_curves
from commbench.answers.pairs.plots import pair_pictures
from commbench.answers.replay.document import replay_pictures
from commbench.answers.show import rows as run_table
from commbench.answers.show.curve_set import Curve, CurveSet, find_curves
from commbench.answers.show.shapes import find_shapes, shapes_sentence
from commbench.answers.soak.document import soak_pictures
from commbench.errors import UsageError
from commbench.output.text import join_words, list_some
from commbench.plan.links import Peak, parse_peak
from commbench.plan.operations import OPERATIONS
from commbench.results.schema import WRONG, Run
from commbench.stats import Estimate, collect
from commbench.units import GB, format_bytes, format_GBps
from commbench.views import pictures
from commbench.views.cells import UNSURE, bandwidth_with_interval_text, in_brackets, time_text
from commbench.views.draw import Drawn, names_file, write_pictures
from commbench.views.pictures import BANDWIDTHS, LOG_BANDWIDTHS, TIMES, Curves, Look, Mark, Picture

MOST_MACHINES, MOST_PEAKS, MOST_OTHERS = 4, 4, 12
"""The last: runs and variants of one operation; more could not be told apart."""
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


def describe_runs(runs: Sequence[Run], common: str) -> list[str]:
    """Lines for below a title: where and what was measured, which figure is drawn, and which rows
    are not."""
    shared = ", ranks share a GPU: not performance"
    machines = dict.fromkeys(
        (run.header.describe_ranks() + shared * run.header.gpu_shared, run.name) for run in runs
    )
    lines = [f"{list_some(names, 3)}: {machine}" for machine, names in collect(machines).items()]
    lines[0] += f"; {common}" if common else ""
    if len(lines) > MOST_MACHINES:
        lines[MOST_MACHINES:] = [f"and {len(lines) - MOST_MACHINES} more"]
    reported = {m.reported.statistic for run in runs for m in run.measurements if m.reported}
    is_ours = any(m.batches for run in runs for m in run.measurements)
    given = [f"Time in the file: {statistic}" for statistic in sorted(reported)[:2]]
    text = "; ".join(["Median of the slowest rank's times"] * is_ours + given)
    for run in runs:
        cases = [m.case for m in run.measurements]
        wrong = [m.case for m in run.measurements if m.status == WRONG]
        of_run = f" of {run.name}" * (len(runs) > 1)
        names = name_rows(wrong, cases, LONGEST)
        lines += [f"Not drawn, because results are wrong: {names}{of_run}"] * bool(wrong)
    return [*lines, *filter(None, [text])]


class _Answer(NamedTuple):
    """What the text of runs says first, for their pictures."""

    notes: list[str]
    """That ranks waited for a core in most rows of all runs, or of one of several; what one run
    found about its shapes of communication."""
    has_waited: bool
    """In most rows of all runs: then no figure is told."""
    highest: ResultRow | None
    """The row of the highest bus bandwidth, of those that the text's summary has; None where no
    figure is told."""


def _find_answer(runs: Sequence[Run], curves: CurveSet) -> _Answer:
    of_runs = [make_rows(run) for run in runs]
    rows = [row for own in of_runs for row in own]
    told = {row.case for row in run_table.without_parts(rows)}
    counted = [r for c in curves.curves for r in right_rows(c.rows) if r.case in told]
    pairs = [*zip(runs, of_runs, strict=True)]
    waiting = [run.name for run, own in pairs if any(has_waited(row.queued_share) for row in own)]
    # The runs that have such rows are named where not all have.
    waited = waited_answer(rows, join_words(waiting) if 0 < len(waiting) < len(runs) else "")
    highest = None if waited else run_table.peak_of(counted)
    several = pairs if len(runs) > 1 and not waited else ()
    some = [text for run, own in several for text in waited_answer(own, run.name)]
    is_shape = len(runs) == 1 and not waited
    shapes = [shapes_sentence(runs[0].header, find_shapes(rows))] if is_shape else []
    return _Answer([*waited, *some, *filter(None, shapes)], bool(waited), highest)


def describe_busbw(curves: CurveSet) -> str:
    """The highest bus bandwidths of the curves, and the rows that do not count, in sentences."""
    peaks = [(curve, peak) for curve in curves.curves if (peak := run_table.peak_of(curve.rows))]
    texts = [
        f"{curves.name(curve, len(curves.operations) > 1)} "
        f"{bandwidth_with_interval_text(row.known_busbw)} at {format_bytes(row.case.size_bytes)}"
        f"{in_brackets(UNSURE * run_table.is_unsure(row))}"
        for curve, row in sorted(peaks, key=lambda each: -(each[1].busbw or 0.0))
    ]
    runs = collect((curve.run, row) for curve in curves.curves for row in curve.timed)
    left = (run_table.waited_rows_sentence(own, run * (len(runs) > 1)) for run, own in runs.items())
    told = [f"Highest bus bandwidth: {list_some(texts, MOST_PEAKS)}.", *left]
    return " ".join(filter(None, told))


def describe_time(curves: CurveSet) -> str:
    """The shortest and the longest time, in a sentence."""
    texts = [
        f"{time_text(time)} ({name}{f', {format_bytes(size)}' if size else ''})"
        for time, name, size in _extreme_times(curves)
    ]
    return f"Times from {texts[0]} to {texts[1]}."


def _extreme_times(curves: CurveSet) -> tuple[tuple[Estimate, str, int], ...]:
    """The shortest and the longest time, each with its curve and size."""
    found = [
        (time, curves.name(curve, is_alone=True), row.case.size_bytes)
        for curve in curves.curves for row in curve.timed if (time := run_table.time_of(row))
    ]  # fmt: skip
    return min(found, key=lambda each: each[0].value), max(found, key=lambda each: each[0].value)


def _time_range(curves: CurveSet) -> str:
    """The shortest and the longest time in a title: `290 us to 2.4 ms`."""
    low, high = (time_text(time) for time, *_ in _extreme_times(curves))
    return low if low == high else f"{low} to {high}"


def run_pictures(
    runs: Sequence[Run], peak: Peak | None = None, is_whole: bool = False
) -> list[Picture]:
    """The pictures `busbw` and `time` of runs, and before them heat maps of pairs, replays, soaks.

    There is no `busbw` where no bus bandwidth is above 0, and where no curve has two sizes; then
    `time` has a row for each kind of call. There is no picture of a single time. `peak` is drawn as
    a line; None is the peak that the runs were made with. `is_whole`: at most one picture, of
    bandwidth and time where there are curves."""
    found = [*pair_pictures(runs), *replay_pictures(runs), *soak_pictures(runs)]
    curves = find_curves(runs)
    if not any(curve.has_size for curve in curves.curves):
        singles = find_curves(runs, least=1)
        if len(singles.curves) > 1:
            found.append(_single_picture(runs, singles))
        return found[:1] if is_whole else found
    drawn = _curve_pictures(runs, curves, peak, is_whole)
    return drawn if is_whole else [*found, *drawn]


def no_picture(runs: Sequence[Run]) -> UsageError:
    """Why run_pictures gives none."""
    if find_curves(runs, least=1).curves:
        why = "it needs two sizes or two operations"
    elif any(m.status == WRONG for run in runs for m in run.measurements):
        return UsageError("no plot: the results are wrong", "`commbench show` says which")
    else:
        why = "nothing was timed"
    return UsageError(f"no plot: {why}", "measure several sizes: --sizes 1K-64M")


def draw(runs: Sequence[Run], output: Path | None, peak: Peak | None = None) -> Drawn:
    """Draw runs into new files `busbw.png` and `time.png` of a folder, or into one new file, whose
    name ends in .png, .svg or .pdf; into none without `output`. UsageError without curves."""
    found = run_pictures(runs, peak, is_whole=output is not None and names_file(output))
    if not found:
        raise no_picture(runs)
    return Drawn(found) if output is None else write_pictures(found, output)


def _curve_pictures(
    runs: Sequence[Run], curves: CurveSet, peak: Peak | None, is_whole: bool
) -> list[Picture]:
    """`busbw` and `time`, or both in one picture."""
    others = curves.others[:MOST_OTHERS]
    chosen = tuple(c for c in curves.curves if c.other in others)
    published, published_note = _published(runs)
    drawn = curves._replace(curves=chosen, published=published)
    with_busbw = drawn._replace(curves=tuple(c for c in drawn.curves if c.has_busbw))
    lines = _peak_lines(with_busbw, runs, peak)
    values = [row.busbw for curve in with_busbw.curves for row in curve.timed if row.busbw]
    values += [line.low for line in lines]
    busbw = [BANDWIDTHS] if values else []
    if values and max(values) > FAR_APART * min(values):
        busbw.append(LOG_BANDWIDTHS)
    asked = [("busbw", with_busbw, busbw), ("time", drawn, [TIMES])]
    if is_whole:
        asked = [("plot", drawn, [*busbw, TIMES])]
    answer = _find_answer(runs, with_busbw)
    notes = [*answer.notes, *describe_runs(runs, curves.common), *published_note]
    if left_out := len(curves.others) - len(others):
        notes.append(f"{left_out} more runs or variants are not drawn")
    return [
        _picture(name, own, scales, lines, notes, answer) for name, own, scales in asked if scales
    ]


def _published(runs: Sequence[Run]) -> tuple[dict[str, list[tuple[int, Estimate]]], list[str]]:
    """Published times by size, with the range that counts as sound, by operation, beside the one
    run that can be compared with them; and what they are of."""
    found = compare_run(as_loaded_run(runs[0]), load_curves()) if len(runs) == 1 else None
    if not (found and found.curves):
        return {}, []
    times: dict[str, dict[int, Estimate]] = {}
    for row in found.rows:
        if row.ratio:
            time_s, most = row.row.time_s / row.ratio.value, 1 + row.tolerance
            sound = Estimate(time_s, time_s / most, time_s * most)
            times.setdefault(row.row.operation, {})[row.row.size_bytes] = sound
    note = f"Grey: published, with the range of sound machines: {curves_text(found)}"
    return {name: sorted(of_sizes.items()) for name, of_sizes in times.items()}, [note]


def _picture(
    name: str, curves: CurveSet, scales: Sequence[pictures.Axis], lines: Sequence[Mark],
    notes: Sequence[str], answer: _Answer,
) -> Picture:  # fmt: skip
    """One column of panels, or, where all curves would be too many for one panel, a panel for each
    operation. The title has no figure where ranks have waited for a core."""
    operations, is_split = curves.operations, curves.is_split
    has_busbw, has_time = BANDWIDTHS in scales, TIMES in scales
    named = [o for o in operations if not has_busbw or OPERATIONS[o].busbw_formula]
    shown = join_words(named) if len(named) <= 3 else f"{len(named)} operations"
    only = curves.curves[0].variant if len(curves.curves) == 1 else ""
    beside = (f" {curves.beside}" if curves.beside else "") + (f", {only}" if only else "")
    title = f"{'Bus bandwidth' if has_busbw else 'Time'} of {shown}{beside}"
    if not has_busbw and not answer.has_waited:
        title += f": {_time_range(curves)}"
    elif answer.highest and not run_table.is_unsure(answer.highest):
        title += f": up to {run_table.highest_text(answer.highest)}"
        run_of = {id(row): curve.run for curve in curves.curves for row in curve.rows}
        if len({*run_of.values()}) > 1:
            title += f" in {run_of[id(answer.highest)]}"
    peaks = [describe_busbw(curves)] * bool(has_busbw and answer.highest)
    texts = [*peaks, *(f"A line marks {line.text}." for line in lines if has_busbw)]
    texts += [describe_time(curves)] if has_time else []
    panels = [
        panel
        for scale in scales
        if not (is_split and scale == LOG_BANDWIDTHS)
        for operation in (operations if is_split else [""])
        if (panel := _panel(curves, scale, lines, operation)).series or scale == TIMES
    ]
    return Picture(
        name, title, " ".join(texts or answer.notes), panels,
        [*notes, *([] if answer.notes else peaks)],
        columns=pictures.columns_for(len(operations)) if is_split else 1,
    )  # fmt: skip


def _panel(curves: CurveSet, scale: pictures.Axis, lines: Sequence[Mark], operation: str) -> Curves:
    """A panel of all curves, or of those of one operation."""
    drawn = [c for c in curves.curves if operation in ("", c.operation)]
    drawn = [c for c in drawn if scale == TIMES or c.has_busbw]
    series = [
        pictures.Series(
            curves.name(c), curves.look(c), c.times if scale == TIMES else c.busbws,
            hollow=[row.case.size_bytes for row in c.timed if has_waited(row.queued_share)],
        )
        for c in drawn
        if c.has_size
    ]  # fmt: skip
    if len({c.operation for c in drawn}) == 1:
        series = [*_published_series(curves, drawn[0], scale), *series]
    marks = [*lines] if scale != TIMES else [
        Mark(curves.look(curve), time.value, name=curves.name(curve), text=time_text(time))
        for curve in drawn if not curve.has_size
        for _, time in curve.times[:1] if time
    ]  # fmt: skip
    heading, inches = HEADINGS[scale]
    if operation:
        heading, inches = f"{operation}, {'time' if scale == TIMES else 'GB/s'}", 1.6
    return Curves(heading, series, scale, marks=marks, inches=inches)


def _published_series(
    curves: CurveSet, beside: Curve, scale: pictures.Axis
) -> Iterator[pictures.Series]:
    """The published curve of an operation, as times or bus bandwidths."""
    factor = beside.timed[0].case.busbw_factor if beside.timed else None
    points = curves.published.get(beside.operation, ())
    if scale != TIMES:
        points = [(size, time.map(partial(truediv, size * (factor or 0)))) for size, time in points]
    if points and (factor or scale == TIMES):
        yield pictures.Series("published", Look(pictures.GREY, dashes=(4, 2), fill=0.2), points)


def _peak_lines(curves: CurveSet, runs: Sequence[Run], peak: Peak | None) -> list[Mark]:
    """A line for each bus bandwidth that is the whole peak: the peak of a node allows operations
    different ones."""
    recorded = {run.header.plan.peak for run in runs}
    if peak is None and len(recorded) == 1 and (text := recorded.pop()):
        peak = parse_peak(text)
    if peak is None:
        return []
    found = dict.fromkeys(
        (round(row.busbw / part.fraction, -3), row.case.operation)
        for row in (curve.rows[0] for curve in curves.curves)
        if row.busbw and (part := find_peak_fraction(row, peak))
    )
    values, lines = collect(found), []
    for value, operations in sorted(values.items()):
        speed = f"{value / GB:g} GB/s" if value >= 1e8 else f"{format_GBps(value)} GB/s"
        text = f"peak {speed}" if peak.name.startswith(speed) else f"peak {peak.name}: {speed}"
        text += f" ({', '.join(operations)})" if len(values) > 1 else ""
        lines.append(Mark(Look(pictures.INK, dashes=(2, 1.5), width=1.1), value, text=text))
    return lines


def _single_picture(runs: Sequence[Run], curves: CurveSet) -> Picture:
    """The times of curves that have one point each, from top to bottom."""
    shown, operations = curves.curves[:MOST_ROWS], curves.operations
    sizes = {curve.timed[0].case.size_bytes for curve in shown if curve.has_size}
    at = f" at {format_bytes(min(sizes))}" if len(sizes) == 1 else ""
    what = operations[0] if len(operations) == 1 else f"{len(operations)} operations"
    what += f" {curves.beside}" * bool(curves.beside)
    answer, rows = _find_answer(runs, curves._replace(curves=())), []
    notes = [*answer.notes, *describe_runs(runs, curves.common)]
    for curve in shown:
        name = curves.name(curve, is_alone=len(operations) > 1)
        size, time = next((size, time) for size, time in curve.times if time)
        if len(sizes) > 1 and curve.has_size:
            name += f" {format_bytes(int(size))}"
        colour = pictures.COLOURS[operations.index(curve.operation) % len(pictures.COLOURS)]
        waited = any(has_waited(row.queued_share) for row in curve.timed)
        look = Look(colour, "o", None if waited else (), size=7, is_hollow=waited)
        rows.append(pictures.BarRow(name, [pictures.Bar(time, ("", look))]))
    if left_out := len(curves.curves) - len(shown):
        notes.append(f"{left_out} more are not drawn")
    panel = pictures.Bars("Time of a call", rows, TIMES)
    title = f"Time of {what}{at}" + ("" if answer.has_waited else f": {_time_range(curves)}")
    return Picture("time", title, describe_time(curves), [panel], notes)
