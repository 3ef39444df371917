"""What a document of comparisons says: the answer, ranges of sizes, rows, and what limits it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from math import inf
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from commbench.analysis.advice import FEW_LAUNCHES, PRECISION, more_precisely
from commbench.analysis.csv_file import make_csv
from commbench.analysis.load import LoadedRun
from commbench.analysis.row_names import format_range, name_rows, named_bytes, short_titles
from commbench.compare.both_runs import (
    difference_tables,
    host_notes,
    launches_note,
    launches_of,
    run_warnings,
    unread_notes,
)
from commbench.compare.comparison import (
    COLUMNS,
    ComparedRow,
    Comparison,
    Crossover,
    distinct_names,
    flat_rows,
)
from commbench.compare.pooling import PooledRatio
from commbench.compare.ratio import OVERLAP, SIGNIFICANCE
from commbench.compare.sentences import (
    far_end,
    format_part,
    pooled_sentences,
    smallest_differences,
)
from commbench.output.paragraphs import join_words
from commbench.report.run_notes import typed_name
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import CHANGED, FASTER, NOT_COMPARED, SAME, SLOWER, UNDECIDED
from commbench.units import format_count
from commbench.views.cells import (
    BANDWIDTH,
    BYTES,
    P_VALUE,
    RATIO,
    RATIO_INTERVAL,
    TEXT,
    TIME,
    Column,
)
from commbench.views.document import (
    BAD,
    GOOD,
    Block,
    Document,
    Folded,
    Items,
    Pictures,
    Section,
    Table,
    Text,
)
from commbench.views.formats import View
from commbench.views.pictures import Picture

MOST_CHARACTERS = 200
"""Of the names of rows in a sentence."""
MOST_ROWS = 20
"""Rows of one comparison that a terminal lists, unless all are asked for."""
MOST_REPEATED = 4
"""Rows that only repeat the sentences are listed where there are at most so many."""
MOST_CROSSOVERS = 3
MOST_SENTENCES = 6
"""Sentences of the answer; of more ranges of sizes, a summary and a table."""
P5 = "The column p5 compares undisturbed calls: the 5th percentiles of the times."
_IN_A_NOTE = "unread_variables"
"""The warning that a note says for both runs."""
_TONES = {SLOWER: BAD, FASTER: GOOD}


class Comparisons(NamedTuple):
    """Several runs, each compared with the first."""

    comparisons: Sequence[Comparison]


def document(found: Comparison | Comparisons) -> Document:
    """One comparison, or several with the same run A."""
    comparisons = [found] if isinstance(found, Comparison) else found.comparisons
    runs = [comparisons[0].a, *(each.b for each in comparisons)]
    names = distinct_names(runs)
    if len(comparisons) == 1:
        (only,) = comparisons
        answer, blocks = _answer(only), _blocks(only)
        return Document(f"A = {names[0]}, B = {names[1]}", (), answer, [_sides(only), *blocks])
    return Document(
        f"{join_words(names[1:])} against {names[0]}",
        (),
        [
            f"{name} against {names[0]}: {_count_line(each)}"
            for name, each in zip(names[1:], comparisons, strict=True)
        ],
        [
            Section(
                f"A = {names[0]}, B = {name}",
                [Items(_answer(each)), _sides(each), *_blocks(each)],
            )
            for name, each in zip(names[1:], comparisons, strict=True)
        ],
    )


def _answer(found: Comparison) -> list[str]:
    """The sentences of the ranges of sizes; of many, a summary."""
    sentences = pooled_sentences(found)
    if len(sentences) > MOST_SENTENCES:
        sentences = [_summary(found)]
    return [*sentences, *filter(None, [smallest_differences(found)])]


def _summary(found: Comparison) -> str:
    """How many ranges of sizes are slower, faster, the same or undecided."""
    counts = {
        verdict: sum(pooled.verdict == verdict for pooled in found.pooled)
        for verdict in (SLOWER, FASTER, SAME, UNDECIDED)
    }
    words = [f"{verdict} in {number}" for verdict, number in counts.items() if number]
    return f"Of {len(found.pooled)} ranges of sizes, {found.b.name} is {join_words(words)}."


def _blocks(found: Comparison) -> list[Block]:
    blocks: list[Block] = [_ranges(found)] if len(found.pooled) > 1 else []
    first, *_ = warnings = _warnings(found) or [[]]
    blocks += [Items(first)] if first else []
    blocks += [Text(_count_line(found)), _rows(found), Items(_explanations(found))]
    if found.crossovers:
        blocks.append(_crossovers(found.crossovers))
    has_p5 = any(row.undisturbed for row in found.rows)
    blocks.append(Items([P5] * has_p5 + [f"{t[0].upper()}{t[1:]}." for t in _notes(found)]))
    blocks += difference_tables(found)
    if len(warnings) > 1:
        blocks.append(Folded("All warnings of the runs", [Items(warnings[1])]))
    return [*blocks, Pictures(lambda: _pictures(found))]


def _pictures(found: Comparison) -> Sequence[Picture]:
    from commbench.compare.plot import comparison_pictures

    return comparison_pictures([found])


SIDE_COLUMNS = (
    Column("", itemgetter(0), TEXT),
    Column("run", lambda side: side[1].name, TEXT, 8, is_wrapped=True),
    Column("path", lambda side: side[1].path, TEXT, 8, is_wrapped=True),
    Column("rows", lambda side: _extent(side[1]), TEXT),
)


def _sides(found: Comparison) -> Table:
    return Table("Runs", SIDE_COLUMNS, (("A", found.a), ("B", found.b)))


# The ranges of sizes, and the rows.


def _verdict(row: ComparedRow | PooledRatio) -> str:
    """The verdict on a row or range: `slower`, `same within 4 %`, `undecided`."""
    if row.verdict == SAME and row.ratio and row.ratio.has_interval:
        return f"same within {format_part(far_end(row.ratio))}"
    return row.verdict


RANGE_COLUMNS = (
    Column("B/A", attrgetter("ratio"), RATIO),
    Column("95 %\ninterval", attrgetter("ratio"), RATIO_INTERVAL, 8),
    Column("verdict", _verdict, TEXT),
    Column("p5\nB/A", attrgetter("undisturbed"), RATIO, 5),
    Column("p5 95 %\ninterval", attrgetter("undisturbed"), RATIO_INTERVAL, 3, is_detail=True),
    Column("p5\nverdict", attrgetter("undisturbed_verdict"), TEXT, 4),
)


def _ranges(found: Comparison) -> Table:
    """The ranges of sizes; first those where B is slower or faster."""
    cases = {k: next(rows).a.case for k, rows in groupby(found.rows, attrgetter("kind"))}
    short = short_titles(cases)

    def label(pooled: PooledRatio) -> str:
        return f"{short[pooled.kind]} {format_range(pooled.low_bytes, pooled.high_bytes)}".strip()

    rows = sorted(found.pooled, key=lambda pooled: pooled.verdict not in CHANGED)
    return Table("Ranges of sizes", RANGE_COLUMNS, rows, label, tone=_tone)


def _tone(row: ComparedRow | PooledRatio) -> str:
    return _TONES.get(row.verdict, "")


def _if_compared(name: str) -> Callable[[ComparedRow], Estimate | None]:
    return lambda row: None if row.verdict == NOT_COMPARED else getattr(row, name)


ROW_COLUMNS = (
    Column("size", lambda row: row.a.size_bytes if row.a.dtype else None, BYTES),
    Column("A time", attrgetter("a.time"), TIME),
    Column("B time", attrgetter("b.time"), TIME),
    Column("A busbw\nGB/s", attrgetter("a.busbw"), BANDWIDTH, 3, is_detail=True),
    Column("B busbw\nGB/s", attrgetter("b.busbw"), BANDWIDTH, 3, is_detail=True),
    Column("B/A", _if_compared("ratio"), RATIO),
    Column("95 %\ninterval", _if_compared("ratio"), RATIO_INTERVAL, 8),
    Column("p5\nB/A", _if_compared("undisturbed"), RATIO, 5),
    Column("rank\ntest p", attrgetter("p_value"), P_VALUE, 4, is_detail=True),
    Column("verdict", _verdict, TEXT),
)


def _rows(found: Comparison) -> Table:
    """All rows; in a terminal those that matter."""
    brief = _without_repeated(found)
    if len(brief) > MOST_ROWS:
        chosen = {id(row) for row in sorted(brief, key=_importance)[:MOST_ROWS]}
        brief = [row for row in brief if id(row) in chosen]
    title = "Rows: B/A is the time of B over the time of A"
    return Table(title, ROW_COLUMNS, found.rows, attrgetter("kind"), tone=_tone, brief=brief)


def _without_repeated(found: Comparison) -> Sequence[ComparedRow]:
    """The rows without those that only repeat the sentences: they are undecided, or the same in a
    range of sizes that is neither slower nor faster. A few of these are kept."""
    is_in_changed = _rows_in_ranges(found, *CHANGED)
    kept = [
        row
        for row in found.rows
        if row.verdict != UNDECIDED and (row.verdict != SAME or is_in_changed(row))
    ]
    return kept if len(found.rows) - len(kept) > MOST_REPEATED else found.rows


def _importance(row: ComparedRow) -> float:
    """A key that sorts rows: first those that are not compared, then those that differ most, with
    two digits: rows that hardly differ keep their order."""
    if not row.ratio:
        return -inf
    return -float(f"{max(row.ratio.value, 1 / row.ratio.value):.2g}")


def _rows_in_ranges(found: Comparison, *verdicts: str) -> Callable[[ComparedRow], bool]:
    """Tells of a row whether it is in a range of sizes with one of these verdicts."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for pooled in found.pooled:
        if pooled.verdict in verdicts:
            ranges.setdefault(pooled.kind, []).append((pooled.low_bytes, pooled.high_bytes))
    return lambda row: any(
        low <= named_bytes(row.a) <= high for low, high in ranges.get(row.kind, ())
    )


def _count_line(found: Comparison) -> str:
    """How many rows are slower, faster, the same, undecided, or not compared."""
    undecided = [row for row in found.rows if row.verdict == UNDECIDED]
    same = sum(map(_rows_in_ranges(found, SAME), undecided))
    more = {UNDECIDED: f" ({same} of them in a range of sizes without a difference)" * (same > 0)}
    parts = [
        f"{number} {'the ' * (verdict == SAME)}{verdict}{more.get(verdict, '')}"
        for verdict, number in found.counts.items()
        if number
    ]
    alone = len(found.only_a) + len(found.only_b)
    parts += [f"{alone} in one run only"] if alone else []
    common = f"{format_count(len(found.rows), 'row')} in common"
    return f"{common}: {', '.join(parts)}. Up to {found.tolerance * 100:g} % counts as the same."


CROSSOVER_COLUMNS = (
    Column("B is", attrgetter("below"), TEXT),
    Column("at", attrgetter("below_bytes"), BYTES),
    Column("and", attrgetter("above"), TEXT),
    Column("at ", attrgetter("above_bytes"), BYTES),
)


def _crossovers(found: Sequence[Crossover]) -> Table:
    kind = attrgetter("kind")
    title = "Between which sizes the verdict turns"
    return Table(title, CROSSOVER_COLUMNS, found, kind, brief=found[:MOST_CROSSOVERS])


# What limits the answer.


def _explanations(found: Comparison) -> list[str]:
    """Each remark on rows, with those rows, but for the common one that an interval is wide; and
    the rows that only one side has."""
    concerned: dict[str, list[Any]] = {}
    for row in found.rows:
        if row.reason not in ("", OVERLAP):
            concerned.setdefault(row.reason, []).append(row.a)
    common = [row.a for row in found.rows]
    texts = [
        f"{what[0].upper()}{what[1:]}: "
        + ("all rows." if len(rows) == len(common) > 1 else f"{_where(rows, common)}.")
        for what, rows in concerned.items()
    ]
    every = [*found.a.rows, *found.b.rows] if found.only_a or found.only_b else []
    for side, rows in (("A", found.only_a), ("B", found.only_b)):
        if rows:
            count = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
            texts.append(f"Only in {side} ({count}): {_where(rows, every)}.")
    return texts


def _where(rows: Iterable[Any], every: Iterable[Any]) -> str:
    """Which rows of results, of `every` row."""
    return name_rows(rows, every, MOST_CHARACTERS)


def _notes(found: Comparison) -> list[str]:
    """What limits the verdicts, and an option that would help and was not used."""
    texts = [*host_notes(found), *unread_notes(found)]
    weak = [
        (row.p_value, row.a)
        for row in found.rows
        if row.verdict in CHANGED and row.p_value is not None and row.p_value >= SIGNIFICANCE
    ]
    if weak:
        highest = max(p for p, _ in weak)
        p = f"p = {highest:.2g}" if len(weak) == 1 else f"p up to {highest:.2g}"
        where = _where((a for _, a in weak), (row.a for row in found.rows))
        texts.append(f"the change may be noise ({p} in the Mann-Whitney test): {where}")
    single = launches_note(found)
    texts += single
    if not single and any(pooled.verdict == UNDECIDED for pooled in found.pooled):
        texts.append(f"for a clearer answer {_advice(found)}")
    return texts


def _warnings(found: Comparison) -> list[list[str]]:
    """Of each run with warnings how many they are and the most important one; then each of them,
    with its explanation. A note says which variables the backend does not read."""
    both = (found.a, found.b)
    runs = dict(zip(distinct_names(both), both, strict=True))
    every = [warning for warning in run_warnings(both) if warning.name != _IN_A_NOTE]
    firsts = []
    for name, (first, *more) in groupby(every, attrgetter("run")):
        count = f"{len(more) + 1} warnings, first" if more else "1 warning"
        run = runs[name].run
        command = f" See `commbench show {typed_name(run)} --warnings`." if run else ""
        firsts.append(f"{name} has {count}: {first.what}.{command}")
    texts = [f"{warning.run}: {warning.what}. {warning.explanation}" for warning in every]
    return [firsts, texts] if firsts else []


def _advice(found: Comparison) -> str:
    """What makes intervals narrower, and was not done yet in both runs."""
    headers = [run.header for run in (found.a, found.b) if run.header]
    adaptive = [header for header in headers if header.plan.iterations is None]
    loose = [
        header
        for header in adaptive
        if header.plan.precision > PRECISION or header.plan.launches < FEW_LAUNCHES
    ]
    if loose or not headers:
        return f"measure both again with {more_precisely(loose[0] if loose else None)}"
    if len(adaptive) < len(headers):
        most = max(headers, key=lambda header: header.plan.iterations or 0)
        return f"measure both again with {more_precisely(most)}"
    return "measure on a quieter host (`commbench doctor`), or allow more (--tolerance)"


def _extent(run: LoadedRun) -> str:
    rows = len(run.rows)
    launches = launches_of(run)
    parts = [f"{rows} {'row' if rows == 1 else 'rows'}"]
    if launches:
        parts.append(f"{launches} {'launch' if launches == 1 else 'launches'}")
    if run.run is None:
        parts.append("no samples")
    elif run.run.end is None:
        parts.append("not ended")
    elif run.run.end.status != "complete":
        parts.append(run.run.end.status)
    elif run.run.incomplete:
        parts.append(f"incomplete: {run.run.incomplete}")
    return ", ".join(parts)


def _csv(found: Comparisons) -> str:
    """Every row of either side as CSV; the columns `a` and `b` name the sides."""
    rows = ((c.a.name, c.b.name, *row) for c in found.comparisons for row in flat_rows(c))
    return make_csv([("a", "b", *COLUMNS), *rows])


VIEW = View(document, schema=2, more={"csv": _csv})
