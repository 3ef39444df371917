"""One `commbench run` from request to table: choose a place, plan, launch or join, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from commbench.errors import (
    CommbenchError,
    Interrupted,
    RecordsError,
    WrongResultError,
)
from commbench.output.console import print_result, print_status
from commbench.runner.run_options import RunOptions
from commbench.spec.plan import Plan
from commbench.validation import LONGEST_TEXT

if TYPE_CHECKING:
    from commbench.launch.devices import Target
    from commbench.results.schema import Run


def is_reporter(request: RunOptions) -> bool:
    """Whether this process is the one that prints what came out."""
    from commbench.launch.external_launchers import detect_rank_context

    rank_context = detect_rank_context(request.master_addr, request.master_port)
    return (rank_context.rank if rank_context else request.node_rank) == 0


def report(run: Run, request: RunOptions) -> None:
    """Table, plots and where everything is; raises WrongResultError if anything was wrong."""
    from commbench.report.formats import format_run

    print_result(format_run(run, request.format, request.peak))
    for file in _plots(run) if request.plots else ():
        _say(str(file))
    _say(f"results are in {run.path}")
    wrong = [m for m in run.measurements if m.wrong]
    if wrong:
        raise WrongResultError(
            f"{wrong[0].wrong} elements of {wrong[0].case.name} are wrong; {wrong[0].reason}"
            + (f" (and {len(wrong) - 1} more cases)" if wrong[1:] else ""),
            "do not trust these times, nor this machine's communication, before it is explained",
        )


def _plots(run: Run) -> list[Path]:
    from commbench.report.plots import MORE_SIZES_NEEDED, draw, has_curve

    if not has_curve([run]):
        _say(MORE_SIZES_NEEDED)
        return []
    return draw([run], Path(run.path))


def _give_up(folder: Path, error: CommbenchError, elapsed_s: float) -> None:
    """Show and keep what there is of a run that did not end well, `elapsed_s` after its ranks were
    started."""
    from rich.console import Console

    from commbench.analysis.csv_file import ResultsCsv
    from commbench.analysis.rows import make_rows
    from commbench.report.run_table import run_text
    from commbench.results.journal import Journal, remove_if_empty
    from commbench.results.journal_reader import read_run
    from commbench.results.schema import RunEnd

    console = Console(stderr=True)
    if console.is_terminal:
        console.show_cursor(True)
    try:
        run = read_run(folder)
    except RecordsError:
        remove_if_empty(folder)
        return
    status = "interrupted" if isinstance(error, Interrupted) else "failed"
    reason = error.message[:LONGEST_TEXT]
    end = RunEnd(status=status, reason=reason, elapsed_s=round(elapsed_s, 6))
    try:
        Journal(folder).end(end)
        if run.measurements:
            ResultsCsv(folder).add(*make_rows(run))  # with what cases that were cut off had given
    except RecordsError as trouble:
        _say(f"how the run ended is not written down: {trouble.message}")
    if run.measurements:
        print_result(
            run_text(run._replace(end=end._replace(reason="")))
        )  # the error follows and tells it
    _say(f"what was measured is kept; `commbench run --resume {folder}` goes on with it")


def _has_grown(journal: Path, from_bytes: int) -> bool:
    """Whether ranks wrote to a journal; not if it is gone."""
    try:
        return journal.stat().st_size > from_bytes
    except OSError:
        return False


def _choice(place: Target, plan: Plan, resumed: bool = False) -> str:
    """One line that says what was chosen and why; of a run that is resumed, its journal chose."""
    why = "as the run began" if resumed else place.why
    line = (
        f"measuring with {plan.world_size} {plan.backend} ranks on {plan.device}, "
        f"cpu mode {plan.cpu_mode} ({why})"
    )
    if place.gpu_shared:
        line += "; ranks share a GPU: functional only, times are no measure of performance"
    return line


def _say(line: str, condition: bool = True) -> None:
    if condition:
        print_status(line)
