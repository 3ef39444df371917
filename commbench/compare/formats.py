"""FORMATS: the formats that comparisons are printed in; Markdown, CSV and JSON are written here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from commbench.analysis.csv_file import make_csv
from commbench.analysis.load import LoadedRun
from commbench.compare import summary
from commbench.compare.comparison import COLUMNS, Comparison, flat_rows, rounded
from commbench.compare.ratio import FASTER, SLOWER
from commbench.compare.sentences import pooled_sentences, smallest_differences
from commbench.compare.text import comparisons_text
from commbench.output.markdown import details, escape, table

SCHEMA = 1
"""Version of the JSON; raised when a field changes its meaning or goes."""


def comparisons_csv(comparisons: Sequence[Comparison]) -> str:
    """Every row of either side as CSV; the columns `a` and `b` name the sides."""
    rows = ((found.a.name, found.b.name, *row) for found in comparisons for row in flat_rows(found))
    return make_csv([("a", "b", *COLUMNS), *rows])


def comparisons_json(comparisons: Sequence[Comparison]) -> str:
    """Everything that is known about each comparison; null stands for what is not known."""
    document = {
        "schema": SCHEMA,
        "ratio": "time of b over time of a",
        "comparisons": [_as_json(found) for found in comparisons],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _as_json(found: Comparison) -> dict[str, Any]:
    return {
        "a": _side(found.a),
        "b": _side(found.b),
        "tolerance": found.tolerance,
        "counts": found.counts,
        "mismatches": [fact._asdict() for fact in found.mismatches],
        "differences": [fact._asdict() for fact in found.differences],
        "host_changes": [
            {"takes": change.takes, "ratio": rounded(change.ratio.median)}
            | {"ratio_ci_low": rounded(change.ratio.low)}
            | {"ratio_ci_high": rounded(change.ratio.high)}
            for change in found.host_changes
        ],
        "crossovers": [crossover._asdict() for crossover in found.crossovers],
        "sentences": list(found.sentences),
        "pooled": [
            {name: _finite(rounded(value)) for name, value in pooled._asdict().items()}
            | {"smallest_difference": _finite(rounded(pooled.smallest_difference))}
            for pooled in found.pooled
        ],
        "rows": [dict(zip(COLUMNS, map(_finite, row), strict=True)) for row in flat_rows(found)],
    }


def _side(run: LoadedRun) -> dict[str, Any]:
    return {"name": run.name, "path": str(run.path), "has_samples": run.run is not None}


def _finite(value: Any) -> Any:
    return None if value == inf else value


SHORT = 24
"""A comparison of up to this many rows is one table; of a longer one, the rows that are faster or
slower are shown, and all rows are folded."""
MOST_MARKDOWN_ROWS = 400
"""GitHub takes 65,536 characters in a comment."""
MARKS = {SLOWER: "🔴 ", FASTER: "🟢 "}


def comparisons_markdown(comparisons: Sequence[Comparison]) -> str:
    """Comparisons for a pull request, each under a heading: verdict, table, and the rest folded."""
    return "\n\n".join("\n".join(_comparison(found)) for found in comparisons) + "\n"


def _comparison(found: Comparison) -> list[str]:
    first, second = summary.distinct_names((found.a, found.b))
    lines = [f"### {escape(summary.title(first, second))}", ""]
    sentences = pooled_sentences(found)
    lines += [f"* **{escape(text)}**" for text in sentences[:SHORT]]
    if len(sentences) > SHORT:
        lines.append(f"* {len(sentences) - SHORT} more ranges of sizes are in `--format json`.")
    closing = [smallest_differences(found), summary.count_line(found)]
    lines += ["", escape(" ".join(filter(None, closing))), ""]
    everything = [
        (kind, line)
        for kind, rows in summary.by_kind(found.rows[:MOST_MARKDOWN_ROWS])
        for line in summary.make_lines(rows)
    ]
    decided = [(kind, line) for kind, line in everything if line.verdict in MARKS]
    if len(everything) <= SHORT:
        lines += [*_table(everything), ""]
    else:
        lines += [*(_table(decided) if decided else []), ""]
        lines += [*details(f"All {len(everything)} rows", _table(everything)), ""]
    if len(found.rows) > MOST_MARKDOWN_ROWS:
        lines += [f"{len(found.rows) - MOST_MARKDOWN_ROWS} more rows are in `--format csv`.", ""]
    lines += [
        f"* Crossover of {escape(summary.crossover_text(c))}." for c in found.crossovers[:SHORT]
    ]
    lines += ["", *details("What was compared, and what limits it", _limits(found))]
    return lines


def _table(lines: Sequence[tuple[str, summary.TableLine]]) -> list[str]:
    rows = [
        (kind, *line.cells[:-1], *line.busbw, MARKS.get(line.verdict, "") + line.cells[-1])
        for kind, line in lines
    ]
    headings = (*summary.HEADINGS[:-1], "A busbw\nGB/s", "B busbw\nGB/s", summary.HEADINGS[-1])
    return table(("", *headings), rows, left=",verdict")


def _limits(found: Comparison) -> list[str]:
    who = [(s.letter, s.name, s.path, s.extent) for s in summary.sides(found)]
    lines = [*table(("", "run", "path", ""), who, left=",run,path"), ""]
    lines += [
        "B/A is the time of B over the time of A: above 1, B is slower. p5 B/A is the same of "
        "undisturbed calls (5th percentile). Intervals are 95 %.",
        "",
    ]
    lines += [f"* {escape(text)}" for text in summary.warning_lines(found)]
    lines += [f"* {escape(text)}" for text in summary.explanations(found)]
    lines += [f"* {escape(text[0].upper() + text[1:])}." for text in summary.notes(found)]
    facts = [(fact.name, fact.a, fact.b) for fact in (*found.mismatches, *found.differences)]
    if facts:
        lines += ["", *table(("what differs", "A", "B"), facts, left="what differs,A,B")]
    return lines


FORMATS: dict[str, Callable[..., str]] = {
    "table": comparisons_text,
    "markdown": lambda found, _=False: comparisons_markdown(found),
    "csv": lambda found, _=False: comparisons_csv(found),
    "json": lambda found, _=False: comparisons_json(found),
}
"""Each makes text of comparisons, which ends with a line feed. A second argument of True asks for
all rows where some are left out."""
