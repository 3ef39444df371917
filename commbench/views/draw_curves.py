"""Draws panels of curves, and of bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import log2, log10, nan
from typing import TYPE_CHECKING

from commbench.stats import collect
from commbench.units import format_time
from commbench.views import pictures
from commbench.views.cells import time_with_interval_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINEAR_REACH = 1.6
"""As Axis.reach, of a linear axis."""
ROOM = 0.14
"""The part of a panel above its values that is for the texts of upright marks."""
NEARBY = 3.0
"""A linear axis reaches up to a mark, or the end of the interval of the highest value, that is at
most so many times that value."""
CROSS = pictures.Look(pictures.INK, "x", None, size=6)
HOLLOW = "Hollow points do not count"
_BESIDE = 1.7
"""Inches that are not for the horizontal axes of panels side by side."""
_LEAST_ROOM, _SMALL = 1.4, 4.0
"""Inches for one of them, at least; and below which a panel counts as small."""
_BAR = 0.34
"""The height of a bar, over the distance of two rows."""
Limits = tuple[float, float]
"""The ends of a vertical axis."""


def lay_out(picture: pictures.Picture, width: float) -> pictures.Layout:
    """How a picture with panels of curves is drawn."""
    panels: Sequence[pictures.Curves] = picture.panels  # type: ignore[assignment]
    columns = max(1, min(picture.columns, int((width - _BESIDE) / _LEAST_ROOM)))
    room = (width - _BESIDE) / columns
    has_bands = all(panel.may_have_bands for panel in panels)
    limits = {
        scale: find_limits(same, scale)
        for scale, same in collect((panel.scale, panel) for panel in panels).items()
    }
    alike = collect((panel.across, panel) for panel in panels)
    places = {
        across: sorted({x for panel in same for series in panel.series for x in series.places})
        for across, same in alike.items()
    }

    def draw(axes: Axes, panel: pictures.Curves) -> None:
        beside = _side_by_side(panel, has_bands)
        step = (10.0 if room < _SMALL else 20.0) / max(10, len(beside))  # points
        place = 0.0
        for series in panel.series:  # one without intervals belongs to that before it
            if series in beside:
                place = beside.index(series) - (len(beside) - 1) / 2
            _draw_series(axes, series, has_bands, room < _SMALL, step * place)
            _draw_cuts(axes, series, limits[panel.scale])
        _set_values(axes, panel.scale, limits[panel.scale])
        _set_across(axes, panel.across, places[panel.across], room)
        _draw_marks(axes, panel.marks, limits[panel.scale])
        name = panel.across.name
        if columns > 1 and len(alike) == 1:
            axes.figure.supxlabel(name, size=pictures.TEXT)
        elif any(panel is last for last in alike[panel.across][-columns:]):
            axes.set_xlabel(name.partition(":")[0] if columns > 1 else name)

    return pictures.Layout(
        draw, [panel.inches for panel in panels[:: columns]], _legend(panels),
        [*_notes(picture, limits, has_bands)], columns,
    )  # fmt: skip


def _is_band(series: pictures.Series, has_bands: bool) -> bool:
    """Whether its intervals are a band, and not vertical lines."""
    return has_bands and series.look.dashes is not None


def _side_by_side(panel: pictures.Curves, has_bands: bool) -> list[pictures.Series]:
    """The series with vertical lines, where some would cover each other."""
    found = [s for s in panel.series if s.has_band and not _is_band(s, has_bands)]
    places = [place for series in found for place in {*series.places}]
    return found if len({*places}) < len(places) else []


def find_limits(panels: Sequence[pictures.Curves], scale: pictures.Axis) -> Limits:
    """The ends that show every value that counts and every mark, and every interval within the
    reach of an axis."""
    every = [series for panel in panels for series in panel.series]
    counted = [each for each in every if not each.look.is_hollow] or every
    found = [(s, e) for s in counted for _, e in s.known]
    values = [estimate.value for _, estimate in found]
    across = [mark for panel in panels for mark in panel.marks if not mark.is_upright]
    ends = [end for s, e in found if s.has_band for end in e.ends]
    ends += [end for mark in across if mark.high is not None for end in (mark.low, mark.high)]
    marks = [mark.low for mark in across if mark.high is None]
    if not scale.is_log:
        best = max((estimate for _, estimate in found), key=lambda each: each.value)
        top, own = best.value, 1.04 * best.ends[1]  # titles name it, with its interval
        near = [1.15 * mark for mark in marks if mark <= NEARBY * top]
        band = min(1.04 * max(ends, default=0.0), LINEAR_REACH * top)
        return 0.0, max([1.18 * top, band, min(own, NEARBY * top), *near])
    shown = [value for value in (*values, *marks) if value > 0]
    pad = max(1.02, (max(shown) / min(shown)) ** 0.06)
    low = max(min([*shown, *(end for end in ends if end > 0)]) / pad, min(shown) / scale.reach)
    high = min(max([*shown, *ends]) * pad, max(shown) * scale.reach)
    has_texts = any(mark.is_upright and mark.text for panel in panels for mark in panel.marks)
    return low, high * (high / low) ** (ROOM * has_texts)


def _legend(panels: Sequence[pictures.Curves]) -> list[pictures.Key]:
    """Names of curves, unless there is only one; then of marks, and of crosses."""
    curves: dict[str, pictures.Look] = {}
    every = [series for panel in panels for series in panel.series]
    for series in sorted(every, key=lambda series: not series.has_band):
        curves.setdefault(series.name, series.look)
    marks = {m.name: (m.name, m.look) for p in panels for m in p.marks if m.name}
    has_cross = any(value is None for p in panels for s in p.series for _, value in s.points)
    cross = [("failed or wrong: no time", CROSS)] * has_cross
    return [*(curves.items() if len(curves) > 1 else ()), *marks.values(), *cross]


def _notes(
    picture: pictures.Picture, limits: dict[pictures.Axis, Limits], has_bands: bool
) -> Iterator[str]:
    """What intervals mean, and the marks that the axes leave out."""
    panels: Sequence[pictures.Curves] = picture.panels  # type: ignore[assignment]
    series = [each for panel in panels for each in panel.series if not each.look.fill]
    shown = {
        "band" if _is_band(each, has_bands) else "vertical line at a point"
        for each in series
        if each.has_band and any(e.has_interval for _, e in each.known)
    }
    is_cut = any(
        not limits[p.scale][0] <= end <= limits[p.scale][1]
        for p in panels for s in p.series if s.has_band for _, e in s.known for end in e.ends
    )  # fmt: skip
    if shown:
        text = f"{' or '.join(sorted(shown)).capitalize()}: 95 % interval"
        yield f"{text}; a triangle points at what is outside the panel" if is_cut else text
    if any(each.hollow for each in series):
        yield HOLLOW
    if beside := [panel.across.name for panel in panels if _side_by_side(panel, has_bands)]:
        yield f"Points of one {beside[0].partition(':')[0]} are side by side"
    beyond = dict.fromkeys(
        m.text for p in panels for m in p.marks
        if m.text and not m.is_upright and m.low > limits[p.scale][1]
    )  # fmt: skip
    if beyond:
        yield f"Above this picture: {', '.join(beyond)}"


def _draw_series(
    axes: Axes, series: pictures.Series, has_bands: bool, is_small: bool, shift: float
) -> None:
    """A curve with its intervals, moved to the right by some points."""
    from matplotlib.transforms import ScaledTranslation

    moved = ScaledTranslation(shift / 72, 0, axes.figure.dpi_scale_trans)
    look = pictures.line_properties(series.look) | {"transform": axes.transData + moved}
    if is_small:
        look |= {"markersize": 4.5, "markeredgewidth": 0}
    places = series.places
    if series.has_band:
        ends = [e.ends if e and e.has_interval else (nan, nan) for _, e in series.points]
        lows, highs = zip(*ends, strict=True)
        if _is_band(series, has_bands):
            colour = series.look.colour
            axes.fill_between(places, lows, highs, facecolor=(colour, pictures.BAND),
                              edgecolor=(colour, pictures.EDGE), linewidth=0.6)  # fmt: skip
        else:
            axes.vlines(places, lows, highs, series.look.colour, linewidth=1.3, alpha=0.8,
                        transform=look["transform"])  # fmt: skip
    values = [estimate.value if estimate else nan for _, estimate in series.points]
    axes.plot(places, values, label=pictures.plain(f" {series.name}"), **look)
    if series.hollow:
        kept = [
            v if place in series.hollow else nan for place, v in zip(places, values, strict=True)
        ]
        own = pictures.line_properties(series.look._replace(dashes=None, is_hollow=True))
        axes.plot(places, kept, label="_hollow", **look | own)
    if bad := [place for place, estimate in series.points if estimate is None]:
        cross = pictures.line_properties(CROSS._replace(colour=series.look.colour))
        axes.plot(bad, [0.04] * len(bad), transform=axes.get_xaxis_transform(), label="_bad",
                  clip_on=False, **cross)  # fmt: skip


def _draw_cuts(axes: Axes, series: pictures.Series, limits: Limits) -> None:
    """A triangle at the edge of a panel where an interval goes on beyond it."""
    known = series.known if series.has_band else ()
    for edge, marker, cut in (
        (0.0, "v", [place for place, e in known if e.ends[0] < limits[0]]),
        (1.0, "^", [place for place, e in known if e.ends[1] > limits[1]]),
    ):
        if cut:
            face = "white" if series.look.is_hollow else series.look.colour
            axes.plot(cut, [edge] * len(cut), marker, color=series.look.colour, label="_cut",
                      markersize=5, transform=axes.get_xaxis_transform(), clip_on=False,
                      markerfacecolor=face, in_layout=False)  # fmt: skip


def _draw_marks(axes: Axes, marks: Sequence[pictures.Mark], limits: Limits) -> None:
    for mark in marks:
        if mark.high is not None:
            span = axes.axvspan if mark.is_upright else axes.axhspan
            span(mark.low, mark.high, zorder=0.8, **pictures.area_properties(mark.look))
        elif mark.is_upright:
            axes.axvline(mark.low, zorder=0.9, label="_mark", **pictures.line_properties(mark.look))
            is_right = mark.low > sum(axes.get_xlim()) / 2
            axes.annotate(
                pictures.plain(mark.text), (mark.low, 1), xycoords=axes.get_xaxis_transform(),
                xytext=(-3 if is_right else 3, -2), textcoords="offset points", va="top",
                ha="right" if is_right else "left", size=pictures.SMALL,
                bbox={"facecolor": "white", "linewidth": 0, "alpha": 0.8, "pad": 1},
            )  # fmt: skip
        elif mark.low <= limits[1]:
            axes.axhline(mark.low, zorder=1.5, label="_mark", **pictures.line_properties(mark.look))
            axes.annotate(
                pictures.plain(mark.text), (0.01, mark.low), xycoords=axes.get_yaxis_transform(),
                xytext=(0, 2), textcoords="offset points", size=pictures.SMALL, va="bottom",
            )  # fmt: skip


def _set_values(axes: Axes, scale: pictures.Axis, limits: Limits) -> None:
    """The vertical axis, with a line of the grid at each tick."""
    ticks = pictures.log_ticks(*limits) if scale.is_log else pictures.linear_ticks(*limits, 6)
    axes.set_yscale("log" if scale.is_log else "linear")
    axes.set_yticks(ticks, [scale.text(tick) for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_ylim(*limits)
    axes.grid(True, axis="y")


def _set_across(axes: Axes, across: pictures.Axis, places: Sequence[float], width: float) -> None:
    """The horizontal axis: a tick at each place; as many have labels as fit into a width."""
    if not across.is_log:
        span = places[-1] - places[0] or 1.0
        axes.set_xlim(places[0] - 0.03 * span, places[-1] + 0.03 * span)
        if unit := across.unit:
            ends = places[0] / unit, (places[0] + span) / unit
            ticks = [unit * number for number in pictures.linear_ticks(*ends)]
            axes.set_xticks(ticks, map(across.text, ticks))
            return
        at = pictures.every_nth(
            [(place - places[0]) / span * width for place in places],
            [pictures.widest(across.text(place).split("\n")) for place in places],
        )
        axes.set_xticks([places[n] for n in at], [across.text(places[n]) for n in at])
        return
    part = (places[-1] / places[0]) ** (0.03 if width > 4 else 0.07) if places[1:] else 1.12
    low, high = places[0] / part, places[-1] * part
    inches = width / log10(high / low)
    powers = [place for place in places if log2(place).is_integer()]
    labelled = powers if powers[1:] else places
    texts = [across.text(place) for place in labelled]
    at = pictures.every_nth(
        [log10(place) * inches for place in labelled], [pictures.widest([text]) for text in texts]
    )
    axes.set_xscale("log")
    axes.set_xticks([labelled[n] for n in at], [texts[n] for n in at])
    axes.set_xticks(places, [""] * len(places), minor=True)
    axes.set_xlim(low, high)


def lay_out_bars(picture: pictures.Picture, width: float) -> pictures.Layout:
    """How a picture with rows of bars is drawn."""
    panels: Sequence[pictures.Bars] = picture.panels  # type: ignore[assignment]
    bars = [bar for panel in panels for row in panel.rows for bar in row.bars]
    keys = [bar.key for bar in bars] + [bar.more_key for bar in bars if bar.more_s]
    named = [(name, look) for name, look in dict.fromkeys(keys) if name]
    named = named if len(named) > 1 else []
    notes = ["Line: 95 % interval"] if any(bar.time.has_interval for bar in bars) else []
    notes += [HOLLOW] * any(bar.key[1].is_hollow for bar in bars)

    def name(row: pictures.BarRow) -> str:
        text = pictures.plain(row.name, pictures.LONGEST_NAME)
        return "\n".join(pictures.wrap(text, pictures.TEXT, 0.36 * width))

    is_tall = any(row.bars[1:] or "\n" in name(row) for panel in panels for row in panel.rows)
    each = 0.38 if is_tall else 0.29
    heights = [each * len(panel.rows) + 0.1 for panel in panels]
    return pictures.Layout(
        partial(_draw_bars, name=name, most=int(width) - 3), heights, named, notes
    )


def _draw_bars(
    axes: Axes, panel: pictures.Bars, name: Callable[[pictures.BarRow], str], most: int
) -> None:
    ends: list[float] = []
    for place, row in enumerate(panel.rows):
        for number, bar in enumerate(row.bars):
            at = place + (number - (len(row.bars) - 1) / 2) * _BAR
            _draw_bar(axes, bar, at, is_point=panel.scale.is_log)
            ends += [bar.time.value + bar.more_s, *bar.time.ends]
            text = time_with_interval_text(bar.time)
            text += f" + {format_time(bar.more_s)}" * bool(bar.more_s)
            axes.annotate(
                text, (1, at), xycoords=axes.get_yaxis_transform(), xytext=(6, 0),
                textcoords="offset points", va="center_baseline", size=pictures.SMALL,
            )  # fmt: skip
    low, high, ticks = 0.0, max(ends) * 1.03, partial(pictures.linear_ticks, most=most)
    if panel.scale.is_log:
        low, high = min(end for end in ends if end > 0) / 1.15, max(ends) * 1.15
        ticks = partial(pictures.log_ticks, most=most)
        axes.set_xscale("log")
    axes.set_xticks(ticks(low, high), [panel.scale.text(tick) for tick in ticks(low, high)])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(panel.rows)), map(name, panel.rows))
    axes.set(xlim=(low, high), ylim=(len(panel.rows) - 0.45, -0.55))
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x")


def _draw_bar(axes: Axes, bar: pictures.Bar, at: float, is_point: bool) -> None:
    colour = bar.key[1].colour
    interval = {"color": pictures.INK, "linewidth": 1.2, "label": "_interval"}
    if is_point:
        axes.plot([bar.time.value], [at], **pictures.line_properties(bar.key[1]), zorder=3)
        interval |= {"color": colour, "linewidth": 2.5, "alpha": 0.5}
    else:
        axes.barh(at, bar.time.value, _BAR * 0.9, color=colour)
        axes.barh(at, bar.more_s, _BAR * 0.9, left=bar.time.value, color=bar.more_key[1].colour)
    if bar.time.has_interval:
        axes.plot(bar.time.ends, [at, at], **interval)  # type: ignore[arg-type]
