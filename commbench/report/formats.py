"""FORMATS: the table of formats in which `run` and `show` print a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from commbench.validation import choose

if TYPE_CHECKING:
    from commbench.results.schema import Run
    from commbench.spec.links import Peak

TABLE, NCCL_TESTS, JSON, MARKDOWN = "table", "nccl-tests", "json", "markdown"
FORMAT_HELP = (
    "Layout of the result: table; nccl-tests, which scripts for its output can read; json; "
    "markdown."
)
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
    has_calls: bool = False
    """Whether a replay has also the tables of its single calls."""


def _table(run: Run, view: View) -> str:
    from commbench.report.run_notes import MOST_WARNINGS
    from commbench.report.run_table import run_text

    most = None if view.has_explanations else MOST_WARNINGS
    return run_text(
        run,
        view.peak,
        is_condensed=view.is_condensed,
        most_warnings=most,
        has_calls=view.has_calls,
    )


def _nccl_tests(run: Run, _: View) -> str:
    from commbench.report.nccl_tests_table import nccl_tests_text

    return nccl_tests_text(run)


def _json(run: Run, view: View) -> str:
    import json

    if run.header.plan.workload:
        from commbench.report.replay_text import replay_json

        return json.dumps(replay_json(run, view.peak), indent=1, allow_nan=False)
    return _exported(run, JSON)


def _markdown(run: Run, view: View) -> str:
    if run.header.plan.workload:
        from commbench.report.replay_text import replay_markdown

        return replay_markdown(run, view.peak).rstrip()
    return _exported(run, MARKDOWN)


def _exported(run: Run, format_: str) -> str:
    """The run as `commbench export` writes it, without the last end of a line."""
    from commbench.analysis.load import as_loaded_run
    from commbench.report.exporters import export_run

    return "".join(export_run(as_loaded_run(run), format_)).rstrip()


FORMATS: dict[str, Callable[[Run, View], str]] = {
    TABLE: _table,
    NCCL_TESTS: _nccl_tests,
    JSON: _json,
    MARKDOWN: _markdown,
}


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
    has_calls: bool = False,
) -> str:
    """The run in that format, with the given peak or else the one that the run was given."""
    peak = peak or run.header.plan.peak
    parsed = None
    if peak:
        from commbench.spec.links import parse_peak

        parsed = parse_peak(peak)
    return FORMATS[format_](run, View(parsed, is_condensed, has_explanations, has_calls))
