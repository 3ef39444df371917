"""How a run is shown: as a table, with or without a peak, or as nccl-tests prints it."""

from __future__ import annotations

from commbench.errors import name_error
from commbench.results.schema import Run

TABLE, NCCL_TESTS = "table", "nccl-tests"
FORMAT_HELP = "table, or nccl-tests: as its scripts read."
PEAK_HELP = (
    "Show which part of a speed was reached: 450GB/s, 400Gbit/s, or a name of `commbench links`."
)


def require_known_format(format_name: str) -> None:
    """Raise UsageError for an unknown format."""
    if format_name not in (TABLE, NCCL_TESTS):
        raise name_error("format", format_name, [TABLE, NCCL_TESTS])


def format_run(run: Run, format_name: str, peak: str | None) -> str:
    """The run as text in a format; without a `peak` that of its plan counts."""
    if format_name == NCCL_TESTS:
        from commbench.report.nccl_tests_table import nccl_tests_text

        return nccl_tests_text(run)
    from commbench.report.run_table import run_text

    peak = peak or run.header.plan.peak
    if not peak:
        return run_text(run)
    from commbench.spec.links import parse_peak

    return run_text(run, parse_peak(peak))
