"""FORMATS: the table of formats in which `run` and `show` print a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from commbench.validation import choose

if TYPE_CHECKING:
    from commbench.results.schema import Run
    from commbench.spec.links import Peak

TABLE, NCCL_TESTS = "table", "nccl-tests"
FORMAT_HELP = "Layout of the result: table; nccl-tests, which scripts for its output can read."
PEAK_HELP = (
    "Add a column with the part of this speed that was reached: 450GB/s, 400Gbit/s, or a name that "
    "`commbench links` lists."
)


class View(NamedTuple):
    """What is shown of a run."""

    peak: Peak | None = None
    """The speed of which a column shows the fraction that was reached."""
    is_condensed: bool = False
    """Whether a run with many rows becomes one table, with a row for each kind of call."""
    has_explanations: bool = False
    """Whether all warnings are shown, with explanations, instead of the most important ones."""


def _table(run: Run, view: View) -> str:
    from commbench.report.run_notes import MOST_WARNINGS
    from commbench.report.run_table import run_text

    most = None if view.has_explanations else MOST_WARNINGS
    return run_text(run, view.peak, is_condensed=view.is_condensed, most_warnings=most)


def _nccl_tests(run: Run, _: View) -> str:
    from commbench.report.nccl_tests_table import nccl_tests_text

    return nccl_tests_text(run)


FORMATS: dict[str, Callable[[Run, View], str]] = {TABLE: _table, NCCL_TESTS: _nccl_tests}


def require_format(format_: str, peak: str | None) -> None:
    """Raise UsageError for an unknown format or a peak that cannot be parsed."""
    choose("format", format_, FORMATS)
    if peak is not None:
        from commbench.spec.links import parse_peak

        parse_peak(peak)


def format_run(
    run: Run,
    format_: str,
    peak: str | None,
    *,
    is_condensed: bool = False,
    has_explanations: bool = False,
) -> str:
    """The run in that format, with the given peak or else the one that the run was given."""
    peak = peak or run.header.plan.peak
    parsed = None
    if peak:
        from commbench.spec.links import parse_peak

        parsed = parse_peak(peak)
    return FORMATS[format_](run, View(parsed, is_condensed, has_explanations))
