"""What comparisons and checks say of their two runs: launches, warnings, host, differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from commbench.analysis.advice import measure_launches
from commbench.analysis.diagnostic_figures import unread_variables
from commbench.analysis.diagnostics import DIAGNOSTICS
from commbench.analysis.load import LoadedRun
from commbench.analysis.rows import make_rows
from commbench.compare.comparison import Comparison, distinct_names
from commbench.output.paragraphs import list_some
from commbench.report.run_notes import find_warnings
from commbench.results.schema import Run
from commbench.units import format_count
from commbench.views.cells import TEXT, Column, in_brackets, ratio_interval_text, ratio_text
from commbench.views.document import Table


class RunWarning(NamedTuple):
    """A warning about some rows of a run."""

    run: str
    name: str
    rows: str
    """The rows in a few words."""
    message: str
    explanation: str
    """What the message means, in sentences."""

    @property
    def what(self) -> str:
        """`queued (all rows): ranks lacked a core 66 % of the time`."""
        return f"{self.name} ({self.rows}): {self.message}"


def run_warnings(runs: Sequence[LoadedRun]) -> list[RunWarning]:
    """The warnings of each run, the most important first; those that a results.csv names are
    without figures."""
    return [
        RunWarning(name, *warning)
        for name, run in zip(distinct_names(runs), runs, strict=True)
        for warning in (_computed(run.run) if run.run else _recorded(run))
    ]


def _computed(run: Run) -> Iterator[tuple[str, str, str, str]]:
    for found in find_warnings(make_rows(run)):
        yield found.name, found.which, found.message, found.explanation


def _recorded(run: LoadedRun) -> Iterator[tuple[str, str, str, str]]:
    named = Counter(row.warnings for row in run.rows) if "warnings" in run.columns else {}
    texts = [({*text.split()}, number) for text, number in named.items()]
    for one in DIAGNOSTICS:
        concerned = (n for own, n in texts if one.name in own and own.isdisjoint(one.explained_by))
        if number := sum(concerned):
            rows = f"{number} of {format_count(len(run.rows), 'row')}"
            yield one.name, rows, one.explanation.partition(". ")[0], one.explanation


def launches_note(found: Comparison) -> list[str]:
    """That a side is a single launch, and what that means; empty where none is."""
    runs = (found.a, found.b)
    single = [side for side, run in zip("AB", runs, strict=True) if launches_of(run) == 1]
    if not (single and any(row.ratio and row.ratio.has_interval for row in found.rows)):
        return []
    are = "is one launch" if len(single) == 1 else "are one launch each"
    another = "by how much launches differ is assumed, not measured"
    measure = measure_launches([run.header for run in runs])
    return [f"{' and '.join(single)} {are}: {another}; {measure}"]


def launches_of(run: LoadedRun) -> int | None:
    """The most launches of any row; None where it is not known."""
    return max((row.launches or 0 for row in run.rows), default=0) or None


def host_notes(found: Comparison) -> list[str]:
    """In what the host itself was slower or faster during B."""
    return [
        f"the host itself was {'slower' if change.ratio.value > 1 else 'faster'} during "
        f"{found.b.name}: {change.takes} took {ratio_text(change.ratio)} times as long"
        f"{in_brackets(ratio_interval_text(change.ratio))}; the intervals are widened for it"
        for change in found.host_changes
    ]


def unread_notes(found: Comparison) -> list[str]:
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


def difference_tables(found: Comparison) -> list[Table]:
    """In what the runs differ."""
    columns = (
        Column("", attrgetter("name"), TEXT, is_wrapped=True),
        Column("A", attrgetter("a"), TEXT, is_wrapped=True),
        Column("B", attrgetter("b"), TEXT, 8, is_wrapped=True),
    )
    tables = {
        "These differ, and the runs are compared because of --force": found.mismatches,
        "Other differences" if found.mismatches else "What differs": found.differences,
    }
    return [Table(title, columns, facts) for title, facts in tables.items() if facts]
