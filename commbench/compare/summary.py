"""Tables, counts and notes about a comparison, which the text and the Markdown share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from commbench import units
from commbench.analysis.advice import FEW_LAUNCHES, PRECISION, measure_launches, more_precisely
from commbench.analysis.diagnostic_figures import unread_variables
from commbench.analysis.load import LoadedRun
from commbench.analysis.row_names import name_rows, named_bytes
from commbench.analysis.rows import make_rows
from commbench.compare.comparison import ComparedRow, Comparison, Crossover
from commbench.compare.ratio import (
    FASTER,
    NOT_COMPARED,
    OVERLAP,
    SAME,
    SIGNIFICANCE,
    SLOWER,
    UNDECIDED,
    MedianCI,
    time_ratio,
    undisturbed_times,
)
from commbench.compare.sentences import (
    CHANGED,
    far_end,
    format_part,
    interval_text,
    ratio_text,
)
from commbench.output.paragraphs import list_some
from commbench.report.run_notes import find_warnings, typed_name
from commbench.units import GB, MICRO

HEADINGS = ("size", "A time", "B time", "B/A", "95 %\ninterval", "p5\nB/A", "verdict")
MOST_CHARACTERS = 200
"""Of the names of rows in a sentence."""
_KIND = attrgetter("kind")
_IN_A_NOTE = "unread_variables"
"""The warning that a note says for both runs."""


class SideSummary(NamedTuple):
    """One side of a comparison."""

    letter: str
    name: str
    path: str
    extent: str
    """Rows, launches, and what is missing of it."""


class TableLine(NamedTuple):
    """One row of a table of a comparison."""

    cells: tuple[str, ...]
    """Under HEADINGS."""
    busbw: tuple[str, ...]
    """The bus bandwidths of A and B in GB/s."""
    p_value: str
    """Of the rank test; empty where there is none."""
    verdict: str


def distinct_names(runs: Sequence[LoadedRun]) -> list[str]:
    """A name for each run; with its path where two runs have the same name."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({run.path})"
        for name, run in zip(names, runs, strict=True)
    ]


def title(first: str, second: str) -> str:
    """Which run is A, and which is B."""
    return f"A = {first}, B = {second}"


def sides(found: Comparison) -> list[SideSummary]:
    """A and B."""
    return [
        SideSummary(letter, run.name, str(run.path), _extent(run))
        for letter, run in (("A", found.a), ("B", found.b))
    ]


def count_line(found: Comparison) -> str:
    """How many rows are slower, faster, the same, undecided, or not compared."""
    counts, rows = found.counts, len(found.rows)
    words = {
        SLOWER: "slower", FASTER: "faster", SAME: "the same", UNDECIDED: "undecided",
        NOT_COMPARED: "not compared",
    }  # fmt: skip
    undecided = [row for row in found.rows if row.verdict == UNDECIDED]
    is_in_same = rows_in_ranges(found, SAME)
    parts = []
    for verdict, word in words.items():
        if number := counts[verdict]:
            parts.append(f"{number} {word}")
            if verdict == UNDECIDED and (same := sum(map(is_in_same, undecided))):
                parts[-1] += f" ({same} of them in a range of sizes without a difference)"
    alone = len(found.only_a) + len(found.only_b)
    parts += [f"{alone} in one run only"] if alone else []
    common = f"{rows} {'row' if rows == 1 else 'rows'} in common"
    return f"{common}: {', '.join(parts)}. Up to {found.tolerance * 100:g} % counts as the same."


def row_words(row: ComparedRow) -> str:
    """The verdict on a row in words: `slower`, `same within 4 %`, `undecided`."""
    ratio = MedianCI(row.ratio, row.ratio_ci_low, row.ratio_ci_high)
    if row.verdict == SAME:
        return "same" if ratio.low is None else f"same within {format_part(far_end(ratio))}"
    return row.verdict


def rows_in_ranges(found: Comparison, *verdicts: str) -> Callable[[ComparedRow], bool]:
    """Tells of a row whether it is in a range of sizes with one of these verdicts."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for pooled in found.pooled:
        if pooled.verdict in verdicts:
            ranges.setdefault(pooled.kind, []).append((pooled.low_bytes, pooled.high_bytes))
    return lambda row: any(
        low <= named_bytes(row.a) <= high for low, high in ranges.get(row.kind, ())
    )


def by_kind(rows: Iterable[ComparedRow]) -> Iterator[tuple[str, list[ComparedRow]]]:
    """The rows of each kind of case; rows of one kind follow each other."""
    for kind, same in groupby(rows, _KIND):
        yield kind, list(same)


def grouped_lines(
    rows: Iterable[ComparedRow], most: int | None = None
) -> Iterator[tuple[str, str, list[TableLine]]]:
    """Each table with its title, the heading of its first column, and its lines, at most so many: a
    table for each kind of case; kinds without sizes share one for their operation, in which names
    take the place of sizes."""
    for title, found in groupby(rows, lambda r: r.kind if named_bytes(r.a) else r.a.operation):
        same = list(found)[:most]
        names = [row.kind.removeprefix(title).strip() for row in same]
        lines = make_lines(same)
        if not any(names):
            yield title, HEADINGS[0], lines
            continue
        named = zip(lines, names, strict=True)
        yield title, "", [line._replace(cells=(name, *line.cells[1:])) for line, name in named]


def make_lines(rows: Sequence[ComparedRow]) -> list[TableLine]:
    """The rows of a kind as text."""
    return [
        TableLine(
            _cells(row),
            (_busbw_cell(row.a), _busbw_cell(row.b)),
            "" if row.p_value is None else f"{row.p_value:.2g}",
            row.verdict,
        )
        for row in rows
    ]


def _busbw_cell(row: Any) -> str:
    """A bus bandwidth in GB/s with the digits that the interval of the time supports."""
    if row.busbw_GBps is None:
        return ""
    busbw, ends = row.busbw_GBps * GB, (row.time_ci_high_us, row.time_ci_low_us)
    low, high = (busbw * row.time_us / end if end else None for end in ends)
    return units.format_known_GBps(busbw, low, high)


def _cells(row: ComparedRow) -> tuple[str, ...]:
    size = units.format_bytes(row.a.size_bytes) if row.a.dtype else ""
    times = (_time_cell(row.a), _time_cell(row.b))
    if row.verdict == NOT_COMPARED:
        return (size, *times, "", "", "", row.verdict)
    ratio = MedianCI(row.ratio, row.ratio_ci_low, row.ratio_ci_high)
    low = time_ratio(undisturbed_times(row.a), undisturbed_times(row.b))
    interval = interval_text(ratio, "", "")
    return (size, *times, ratio_text(ratio), interval, ratio_text(low), row_words(row))


def _time_cell(row: Any) -> str:
    if row.time_us is None:
        return ""
    low, high = (
        None if end is None else end * MICRO for end in (row.time_ci_low_us, row.time_ci_high_us)
    )
    return units.format_known_time(row.time_us * MICRO, low, high)[0]


def explanations(found: Comparison) -> list[str]:
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


def unlisted_text(rows: Sequence[ComparedRow], every: Sequence[ComparedRow]) -> str:
    """Which rows of `every` row are not listed: their sizes, and the range of their ratios."""
    undecided = sum(row.verdict == UNDECIDED for row in rows)
    words = "the same" if not undecided else "undecided"
    words = "undecided or the same" if 0 < undecided < len(rows) else words
    ratios = [row.ratio for row in rows if row.ratio]
    ends = f"B/A from {min(ratios):.2f} to {max(ratios):.2f}"
    where = _where((row.a for row in rows), (row.a for row in every))
    return f"Rows that are {words} are not listed ({where}; {ends})"


def _where(rows: Iterable[Any], every: Iterable[Any]) -> str:
    """Which rows of results, of `every` row."""
    return name_rows(rows, every, MOST_CHARACTERS)


def crossover_text(crossover: Crossover) -> str:
    """Where B turns from faster to slower, or back."""
    below, above = (units.format_bytes(s) for s in (crossover.below_bytes, crossover.above_bytes))
    return (
        f"{crossover.kind}: B is {crossover.below} at {below} and {crossover.above} at {above}; "
        "the crossover is between them"
    )


def notes(found: Comparison) -> list[str]:
    """What limits the verdicts, and an option that would help and was not used."""
    texts = [*host_notes(found), *_unread_notes(found)]
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


def host_notes(found: Comparison) -> list[str]:
    """In what the host itself was slower or faster during B."""
    return [
        f"the host itself was {'slower' if (change.ratio.median or 0) > 1 else 'faster'} during "
        f"{found.b.name}: {change.takes} took {ratio_text(change.ratio)} times as long"
        f"{interval_text(change.ratio)}; the intervals are widened for it"
        for change in found.host_changes
    ]


def warning_lines(
    found: Comparison, is_verbose: bool = False, has_command: bool = True
) -> list[str]:
    """For each run with warnings how many they are, and the most important one, with the command
    that prints all; `is_verbose`: each of them, with its explanation. A note says which variables
    the backend does not read."""
    texts = []
    both = (found.a, found.b)
    for name, loaded in zip(distinct_names(both), both, strict=True):
        found_here = find_warnings(make_rows(loaded.run)) if loaded.run else []
        warnings = [each for each in found_here if each.name != _IN_A_NOTE]
        if not loaded.run or not warnings:
            continue
        shown = [f"{each.name} ({each.which}): {each.message}" for each in warnings]
        if is_verbose:
            texts += [
                f"{name}: {text}. {each.explanation}"
                for text, each in zip(shown, warnings, strict=True)
            ]
            continue
        count = "1 warning" if len(shown) == 1 else f"{len(shown)} warnings, first"
        command = f" See `commbench show {typed_name(loaded.run)} --warnings`."
        texts.append(f"{name} has {count}: {shown[0]}.{command * has_command}")
    return texts


def _unread_notes(found: Comparison) -> list[str]:
    """Which variables have no effect because the backend does not read them."""
    unread: dict[str, set[str]] = {}
    for header in (found.a.header, found.b.header):
        if header and (names := unread_variables(header)):
            unread.setdefault(header.plan.backend, set()).update(names)
    return [
        f"the backend {backend} does not read {list_some(sorted(names), 3)}: no effect on these "
        "times"
        for backend, names in unread.items()
    ]


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


def launches_note(found: Comparison) -> list[str]:
    """That a side is a single launch, and what that means; empty where none is."""
    single = [side for side, run in (("A", found.a), ("B", found.b)) if _launches(run) == 1]
    if not single or not found.rows or not any(row.ratio_ci_low for row in found.rows):
        return []
    are = "is one launch" if len(single) == 1 else "are one launch each"
    another = "by how much launches differ is assumed, not measured"
    measure = measure_launches([found.a.header, found.b.header])
    return [f"{' and '.join(single)} {are}: {another}; {measure}"]


def _extent(run: LoadedRun) -> str:
    rows = len(run.rows)
    launches = _launches(run)
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


def _launches(run: LoadedRun) -> int | None:
    """The most launches of any row; None where it is not known."""
    return max((row.launches or 0 for row in run.rows), default=0) or None
