"""What a document of a sweep says: the fastest settings, times, ranges of sizes, and what limits
them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from shlex import quote
from typing import Any

from commbench.analysis.row_names import format_range
from commbench.analysis.rows import ResultRow
from commbench.compare.document import RANGE_COLUMNS
from commbench.output.paragraphs import list_some
from commbench.report.run_notes import find_warnings
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import UNDECIDED
from commbench.sweep.nccl_tuning import TUNER, find_selection, make_tuner_ranges
from commbench.sweep.ranking import BEST, TIED, PooledSetting, SettingTime, SweepPoint
from commbench.sweep.result import SweepResult
from commbench.sweep.runner import plain_reason
from commbench.sweep.sentences import MOST_NAMED, kind_sentences, short_kinds
from commbench.sweep.settings import Setting, make_axes, shown_value
from commbench.units import format_count, format_known_times
from commbench.views.cells import BYTES, NUMBER, RATIO, RATIO_INTERVAL, TEXT, Column
from commbench.views.document import (
    BAD,
    Block,
    Code,
    Document,
    Folded,
    Items,
    Pictures,
    Table,
)
from commbench.views.formats import View

MARKS = {BEST: "*", TIED: "=", UNDECIDED: "?"}
ENOUGH_ROUNDS = 3
MOST_COLUMNS = 5
"""Settings that have a column each; of more, each case has a row for each setting."""
MOST_ROWS = 24
"""Rows of settings that are not slower than the fastest one, in a terminal."""
MOST_COMPARED = 3
"""Settings that a terminal shows against the fastest one: of more, the best and the worst."""
MOST_RANKED = 12
MOST_DRAWN = 10
"""Pictures; `commbench sweep` draws all of them."""
MOST_SENTENCES = 6
"""Sentences of the answer; of more, a summary."""
_INTERVAL = "95 %\ninterval"


def document(result: SweepResult) -> Document:
    """A sweep, as far as it was measured."""
    answer, items = kind_sentences(result), []
    if len(answer) > MOST_SENTENCES:
        best = result.names[result.ranks[0].setting]
        text = f"Over all {len(answer)} kinds of cases, {best} has the shortest times on average."
        answer, items = [text], answer
    failures = describe_failures(result)
    blocks = [
        Items(items),
        *_times(result),
        Items(_notes(result)),
        _ranges(result),
        *([_ranking(result)] if len(result.ranks) > 2 else []),
        *([Items(failures, "Failed")] if failures else []),
        *_warnings(result),
        *_lines_to_paste(result),
        Pictures(lambda: _pictures(result)),
    ]
    return Document(_title(result), (), answer, blocks, tone=BAD if failures else "")


def _title(result: SweepResult) -> str:
    """What was varied, and on which ranks."""
    axes = [
        f"{name} ({list_some([*map(shown_value, values)], 8)})"
        for name, values in make_axes(result.sweep.settings)
    ]
    numbers = (len(result.settings), "setting"), (result.sweep.rounds, "round")
    parts = [format_count(*number) for number in numbers]
    plans = {each.run.header.plan for each in result.settings if each.run}
    targets = {(plan.world_size, plan.backend, plan.device) for plan in plans}
    if len(targets) == 1:
        ranks, backend, device = targets.pop()
        parts.append(f"{ranks} {backend} ranks on {device}")
    return f"Sweep of {', '.join(axes)}: {', '.join(parts)}."


def _pictures(result: SweepResult) -> Sequence[Any]:
    from commbench.sweep.plot import sweep_pictures

    return sweep_pictures(result)[:MOST_DRAWN]


# The times.


def _times(result: SweepResult) -> list[Table]:
    """A table of the steps of a workload, and one of all other cases."""
    steps = [point for point in result.points if point.case.step]
    others = [point for point in result.points if not point.case.step]
    layout = _row_for_each if len(result.sweep.settings) > MOST_COLUMNS else _column_for_each
    cells = _Cells(result)
    return [layout(result, cells, points) for points in (steps, others) if points]


class _Cells:
    """The times of a sweep as texts."""

    def __init__(self, result: SweepResult) -> None:
        self._indexes = {each: index for index, each in enumerate(result.sweep.settings)}
        self._failed = {each.setting for each in result.settings if each.failure}
        self._statuses = {
            (row.kind, row.size_bytes, row.setting): row.status for row in result.rows
        }
        self._texts: dict[int, str] = {}
        for point in result.points:
            texts = format_known_times([each.time for each in point.by_time])
            self._texts |= {id(e): text for e, text in zip(point.by_time, texts, strict=True)}

    def found(self, setting: Setting, point: SweepPoint) -> SettingTime | None:
        """The time of a point under a setting."""
        return point.times[self._indexes[setting]]

    def time(self, setting: Setting, point: SweepPoint) -> str:
        """It with its mark, or why there is none. The mark is first, so that the ends of the times
        are in line."""
        if found := self.found(setting, point):
            mark = MARKS.get(point.place(found), "") if point.is_compared else ""
            return f"{mark} {self._texts[id(found)]}".strip()
        unmeasured = "failed" if setting in self._failed else "-"
        status = self._statuses.get((point.kind, point.size_bytes, setting), unmeasured)
        return "no time" if status == "ok" else status

    def ratio(self, setting: Setting, point: SweepPoint) -> Estimate | None:
        """Its ratio to the time under the first setting."""
        found = self.found(setting, point)
        return found.ratio if found else None


def _column_for_each(result: SweepResult, cells: _Cells, points: Sequence[SweepPoint]) -> Table:
    """A row for each point, with columns for each setting."""
    first, *others = settings = result.sweep.settings
    columns = [Column("size", _size, BYTES)]
    columns += [Column(_heading(s, settings), partial(cells.time, s), NUMBER) for s in settings]
    for index, setting in enumerate(others):
        ratio = partial(cells.ratio, setting)
        name, other = _heading(setting, settings), _heading(first, settings)
        heading = f"{name}\nratio" if "\n" in name else f"{name} /\n{other}"
        columns.append(Column(heading, ratio, RATIO, 7 - index))
        columns.append(Column(_INTERVAL, ratio, RATIO_INTERVAL, 2))
    columns.append(Column("NCCL selected", lambda point: _selected(result, point), TEXT, 8))
    return Table("", columns, points, attrgetter("kind"))


def _row_for_each(result: SweepResult, cells: _Cells, points: Sequence[SweepPoint]) -> Table:
    """A row for each point and setting. A terminal shows the settings that are not known to be
    slower than the fastest, or, where these are many, the fastest."""
    columns = (
        Column("size", lambda row: _size(row[1]), BYTES),
        Column("setting", lambda row: result.names[row[0]], TEXT, is_wrapped=True),
        Column("time", lambda row: cells.time(*row), NUMBER),
        Column("ratio", lambda row: cells.ratio(*row), RATIO, 6),
        Column(_INTERVAL, lambda row: cells.ratio(*row), RATIO_INTERVAL, 5),
        Column("NCCL selected", lambda row: _selected(result, row[1], row[0]), TEXT, 4),
    )
    rows = [(setting, point) for point in points for setting in result.sweep.settings]
    brief = [(setting, point) for point in points for setting in point.not_slower]
    if len(brief) > MOST_ROWS:
        brief = [(point.best.setting, point) for point in points]
    return Table("", columns, rows, lambda row: row[1].kind, brief=brief)


def _size(point: SweepPoint) -> int | None:
    return point.size_bytes or None


def _heading(setting: Setting, settings: Sequence[Setting]) -> str:
    """The values of a setting, one below the other."""
    values = dict(setting.values)
    return "\n".join(shown_value(values[name]) for name, _ in make_axes(settings))


def _selected(result: SweepResult, point: SweepPoint, setting: Setting | None = None) -> str:
    """What NCCL selected under a setting, the fastest one by default; empty where not known."""
    found = find_selection(point, result.selections or {}, setting)
    return f"{found.algorithm} {found.protocol} x{found.channels}" if found else ""


# What follows the times.


def _notes(result: SweepResult) -> list[str]:
    """How the table is read, and whether there were enough rounds; empty if nothing is compared."""
    compared = [point for point in result.points if point.is_compared]
    if not compared:
        return []
    first, rounds = result.names[result.sweep.settings[0]], result.sweep.rounds
    texts = [
        f"Mark {MARKS[BEST]}: shortest time; it is the fastest setting where no other has a mark. "
        f"Ratios are times over the time under {first}."
    ]
    if any(len(point.tied) > 1 for point in compared):
        texts.append(
            f"Mark {MARKS[TIED]}: tied, at most {result.sweep.tolerance * 100:g} % slower than the "
            "shortest time with the whole interval."
        )
    if any(point.undecided for point in compared):
        texts.append(
            f"Mark {MARKS[UNDECIDED]}: undecided; it may be as fast as the setting with the "
            "shortest time, or slower. Neighbouring sizes together can decide what one row cannot."
        )
    if rounds < ENOUGH_ROUNDS:
        count = "One round is" if rounds == 1 else f"{rounds} rounds are"
        texts.append(
            f"{count} too few to distinguish settings: another round may differ by more than these "
            f"intervals. Use --rounds {ENOUGH_ROUNDS} or more."
        )
    return texts


def _ranges(result: SweepResult) -> Table:
    """Each setting against the one with the shortest times, for ranges of sizes."""
    names, titles = result.names, short_kinds(result)

    def label(row: PooledSetting) -> str:
        sizes = format_range(row.pooled.low_bytes, row.pooled.high_bytes)
        return f"{titles[row.pooled.kind]} {sizes}".strip()

    columns = [
        Column("A", lambda row: names[row.against], TEXT, 5, is_wrapped=True),
        Column("B", lambda row: names[row.setting], TEXT, 5, is_wrapped=True),
        *map(_of_pooled, RANGE_COLUMNS),
    ]
    brief: list[PooledSetting] = []
    for _, rows in groupby(result.pooled, attrgetter("pooled.kind")):
        same = [*rows]
        ends = (same[0].setting, same[-1].setting)
        is_short = len({row.setting for row in same}) <= MOST_COMPARED
        brief += [row for row in same if is_short or row.setting in ends]
    title = "Ranges of sizes: B/A is the time under B over that under A"
    return Table(title, columns, result.pooled, label, brief=brief)


def _of_pooled(column: Column) -> Column:
    """A column of ranges of sizes, for their settings."""
    return column._replace(of=lambda row: column.of(row.pooled))


def _ranking(result: SweepResult) -> Table:
    """The settings by their time over all cases."""
    columns = (
        Column("setting", lambda rank: result.names[rank.setting], TEXT, is_wrapped=True),
        Column("alone\nfastest", attrgetter("won"), NUMBER),
        Column("fastest\nor tied", attrgetter("tied"), NUMBER),
        Column("time over\nbest time", attrgetter("times_best"), RATIO),
    )
    of_steps = any(point.case.step for point in result.points)
    title = "All steps together" if of_steps else "All cases together"
    return Table(title, columns, result.ranks, brief=result.ranks[:MOST_RANKED])


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


def _warnings(result: SweepResult) -> list[Block]:
    """The warnings about the runs, each with the settings concerned."""
    rows = [row for each in result.settings for row in each.rows]
    found = find_warnings(rows, partial(_name_settings, result))
    lines = [f"{each.name} ({each.which}): {each.message}" for each in found]
    meanings = [
        f"{each.name}: {each.explanation}" + (f" Rows: {each.rows}." if each.rows else "")
        for each in found
    ]
    lines, meanings = ([_in_rounds(result, t) for t in texts] for texts in (lines, meanings))
    folded = Folded("What the warnings mean", [Items(meanings)])
    return [Items(lines, "Warnings"), folded] if found else []


def _in_rounds(result: SweepResult, text: str) -> str:
    """A text about the launches of a run, for a sweep, whose rounds are these launches."""
    text = re.sub(r"--launches \d+", f"--rounds {max(6, 2 * result.sweep.rounds)}", text)
    text = re.sub(r"^launches\b", "rounds", text)
    return text.replace("medians of launches", "medians of rounds")


def _name_settings(result: SweepResult, rows: Sequence[ResultRow]) -> str:
    """Of which settings some rows are: `under plain`."""
    names = {setting.name: name for setting, name in result.names.items()}
    concerned = list(dict.fromkeys(names[row.header.label] for row in rows))
    return f"under {list_some(concerned, MOST_NAMED)}"


def _lines_to_paste(result: SweepResult) -> list[Block]:
    """What measures the missing runs, and what exports the fastest settings."""
    resume = f"commbench sweep --resume {quote(str(result.path))}"
    blocks: list[Block] = []
    if missing := result.missing_rounds:
        runs = f"{missing} of {len(result.settings) * result.sweep.rounds} runs"
        text = f"{runs} are missing. This measures them:"
        if result.fails_again:
            text = f"{runs} failed. They fail again unless you change this host:"
        blocks.append(Code(text, resume))
    compared = [point for point in result.points if point.is_compared]
    if make_tuner_ranges(compared, result.selections or {}):
        text = "This writes the fastest settings as a configuration of NCCL's tuner plugin:"
        blocks.append(Code(text, f"{resume} --export {TUNER}"))
    return blocks


VIEW = View(document, schema=1)
