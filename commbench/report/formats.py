"""FORMATS: the table of formats in which `run` and `show` print a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from commbench.validation import choose

if TYPE_CHECKING:
    from commbench.results.schema import Run
    from commbench.spec.links import Peak

TABLE, NCCL_TESTS = "table", "nccl-tests"
FORMAT_HELP = "table, or nccl-tests: as its scripts read."
PEAK_HELP = (
    "Show which part of a speed was reached: 450GB/s, 400Gbit/s, or a name of `commbench links`."
)


def _table(run: Run, peak: Peak | None) -> str:
    from commbench.report.run_table import run_text

    return run_text(run, peak)


def _nccl_tests(run: Run, peak: Peak | None) -> str:  # noqa: ARG001 - that layout has no peak
    from commbench.report.nccl_tests_table import nccl_tests_text

    return nccl_tests_text(run)


FORMATS: dict[str, Callable[[Run, Peak | None], str]] = {TABLE: _table, NCCL_TESTS: _nccl_tests}


def require_format(format_: str, peak: str | None) -> None:
    """Raise UsageError for an unknown format or a peak that cannot be parsed."""
    choose("format", format_, FORMATS)
    if peak is not None:
        from commbench.spec.links import parse_peak

        parse_peak(peak)


def format_run(run: Run, format_: str, peak: str | None) -> str:
    """The run in that format, with the given peak or else the one that the run was given."""
    peak = peak or run.header.plan.peak
    if not peak:
        return FORMATS[format_](run, None)
    from commbench.spec.links import parse_peak

    return FORMATS[format_](run, parse_peak(peak))
