"""The results of a sweep as text: best setting per size, ranges of sizes, crossovers, ranking."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from commbench.analysis.rows import ResultRow
from commbench.output.paragraphs import fill, list_some
from commbench.output.table import BOLD, clean, style, table
from commbench.report.run_notes import warnings_text
from commbench.sweep.nccl_tuning import Selections, find_selection
from commbench.sweep.ranking import SizeRange, SweepPoint, make_ranges, rank_settings
from commbench.sweep.runner import SettingResult
from commbench.sweep.settings import Setting
from commbench.units import format_bytes, format_percent, format_time

MOST_NAMED = 3


def sweep_text(
    results: Sequence[SettingResult],
    points: Sequence[SweepPoint],
    tolerance: float,
    selections: Selections | None = None,
) -> str:
    """The results of a sweep in words and tables, with NCCL's `selections` for a sweep of NCCL."""
    first = results[0].setting.name
    introduction = (
        f"The gain is the time under {clean(first)} over that under the best setting. Settings "
        f"that differ from the best by no more than {format_percent(tolerance)}, or by no more "
        "than can be told, share the place."
    )
    kinds: dict[str, list[SweepPoint]] = {}
    for point in filter(lambda point: point.is_compared, points):
        kinds.setdefault(point.kind, []).append(point)
    ranges = make_ranges(points)
    parts = [
        fill(introduction),
        *(_kind_text(kind, of_kind, selections) for kind, of_kind in kinds.items()),
        _ranges_text(ranges),
        _crossovers_text(ranges),
        _ranking_text(points),
        _warnings_text(results),
        _failures_text(results),
    ]
    return "\n\n".join(part for part in parts if part)


def _kind_text(kind: str, points: Sequence[SweepPoint], selections: Selections | None) -> str:
    rows: list[tuple[str, ...]] = [
        (
            format_bytes(point.size_bytes) if point.size_bytes else "",
            join_names(point.tied),
            format_time(point.best.time.median or 0.0),
            "" if point.gain.median is None else f"{point.gain.median:.2f}",
            "" if point.gain.low is None else f"{point.gain.low:.2f} … {point.gain.high:.2f}",
        )
        for point in points
    ]
    headings: tuple[str, ...] = ("size", "best", "time", "gain", "95 % interval")
    if selections is not None:
        headings = (*headings, "NCCL chose")
        found = [find_selection(point, selections) for point in points]
        chosen = [f"{f.algorithm} {f.protocol} x{f.channels}" if f else "" for f in found]
        rows = [(*row, each) for row, each in zip(rows, chosen, strict=True)]
    return "\n".join([style(clean(kind), BOLD), *table(headings, rows, left="best")])


def join_names(settings: Sequence[Setting]) -> str:
    """The names of settings that are equally good, joined by ` = `; the first MOST_NAMED."""
    shown = " = ".join(setting.name for setting in settings[:MOST_NAMED])
    more = len(settings) - MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _ranges_text(ranges: Sequence[SizeRange]) -> str:
    lines = [style("Best by size:", BOLD)]
    for found in ranges:
        low, high = format_bytes(found.low_bytes), format_bytes(found.high_bytes)
        sizes = low if low == high else f"{low} … {high}"
        gains = [g for point in found.points if (g := point.gain.median)]
        least, most = (f"{each(gains, default=1):.2f}" for each in (min, max))
        text = least if least == most else f"{least} to {most}"
        text = f", gain {text}" if gains else ""
        lines.append(_indented(f"{found.kind} {sizes}: {join_names(found.best)}{text}"))
    return "\n".join(lines) if ranges else "No case was timed under two settings."


def _indented(text: str) -> str:
    return fill(text, "  ", "    ")


def _crossovers_text(ranges: Sequence[SizeRange]) -> str:
    """The sizes between which the setting that alone is best changes."""
    alone = [found for found in ranges if len(found.best) == 1]
    lines = [
        _indented(
            f"{below.kind}: between {format_bytes(below.high_bytes)} and "
            f"{format_bytes(above.low_bytes)}, "
            f"from {join_names(below.best)} to {join_names(above.best)}"
        )
        for below, above in pairwise(alone)
        if below.kind == above.kind and below.best != above.best
    ]
    return "\n".join([style("Crossovers:", BOLD), *lines]) if lines else ""


def _ranking_text(points: Sequence[SweepPoint]) -> str:
    rows = [
        (rank.setting.name, str(rank.won), str(rank.tied), f"{rank.times_best:.3f}")
        for rank in rank_settings(points)
    ]
    headings = ("setting", "alone\nbest", "among\nthe best", "times the\nbest time")
    return "\n".join([style("Over all:", BOLD), *table(headings, rows, left="setting")])


def _warnings_text(results: Sequence[SettingResult]) -> str:
    """The warnings about the runs, each with the settings concerned."""

    def where(found: Sequence[ResultRow]) -> str:
        concerned = list(dict.fromkeys(row.header.label for row in found))
        shown = list_some(concerned, MOST_NAMED)
        return f"{len(found)} {'row' if len(found) == 1 else 'rows'} of {shown}"

    return warnings_text([row for result in results for row in result.rows], where)


def _failures_text(results: Sequence[SettingResult]) -> str:
    lines = [_indented(f"{r.setting.name}: {r.failure}") for r in results if r.failure]
    return "\n".join([style("Not measured, or not in every round:", BOLD), *lines]) if lines else ""
