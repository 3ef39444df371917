"""What a document of comparisons says: the answer, ranges of sizes, rows, and what limits it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from math import inf, log
from operator import attrgetter, itemgetter
from textwrap import shorten
from typing import Any, NamedTuple

from commbench import stats
from commbench.analysis import diagnostics
from commbench.analysis.csv_file import make_csv
from commbench.analysis.load import distinct_names
from commbench.analysis.row_names import LONGEST, format_range, name_rows, short_titles
from commbench.answers.compare.causes import clearer, known_causes, launch_notes
from commbench.answers.compare.comparison import COLUMNS, Comparison
from commbench.answers.compare.pooling import PooledRatio, by_size_text
from commbench.answers.compare.ratio import APART, HOST, OVERLAP, WIDEST, ComparedRow, hold_together
from commbench.answers.show import run_notes
from commbench.answers.show.formats import meanings
from commbench.answers.show.numerics import bits_items
from commbench.errors import GATE_FAILS, NO_VERDICT_REACHED
from commbench.output.text import join_words
from commbench.plan.backends import usual_launch_spread
from commbench.units import format_count, format_share
from commbench.views import cells
from commbench.views import document as doc
from commbench.views.cells import Column
from commbench.views.formats import View

MOST_CHARACTERS = 200
"""Of the names of rows in a sentence."""
MOST_ROWS = 8
"""Rows of one comparison that a terminal lists, unless all are asked for."""
MOST_CROSSOVERS = 3
MOST_SENTENCES = 6
"""Sentences of the answer; of more ranges of sizes, a summary and a table."""
_TONES = {stats.SLOWER: doc.BAD, stats.FASTER: doc.GOOD}


class Comparisons(NamedTuple):
    """Several runs, each compared with the first."""

    comparisons: Sequence[Comparison]


def document(found: Comparison | Comparisons) -> doc.Document:
    """One comparison, or several with the same run A."""
    comparisons = [found] if isinstance(found, Comparison) else found.comparisons
    runs = [comparisons[0].a, *(each.b for each in comparisons)]
    first, *names = distinct_names(runs)
    titles = [f"{name} (B) compared with {first} (A)" for name in names]
    found_in = run_notes.run_warnings(runs, lambda case: any(c.covers(case) for c in comparisons))
    warnings = run_notes.warnings_section(found_in)
    if len(comparisons) == 1:
        (one,) = comparisons
        blocks, verdict = [warnings, *_blocks(one)], len(known_causes(one))
        return doc.Document(titles[0], (), _answer(one), blocks, verdict=verdict)
    sections = [
        doc.Section(title, [doc.Items(_answer(each)), *_blocks(each, is_counted=False)])
        for title, each in zip(titles, comparisons, strict=True)
    ]
    parts = zip(names, map(_counts, comparisons), strict=True)
    summary = [f"{name} against {first}: {part}." for name, part in parts]
    title = f"{join_words(names)} against {first}"
    return doc.Document(title, (), summary, [warnings, *sections])


def _answer(found: Comparison) -> list[str]:
    """What may have caused a change, then the sentences of the ranges of sizes; of many, a
    summary."""
    causes = known_causes(found)
    if len(found.pooled) <= MOST_SENTENCES:
        said = [text for _, text in pooled_sentences(found, causes)]
        return [*causes, *said, *_single_rows(found)]
    counts = Counter(pooled.verdict for pooled in found.pooled)
    words = [f"{verdict} in {number}" for verdict, number in sorted(counts.items())]
    waited = sum(pooled.waited > 0 for pooled in found.pooled)
    if waited and diagnostics.WAITED_SENTENCE not in "".join(causes):
        words[-1] += f" ({waited} because ranks waited for a core)"
    text = f"Of {len(found.pooled)} ranges of sizes, {found.b.name} is {join_words(words)}."
    changed = [each for each in found.pooled if each.verdict in stats.CHANGED]
    if changed:
        most = max(changed, key=lambda each: abs(log(each.ratio.value)))
        a, b = distinct_names([found.a, found.b])
        takes = cells.takes_text(most.ratio, b, a)
        text += f" Most: {_range_label(found)(most)}: {takes}{most.verdict}."
    return [*causes, text, *_single_rows(found)]


def _single_rows(found: Comparison) -> Iterator[str]:
    """The rows that are slower, or faster, where their range of sizes is not."""
    for verdict in stats.CHANGED:
        alike = [pooled for pooled in found.pooled if pooled.verdict == verdict]
        rows = [r for r in found.confirmed(verdict) if not any(p.covers(r) for p in alike)]
        rows.sort(key=_importance)
        if rows:
            of_all = f"{len(rows)} of {format_count(len(found.rows), 'row')}"
            most = cells.ratio_with_interval_text(rows[0].ratio)
            yield (
                f"{of_all} {'is' if len(rows) == 1 else 'are'} {verdict} with 95 % for all rows: "
                f"{'most of all ' * (len(rows) > 1)}{rows[0].a.case.name}, {most} times as long."
            )


def find_slower(comparisons: Sequence[Comparison]) -> tuple[int, str]:
    """The exit code of `compare --fail-if-slower`, and why it is not 0."""
    rows = [row for each in comparisons for row in each.rows]
    confirmed = [row for each in comparisons for row in each.confirmed(stats.SLOWER)]
    slower, every = ([row.a for row in own] for own in (confirmed, rows))
    alone = sum(row.verdict == stats.SLOWER for row in rows)
    if any(each.is_slower for each in comparisons):
        names = name_rows(slower, every, LONGEST)
        verb = "is" if len(slower) == 1 else "are"
        what = f"{format_count(len(slower), 'row')} ({names}) {verb}" if slower else "sizes are"
        for_all = ", with 95 % for all together" * (alone > len(slower) > 0)
        return GATE_FAILS, f"{what} slower than in {comparisons[0].a.name}{for_all}"
    limit = 1 + comparisons[0].tolerance
    by_host = (APART, HOST.format(stats.SLOWER))
    judged = [(r, r.ratio) for r in rows if r.ratio and r.verdict != stats.NOT_COMPARED]
    overlap = [own for row, own in judged if row.reason == OVERLAP]
    unsure = sum(own.value > limit for own in overlap)
    found = {
        "ranks waited for a core": sum(bool(row.waited) for row in rows),
        "the host may be why calls took longer": sum(
            row.reason in by_host and own.value > 1 for row, own in judged
        ),
        "slower, but not for all rows together,": alone,
        "the ratio is above the tolerance, but not its whole interval,": unsure,
        f"an interval of more than a factor of {WIDEST:g}": sum(
            own.value <= limit and own.is_wider(WIDEST) for own in overlap
        ),
    }
    why = [f"{what} in {format_count(number, 'row')}" for what, number in found.items() if number]
    known = {id(row) for row in confirmed}
    beyond = [r for r, own in judged if own.value > limit and not (r.waited or id(r) in known)]
    if beyond := [row for row in beyond if not cells.is_too_noisy(row.ratio)]:
        most = max(beyond, key=attrgetter("ratio.value"))
        times = cells.times_text(most.ratio, "as long")
        why.append(f"the largest ratio: {name_rows([most.a], every, LONGEST)}, {times}")
    return (NO_VERDICT_REACHED, f"no verdict: {'; '.join(why)}") if why else (0, "")


def pooled_sentences(found: Comparison, causes: Sequence[str]) -> list[tuple[str, str]]:
    """For each range of sizes its kind of case, and the pooled ratio with its verdict; the steps of
    a workload first, then ranges where B is slower or faster. `causes` are its known_causes."""
    a, b = distinct_names([found.a, found.b])
    is_told = diagnostics.WAITED_SENTENCE in "".join(causes)
    label, across = _range_label(found), found.setting and f"{found.setting}, "
    return [
        (
            pooled.kind,
            f"{label(pooled)}: {across}{cells.takes_text(pooled.ratio, b, a)}{pooled.verdict}"
            f"{by_size_text([pooled])}{_why(pooled, is_told, found.tolerance)}.",
        )
        for pooled in _ordered_ranges(found)
    ]


def _why(pooled: PooledRatio, is_told: bool, tolerance: float) -> str:
    """Why it has no verdict, or what nearly undisturbed calls add to it; empty where they add
    nothing. `is_told`: it is said that ranks waited, which is enough where the interval decides
    nothing either."""
    if pooled.reason:
        noisy = f", {cells.TOO_NOISY_TO_COMPARE}" * cells.is_too_noisy(pooled.ratio)
        is_open = stats.decide(pooled.ratio, tolerance) not in stats.CHANGED
        return noisy if is_told and pooled.waited and is_open else f", {pooled.reason}"
    low, high = pooled.ratio.ends
    if pooled.verdict == stats.UNDECIDED:
        return _bounds(pooled.ratio)
    if not pooled.undisturbed:
        return ""
    calm = pooled.undisturbed_verdict
    times = cells.ratio_with_interval_text(pooled.undisturbed)
    what = f"; nearly undisturbed calls (5th percentile) take {times} times as long"
    least, most = pooled.undisturbed.ends
    is_nearer = 1 < most < low or high < least < 1 or calm == stats.SAME
    if pooled.verdict in stats.CHANGED and is_nearer:
        return f"{what}, so not every call changed as much"
    return ""


def _bounds(found: stats.Estimate) -> str:
    """How much slower or faster B is at most, by the interval; empty for one that is wider than
    WIDEST."""
    if not found.has_interval or found.is_wider(WIDEST):
        return ""

    def percent(fraction: float) -> str:
        return f"{max(1.0, round(100 * fraction, 1)):g} %"

    low, high = map(float, cells.ratio_interval_text(found).split(" … "))  # as the table has them
    slower = f"{high:g} times as long" if high >= 2 else f"{percent(high - 1)} slower"
    parts = [slower] * (found.ends[1] > 1) + [f"{percent(1 - low)} faster"] * (found.ends[0] < 1)
    return f"; at most {' or '.join(parts)}"


def _ordered_ranges(found: Comparison) -> list[PooledRatio]:
    steps = {row.kind for row in found.rows if row.a.step}
    return sorted(found.pooled, key=lambda p: (p.kind not in steps, p.verdict not in stats.CHANGED))


def _range_label(found: Comparison) -> Callable[[PooledRatio], str]:
    """How a range is called: its kind, without what is alike in all, and its sizes."""
    cases = {kind: next(rows).a.case for kind, rows in groupby(found.rows, attrgetter("kind"))}
    short = short_titles(cases)
    return lambda pooled: name_range(short, pooled)


def name_range(titles: Mapping[str, str], found: Any) -> str:
    """The title of a range's kind, and its sizes."""
    return f"{titles[found.kind]} {format_range(found.low_bytes, found.high_bytes)}".strip()


def _blocks(found: Comparison, is_counted: bool = True) -> list[doc.Block]:
    """All but the answer; `is_counted`: with how many rows have each verdict."""
    a, b = distinct_names([found.a, found.b])
    ranges = _ordered_ranges(found)
    unsure = [p for p in found.pooled if p.verdict == stats.UNDECIDED and not p.waited]
    advice = [f"{clearer(found, unsure)} Or allow more (--tolerance)."] if unsure else []
    return [
        doc.Pictures(lambda: _pictures(found)),
        doc.Table("Runs", SIDE_COLUMNS, (("A", found.a), ("B", found.b))),
        doc.Table(
            "Ranges of sizes", RANGE_COLUMNS, ranges,
            _range_label(found), tone=_tone, brief=ranges[:MOST_ROWS],
        ),
        doc.Text(
            f"{f'{_counts(found)}. ' * is_counted}Up to {found.tolerance * 100:g} % counts as the "
            f"same.{_allowance(found)}"
        ),
        _rows(found),
        bits_items((row.samples for row in found.rows if row.samples), a, b),
        doc.Items([*_remarks(found), *launch_notes(found), *advice]),
        doc.Table(
            "Between which sizes the verdict turns", CROSSOVER_COLUMNS, found.crossovers,
            attrgetter("kind"), brief=found.crossovers[:MOST_CROSSOVERS],
        ),
        *difference_tables(found),
        doc.Folded("What the columns mean", [doc.Facts(meanings("compare", "p5"))]),
    ]  # fmt: skip


def _pictures(found: Comparison) -> Sequence[Any]:
    from commbench.answers.compare.plot import comparison_pictures

    return comparison_pictures([found])


def _counts(found: Comparison) -> str:
    """How many rows are slower, faster, the same, undecided, or not compared."""
    parts = [f"{number} {verdict}" for verdict, number in found.counts.items() if number]
    alone = len(found.only_a) + len(found.only_b)
    parts += [f"{alone} in one run only"] if alone else []
    judged = ", each judged by itself" * (len(found.rows) > 1)
    return f"{format_count(len(found.rows), 'row')} in common{judged}: {', '.join(parts)}"


# The tables.


P5_COLUMNS = tuple(
    Column(heading, lambda row: _if_compared("undisturbed")(row), unit, 3, is_detail=True)
    for heading, unit in (("p5\nB/A", cells.RATIO), ("p5 95 %\ninterval", cells.RATIO_INTERVAL))
)
SIDE_COLUMNS = (
    Column("", itemgetter(0), cells.TEXT, is_wrapped=True),
    Column("run", lambda side: side[1].name, cells.TEXT, 8, is_wrapped=True),
    Column("path", lambda side: side[1].path, cells.TEXT, 8, is_wrapped=True),
    Column("rows", lambda side: len(side[1].rows), cells.NUMBER),
    Column("launches", lambda side: side[1].launches, cells.NUMBER),
    Column("samples", lambda side: "none" * ((side[1].run or side[1].history) is None), cells.TEXT),
    Column(
        "incomplete", lambda side: shorten(side[1].incomplete, 70), cells.TEXT, 8, is_wrapped=True
    ),
)
RANGE_COLUMNS = (
    Column("B/A", attrgetter("ratio"), cells.RATIO),
    Column("95 %\ninterval", attrgetter("ratio"), cells.RATIO_INTERVAL, 8),
    Column("verdict", attrgetter("verdict"), cells.TEXT),
    Column("a change\nshows from", attrgetter("smallest_difference"), cells.LEAST_FACTOR, 2),
    *P5_COLUMNS,
    Column("p5\nverdict", attrgetter("undisturbed_verdict"), cells.TEXT, 3, is_detail=True),
    Column("rows that\nwaited", lambda pooled: pooled.waited or None, cells.NUMBER, 9),
)


def _tone(row: ComparedRow | PooledRatio) -> str:
    return _TONES.get(row.verdict, "")


def _if_compared(name: str) -> Callable[[ComparedRow], stats.Estimate | None]:
    return lambda row: None if row.verdict == stats.NOT_COMPARED else getattr(row, name)


def _deciding(row: ComparedRow) -> stats.Estimate | None:
    """The ratio with the interval by which a change counts, where that is a wider one."""
    return hold_together(row, 1) if row.times_as_wide > 1 else None


ROW_COLUMNS = (
    Column("size", lambda row: row.a.size_bytes if row.a.dtype else None, cells.BYTES),
    Column("A time", lambda row: row.times[0], cells.TIME),
    Column("B time", lambda row: row.times[1], cells.TIME),
    Column("A busbw\nGB/s", attrgetter("a.busbw"), cells.BANDWIDTH, 3, is_detail=True),
    Column("B busbw\nGB/s", attrgetter("b.busbw"), cells.BANDWIDTH, 3, is_detail=True),
    Column("B/A", _if_compared("ratio"), cells.RATIO),
    Column("95 %\ninterval", _if_compared("ratio"), cells.RATIO_INTERVAL, 8),
    Column("interval that\ndecides", _deciding, cells.RATIO_INTERVAL, 4, is_detail=True),
    *P5_COLUMNS,
    Column("verdict", attrgetter("verdict"), cells.TEXT),
    Column("waited\nfor a core", attrgetter("waited"), cells.TEXT, 9),
)


def _rows(found: Comparison) -> doc.Table:
    """All rows; of many, a terminal shows those that differ most and those not compared."""
    brief: Sequence[ComparedRow] = found.rows
    if len(brief) > MOST_ROWS:
        decided = [row for row in brief if row.verdict not in (stats.SAME, stats.UNDECIDED)]
        chosen = {id(row) for row in sorted(decided, key=_importance)[:MOST_ROWS]}
        brief = [row for row in decided if id(row) in chosen]
    means = "means over launches; " * found.are_in_turns
    title = f"Rows: {means}B/A is the time of B over that of A"
    return doc.Table(title, ROW_COLUMNS, found.rows, attrgetter("kind"), tone=_tone, brief=brief)


def _importance(row: ComparedRow) -> float:
    """A key that sorts rows: first those that are not compared, then those that differ most, with
    two digits: rows that hardly differ keep their order."""
    if not row.ratio:
        return -inf
    return -float(f"{max(row.ratio.value, 1 / row.ratio.value):.2g}")


CROSSOVER_COLUMNS = (
    Column("B is", attrgetter("below"), cells.TEXT),
    Column("at", attrgetter("below_bytes"), cells.BYTES),
    Column("and", attrgetter("above"), cells.TEXT),
    Column("at ", attrgetter("above_bytes"), cells.BYTES),
)
DIFFERENCE_COLUMNS = (
    Column("", attrgetter("shown"), cells.TEXT, is_wrapped=True),
    Column("A", attrgetter("a"), cells.TEXT, is_wrapped=True),
    Column("B", attrgetter("b"), cells.TEXT, 8, is_wrapped=True),
)


def difference_tables(found: Comparison) -> list[doc.Table]:
    """In what the runs differ."""
    tables = {
        "What should not differ, compared with --force": found.mismatches,
        "What else differs" if found.mismatches else "What differs": found.differences,
    }
    return [doc.Table(title, DIFFERENCE_COLUMNS, facts) for title, facts in tables.items() if facts]


# What limits the answer.


def _allowance(found: Comparison) -> str:
    """That intervals allow for what differs between runs, where rows have any, or need not."""
    has_interval = any(row.runs and row.ratio and row.ratio.has_interval for row in found.rows)
    if found.are_in_turns or not has_interval:
        return ""
    usual = format_share(usual_launch_spread(found.rows[0].a.backend))
    allowance = f" Intervals also count that launches usually differ by {usual}, runs by as much."
    few = " Not in turns, a change counts only if an interval twice as wide shows it, too"
    few += " (--verbose)."
    return allowance + few * any(row.times_as_wide > 1 for row in found.rows)


def _remarks(found: Comparison) -> list[str]:
    """Each remark on rows, with those rows, but for the common one that an interval is wide, and
    for what a column says; and the rows that only one side has."""
    told = (row for row in found.rows if row.reason not in ("", OVERLAP) and not row.waited)
    concerned: dict[str, list[Any]] = stats.collect((row.reason, row.a) for row in told)
    concerned |= {"only in A": [*found.only_a], "only in B": [*found.only_b]}
    is_part = found.only_a or found.only_b
    every = [*found.a.rows, *found.b.rows] if is_part else [row.a for row in found.rows]
    return [
        f"{why[0].upper()}{why[1:]} ({'all ' * (len(rows) == len(every))}"
        f"{format_count(len(rows), 'row')})"
        f"{f': {name_rows(rows, every, MOST_CHARACTERS)}' * (len(rows) < len(every))}."
        for why, rows in concerned.items()
        if rows
    ]


def _csv(found: Comparison | Comparisons) -> str:
    """Every row of either side as CSV; the columns `a` and `b` name the sides."""
    own = found.comparisons if isinstance(found, Comparisons) else [found]
    rows = ((c.a.name, c.b.name, *row) for c in own for row in c.written_rows())
    return make_csv([("a", "b", *COLUMNS), *rows])


VIEW = View(document, schema=3, more={"csv": _csv})
