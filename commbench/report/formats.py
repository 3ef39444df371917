"""How a run is shown: as a table, with or without a peak, or as nccl-tests prints it."""

from __future__ import annotations

from commbench.errors import name_error
from commbench.results.schema import Run

TABLE, NCCL_TESTS = "table", "nccl-tests"


def refuse_unknown_look(look: str, peak: str | None) -> None:
    """Raise UsageError for a format that is unknown, or a peak that is none."""
    if look not in (TABLE, NCCL_TESTS):
        raise name_error("format", look, [TABLE, NCCL_TESTS])
    if peak is not None:
        from commbench.spec.links import parse_peak

        parse_peak(peak)


def text_of(run: Run, look: str, peak: str | None) -> str:
    """The run in that format; a peak that the run itself was given counts where none is."""
    if look == NCCL_TESTS:
        from commbench.report.nccl_tests_table import nccl_tests_text

        return nccl_tests_text(run)
    from commbench.report.run_table import run_text

    peak = peak or run.header.plan.peak
    if not peak:
        return run_text(run)
    from commbench.spec.links import parse_peak

    return run_text(run, parse_peak(peak))
