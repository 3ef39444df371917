"""Pictures of runs: bus bandwidth and time against size, or a row for each kind of call.

Colour is the operation, or the run where there is one operation; marker and dashes are run and
variant. What all curves have in common is below the title. A band is the 95 % interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from commbench.analysis.figures import find_peak_fraction
from commbench.analysis.rows import ResultRow, make_rows, worst_alone
from commbench.answers.pairs.matrix import outside_matrix
from commbench.answers.pairs.plots import pair_pictures
from commbench.answers.replay.document import replay_pictures
from commbench.answers.show.rows import busbw_of, time_of
from commbench.errors import UnavailableError
from commbench.output.paragraphs import join_words, list_some
from commbench.plan.case import Case
from commbench.plan.dimensions import IN_TITLE, Dimension
from commbench.plan.links import Peak, parse_peak
from commbench.plan.operations import OPERATIONS
from commbench.results.schema import FAILED, OK, WRONG, Run
from commbench.stats.estimate import Estimate
from commbench.units import GB, format_bytes, format_GBps
from commbench.views import pictures
from commbench.views.cells import bandwidth_text, time_text
from commbench.views.draw import Drawn, names_file, write_pictures
from commbench.views.pictures import BANDWIDTHS, LOG_BANDWIDTHS, TIMES, Curves, Look, Mark, Picture

MOST_MACHINES, MOST_PEAKS, MOST_IN_ONE_PANEL, MOST_OTHERS = 4, 4, 12, 12
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
Points = list[tuple[float, Estimate | None]]


class Curve(NamedTuple):
    """The rows of one kind of case in one run."""

    operation: str
    variant: str
    """What else of the case differs within an operation, such as `float32`; may be empty."""
    run: str
    """The name of the run, unique among the runs drawn."""
    rows: tuple[ResultRow, ...]
    """By ascending size."""

    @property
    def other(self) -> tuple[str, str]:
        """What tells it from other curves of its operation."""
        return self.variant, self.run

    @property
    def has_size(self) -> bool:
        """Whether its operation moves data."""
        return OPERATIONS[self.operation].has_data

    @property
    def timed(self) -> list[ResultRow]:
        """The rows that have a valid time."""
        return [row for row in self.rows if is_valid(row)]

    @property
    def times(self) -> Points:
        """The time at each size; None where a row failed or gave wrong results."""
        return [(size_of(row), time_of(row) if is_valid(row) else None) for row in self.rows]

    @property
    def busbws(self) -> Points:
        """The bus bandwidth at each size, in bytes/s."""
        rows = [row for row in self.rows if row.busbw or not is_valid(row)]
        return [(size_of(row), busbw_of(row) if is_valid(row) else None) for row in rows]

    @property
    def peak(self) -> ResultRow | None:
        """The row of the highest bus bandwidth; None where it has none above 0."""
        rows = [row for row in self.timed if row.busbw]
        return max(rows, key=lambda row: row.busbw or 0.0, default=None)


def size_of(row: ResultRow) -> int:
    """The size of a row."""
    return row.measurement.case.size_bytes


def is_valid(row: ResultRow) -> bool:
    """Whether a row has a time of right results."""
    return bool(row.time) and row.measurement.status == OK


class CurveSet(NamedTuple):
    """All curves of some runs."""

    curves: tuple[Curve, ...]
    common: str
    """What all cases have in common, besides their operation: `float32`."""
    beside: str = ""
    """For the title: the one computation that overlaps are with."""

    @property
    def operations(self) -> list[str]:
        """The operations drawn, in the order of `commbench ops`."""
        found = {curve.operation for curve in self.curves}
        return [name for name in OPERATIONS if name in found]

    @property
    def others(self) -> list[tuple[str, str]]:
        """The variants and runs drawn."""
        return list(dict.fromkeys(curve.other for curve in self.curves))

    def look(self, curve: Curve) -> Look:
        """Colour is the operation; marker and dashes are the run and variant. Where a panel has one
        operation, the colour is the run, too; where there is one run, the marker is the operation,
        too. That of an operation without sizes has no markers."""
        number = list(OPERATIONS).index(curve.operation)
        colour = pictures.COLOURS[number % len(pictures.COLOURS)]
        if not curve.has_size:
            same = [each for each in self.curves if each.operation == curve.operation]
            return Look(colour, dashes=(6, 2, *(1, 2) * same.index(curve)))
        if len(self.others) == 1:
            return Look(colour, pictures.MARKERS[number % len(pictures.MARKERS)])
        place = self.others.index(curve.other)
        is_colour_free = len(self.operations) == 1 or self.is_split
        return pictures.nth_look(place, None if is_colour_free else colour)

    @property
    def is_split(self) -> bool:
        """Whether each operation needs a panel, because all curves are too many for one."""
        is_crowded = len(self.curves) > MOST_IN_ONE_PANEL or len(self.others) > len(pictures.DASHES)
        return is_crowded and len(self.operations) > 1 and len(self.others) > 1

    def name(self, curve: Curve, is_alone: bool = False) -> str:
        """What tells a curve from others: `all_reduce float32 in ring`; in panels of operations
        without these, unless `is_alone`."""
        has_operation = is_alone or (len(self.operations) > 1 and not self.is_split)
        operation = curve.operation if has_operation else ""
        text = " ".join(filter(None, [operation, curve.variant]))
        if len({each.run for each in self.curves}) > 1:
            return f"{text} in {curve.run}" if text else curve.run
        return text or curve.operation


def find_curves(runs: Sequence[Run], least: int = 2) -> CurveSet:
    """The curves of runs that have at least so many sizes with a time, and operations without data;
    a run that is given twice counts once."""
    distinct = list({run.path: run for run in runs}.values())
    labels = [run.name for run in distinct]
    rows = [
        (run.name if labels.count(run.name) == 1 else f"{run.name} ({run.path})", row)
        for run in distinct
        if not run.header.plan.workload  # replay_pictures draws its steps
        for row in worst_alone(outside_matrix(make_rows(run)))
        if row.time or row.measurement.status in (FAILED, WRONG)
    ]
    cases = [row.measurement.case for _, row in rows if row.time]
    # Of groups that were measured alone only the slowest is drawn.
    varied = [
        d for d in IN_TITLE
        if d.field not in ("operation", "group_ranks") and _varies(cases, d.field)
    ]  # fmt: skip
    fixed = [d.field for d in IN_TITLE if d not in varied and d.field != "operation"]
    beside = sorted({case.overlap for case in cases} - {""})
    title = f" beside {beside[0]}" if len(beside) == 1 else ""
    varied = [d for d in varied if not (title and d.field == "overlap")]
    grouped: dict[tuple[str, str, str], list[ResultRow]] = {}
    for name, row in rows:
        case = row.measurement.case
        variant = " ".join(filter(None, (_value_text(case, d) for d in varied)))
        grouped.setdefault((case.operation, variant, name), []).append(row)
    curves = [Curve(*key, tuple(sorted(own, key=size_of))) for key, own in grouped.items()]
    curves.sort(key=lambda curve: list(OPERATIONS).index(curve.operation))
    kept = tuple(c for c in curves if len(c.timed) >= (least if c.has_size else 1))
    return CurveSet(kept, _common_title(cases, fixed), title)


def _value_text(case: Case, dimension: Dimension) -> str:
    """What a title says of a dimension in which curves differ; also of its usual value, such as
    `isolated`, which titles leave out."""
    value = getattr(case, dimension.field)
    if value in dimension.curve_names:
        return dimension.curve_names[value]
    if text := dimension.title(value) if dimension.title else "":
        return text
    if value in ("", None):
        return "all ranks" if dimension.field == "group" else ""
    return str(value) if str(value).isalpha() else f"{dimension.word} {value}"


def _varies(cases: Sequence[Case], field: str) -> bool:
    """Whether the cases of some operation differ in a field."""
    found: dict[str, object] = {}
    return any(found.setdefault(c.operation, getattr(c, field)) != getattr(c, field) for c in cases)


def _common_title(cases: Sequence[Case], fields: Sequence[str]) -> str:
    """The words of the fields in which all cases with data agree."""
    with_data = [case for case in cases if OPERATIONS[case.operation].busbw_formula]
    if not with_data:
        return ""
    first = with_data[0]
    same = [f for f in fields if all(getattr(c, f) == getattr(first, f) for c in with_data)]
    return first.title_without(*(d.field for d in IN_TITLE if d.field not in same))


def describe_runs(runs: Sequence[Run], common: str) -> list[str]:
    """Lines for below a title: where and what was measured, and which figure is drawn."""
    machines: dict[str, dict[str, None]] = {}
    for run in runs:
        shared = ", ranks share a GPU: not performance" if run.header.gpu_shared else ""
        machines.setdefault(run.header.describe_ranks() + shared, {})[run.name] = None
    lines = [f"{list_some([*names], 3)}: {machine}" for machine, names in machines.items()]
    lines[0] += f"; {common}" if common else ""
    if len(lines) > MOST_MACHINES:
        lines[MOST_MACHINES:] = [f"and {len(lines) - MOST_MACHINES} more"]
    reported = {m.reported.statistic for run in runs for m in run.measurements if m.reported}
    is_ours = any(m.batches for run in runs for m in run.measurements)
    text = "; ".join(["Median of the slowest rank's times"] * is_ours + sorted(reported)[:2])
    return [*lines, *filter(None, [text])]


def describe_busbw(curves: CurveSet) -> str:
    """The highest bus bandwidths of the curves, in a sentence."""
    peaks = [(curve, peak) for curve in curves.curves if (peak := curve.peak)]
    texts = [
        f"{curves.name(curve, is_alone=True)} {bandwidth_text(busbw_of(row))} GB/s at "
        f"{format_bytes(size_of(row))}"
        for curve, row in sorted(peaks, key=lambda each: -(each[1].busbw or 0.0))
    ]
    return f"Highest bus bandwidth: {list_some(texts, MOST_PEAKS)}."


def describe_time(curves: CurveSet) -> str:
    """The shortest and the longest time, in a sentence."""
    rows = [(time_of(row), curve, row) for curve in curves.curves for row in curve.timed]
    found = [
        (time.value, time, curves.name(curve, is_alone=True), size_of(row))
        for time, curve, row in rows if time
    ]  # fmt: skip
    ends = min(found, key=itemgetter(0)), max(found, key=itemgetter(0))
    texts = [
        f"{time_text(time)} ({name}{f', {format_bytes(size)}' if size else ''})"
        for _, time, name, size in ends
    ]
    return f"Times from {texts[0]} to {texts[1]}."


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
    return f"no plot: {'it needs two sizes or two operations' if is_timed else 'nothing was timed'}"


def draw(runs: Sequence[Run], output: Path, peak: Peak | None = None) -> Drawn:
    """Draw runs into new files `busbw.png` and `time.png` of a folder, or into one new file, whose
    name ends in .png, .svg or .pdf. Returns the paths; raises UnavailableError without curves."""
    found = run_pictures(runs, peak, is_whole=names_file(output))
    if not found:
        raise UnavailableError(why_no_picture(runs), "measure several sizes: --sizes 1K-64M")
    return write_pictures(found, output)


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
    notes = describe_runs(runs, curves.common)
    if left_out := len(curves.others) - len(others):
        notes.append(f"{left_out} more runs or variants are not drawn")
    return [_picture(name, own, scales, lines, notes) for name, own, scales in asked if scales]


def _picture(
    name: str, curves: CurveSet, scales: Sequence[pictures.Axis], lines: Sequence[Mark],
    notes: Sequence[str],
) -> Picture:  # fmt: skip
    """One column of panels, or, where all curves would be too many for one panel, a panel for each
    operation."""
    operations, is_split = curves.operations, curves.is_split
    has_busbw, has_time = BANDWIDTHS in scales, TIMES in scales
    what = join_words(["bus bandwidth"] * has_busbw + ["time"] * has_time).capitalize()
    shown = join_words(operations) if len(operations) <= 3 else f"{len(operations)} operations"
    peaks = [describe_busbw(curves)] * has_busbw
    texts = [*peaks, *(f"A line marks {line.text}." for line in lines if has_busbw)]
    texts += [describe_time(curves)] if has_time else []
    panels = [
        _panel(curves, scale, lines, operation)
        for scale in scales
        if not (is_split and scale == LOG_BANDWIDTHS)
        for operation in (operations if is_split else [""])
    ]
    return Picture(
        name, f"{what} of {shown}{curves.beside}", " ".join(texts), panels, [*notes, *peaks],
        columns=1 if not is_split else 2 if len(operations) in (2, 4) else 3,
    )  # fmt: skip


def _panel(curves: CurveSet, scale: pictures.Axis, lines: Sequence[Mark], operation: str) -> Curves:
    """A panel of all curves, or of those of one operation."""
    drawn = [c for c in curves.curves if operation in ("", c.operation)]
    drawn = [c for c in drawn if scale == TIMES or c.peak]
    series = [
        pictures.Series(curves.name(c), curves.look(c), c.times if scale == TIMES else c.busbws)
        for c in drawn
        if c.has_size
    ]
    marks = [*lines] if scale != TIMES else [
        Mark(curves.look(curve), time.value, name=curves.name(curve))
        for curve in drawn if not curve.has_size
        for _, time in curve.times[:1] if time
    ]  # fmt: skip
    heading, inches = HEADINGS[scale]
    if operation:
        heading, inches = f"{operation}, {'time of a call' if scale == TIMES else 'GB/s'}", 1.6
    return Curves(heading, series, scale, marks=marks, inches=inches)


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
        lines.append(Mark(Look(pictures.INK, dashes=(2, 1.5), width=1.1), value, text=text))
    return lines


def _single_picture(runs: Sequence[Run], curves: CurveSet) -> Picture:
    """The times of curves that have one point each, from top to bottom."""
    shown, operations = curves.curves[:MOST_ROWS], curves.operations
    sizes = {size_of(curve.timed[0]) for curve in shown if curve.has_size}
    at = f" at {format_bytes(min(sizes))}" if len(sizes) == 1 else ""
    what = operations[0] if len(operations) == 1 else f"{len(operations)} operations"
    notes, rows = describe_runs(runs, curves.common), []
    for curve in shown:
        name = curves.name(curve, is_alone=len(operations) > 1)
        size, time = next((size, time) for size, time in curve.times if time)
        if len(sizes) > 1 and curve.has_size:
            name += f" {format_bytes(int(size))}"
        look = curves.look(curve)._replace(size=7, marker=curves.look(curve).marker or "o")
        rows.append(pictures.BarRow(name, [pictures.Bar(time, ("", look))]))
    if left_out := len(curves.curves) - len(shown):
        notes.append(f"{left_out} more are not drawn")
    panel = pictures.Bars("Time of a call", rows, TIMES)
    return Picture("time", f"Time of {what}{at}", describe_time(curves), [panel], notes)
