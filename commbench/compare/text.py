"""A comparison as text: tables at most 80 columns wide, sentences as wide as the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from commbench.analysis.environment_diff import Difference
from commbench.compare import summary
from commbench.compare.comparison import ComparedRow, Comparison
from commbench.compare.ratio import FASTER, SAME, SLOWER, UNDECIDED
from commbench.compare.sentences import CHANGED, pooled_sentences, smallest_differences
from commbench.output.paragraphs import WIDTH, fill
from commbench.output.table import (
    BOLD,
    GREEN,
    RED,
    clean,
    labelled_table,
    style,
    table,
)

STYLES = {SLOWER: RED, FASTER: GREEN}
MOST_ROWS = 20
"""Rows of one comparison that are listed, unless all are asked for."""
MOST_REPEATED = 4
"""Rows that only repeat the sentences are listed where there are at most so many."""
MOST_SENTENCES = 12
MOST_ROWS_OF_ALL = 1000
MOST_CROSSOVERS = 3
P5 = "The column p5 compares undisturbed calls: the 5th percentiles of the times."
P_VALUE = "rank\ntest p"
_LONGEST_FACT = 25


def comparisons_text(comparisons: Sequence[Comparison], is_verbose: bool = False) -> str:
    """Comparisons for a terminal: the answer in sentences, the rows that matter, and the limits.

    `is_verbose` gives all rows, the p-values of the rank test, and all warnings about the runs.
    """
    return "\n\n".join(_comparison_text(found, is_verbose) for found in comparisons) + "\n"


def _comparison_text(found: Comparison, is_verbose: bool) -> str:
    first, second = summary.distinct_names((found.a, found.b))
    sentences = pooled_sentences(found)
    most = len(sentences) if is_verbose else MOST_SENTENCES
    answer = [*sentences[:most]]
    if len(sentences) > most:
        answer.append(f"{len(sentences) - most} more ranges of sizes: --verbose lists them.")
    answer += filter(None, [smallest_differences(found)])
    rows, rest = _choose_rows(found, is_verbose)
    parts = [
        "\n".join([style(clip(summary.title(first, second), WIDTH), BOLD), *_sides(found)]),
        "\n".join(map(_wrapped, answer)),
        "\n".join(map(_wrapped, summary.warning_lines(found, is_verbose))),
        _wrapped(f"{summary.count_line(found)} {rest}".strip()),
        *(_table_text(*found, is_verbose) for found in summary.grouped_lines(rows)),
    ]
    parts += [
        "\n".join(map(_wrapped, texts)) for texts in remarks(found, rows, is_verbose) if texts
    ]
    if found.mismatches:
        title = "These differ, and the runs are compared because of --force:"
        parts.append(facts_text(title, found.mismatches))
    if found.differences:
        title = "Other differences:" if found.mismatches else "What differs:"
        parts.append(facts_text(title, found.differences))
    return "\n\n".join(filter(None, parts))


def _choose_rows(found: Comparison, is_verbose: bool) -> tuple[Sequence[ComparedRow], str]:
    """The rows to print, in their order, and sentences about the others."""
    if is_verbose:
        more = len(found.rows) - MOST_ROWS_OF_ALL
        rest = f"{more} are not shown: --format csv has all." if more > 0 else ""
        return found.rows[:MOST_ROWS_OF_ALL], rest
    rows, others = _split_rows(found)
    option = "--verbose lists" if len(found.rows) <= MOST_ROWS_OF_ALL else "--format csv has"
    texts = [f"{summary.unlisted_text(others, found.rows)}: {option} them."] if others else []
    if len(rows) > MOST_ROWS:
        chosen = {id(row) for row in sorted(rows, key=_importance)[:MOST_ROWS]}
        rows = [row for row in rows if id(row) in chosen]
        texts.append(f"The {MOST_ROWS} rows that differ most are listed: {option} all.")
    return rows, " ".join(texts)


def _split_rows(found: Comparison) -> tuple[Sequence[ComparedRow], Sequence[ComparedRow]]:
    """The rows to list, and those that only repeat the sentences: they are undecided, or the same
    in a range of sizes that is neither slower nor faster. A few of the latter are listed too."""
    is_in_changed = summary.rows_in_ranges(found, *CHANGED)
    listed: list[ComparedRow] = []
    others: list[ComparedRow] = []
    for row in found.rows:
        is_same = row.verdict == SAME and not is_in_changed(row)
        (others if is_same or row.verdict == UNDECIDED else listed).append(row)
    return (listed, others) if len(others) > MOST_REPEATED else (found.rows, ())


def _importance(row: ComparedRow) -> float:
    """A key that sorts rows: first those that are not compared, then those that differ most, with
    two digits: rows that hardly differ keep their order."""
    if not row.ratio:
        return -inf
    return -float(f"{max(row.ratio, 1 / row.ratio):.2g}")


def _sides(found: Comparison) -> list[str]:
    rows = [
        (s.letter, clip(s.name, 20), _clip_start(s.path, 30), s.extent)
        for s in summary.sides(found)
    ]
    return table(("", "", "", ""), rows, left="")[2:]


def facts_text(title: str, facts: Sequence[Difference]) -> str:
    """Facts in which two sides differ, one a line."""
    rows = [(clip(fact.name, _LONGEST_FACT - 1), *_values(fact)) for fact in facts]
    headings = ("", "A", "B")
    return "\n".join([style(title, BOLD), *table(headings, rows, left=",A,B")])


def _values(fact: Difference) -> tuple[str, str]:
    """The two values; of values that are too long and begin alike, their ends."""
    first, second = (clip(text, _LONGEST_FACT) for text in (fact.a, fact.b))
    if first != second:
        return first, second
    first, second = (clip(text[::-1], _LONGEST_FACT)[::-1] for text in (fact.a, fact.b))
    return first, second


def _table_text(
    title: str, first: str, lines: Sequence[summary.TableLine], has_p_values: bool
) -> str:
    """A table under its title; `first` is the heading of its first column, empty for names."""
    headings = (first, *summary.HEADINGS[1:])
    columns = [*zip(headings, *(line.cells for line in lines), strict=True)]
    if has_p_values:
        columns.insert(-1, (P_VALUE, *(line.p_value for line in lines)))
    headings, *cells = zip(*(column for column in columns if any(column[1:])), strict=True)
    text = (table if first else labelled_table)(headings, cells, left="verdict")
    head, body = text[: -len(lines)], text[-len(lines) :]
    coloured = (
        style(row, STYLES[line.verdict]) if line.verdict in STYLES else row
        for row, line in zip(body, lines, strict=True)
    )
    return "\n".join([style(clip(title, WIDTH), BOLD), *head, *coloured])


def remarks(
    found: Comparison, rows: Sequence[ComparedRow], is_verbose: bool
) -> tuple[list[str], ...]:
    """Sentences below the tables of these rows: explanations, crossovers, and what limits the
    verdicts. `is_verbose` gives all crossovers."""
    most = len(found.crossovers) if is_verbose else MOST_CROSSOVERS
    crossovers = [f"Crossover of {summary.crossover_text(c)}." for c in found.crossovers[:most]]
    more = len(found.crossovers) - len(crossovers)
    crossovers += [f"{more} more crossovers: --verbose lists them."] if more else []
    has_p5 = any(row.a.time_p5_us and row.b.time_p5_us for row in rows)
    notes = [P5] if has_p5 else []
    notes += [f"{text[0].upper()}{text[1:]}." for text in summary.notes(found)]
    return summary.explanations(found), crossovers, notes


def _wrapped(text: str) -> str:
    return fill(text, rest="  ")


def _clip_start(text: str, width: int) -> str:
    """As clip, but with the end of the text, which tells paths apart."""
    safe = clean(text)
    return safe if len(safe) <= width else f"…{safe[1 - width :]}"


def clip(text: str, width: int) -> str:
    """Text from a file, safe to print and not too long."""
    safe = clean(text)
    return safe if len(safe) <= width else safe[: width - 1] + "…"
