"""Pictures of a sweep: curves where few settings differ in one value, and heat maps.

A heat map has one cell for a setting, or for a setting and a size: the time over that of the
fastest setting of the same size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import TYPE_CHECKING

from commbench.compare.plot import MOST_SENTENCES, Side, as_file_name, ratio_panels
from commbench.sweep.ranking import SettingTime, SweepPoint, rank_settings
from commbench.sweep.sentences import kind_sentences, sentences_by_kind
from commbench.sweep.settings import UNSET, Setting, make_axes
from commbench.views.pictures import INK, Cell, Frame, HeatMap, Look, Picture
from commbench.views.ticks import size_label

if TYPE_CHECKING:
    from commbench.sweep.result import SweepResult

MOST_CURVES = 6
MOST_MAPS = 9
MOST_ROWS, MOST_COLUMNS = 24, 18
LEAST_RANGE = 1.25
"""The colours of a heat map reach at least to this ratio, so that noise looks like noise."""
BEST = ("shortest time", Look(INK, width=1.8, fill=0))
TIED = ("tied with it", Look(INK, dashes=(2, 1.5), width=1.1, fill=0))
UNDECIDED = ("undecided", Look(INK, dashes=(0.8, 2), width=0.9, fill=0))


def sweep_pictures(result: SweepResult) -> list[Picture]:
    """The pictures of a sweep, of each kind of case in turn.

    Curves against size, of times and of ratios to the first setting, for at most six settings. Heat
    maps where two variables or options are swept, one for each size; and where settings are too
    many for curves, one with a row for each setting and a column for each size. None for two
    settings at one size.
    """
    kinds: dict[str, list[SweepPoint]] = {}
    for point in result.points:
        kinds.setdefault(point.case.operation if point.case.step else point.kind, []).append(point)
    sentences = sentences_by_kind(result)
    pictures = []
    for kind, points in kinds.items():
        ordered = sorted((p for p in points if p.is_compared), key=lambda point: point.size_bytes)
        if ordered:
            texts = kind_sentences(result) if points[0].case.step else sentences[kind]
            pictures += _kind_pictures(result, kind, ordered, texts[:MOST_SENTENCES])
    return pictures


def _kind_pictures(
    result: SweepResult, kind: str, points: Sequence[SweepPoint], texts: Sequence[str]
) -> list[Picture]:
    axes = [(name, values) for name, values in make_axes(result.sweep.settings) if len(values) > 1]
    timed = {each.setting for point in points for each in point.by_time}
    settings = [setting for setting in result.sweep.settings if setting in timed]
    name, description = f"sweep-{as_file_name(kind)}", " ".join(texts)
    found = []
    if len(settings) <= MOST_CURVES and len([p for p in points if p.size_bytes]) > 1:
        panels = ratio_panels(_sides(result, settings, points), result.sweep.tolerance)
        title, notes = f"{kind} under {len(settings)} settings", [*texts, "Median time of a call"]
        found.append(Picture(name, title, description, panels, notes))
    if len(axes) == 2 and len(axes[0][1]) <= MOST_ROWS and len(axes[1][1]) <= MOST_COLUMNS:
        (row_name, rows), (column_name, columns) = axes
        title, chosen = f"{kind}: {row_name} and {column_name}", _spread(points, MOST_MAPS)
        notes = [
            *texts, f"Rows: {row_name}. Columns: {column_name}. Number: {_reading(points)}."
        ]  # fmt: skip
        places = {}
        for setting in settings:
            values = dict(setting.values)
            places[setting] = rows.index(values[row_name]), columns.index(values[column_name])
        names = [["unset" if v == UNSET else v for v in side] for side in (rows, columns)]
        shown = [
            (_label(point), {places[each.setting]: (point, each) for each in point.by_time})
            for point in chosen
        ]
    elif not found and (len(points) > 1 or len(settings) > 2):
        title, chosen = f"{kind} under {len(settings)} settings", _spread(points, MOST_COLUMNS)
        notes, kept = [*texts], settings
        if len(settings) > MOST_ROWS:
            best = {rank.setting for rank in rank_settings(points)[:MOST_ROWS]}
            kept = [setting for setting in settings if setting in best]
            notes.append(f"The best {len(kept)} of {len(settings)} settings are shown.")
        cells = {
            (kept.index(each.setting), column): (point, each)
            for column, point in enumerate(chosen)
            for each in point.by_time
            if each.setting in kept
        }
        names = [[result.names[setting] for setting in kept], [*map(_label, chosen)]]
        shown = [(_reading(points).capitalize(), cells)]
    else:
        return found
    if len(chosen) < len(points):
        what = "sizes" if points[0].size_bytes else "cases"
        notes.append(f"{len(chosen)} of {len(points)} {what} are shown.")
    highest = max(_ratio(*each) for _, times in shown for each in times.values())
    maps = [_heat_map(heading, names, times, highest) for heading, times in shown]
    return [*found, Picture(f"{name}-map", title, description, maps, notes)]


def _sides(
    result: SweepResult, settings: Sequence[Setting], points: Sequence[SweepPoint]
) -> list[Side]:
    """Times and ratios of each setting; those that lack the first setting's times have no ratio."""
    sides = []
    for setting in settings:
        own = [
            (point.size_bytes, each)
            for point in points if point.size_bytes
            for each in point.by_time if each.setting == setting
        ]  # fmt: skip
        ratios = [(size, each.ratio) for size, each in own if each.ratio]
        sides.append(Side(result.names[setting], [(s, each.time) for s, each in own], ratios))
    return sides


def _heat_map(
    heading: str, names: Sequence[Sequence[str]],
    times: Mapping[tuple[int, int], tuple[SweepPoint, SettingTime]], highest: float,
) -> HeatMap:  # fmt: skip
    """A heat map of times, each over the best of its point."""
    cells, frames = {}, []
    for place, (point, each) in times.items():
        ratio = _ratio(point, each)
        text = f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.3g}"
        shade = 0.06 + 0.84 * log(ratio) / log(max(LEAST_RANGE, highest))
        cells[place] = Cell(shade, text, is_bold=each is point.best)
        kinds = ((BEST, each is point.best), (TIED, each.is_tied), (UNDECIDED, each.is_undecided))
        frames += [Frame(*kind, *place) for kind, is_so in kinds if is_so][:1]
    rows, columns = ({place + 0.5: name for place, name in enumerate(own)} for own in names)
    extent = len(rows), len(columns)
    return HeatMap(heading, rows, columns, cells, extent, frames, missing="no time")


def _ratio(point: SweepPoint, each: SettingTime) -> float:
    """Its time over the shortest one."""
    return each.time.value / point.best.time.value


def _label(point: SweepPoint) -> str:
    """What a point is called among others of its kind: its size; of a step also its variant."""
    if point.size_bytes:
        return size_label(point.size_bytes)
    return point.kind.removeprefix(point.case.operation).strip() or "no size"


def _reading(points: Sequence[SweepPoint]) -> str:
    """What the number in a cell is."""
    return f"time over the shortest time of the same {'size' if points[0].size_bytes else 'case'}"


def _spread(points: Sequence[SweepPoint], most: int) -> list[SweepPoint]:
    """At most so many points, evenly spread, with the first and the last."""
    number = min(most, len(points))
    return [points[round(n * (len(points) - 1) / max(1, number - 1))] for n in range(number)]
