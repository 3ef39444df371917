"""The times of rows over the runs of a history: as a picture, and as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from math import log
from operator import attrgetter

from commbench.analysis.diagnostics import WAITED
from commbench.analysis.row_names import short_titles
from commbench.answers.history.cuts import SHORTEST
from commbench.answers.history.fitted import FittedSeries
from commbench.answers.history.history import Trend
from commbench.answers.history.noise import JUMP
from commbench.answers.history.records import HistoryRun, short_form
from commbench.answers.history.steps import Segment
from commbench.stats import Estimate, collect
from commbench.units import format_bytes, format_time
from commbench.views import cells
from commbench.views import pictures as plot
from commbench.views.cells import Column
from commbench.views.document import Table

MOST_PANELS = 6
MOST_COLUMNS = 4
"""Rows in a table of times: as many as 80 columns have room for."""
REACH = 1.5
"""See Axis.reach: intervals that are wider than a step would hide it."""
USUAL, UNUSUAL, BAND = "run", "not in the usual level", "95 % of usual runs"
POINTS = {USUAL: plot.COLOURS[0], UNUSUAL: plot.COLOURS[1], WAITED: plot.GREY}


def rows_picture(
    trend: Trend, texts: Sequence[str], accepted: Collection[HistoryRun]
) -> Iterator[plot.Picture]:
    """The times of rows over their runs, in order and equally spaced: of those with the largest
    steps, else of the first ones. It has these sentences and marks the accepted runs; there is none
    without a level."""
    known, shown = [each for each in trend.series if each.last.level], chosen_rows(trend)
    if not shown:
        return
    runs = collect((run.system, run) for run in trend.runs)
    axes = {system: _axis(own) for system, own in runs.items()}
    panels = [
        _panel(each, runs[each.series.system], axes[each.series.system], accepted) for each in shown
    ]
    few = [f"{len(shown)} of {len(known)} rows are shown"] * (len(known) > len(shown))
    title, notes = "Time of a call over its usual level", [*texts[:3], *few]
    yield plot.Picture("history", title, " ".join(texts), panels, notes)


def chosen_rows(trend: Trend) -> list[FittedSeries]:
    """The rows with a level and the largest steps, else the noisiest ones, in their order."""
    known = [each for each in trend.series if each.last.level]
    most = {id(each) for each in sorted(known, key=_interest, reverse=True)[:MOST_PANELS]}
    return [each for each in known if id(each) in most]


def times_of_runs(trend: Trend, accepted: Collection[HistoryRun]) -> Iterator[Table]:
    """The times of the rows of the picture, a line for each run, in tables with a few rows each; a
    terminal shows none unless all are asked for. Steps, accepted runs, and the times that make no
    usual level are marked."""
    rows, known = chosen_rows(trend), [each for each in trend.series if each.last.level]
    steps = {run: "step" for change in trend.changes for run in (change.until, change.run)}
    steps |= dict.fromkeys(accepted, "accepted")
    names = short_titles({n: each.case for n, each in enumerate(rows)})
    are_several = len({each.series.system for each in rows}) > 1
    times = [*map(_time_texts, rows)]

    def column(number: int) -> Column:
        heading = [*names[number].split(), format_bytes(rows[number].case.size_bytes)]
        heading += [rows[number].series.system.where] * are_several
        return Column("\n".join(heading), times[number].get, cells.NUMBER)

    every = "".join(text for own in times for text in own.values())
    marks = [f"{len(rows)} of {len(known)} rows"] * (len(rows) < len(known))
    marks += ["in brackets: not in the usual level"] * ("(" in every)
    marks += [f"*: {WAITED}"] * ("*" in every)
    most = MOST_COLUMNS - are_several
    for first in range(0, len(rows), most):
        part = range(first, min(first + most, len(rows)))
        columns = (
            Column("run", attrgetter("id"), cells.NUMBER),
            Column("at (UTC)", trend.moment, cells.TEXT),
            Column("", steps.get, cells.TEXT),
            *map(column, part),
        )
        runs = [run for run in trend.runs if any(run in times[n] for n in part)]
        title = f"Times of runs ({'; '.join(marks)})" if marks else "Times of runs"
        yield Table("" if first else title, columns, runs, brief=())


def _time_texts(found: FittedSeries) -> dict[HistoryRun, str]:
    """The times of a row by run, with their marks."""
    times = {p.run: cells.time_text(p.time) + "*" * (not p.counts) for p in found.every}
    usual = {found.series.points[n].run for n in found.level.places} if found.level else {*times}
    return {run: text if run in usual else f"({text})" for run, text in times.items()}


def _interest(found: FittedSeries) -> tuple[float, float]:
    """The largest step of a row, then its noise."""
    steps = (abs(log(step.ratio.value)) for step in found.steps)
    return max(steps, default=0.0), found.fit.noise.deviation if found.fit.noise else 0.0


def _axis(runs: Sequence[HistoryRun]) -> plot.Axis:
    """The axis of runs by their places in this order."""
    times = [run.time for run in runs]
    form, years = short_form(times, "%Y-%m-%d"), sorted({f"{time:%Y}" for time in times})
    form = form if years[1:] else form.removeprefix("%Y-")
    return plot.Axis(
        lambda at: f"run {runs[int(at)].id}\n{times[int(at)]:{form}}",
        f"runs in their order, {' to '.join([*years[:1], *years[1:][-1:]])} (UTC)", is_log=False,
    )  # fmt: skip


def _mark(look: plot.Look, name: str, every: Sequence[HistoryRun], at: int) -> plot.Mark:
    """A line before a run, with its number."""
    return plot.Mark(look, at - 0.5, name=name, text=f"run {every[at].id}", is_upright=True)


def _ends(found: FittedSeries, part: Segment) -> tuple[int, int]:
    """The first and the last of the points of a segment, without SHORTEST or more at an end that
    are all far above its level, or below: these may have one of their own, which is not sure."""
    assert part.level
    if not found.fit.noise:
        return part.first, part.last
    points = found.series.points[part.first : part.last + 1]
    over = [
        log(point.time.value / part.level.value) / found.fit.noise.deviation for point in points
    ]

    def others(values: Sequence[float]) -> int:
        number = len([*takewhile(lambda each: each * values[0] > 0 and abs(each) > JUMP, values)])
        return number * (number >= SHORTEST)

    return part.first + others(over), part.last - others(over[::-1])


def _panel(
    found: FittedSeries,
    every: Sequence[HistoryRun],
    across: plot.Axis,
    accepted: Collection[HistoryRun],
) -> plot.Curves:
    order = {run.id: place for place, run in enumerate(every)}
    places = [order[point.run.id] for point in found.series.points]
    known = [(part, part.level) for part in found.fit.segments if part.level]
    unit = 1 / (found.level.time if found.level else known[0][1].value)
    usual = found.level.places if found.level else range(len(places))
    looks = {name: plot.Look(colour, "o", None, size=4) for name, colour in POINTS.items()}
    runs: dict[str, list[tuple[float, Estimate | None]]] = {name: [] for name in looks}
    for n, point in enumerate(found.series.points):
        name = USUAL if n in usual else UNUSUAL
        runs[name].append((places[n], point.time.scaled(unit)))
    runs[WAITED] = [(order[p.run.id], p.time.scaled(unit)) for p in found.waited]
    looks[WAITED] = looks[WAITED]._replace(is_hollow=True)
    series = [plot.Series(name, looks[name], points) for name, points in runs.items() if points]
    line = plot.Look(plot.INK, width=1.6)
    ends = ([(places[n], level.scaled(unit)) for n in _ends(found, s)] for s, level in known)
    levels = [plot.Series("level", line, both, has_band=False) for both in ends]
    marks = []
    if found.level:
        low, high = (unit * end for end in found.level.prediction.ends)
        marks.append(plot.Mark(plot.Look(plot.GREY, fill=0.15), low, high, BAND))
    solid = plot.Look(plot.COLOURS[2], width=4.0)  # also seen below a step
    dashed = plot.Look(plot.INK, dashes=(3, 2), width=1.2)
    at_accepted = (order[run.id] for run in accepted if run.id in order)
    marks += [_mark(solid, "accepted", every, at) for at in at_accepted]
    marks += [_mark(dashed, "step", every, places[step.at]) for step in found.steps]
    name = f"{found.case.name}, {found.series.system.where}"
    own = plot.RATIOS._replace(name=name, reach=REACH)
    heading = f"{name}: 1 is {format_time(1 / unit)}"
    return plot.Curves(heading, [*series, *levels], own, across, marks, inches=2.0)
