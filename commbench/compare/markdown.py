"""A comparison for a pull request: the verdict first, one table, the rest folded away."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.compare.comparison import Comparison
from commbench.compare.ratio import FASTER, SAME, SLOWER
from commbench.compare.summary import (
    HEADINGS,
    TableLine,
    crossover_text,
    kinds_of,
    left_out,
    lines_of,
    names_of,
    notes,
    reasons,
    sides,
    verdict_line,
)
from commbench.output.markdown import details, escape, table

SHORT = 24
"""A comparison of so many rows is shown whole; of a longer one only what differs is in sight."""
MOST_ROWS = 400
"""GitHub takes 65,536 characters in a comment."""
MARKS = {SLOWER: "🔴 slower", FASTER: "🟢 faster"}


def comparisons_markdown(comparisons: Sequence[Comparison]) -> str:
    """Each comparison under a heading of its own."""
    return "\n\n".join("\n".join(_comparison(found)) for found in comparisons)


def _comparison(found: Comparison) -> list[str]:
    first, second = names_of((found.a, found.b))
    lines = [f"### {escape(second)} against {escape(first)}", ""]
    lines += [f"**{escape(_headline(found))}.** {escape(verdict_line(found))}", ""]
    everything = [
        (kind, line)
        for kind, rows in kinds_of(found.rows.head(MOST_ROWS))
        for line in lines_of(rows)
    ]
    decided = [(kind, line) for kind, line in everything if line.verdict in MARKS]
    if len(everything) <= SHORT:
        lines += [*_table(everything), ""]
    else:
        lines += [*(_table(decided) if decided else []), ""]
        lines += [*details(f"All {len(everything)} rows", _table(everything)), ""]
    if len(found.rows) > MOST_ROWS:
        lines += [f"{len(found.rows) - MOST_ROWS} more rows are in `--format csv`.", ""]
    lines += [f"* Crossover of {escape(crossover_text(c))}." for c in found.crossovers[:SHORT]]
    lines += ["", *details("What was compared, and what limits it", _limits(found))]
    return lines


def _headline(found: Comparison) -> str:
    counts, (first, second) = found.counts, names_of((found.a, found.b))
    words = {SLOWER: f"slower than {first}", FASTER: "faster"}
    if not counts[SLOWER]:
        words[FASTER] = f"faster than {first}"
    told = [f"{word} in {counts[verdict]}" for verdict, word in words.items() if counts[verdict]]
    if not told and not counts[SAME]:
        return f"Whether {second} differs from {first} cannot be told"
    if not told:
        return f"{second} is the same as {first} in {counts[SAME]} of {len(found.rows)} rows"
    return f"{second} is {' and '.join(told)} of {len(found.rows)} rows"


def _table(lines: Sequence[tuple[str, TableLine]]) -> list[str]:
    rows = [(kind, *line.cells[:-1], MARKS.get(line.verdict, line.verdict)) for kind, line in lines]
    return table(("", *HEADINGS), rows, left=",verdict")


def _limits(found: Comparison) -> list[str]:
    who = [(s.letter, s.name, s.path, s.extent) for s in sides(found)]
    lines = [*table(("", "run", "path", ""), who, left=",run,path"), ""]
    lines += ["B/A is time over time: above 1, B is slower. Intervals are 95 %.", ""]
    explained = [f"{what}: {where}" for what, where in (*reasons(found), *left_out(found))]
    lines += [f"* {escape(text)}." for text in (*explained, *notes(found))]
    facts = [(fact.name, fact.a, fact.b) for fact in (*found.mismatches, *found.differences)]
    if facts:
        lines += ["", *table(("what differs", "A", "B"), facts, left="what differs,A,B")]
    return lines
