"""The curves of runs: times and bus bandwidths by size, their styles, and titles of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan
from typing import Any, NamedTuple

from commbench.analysis.pair_values import has_matrix, outside_matrix, pair_matrices
from commbench.analysis.rows import ResultRow, make_rows, worst_alone
from commbench.output.paragraphs import list_some
from commbench.output.plot_style import (
    COLOURS,
    DASHES,
    MARKERS,
    MOST_BANDS,
    Style,
    nth_style,
    plain,
)
from commbench.results.schema import FAILED, OK, WRONG, Run
from commbench.spec.case import Case
from commbench.spec.dimensions import IN_TITLE, Dimension
from commbench.spec.operations import OPERATIONS
from commbench.units import format_bytes, format_known_GBps, format_known_time, format_time


class Point(NamedTuple):
    """One size of a curve, in seconds and bytes/s; NaN where it has no valid time, or no interval
    or bandwidth."""

    size: int
    time: float = nan
    low: float = nan
    high: float = nan
    """The 95 % interval of the time."""
    busbw: float = nan
    busbw_low: float = nan
    busbw_high: float = nan
    is_bad: bool = False
    """Whether it failed, or gave wrong results."""

    @property
    def busbw_text(self) -> str:
        """Its bus bandwidth in GB/s, with the digits that tables give it."""
        values = (self.busbw, self.busbw_low, self.busbw_high)
        return format_known_GBps(*(None if isnan(value) else value for value in values))


class Curve(NamedTuple):
    """The rows of one kind of case in one run."""

    operation: str
    variant: str
    """What else of the case differs within an operation, such as `float32`; may be empty."""
    run: str
    """The name of the run, unique among the runs drawn."""
    points: tuple[Point, ...]
    """By ascending size."""
    row: ResultRow
    """One of its rows."""

    @property
    def other(self) -> tuple[str, str]:
        """What tells it from other curves of its operation."""
        return self.variant, self.run

    @property
    def has_size(self) -> bool:
        """Whether its operation moves data."""
        return OPERATIONS[self.operation].has_data

    @property
    def timed(self) -> list[Point]:
        """The points that have a time."""
        return [point for point in self.points if point.time == point.time]

    @property
    def peak(self) -> Point | None:
        """The point of the highest bus bandwidth; None where it has none above 0."""
        return max((p for p in self.timed if p.busbw > 0), key=lambda p: p.busbw, default=None)


class Curves(NamedTuple):
    """All curves of some runs."""

    curves: tuple[Curve, ...]
    common: str
    """What all cases have in common, besides their operation: `float32`."""

    @property
    def with_sizes(self) -> list[Curve]:
        """Those whose operation moves data."""
        return [curve for curve in self.curves if curve.has_size]

    @property
    def operations(self) -> list[str]:
        """The operations drawn, in the order of `commbench ops`."""
        found = {curve.operation for curve in self.curves}
        return [name for name in OPERATIONS if name in found]

    @property
    def others(self) -> list[tuple[str, str]]:
        """The variants and runs drawn."""
        return list(dict.fromkeys(curve.other for curve in self.curves))

    def style(self, curve: Curve) -> Style:
        """Colour is the operation; marker and dashes are the run and variant. Where there is one
        operation, or more runs than dashes, the colour is the run, too; where there is one run,
        the marker is the operation, too."""
        number = list(OPERATIONS).index(curve.operation)
        colour = COLOURS[number % len(COLOURS)]
        if len(self.others) == 1:
            return Style(colour, MARKERS[number % len(MARKERS)])
        place = self.others.index(curve.other)
        return nth_style(place, None if self.is_colour_free else colour)

    def look(self, curve: Curve) -> dict[str, Any]:
        """The properties of its line; that of an operation without sizes has no markers."""
        look = self.style(curve).line
        if not curve.has_size:
            same = [each for each in self.curves if each.operation == curve.operation]
            look |= {"marker": "", "linestyle": (0, (6, 2, *(1, 2) * same.index(curve)))}
        return look

    def may_have_bands(self, drawn: Sequence[Curve]) -> bool:
        """Whether the bands of curves in one panel can be told apart: they are few, and each has a
        colour of its own."""
        colours = {self.style(curve).colour for curve in drawn}
        return len(drawn) <= MOST_BANDS and len(colours) == len(drawn)

    @property
    def is_colour_free(self) -> bool:
        """Whether the colour need not be the operation, because that is named in another way."""
        return len(self.operations) == 1 or len(self.others) > len(DASHES)


def find_curves(runs: Sequence[Run], least: int = 2) -> Curves:
    """The curves of runs that have at least so many sizes with a time, and operations without data;
    a run that is given twice counts once."""
    distinct = list({run.path: run for run in runs}.values())
    names = distinct_names(distinct)
    rows = [
        (name, row)
        for run, name in zip(distinct, names, strict=True)
        if not run.header.plan.workload  # report.replay_plot draws its steps
        for row in worst_alone(outside_matrix(make_rows(run)))
        if row.time or row.measurement.status in (FAILED, WRONG)
    ]
    cases = [row.measurement.case for _, row in rows if row.time]
    # Of groups that were measured alone only the slowest is drawn.
    varied = [
        d.field
        for d in IN_TITLE
        if d.field not in ("operation", "group_ranks") and _varies(cases, d.field)
    ]
    fixed = [d.field for d in IN_TITLE if d.field not in varied and d.field != "operation"]
    grouped: dict[tuple[str, str, str], list[ResultRow]] = {}
    for name, row in rows:
        case = row.measurement.case
        variant = " ".join(
            filter(None, (_value_text(case, d) for d in IN_TITLE if d.field in varied))
        )
        grouped.setdefault((case.operation, variant, name), []).append(row)
    curves = [
        Curve(*key, tuple(sorted(map(_point, found), key=lambda point: point.size)), found[0])
        for key, found in grouped.items()
    ]
    names_in_order = list(OPERATIONS)
    curves.sort(key=lambda curve: names_in_order.index(curve.operation))
    kept = tuple(c for c in curves if len(c.timed) >= (least if c.has_size else 1))
    return Curves(kept, _common_title(cases, fixed))


def why_no_picture(runs: Sequence[Run]) -> str:
    """Why there is no picture of runs; empty where there is one: a kind of call was timed at two
    sizes, or two kinds of call were timed, or pairs of ranks, or a workload was replayed."""
    if any(has_matrix(run.header.plan) and pair_matrices(run) for run in runs):
        return ""
    if any(run.header.plan.workload and any(m.batches for m in run.measurements) for run in runs):
        return ""
    timed = [len(curve.timed) for curve in find_curves(runs, least=1).curves]
    if not timed:
        return "no plot: nothing was timed"
    return "no plot: there is only one time" if timed == [1] else ""


def distinct_names(runs: Sequence[Run]) -> list[str]:
    """A name for each run; with its path where two runs have the same name."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({run.path})"
        for name, run in zip(names, runs, strict=True)
    ]


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


def _point(row: ResultRow) -> Point:
    size, status = row.measurement.case.size_bytes, row.measurement.status
    if not row.time or status != OK:
        return Point(size, is_bad=status in (FAILED, WRONG))
    time = row.time.median
    low, high = row.time.low, row.time.high
    return Point(
        size, time, _known(low), _known(high),
        _known(row.busbw), _known(row.busbw_at(high)), _known(row.busbw_at(low)),
    )  # fmt: skip


def _known(value: float | None) -> float:
    return nan if value is None else value


CPU_MODE = "cpu mode"
MOST_TITLES = 4


def make_titles(runs: Sequence[Run]) -> list[str]:
    """A line for each machine on which runs were measured, without repetitions; of several
    machines with the names of their runs."""
    lines: dict[str, list[tuple[str, ...]]] = {}
    names: dict[str, dict[str, None]] = {}
    for run in runs:
        machine, *settings = _title_parts(run)
        lines.setdefault(machine, []).append(tuple(settings))
        names.setdefault(machine, {})[run.name] = None
    titles = [
        ", ".join([machine, *(_join_parts(p) for p in zip(*settings, strict=True) if any(p))])
        for machine, settings in lines.items()
    ]
    if len(titles) == 1:
        return titles
    return [f"{list_some([*names[m]], 3)}: {t}" for m, t in zip(lines, titles, strict=True)]


def _join_parts(texts: Sequence[str]) -> str:
    """Different texts in one, with `cpu mode` only once: `cpu mode quiet / plain`."""
    first, *others = dict.fromkeys(text for text in texts if text)
    head = f"{CPU_MODE} " if first.startswith(f"{CPU_MODE} ") else ""
    return " / ".join([first, *(text.removeprefix(head) for text in others)])


def _title_parts(run: Run) -> tuple[str, ...]:
    """Hosts and device, ranks, CPU mode, and a warning; the latter two may be empty."""
    plan, ranks = run.header.plan, run.header.ranks
    device = ranks[0].device if ranks else ", ".join(run.header.devices[:2]) or plan.device
    if plan.device == "cpu":
        device = run.header.environment.get("processor") or device
    shared = "ranks share a GPU: not performance" if run.header.gpu_shared else ""
    where = f"{', '.join(run.header.hosts[:3]) or 'hosts unknown'} ({device})"
    mode = f"{CPU_MODE} {plan.cpu_mode}" if plan.device == "cpu" else ""
    return where, f"{plan.world_size} {plan.backend} ranks", mode, shared


def make_subtitles(runs: Sequence[Run], common: str) -> list[str]:
    """Where and what was measured, the same for all curves of a picture."""
    titles = [plain(title) for title in make_titles(runs)]
    if len(titles) > MOST_TITLES:
        titles = [*titles[:MOST_TITLES], f"and {len(titles) - MOST_TITLES} more"]
    name = f"{plain(runs[0].name, 60)}: " if len({run.path for run in runs}) == 1 else ""
    end = f"; {common}" if common else ""
    return [f"{name}{titles[0]}{end}", *titles[1:]]


def statistic(runs: Sequence[Run]) -> list[str]:
    """What the curves show: our median, or what another tool reported."""
    reported = {m.reported.statistic for run in runs for m in run.measurements if m.reported}
    ours = any(m.batches for run in runs for m in run.measurements)
    own = ["median of the slowest rank's times"] if ours else []
    return [*own, *map(plain, sorted(reported)[:2])]


def describe_busbw(curves: Sequence[Curve]) -> str:
    """The highest bus bandwidth, and the lowest peak, in a sentence."""
    peaks = [(curve, curve.peak) for curve in curves if curve.peak]
    highest, top = max(peaks, key=lambda each: each[1].busbw)
    text = f"{curve_name(highest, curves)} reaches the highest bus bandwidth, {peak_text(top)}"
    if len(peaks) > 1:
        lowest, low = min(peaks, key=lambda each: each[1].busbw)
        text += f"; {curve_name(lowest, curves)} reaches the lowest peak, {peak_text(low)}"
    return f"{text}."


def describe_time(curves: Sequence[Curve]) -> str:
    """The shortest and the longest time of the smallest and the largest size, in a sentence."""
    by_size: dict[int, list[tuple[Point, Curve]]] = {}
    for curve in curves:
        for point in curve.timed:
            by_size.setdefault(point.size if curve.has_size else 0, []).append((point, curve))
    sized = sorted(size for size in by_size if size)
    shown = list(dict.fromkeys([*sized[:1], *sized[-1:], *([0] if 0 in by_size else [])]))
    parts = []
    for size in shown:
        times = sorted(by_size[size], key=lambda each: each[0].time)
        ends = [times[0], *times[1:][-1:]]
        named = [f"{curve_name(curve, curves)} takes {time_text(point)}" for point, curve in ends]
        text = " and ".join(named)
        parts.append(f"at {format_bytes(size)} {text}" if size else text)
    sentence = "; ".join(parts)
    return f"{sentence[:1].upper()}{sentence[1:]}." if sized else f"{sentence}."


def time_text(point: Point) -> str:
    """A time, with the digits that its interval supports."""
    if isnan(point.low) or isnan(point.high):
        return format_time(point.time)
    return format_known_time(point.time, point.low, point.high)[0]


def curve_name(curve: Curve, among: Sequence[Curve]) -> str:
    """What tells a curve from others: `all_reduce float32 in ring`."""
    words = [curve.operation, curve.variant]
    if len({each.run for each in among}) > 1:
        words += ["in", curve.run]
    return " ".join(filter(None, words))


def peak_text(point: Point) -> str:
    """A bus bandwidth and its size: `1.56 GB/s at 2 MiB`."""
    return f"{point.busbw_text} GB/s at {format_bytes(point.size)}"


COINCIDENT = 0.03
"""Points that differ by less cover each other; the lower one is drawn larger."""


def covers(later: Curve, curve: Curve) -> bool:
    """Whether most points of a curve are hidden by one that is drawn later."""
    times = {p.size: p.time for p in later.timed}
    hidden = [abs(times.get(p.size, 0.0) - p.time) < COINCIDENT * p.time for p in curve.timed]
    return 2 * sum(hidden) > len(hidden)


def is_covered(drawn: Sequence[Curve], place: int) -> bool:
    """Whether the curve at that place is hidden by one that is drawn later."""
    return any(covers(later, drawn[place]) for later in drawn[place + 1 :])


def explain_thick_lines(panels: Sequence[Sequence[Curve]]) -> list[str]:
    """What a thick line means, where a panel has one."""
    has_any = any(is_covered(drawn, place) for drawn in panels for place in range(len(drawn)))
    return ["A thick line lies under another curve"] if has_any else []


def bands_beyond(drawn: Sequence[Curve], high: float) -> str:
    """At which sizes a band reaches beyond the bandwidth `high`, where the axis ends; empty where
    none does."""
    cut = [point.size for curve in drawn for point in curve.timed if point.busbw_high > high]
    if not cut:
        return ""
    ends = dict.fromkeys(map(format_bytes, (min(cut), max(cut))))
    return f". A band leaves the axis ({' to '.join(ends)})"
