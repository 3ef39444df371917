"""What a document of a sweep says: the fastest settings, times, ranges of sizes, and what limits
them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from shlex import quote
from typing import Any

from commbench.analysis.clearer import FEW_LAUNCHES
from commbench.answers.compare.causes import MOST_LAUNCHES
from commbench.answers.compare.document import RANGE_COLUMNS, name_range
from commbench.answers.show import run_notes
from commbench.answers.show.run_document import within_note
from commbench.answers.sweep import ranking
from commbench.answers.sweep.ranges import judge_point
from commbench.answers.sweep.result import TUNER, SweepResult, make_tuner_ranges
from commbench.answers.sweep.runner import plain_reason
from commbench.answers.sweep.sentences import answers, before_all, bits_sentences, short_kinds
from commbench.answers.sweep.settings import make_axes, shown_value
from commbench.output.text import list_some
from commbench.stats import SLOWER, UNDECIDED, collect
from commbench.units import format_count
from commbench.views import cells
from commbench.views.cells import Column
from commbench.views.document import BAD, Block, Code, Document, Items, Pictures, Table
from commbench.views.formats import View

MOST_ROWS = 24
"""Rows of times in a terminal."""
MOST_COMPARED = 3
"""Settings that a terminal shows against the fastest one: of more, the best and the worst."""
MOST_RANKED = 12
MOST_DRAWN = 10
"""Pictures; `commbench sweep` draws all of them."""
MOST_SENTENCES = 6
"""Sentences of the answer; of more, a summary."""
ENOUGH_ROUNDS = 3
_BEST = (ranking.FASTEST, ranking.SHORTEST, "")


def document(result: SweepResult) -> Document:
    """A sweep, as far as it was measured."""
    answer, items = answers(result), []
    if len(answer) > MOST_SENTENCES and result.ranks:
        best = result.names[result.ranks[0].setting]
        text = f"Over all {len(answer)} kinds of calls, {best} has the shortest times on average."
        answer, items = [*before_all(result), text], answer
    steps = [point for point in result.points if point.case.step]
    others = [point for point in result.points if not point.case.step]
    failed = [each for each in result.settings if each.failure]
    failed_columns = (
        Column("setting", attrgetter("setting.name"), cells.TEXT),
        Column("rounds", lambda each: f"{each.rounds} of {result.sweep.rounds}", cells.NUMBER),
        Column("error", lambda e: plain_reason(e.failure), cells.TEXT, 8, is_wrapped=True),
    )
    runs = (each.run for each in result.settings if each.run)
    within = [note for run in runs for note in within_note(run, "rounds") if result.compared]
    blocks = [
        run_notes.warnings_section(_warnings(result)),
        Items(items),
        Items(bits_sentences(result)),
        Pictures(lambda: _pictures(result)),
        *(_times(result, points) for points in (steps, others) if points),
        Items([*_by_chance(result), *within[:1], *_clearer(result)]),
        _ranges(result),
        *([_ranking(result)] if len(result.pooled) >= len(result.ranks) > 2 else []),
        Table("Failed", failed_columns, failed),
        *_lines_to_paste(result),
    ]
    return Document(_title(result), (), answer, blocks, tone=BAD if failed else "")


def _by_chance(result: SweepResult) -> Iterator[str]:
    """How many rows are slower by themselves, although the answer does not count that."""
    rows = number = 0
    for point in result.compared:
        _, best = judge_point(point, result.pooled)
        rows += sum(each.verdict == SLOWER and each.setting in best for each in point.by_time)
        number += len(point.by_time) - 1
    if rows:
        slower = "is slower by itself" if rows == 1 else "are slower by themselves"
        yield (
            f"{format_count(rows, 'row')} {slower}, but not with 95 % for all {number} rows "
            "together: the answer calls that undecided."
        )


def _clearer(result: SweepResult) -> Iterator[str]:
    """Whether there are few rounds, and what decides between settings that are not told apart."""
    rounds = result.sweep.rounds
    if result.compared and rounds < ENOUGH_ROUNDS:
        more = "another round may differ by more than these intervals"
        yield f"Use --rounds {ENOUGH_ROUNDS} or more: {more}."
    noisy = [each for each in result.pooled if each.pooled.verdict == UNDECIDED]
    is_open = any(not each.pooled.waited for each in noisy)
    if is_open and rounds < MOST_LAUNCHES and not result.missing_rounds:
        number = min(MOST_LAUNCHES, max(FEW_LAUNCHES, 2 * rounds))
        command = f"commbench sweep --resume {quote(str(result.path))} --rounds {number}"
        yield f"For a clearer answer add rounds: `{command}`."


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
    from commbench.answers.sweep.plot import sweep_pictures

    return sweep_pictures(result)[:MOST_DRAWN]


# The times.


def _times(result: SweepResult, points: Sequence[ranking.SweepPoint]) -> Table:
    """A row for each case and setting. A terminal shows, of many, the settings that are not known
    to be slower than the fastest, or the fastest."""
    rows = [
        (point, setting, row)
        for point in points
        for setting, row in zip(result.sweep.settings, point.rows, strict=True)
    ]
    is_shown = any(row and (row.waited or row.waited_rounds) for *_, row in rows)

    def waited(row: Any) -> float | None:
        """For how much of the time its ranks waited for a core, where any did so too long."""
        return row[2].row.queued_share if row[2] and is_shown else None

    columns = (
        Column("size", lambda row: row[0].size_bytes or None, cells.BYTES),
        Column("setting", lambda row: result.names[row[1]], cells.TEXT, 4, is_wrapped=True),
        Column("time", lambda row: row[2] and row[2].estimate and row[2].time.value, cells.TIME),
        Column("ratio", lambda row: row[2] and row[2].ratio, cells.RATIO, 6),
        Column("95 %\ninterval", lambda row: row[2] and row[2].ratio, cells.RATIO_INTERVAL, 5),
        Column("verdict", lambda row: _verdict(row[2]), cells.TEXT, 8),
        Column("waited\nfor a core", waited, cells.SHARE, 9),
        Column("NCCL selected", lambda row: _selected(row[2]), cells.TEXT, 3),
    )
    brief = rows
    for verdicts in ((*_BEST, ranking.TIED, UNDECIDED), _BEST):
        if len(brief) > MOST_ROWS:
            brief = [row for row in brief if row[2] and row[2].verdict in verdicts]
    title = "Times (geometric mean over rounds); ratio: to the shortest of the same case"
    return Table(title, columns, rows, lambda row: row[0].kind, brief=brief)


def _verdict(row: ranking.SettingTime | None) -> str:
    """How a setting does against the one with the shortest time, or why it has no time."""
    if row is None:
        return "not measured"
    if row.estimate is None:
        status = row.row.measurement.status
        return "no time" if status == "ok" else status
    return row.verdict


def _selected(row: ranking.SettingTime | None) -> str:
    """What NCCL selected; empty where that is not known."""
    found = row.selection if row else None
    return f"{found.algorithm} {found.protocol} x{found.channels}" if found else ""


# What follows the times.


def _ranges(result: SweepResult) -> Table:
    """Each setting and the one with the shortest times, for ranges of sizes."""
    names, titles = result.names, short_kinds(result)
    order = [*titles]
    sizes = Counter(point.kind for point in result.compared)  # one is in the table of times
    rows = [row for row in result.pooled if sizes[row.pooled.kind] > 1]
    rows.sort(key=lambda row: (order.index(row.pooled.kind), row.pooled.low_bytes))
    columns = [
        Column("setting", lambda row: names[row.setting], cells.TEXT, 5, is_wrapped=True),
        Column("other", lambda row: names[row.against], cells.TEXT, 5, is_wrapped=True),
        *map(_of_pooled, RANGE_COLUMNS),
    ]
    settings = collect((row.pooled.kind, row.setting) for row in result.pooled)
    brief = []
    for row in rows:
        same = settings[row.pooled.kind]
        if len({*same}) <= MOST_COMPARED or row.setting in (same[0], same[-1]):
            brief.append(row)
    title = "Ranges of sizes; ratio: the time under the setting over that under the other"
    return Table(title, columns, rows, lambda row: name_range(titles, row.pooled), brief=brief)


def _of_pooled(column: Column) -> Column:
    """A column of ranges of sizes, for their settings; that of 5th percentiles is a detail."""
    heading = column.heading.replace("B/A", "ratio")
    is_detail = column.is_detail or heading.startswith("p5")
    return column._replace(
        heading=heading, of=lambda row: column.of(row.pooled), is_detail=is_detail
    )


def _ranking(result: SweepResult) -> Table:
    """The settings by their time over all cases."""
    columns = (
        Column("setting", lambda rank: result.names[rank.setting], cells.TEXT, is_wrapped=True),
        Column("alone\nfastest", attrgetter("won"), cells.NUMBER),
        Column("fastest\nor tied", attrgetter("tied"), cells.NUMBER),
        Column("time over\nbest time", attrgetter("over_best"), cells.RATIO),
    )
    of_steps = any(point.case.step for point in result.points)
    title = "All steps together" if of_steps else "All cases together"
    return Table(title, columns, result.ranks, brief=result.ranks[:MOST_RANKED])


def _warnings(result: SweepResult) -> list[tuple[str, run_notes.RowsWarning]]:
    """The warnings about the runs, each with the settings concerned."""
    names = {setting.name: f"under {name}" for setting, name in result.names.items()}
    rows = [
        row for each in result.settings for row in each.rows
        if not ranking.is_beside(row.case, each.setting)
    ]  # fmt: skip
    varied = ranking.varied_fields(result.sweep.settings, [row.case for row in rows])
    found = run_notes.find_warnings(rows, lambda row: names[row.header.label], varied=varied)
    return [("", warning) for warning in found]


def _lines_to_paste(result: SweepResult) -> Iterator[Block]:
    """What measures the missing runs, and what exports the fastest settings."""
    resume = f"commbench sweep --resume {quote(str(result.path))}"
    # Where settings differ in what makes a case, their runs have no row in common.
    varied = ranking.varied_fields(result.sweep.settings, [row.case for row in result.rows])
    if missing := result.missing_rounds:
        runs = f"{missing} of {len(result.settings) * result.sweep.rounds} runs are missing"
        yield Code(f"{runs}. This measures them:", resume)
    elif len(result.settings) == 2 and result.compared and not varied:
        old, new = (quote(str(result.path / each.setting.slug)) for each in result.settings)
        lines = f"commbench compare {old} {new}\ncommbench check {new} --against {old}"
        yield Code("These compare both settings row by row, without and with a limit:", lines)
    if make_tuner_ranges(result.compared):
        text = "This writes the fastest settings as a configuration of NCCL's tuner plugin:"
        yield Code(text, f"{resume} --export {TUNER}")


VIEW = View(document, schema=4)
"""The JSON is that of the result."""
