"""Sweeps for people: the best setting per size, ranges of sizes, crossovers, the ranking."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isnan
from pathlib import Path
from textwrap import fill

from commbench.analysis.rows import ResultRow, make_rows
from commbench.analysis.statistics import Summary
from commbench.output.table import BOLD, clean, style, table
from commbench.report.run_notes import WIDTH, warnings_text
from commbench.sweep.nccl_selection import choice_for, choices_in
from commbench.sweep.ranking import SizeRange, SweepPoint, places_of, ranges_of, standings_of
from commbench.sweep.runner import SettingResult
from commbench.sweep.settings import Setting
from commbench.units import format_bytes, format_percent, format_time

MOST_NAMED = 3


def sweep_text(
    outcomes: Sequence[SettingResult], tolerance: float, logs: Path | None = None
) -> str:
    """What a sweep found; the gain is over its first setting. `logs` is the folder of a sweep in
    which NCCL wrote down what it chose."""
    places = places_of(outcomes, tolerance)
    first = outcomes[0].setting.name
    parts = [
        f"The gain is the time under {clean(first)} over that under the best setting. Settings "
        f"that differ from the best by no more than {format_percent(tolerance)}, or by no more "
        "than can be told, share the place."
    ]
    parts = [fill(parts[0], WIDTH)]
    kinds = dict.fromkeys(place.kind for place in places)
    parts += [_kind_text(kind, [p for p in places if p.kind == kind], logs) for kind in kinds]
    ranges = ranges_of(places)
    parts += [_ranges_text(ranges), _crossings_text(ranges), _ranking_text(outcomes, places)]
    parts += [_warnings_text(outcomes), _failures_text(outcomes)]
    return "\n\n".join(part for part in parts if part)


def _kind_text(kind: str, places: Sequence[SweepPoint], logs: Path | None) -> str:
    rows: list[tuple[str, ...]] = [
        (
            format_bytes(place.size_bytes) if place.size_bytes else "",
            names(place.tied),
            _time(place.rows[0][1].time),
            _gain(place),
            "" if isnan(place.gain_low) else f"{place.gain_low:.2f} … {place.gain_high:.2f}",
        )
        for place in places
    ]
    headings: tuple[str, ...] = ("size", "best", "time", "gain", "95 % interval")
    if logs:
        headings = (*headings, "NCCL chose")
        rows = [(*row, _chosen(p, logs)) for row, p in zip(rows, places, strict=True)]
    return "\n".join([style(clean(kind), BOLD), *table(headings, rows, left="best")])


def _chosen(place: SweepPoint, logs: Path) -> str:
    case = place.rows[0][1].measurement.case
    choice = choice_for(case, choices_in(logs, place.best))
    return f"{choice.algorithm} {choice.protocol} x{choice.channels}" if choice else ""


def _time(time: Summary | None) -> str:
    return format_time(time.median) if time else ""


def _gain(place: SweepPoint) -> str:
    return "" if isnan(place.gain) else f"{place.gain:.2f}"


def names(settings: Sequence[Setting]) -> str:
    """Names of settings that are equally good."""
    shown = " = ".join(setting.name for setting in settings[:MOST_NAMED])
    more = len(settings) - MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _ranges_text(ranges: Sequence[SizeRange]) -> str:
    lines = [style("Best by size:", BOLD)]
    for found in ranges:
        low, high = format_bytes(found.low_bytes), format_bytes(found.high_bytes)
        sizes = low if low == high else f"{low} … {high}"
        least, most = (f"{gain:.2f}" for gain in found.gains)
        gain = least if least == most else f"{least} to {most}"
        gain = "" if isnan(found.gains[0]) else f", gain {gain}"
        lines.append(_indented(f"{found.kind} {sizes}: {names(found.best)}{gain}"))
    return "\n".join(lines) if ranges else "No case was timed under two settings."


def _indented(text: str) -> str:
    return fill(clean(text), WIDTH, initial_indent="  ", subsequent_indent="    ")


def _crossings_text(ranges: Sequence[SizeRange]) -> str:
    """Where one setting alone is best below, and another alone above."""
    alone = [found for found in ranges if len(found.best) == 1]
    lines = [
        _indented(
            f"{below.kind}: between {format_bytes(below.high_bytes)} and "
            f"{format_bytes(above.low_bytes)}, from {names(below.best)} to {names(above.best)}"
        )
        for below, above in pairwise(alone)
        if below.kind == above.kind and below.best != above.best
    ]
    return "\n".join([style("Crossovers:", BOLD), *lines]) if lines else ""


def _ranking_text(outcomes: Sequence[SettingResult], places: Sequence[SweepPoint]) -> str:
    rows = [
        (s.setting.name, str(s.won), str(s.tied), f"{s.times_best:.3f}")
        for s in standings_of(outcomes, places)
    ]
    headings = ("setting", "alone\nbest", "among\nthe best", "times the\nbest time")
    return "\n".join([style("Over all:", BOLD), *table(headings, rows, left="setting")])


def _warnings_text(outcomes: Sequence[SettingResult]) -> str:
    """What to be warned about in the runs, each with the settings concerned."""

    def where(found: Sequence[ResultRow]) -> str:
        concerned = list(dict.fromkeys(row.header.label for row in found))
        more = len(concerned) - MOST_NAMED
        shown = ", ".join(concerned[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"{len(found)} {'row' if len(found) == 1 else 'rows'} of {shown}"

    return warnings_text([row for o in outcomes if o.run for row in make_rows(o.run)], where)


def _failures_text(outcomes: Sequence[SettingResult]) -> str:
    lines = [_indented(f"{o.setting.name}: {o.failure}") for o in outcomes if o.failure]
    return "\n".join([style("Not measured, or not in every round:", BOLD), *lines]) if lines else ""
