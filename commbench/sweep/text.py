"""The result of a sweep as text: sentences, a table of times and ratios, ranking, failures."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from commbench.analysis.rows import ResultRow
from commbench.output.paragraphs import line_width, list_some, wrapped
from commbench.output.table import BOLD, clean, labelled_table, style, table, width
from commbench.report.run_notes import MOST_WARNINGS, warnings_text
from commbench.stats.estimate import ratio
from commbench.sweep.nccl_tuning import find_selection
from commbench.sweep.ranking import (
    SettingTime,
    SweepPoint,
    judged_points,
    rank_settings,
    varied_fields,
)
from commbench.sweep.runner import plain_reason
from commbench.sweep.sentences import kind_sentences
from commbench.sweep.settings import UNSET, Setting, make_axes
from commbench.units import format_bytes, format_known_times
from commbench.views.cells import ratio_interval_text, ratio_text

if TYPE_CHECKING:
    from commbench.sweep.result import SweepResult

WIDEST_TABLE = 100
"""The layout of the table is the first that is not wider than this, nor than a line of text."""
ENOUGH_ROUNDS = 3
MOST_NAMED = 3
MOST_RANKED = 12
BEST, TIED, UNDECIDED = "*", "=", "?"


def sweep_text(result: SweepResult, most_warnings: int | None = MOST_WARNINGS) -> str:
    """The result of a sweep in sentences and tables. `most_warnings` of None: all, explained."""
    lines, is_folded = _table(result)
    parts = [
        "\n".join([_introduction_text(result), *map(wrapped, kind_sentences(result))]),
        "\n".join(lines),
        "\n".join(map(wrapped, notes(result, is_folded))),
        _ranking_text(result),
        _warnings_text(result, most_warnings),
        _failures_text(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _introduction_text(result: SweepResult) -> str:
    return style(wrapped(introduction(result)), BOLD)


def introduction(result: SweepResult) -> str:
    """What was varied, and on which ranks, in one sentence."""
    axes = [
        f"{name} ({list_some(['unset' if v == UNSET else v for v in values], 8)})"
        for name, values in make_axes(result.sweep.settings)
    ]
    rounds = result.sweep.rounds
    parts = [f"{len(result.settings)} settings", f"{rounds} round{'' if rounds == 1 else 's'}"]
    plans = {each.run.header.plan for each in result.settings if each.run}
    targets = {(plan.world_size, plan.backend, plan.device) for plan in plans}
    if len(targets) == 1:
        ranks, backend, device = targets.pop()
        parts.append(f"{ranks} {backend} ranks on {device}")
    return f"Sweep of {', '.join(axes)}: {', '.join(parts)}."


def notes(result: SweepResult, is_folded: bool = False) -> list[str]:
    """How the table is read, and whether there were enough rounds; empty if nothing is compared.
    `is_folded` is for the table that has the fastest settings only."""
    compared = [point for point in result.points if point.is_compared]
    if not compared:
        return []
    tolerance = f"{result.sweep.tolerance * 100:g} %"
    first = result.names[result.sweep.settings[0]]
    tied = any(len(point.tied) > 1 for point in compared)
    undecided = [point for point in compared if point.undecided]
    texts = []
    if is_folded:
        texts.append(
            "Each row has the setting with the shortest time of a size. Both ratios are times over "
            f"that time: the second shortest time, and that of the first setting, {first}. others: "
            "how many other settings are tied with it or undecided. sweep.csv has the times under "
            "all settings."
        )
    else:
        texts.append(
            f"Mark {BEST}: shortest time; it is the fastest setting where no other has a mark. "
            f"Ratios are times over the time under {first}, with 95 % intervals."
        )
    if tied:
        texts.append(
            f"Mark {TIED}: tied, at most {tolerance} slower than the shortest time with the whole "
            "interval."
        )
    if undecided:
        texts.append(
            f"Mark {UNDECIDED}: undecided; it may be as fast as the setting with the shortest "
            "time, or slower."
        )
        if any(point.size_bytes for point in judged_points(undecided)):
            texts[-1] += (
                " The sentences use neighbouring sizes together, so they can decide what one row "
                "cannot."
            )
    if (rounds := result.sweep.rounds) < ENOUGH_ROUNDS:
        count = "One round is" if rounds == 1 else f"{rounds} rounds are"
        texts.append(
            f"{count} too few to distinguish settings: another round may differ by more than these "
            f"intervals. Use --rounds {ENOUGH_ROUNDS} or more."
        )
    return texts


# The table. Its layouts, from the one that shows most to the one that shows least.


def _table(result: SweepResult) -> tuple[list[str], bool]:
    """The first layout that is narrow enough, else the last one; and whether it is the last one,
    which has the fastest settings only."""
    layouts: tuple[Callable[[SweepResult], list[str]], ...] = (
        _times_and_ratios, _times_above_ratios, _best_only,
    )  # fmt: skip
    lines: list[str] = []
    for layout in layouts if result.points else ():
        lines = layout(result)
        if layout is _best_only or max(map(width, lines)) <= min(line_width(), WIDEST_TABLE):
            return lines, layout is _best_only
    return lines, False


Columns = tuple[list[str], list[list[str]]]
"""Headings, and the cells of each point below them."""


def _join(result: SweepResult, *parts: Columns, left: Sequence[str] = ()) -> list[str]:
    """A table of these columns after one of sizes. Of several kinds of case each has a line above
    its sizes; the steps of a workload have a table of their own, after one of their names."""
    headings = [heading for part, _ in parts for heading in part]
    rows = [
        (point, [cell for _, cells in parts for cell in cells[index]])
        for index, point in enumerate(result.points)
    ]
    named = [row for row in rows if row[0].case.step]
    sized = [row for row in rows if not row[0].case.step]
    lines = _named_table(headings, named, left) if named else []
    lines += [""] if named and sized else []
    has_kinds = len({point.kind for point, _ in sized}) > 1 or bool(named)
    return [*lines, *_sized_table(headings, sized, left, has_kinds)] if sized else lines


def _named_table(
    headings: Sequence[str], rows: Sequence[tuple[SweepPoint, list[str]]], left: Sequence[str]
) -> list[str]:
    """A table of steps with their cells after one of their names, without empty columns."""
    operation = rows[0][0].case.operation
    names = [point.kind.removeprefix(operation).strip() for point, _ in rows]
    columns = [(operation, *names), *zip(headings, *(cells for _, cells in rows), strict=True)]
    head, *body = zip(*(column for column in columns if any(column[1:])), strict=True)
    return "\n".join(labelled_table(head, body, ",".join(left))).split("\n")


def _sized_table(
    headings: Sequence[str], rows: Sequence[tuple[SweepPoint, list[str]]], left: Sequence[str],
    has_kinds: bool,
) -> list[str]:  # fmt: skip
    """A table of points with their cells after one of sizes; with `has_kinds` each kind of case has
    a line above its sizes."""
    sizes = [format_bytes(point.size_bytes) if point.size_bytes else "" for point, _ in rows]
    cells = [[size, *cells] for size, (_, cells) in zip(sizes, rows, strict=True)]
    lines = table(["size", *headings], cells, left=",".join(left))
    found, body = lines[: -len(rows)], lines[-len(rows) :]
    kind = None
    for (point, _), line in zip(rows, body, strict=True):
        if has_kinds and point.kind != kind:
            found.append(f"  {clean(point.kind)}")
        found.append(line)
        kind = point.kind
    return found


def kind_tables(result: SweepResult) -> list[tuple[str, list[str], list[list[str]]]]:
    """Each kind of case, and all steps of a workload together, with the headings and rows of times,
    ratios and selections. Marks come before the times, so that the ends of the times are in line in
    any font."""
    parts = _times(result, mark_first=True), _ratios(result), _selections(result)
    headings = [heading.strip() for part, _ in parts for heading in part]
    tables: dict[tuple[str, str], list[list[str]]] = {}
    for index, point in enumerate(result.points):
        kind, first = point.kind, "size"
        text = format_bytes(point.size_bytes) if point.size_bytes else ""
        if point.case.step:
            kind, first = point.case.operation, "step"
            text = point.kind.removeprefix(kind).strip()
        cells = [cell for _, rows in parts for cell in rows[index]]
        tables.setdefault((kind, first), []).append([text, *cells])
    return [(kind, [first, *headings], rows) for (kind, first), rows in tables.items()]


def _times_and_ratios(result: SweepResult) -> list[str]:
    return _join(result, _times(result), _ratios(result), _selections(result))


def _times_above_ratios(result: SweepResult) -> list[str]:
    lines = _join(result, _times(result), _selections(result))
    return [*lines, "", *_join(result, _ratios(result))]


def _best_only(result: SweepResult) -> list[str]:
    """One column for each variable, with the value of the fastest setting."""
    first = result.sweep.settings[0]
    names = [name for name, _ in make_axes(result.sweep.settings)]
    cells = []
    for point in result.points:
        values = dict(point.best.setting.values)
        others = (len(point.tied) - 1, TIED), (len(point.undecided), UNDECIDED)
        second = point.by_time[1].time if point.is_compared else None
        gain = None if point.best.setting == first else point.gain
        cells.append([
            *("unset" if values[n] == UNSET else values[n] for n in names),
            _time_texts(point)[point.best.setting],
            " ".join(f"{n} {mark}" for n, mark in others if n),
            ratio_text(ratio(second, point.best.time)),
            ratio_text(gain), ratio_interval_text(gain),
        ])  # fmt: skip
    headings = [clean(name).replace("_", "_\n") for name in names]
    figures = ["time", "others", "second /\nshortest", "first /\nshortest", "its 95 %\ninterval"]
    return _join(result, (headings + figures, cells), _selections(result), left=headings)


def _times(result: SweepResult, mark_first: bool = False) -> Columns:
    """A time for each setting, with the mark of its place after it or before it."""
    cells = []
    for point in result.points:
        texts = _time_texts(point)
        cells.append([
            _with_mark(texts[each.setting], _mark(point, each), mark_first)
            if each
            else _with_mark(_why_no_time(result, point, index), " ", mark_first)
            for index, each in enumerate(point.times)
        ])  # fmt: skip
    return [f"{_heading(result, s)}  " for s in result.sweep.settings], cells


def _with_mark(text: str, mark: str, mark_first: bool) -> str:
    return f"{mark} {text}".strip() if mark_first else f"{text} {mark}"


def _time_texts(point: SweepPoint) -> dict[Setting, str]:
    """The times of a point with the digits that their intervals support."""
    by_time = point.by_time
    texts = format_known_times([each.time for each in by_time])
    return {each.setting: text for each, text in zip(by_time, texts, strict=True)}


def _mark(point: SweepPoint, each: SettingTime) -> str:
    if not point.is_compared:
        return " "
    if each is point.best:
        return BEST
    return TIED if each.is_tied else UNDECIDED if each.is_undecided else " "


def _why_no_time(result: SweepResult, point: SweepPoint, index: int) -> str:
    """Why a setting has no time for a case: the status of its row, or that it was not measured."""
    found = result.settings[index]
    varied = varied_fields(result.sweep.settings)
    for row in found.rows:
        case = row.measurement.case
        same = case.size_bytes == point.case.size_bytes
        if same and case.title_without(*varied) == point.kind:
            return "no time" if row.measurement.status == "ok" else row.measurement.status
    return "failed" if found.failure else "-"


def _ratios(result: SweepResult) -> Columns:
    """A ratio with its interval for each setting but the first, and but those without a time."""
    settings = result.sweep.settings
    shown = [
        index
        for index in range(1, len(settings))
        if any(each and each.ratio for each in (p.times[index] for p in result.points))
    ]
    headings: list[str] = []
    for index in shown:
        headings += [_over(result, settings[index], settings[0]), "95 %\ninterval"]
    cells = []
    for point in result.points:
        ratios = [each.ratio if (each := point.times[index]) else None for index in shown]
        cells.append([text for r in ratios for text in (ratio_text(r), ratio_interval_text(r))])
    return headings, cells


def _heading(result: SweepResult, setting: Setting) -> str:
    """The values of a setting as a heading, one below the other."""
    values = dict(setting.values)
    names = (name for name, _ in make_axes(result.sweep.settings))
    return "\n".join("unset" if values[n] == UNSET else clean(values[n]) for n in names)


def _over(result: SweepResult, setting: Setting, first: Setting) -> str:
    """The heading of a ratio."""
    name, other = _heading(result, setting), _heading(result, first)
    return f"{name}\nratio" if "\n" in name else f"{name} /\n{other}"


def _selections(result: SweepResult) -> Columns:
    """What NCCL selected under the fastest setting; no column for other backends."""
    if result.selections is None:
        return [], [[] for _ in result.points]
    found = [find_selection(point, result.selections) for point in result.points]
    cells = [[f"{f.algorithm} {f.protocol} x{f.channels}" if f else ""] for f in found]
    return ["NCCL selected"], cells


# What follows the table.


RANK_HEADINGS = ("setting", "alone\nfastest", "fastest\nor tied", "time over\nbest time")


def rank_rows(result: SweepResult) -> list[tuple[str, ...]]:
    """The settings by their time over all cases, as cells under RANK_HEADINGS. Of two settings the
    sentence says it: then there are none."""
    ranks = rank_settings(judged_points(result.points))
    if len(ranks) < 3:
        return []
    return [
        (result.names[r.setting], str(r.won), str(r.tied), f"{r.times_best:.2f}") for r in ranks
    ]


def rank_title(result: SweepResult) -> str:
    """What the settings are ranked by."""
    of_steps = any(point.case.step for point in result.points)
    return "All steps together" if of_steps else "All cases together"


def _ranking_text(result: SweepResult) -> str:
    rows = rank_rows(result)
    if not rows:
        return ""
    more = len(rows) - MOST_RANKED
    lines = [style(f"{rank_title(result)}:", BOLD)]
    lines += table(RANK_HEADINGS, rows[:MOST_RANKED], left="setting")
    return "\n".join([*lines, f"  and {more} more"] if more > 0 else lines)


def _warnings_text(result: SweepResult, most: int | None) -> str:
    """The warnings about the runs, each with the settings concerned."""
    rows = [row for each in result.settings for row in each.rows]
    text = warnings_text(rows, partial(name_settings, result), most, str(result.path))
    return in_rounds(result, text)


def in_rounds(result: SweepResult, text: str) -> str:
    """A text about the launches of a run, for a sweep, whose rounds are these launches."""
    text = re.sub(r"--launches \d+", f"--rounds {max(6, 2 * result.sweep.rounds)}", text)
    text = re.sub(r"^(\s*)launches \(", r"\1rounds (", text, flags=re.MULTILINE)
    return re.sub(r"medians(\s+)of(\s+)launches", r"medians\1of\2rounds", text)


def name_settings(result: SweepResult, rows: Sequence[ResultRow]) -> str:
    """Of which settings some rows are: `under plain`."""
    names = {setting.name: name for setting, name in result.names.items()}
    concerned = list(dict.fromkeys(names[row.header.label] for row in rows))
    return f"under {list_some(concerned, MOST_NAMED)}"


def _failures_text(result: SweepResult) -> str:
    lines = [wrapped(text, "", 2) for text in describe_failures(result)]
    return "\n".join([style("Failed:", BOLD), *lines]) if lines else ""


def describe_failures(result: SweepResult) -> list[str]:
    """The settings that were not measured in full, each with its error in plain words."""
    lines = []
    for each in result.settings:
        if each.failure:
            text = f"{each.setting.name}: {plain_reason(each.failure)}"
            if each.rounds < result.sweep.rounds:
                text += f" ({each.rounds} of {result.sweep.rounds} rounds measured)"
            lines.append(text)
    return lines
