"""A comparison as text, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.analysis.environment_diff import Difference
from commbench.compare import summary
from commbench.compare.comparison import Comparison
from commbench.compare.ratio import FASTER, SLOWER
from commbench.output.paragraphs import WIDTH, fill
from commbench.output.table import BOLD, GREEN, RED, clean, style, table

STYLES = {SLOWER: RED, FASTER: GREEN}
MOST_ROWS = 1000
"""Rows of one comparison that are printed; --format csv has all."""
MOST_CROSSOVERS = 20
_LONGEST_FACT = 30


def comparisons_text(comparisons: Sequence[Comparison]) -> str:
    """Comparisons for a terminal: the sides, the verdict, a table per kind, and the limits."""
    return "\n\n".join(map(_comparison_text, comparisons)) + "\n"


def _comparison_text(found: Comparison) -> str:
    first, second = summary.distinct_names((found.a, found.b))
    rows = found.rows[:MOST_ROWS]
    parts = [
        "\n".join([style(clip(f"{second} against {first}", WIDTH), BOLD), *_sides(found)]),
        _wrapped(summary.verdict_line(found)),
        *(
            _kind_text(kind, summary.make_lines(concerned))
            for kind, concerned in summary.by_kind(rows)
        ),
    ]
    if len(found.rows) > len(rows):
        parts.append(f"{len(found.rows) - len(rows)} more rows: --format csv has them all")
    parts += ["\n".join(map(_wrapped, texts)) for texts in _below(found) if texts]
    if found.mismatches:
        parts.append(facts_text("Not the same, compared all the same (--force):", found.mismatches))
    if found.differences:
        parts.append(facts_text("What differs:", found.differences))
    return "\n\n".join(parts)


def _sides(found: Comparison) -> list[str]:
    rows = [(s.letter, clip(s.name, 32), clip(s.path, 36), s.extent) for s in summary.sides(found)]
    return table(("", "", "", ""), rows, left="")[2:]


def facts_text(title: str, facts: Sequence[Difference]) -> str:
    """Facts in which two sides differ, one a line."""
    rows = [(clip(fact.name, _LONGEST_FACT), *_values(fact)) for fact in facts]
    headings = ("", "A", "B")
    return "\n".join([style(title, BOLD), *table(headings, rows, left=",A,B")])


def _values(fact: Difference) -> tuple[str, str]:
    """The two values; of values that are too long and begin alike, their ends."""
    first, second = (clip(text, _LONGEST_FACT) for text in (fact.a, fact.b))
    if first != second:
        return first, second
    first, second = (clip(text[::-1], _LONGEST_FACT)[::-1] for text in (fact.a, fact.b))
    return first, second


def _kind_text(kind: str, lines: Sequence[summary.TableLine]) -> str:
    columns = [*zip(summary.HEADINGS, *(line.cells for line in lines), strict=True)]
    headings, *cells = zip(*(column for column in columns if any(column[1:])), strict=True)
    text = table(headings, cells, left="verdict")
    head, body = text[: -len(lines)], text[-len(lines) :]
    coloured = (
        style(row, STYLES[line.verdict]) if line.verdict in STYLES else row
        for row, line in zip(body, lines, strict=True)
    )
    return "\n".join([style(clip(kind, WIDTH), BOLD), *head, *coloured])


def _below(found: Comparison) -> tuple[list[str], ...]:
    crossovers = [
        f"Crossover of {summary.crossover_text(c)}." for c in found.crossovers[:MOST_CROSSOVERS]
    ]
    more = len(found.crossovers) - len(crossovers)
    crossovers += [f"And {more} more crossovers: --format json lists them."] if more else []
    notes = [f"{text[0].upper()}{text[1:]}." for text in summary.notes(found)]
    return summary.explanations(found), crossovers, notes


def _wrapped(text: str) -> str:
    return fill(text, rest="  ")


def clip(text: str, width: int) -> str:
    """Text from a file, safe to print and not too long."""
    safe = clean(text)
    return safe if len(safe) <= width else safe[: width - 1] + "…"
