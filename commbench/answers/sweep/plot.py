"""Pictures of a sweep: curves where few settings differ in one value, and heat maps.

A heat map has one cell for a setting, or for a setting and a size: the time over that of the
fastest setting of the same size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log

from commbench.analysis.diagnostics import WAITED
from commbench.answers.compare.plot import MOST_SENTENCES, Side, as_file_name, ratio_panels
from commbench.answers.sweep import ranking
from commbench.answers.sweep.ranges import compare_two
from commbench.answers.sweep.result import SweepResult
from commbench.answers.sweep.sentences import MOST_NAMED, range_sentences
from commbench.answers.sweep.settings import Setting, make_axes, shown_value
from commbench.output.text import list_some
from commbench.stats import SLOWER, UNDECIDED, collect, spread_evenly
from commbench.views import pictures
from commbench.views.cells import ratio_text
from commbench.views.pictures import INK, Cell, Frame, HeatMap, Look, Picture, size_label

MOST_CURVES = 6
MOST_MAPS = 9
MOST_ROWS, MOST_COLUMNS = 24, 18
LEAST_RANGE = 1.25
"""The colours of a heat map reach at least to this ratio, so that noise looks like noise."""
Times = Mapping[tuple[int, int], ranking.SettingTime]
"""What is in each cell."""
_BEST = ("shortest time", Look(INK, width=1.8, fill=0))
FRAMES = {
    ranking.FASTEST: _BEST,
    ranking.SHORTEST: _BEST,
    ranking.TIED: ("tied with it", Look(INK, dashes=(2, 1.5), width=1.1, fill=0)),
    UNDECIDED: ("undecided", Look(INK, dashes=(0.8, 2), width=0.9, fill=0)),
}
"""How the verdicts on settings are framed."""
DOTS = {
    verdict: (
        FRAMES.get(verdict, (verdict,))[0],
        pictures.nth_look(number)._replace(dashes=(), size=7),
    )
    for number, verdict in enumerate((*FRAMES, SLOWER))
}
"""How they look at a single size."""


def sweep_pictures(result: SweepResult) -> list[Picture]:
    """The pictures of a sweep, of each kind of case in turn.

    Curves against size, of times and of ratios to the best setting, for at most six settings. Heat
    maps where two variables or options are swept, one for each size; and where settings are too
    many for curves, one with a row for each setting and a column for each size. A single size has a
    time with its interval for each setting.
    """
    points = sorted(result.compared, key=lambda point: point.size_bytes)
    kinds = collect((p.case.operation if p.case.step else p.kind, p) for p in points)
    return [each for kind, own in kinds.items() for each in _pictures(result, kind, own)]


def _pictures(
    result: SweepResult, kind: str, points: Sequence[ranking.SweepPoint]
) -> Iterator[Picture]:
    timed = {each.setting for point in points for each in point.by_time}
    settings = [setting for setting in result.sweep.settings if setting in timed]
    texts = range_sentences(result, {point.kind for point in points})[:MOST_SENTENCES]
    waited = {result.names[each.setting]: None for p in points for each in p.by_time if each.waited}
    if waited and not any(WAITED in text for text in texts):
        texts.append(f"{WAITED.capitalize()} under {list_some([*waited], MOST_NAMED)}.")
    name, description = f"sweep-{as_file_name(kind)}", " ".join(texts)
    title = f"{kind} under {len(settings)} settings"
    has_curves = len(settings) <= MOST_CURVES and len([p for p in points if p.size_bytes]) > 1
    if has_curves:
        fastest = ranking.rank_settings(points)[0].setting
        sides = [*_sides(result, sorted(settings, key=lambda s: s != fastest), points)]
        panels = ratio_panels(sides, result.sweep.tolerance)
        notes = [*texts, "Time of a call, geometric mean over rounds"]
        yield Picture(name, title, description, panels, notes)
    what = "size" if points[0].size_bytes else "case"
    reading = f"time over the shortest time of the same {what}"
    axes, (down, across) = make_axes(result.sweep.settings), ("", "")
    shown: list[tuple[str, Times]]
    if len(axes) == 2 and len(axes[0][1]) <= MOST_ROWS and len(axes[1][1]) <= MOST_COLUMNS:
        (down, rows), (across, columns) = axes
        title, note = f"{kind}: {down} and {across}", f"Number: {reading}."
        names = [[*map(shown_value, values)] for values in (rows, columns)]
        own = {setting: dict(setting.values) for setting in settings}
        places = {s: (rows.index(v[down]), columns.index(v[across])) for s, v in own.items()}
        kept = spread_evenly(points, MOST_MAPS)
        shown = [(_label(p), {places[e.setting]: e for e in p.by_time}) for p in kept]
    elif len(points) == 1:
        (point,) = points
        bars = [
            pictures.BarRow(result.names[e.setting], [pictures.Bar(e.time, DOTS[e.verdict])])
            for e in point.by_time[:MOST_ROWS]
        ]
        title += f" at {_label(point)}" * bool(point.size_bytes)
        some = f": the best {len(bars)} of {len(settings)} settings" * (len(bars) < len(settings))
        panel = pictures.Bars(f"Time of a call{some}", bars, pictures.TIMES)
        yield Picture(name, title, description, [panel], texts)
        return
    elif not has_curves:
        kept, best = spread_evenly(points, MOST_COLUMNS), ranking.rank_settings(points)[:MOST_ROWS]
        drawn = [setting for setting in settings if setting in {rank.setting for rank in best}]
        note = f"The best {len(drawn)} of {len(settings)} settings."
        note *= len(drawn) < len(settings)
        names = [[result.names[setting] for setting in drawn], [*map(_label, kept)]]
        every = ((column, each) for column, p in enumerate(kept) for each in p.by_time)
        times = {(drawn.index(e.setting), n): e for n, e in every if e.setting in drawn}
        shown = [(reading.capitalize(), times)]
    else:
        return
    notes = [*filter(None, [*texts, note])]
    if len(kept) < len(points):
        notes.append(f"{len(kept)} of {len(points)} {what}s are shown.")
    highest = max(_ratio(each) for _, times in shown for each in times.values())
    maps = [
        _heat_map(heading, names, times, highest)._replace(down=down, across=across)
        for heading, times in shown
    ]
    yield Picture(f"{name}-map", title, description, maps, notes)


def _is_void(each: ranking.SettingTime) -> bool:
    """Whether its ranks waited so long that it has no verdict, as it may have of CPU modes."""
    is_best = each.verdict in ("", ranking.FASTEST, ranking.SHORTEST)
    return bool(each.waited and (each.reason or is_best))


def _sides(
    result: SweepResult, settings: Sequence[Setting], points: Sequence[ranking.SweepPoint]
) -> Iterator[Side]:
    """Times and ratios of each setting; those that lack the first setting's times have no ratio."""
    first = settings[0]
    sized = [point for point in points if point.size_bytes]
    for setting in settings:
        own = [(p.size_bytes, e) for p in sized for e in p.by_time if e.setting == setting]
        times = [(size, each.time) for size, each in own]
        rows = compare_two(sized, first, setting, result.sweep.tolerance)
        ratios = [(r.a.size_bytes, r.ratio) for r in rows if r.ratio and setting != first]
        waited = {size for size, each in own if _is_void(each)}
        yield Side(result.names[setting], times, ratios, waited)


def _heat_map(
    heading: str, names: Sequence[Sequence[str]], times: Times, highest: float
) -> HeatMap:
    """A heat map of times, each over the best of its point."""
    cells, frames = {}, []
    for place, each in times.items():
        shade = 0.06 + 0.84 * log(_ratio(each)) / log(max(LEAST_RANGE, highest))
        cells[place] = Cell(shade, ratio_text(each.ratio or 1.0), is_bold=not each.ratio)
        if each.verdict in FRAMES:
            frames.append(Frame(*FRAMES[each.verdict], *place))
    rows, columns = ({place + 0.5: name for place, name in enumerate(own)} for own in names)
    extent = len(rows), len(columns)
    return HeatMap(heading, rows, columns, cells, extent, frames, missing="no time")


def _ratio(each: ranking.SettingTime) -> float:
    """Its time over the shortest one."""
    return each.ratio.value if each.ratio else 1.0


def _label(point: ranking.SweepPoint) -> str:
    """What a point is called among others of its kind: its size; of a step also its variant."""
    if point.size_bytes:
        return size_label(point.size_bytes)
    return point.kind.removeprefix(point.case.operation).strip() or "no size"
