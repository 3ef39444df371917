"""Runs one measurement: chooses launched or external ranks, and returns the recorded run."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path
from shlex import quote

from commbench.errors import INTERRUPTIONS, Interrupted, WrongResultError
from commbench.results.schema import Run
from commbench.runner.launched_ranks import NOTHING_MEASURED, join_ranks, launch_ranks
from commbench.runner.planning import RunListener, find_rank_context, is_reporter, plan_run
from commbench.runner.resume import complete, find_resumable, remaining_tasks, with_recorded_plan
from commbench.runner.run_options import RunOptions


def run(options: RunOptions, listener: RunListener) -> Run | None:
    """Measure, or resume a run: as a rank where an external launcher started ranks, otherwise on
    ranks launched from here.

    Returns the recorded run where it is reported, None on other ranks and nodes. Raises
    WrongResultError for a run with wrong results, and any other CommbenchError that ended it.
    """
    rank_context = find_rank_context(options)
    progress = None
    if options.resume is not None:
        progress = find_resumable(options)
        if not remaining_tasks(progress):
            if not is_reporter(options, rank_context):
                return None
            whole = complete(progress)
            listener.status(f"{whole.path} is complete: there is nothing to resume")
            return _finish(whole, replace(options, plots=False), listener)
        options = with_recorded_plan(options, progress.run.header)
    if not rank_context:
        raise_at_signals(NOTHING_MEASURED if progress is None else "nothing new was measured")
    measure = join_ranks if rank_context else launch_ranks
    recorded = measure(plan_run(options, progress), listener)
    if recorded and not rank_context:
        raise_at_signals(f"the run is complete: `commbench show {quote(recorded.path)}` prints it")
    return _finish(recorded, options, listener) if recorded else None


def _finish(run: Run, options: RunOptions, listener: RunListener) -> Run:
    """Report and draw a run that has ended; WrongResultError if anything was wrong."""
    listener.ended(run, None)
    for file in _write_pairs(run):
        listener.status(f"{file}: pairs of ranks")
    if options.plots:
        from commbench.report.plots import run_pictures, why_no_picture
        from commbench.views.draw import write_pictures

        pictures = run_pictures([run])
        for file in write_pictures(pictures, Path(run.path)):
            listener.status(f"{file}: plot of {run.name}")
        if not pictures:
            listener.status(why_no_picture([run]))
    listener.status(f"results are in {run.path}")
    require_correct(run)
    return run


def _write_pairs(run: Run) -> list[Path]:
    """Write the CSV files of a run of pairs into its folder, where they do not exist."""
    from commbench.report.pairs_table import pairs_files
    from commbench.results.files import path_exists, write_new

    written = []
    for name, text in pairs_files(run).items():
        if not path_exists(path := Path(run.path) / name):
            write_new(path, text)
            written.append(path)
    return written


def require_correct(run: Run) -> None:
    """Raise WrongResultError, with the run, if any result was wrong."""
    wrong = [measurement for measurement in run.measurements if measurement.wrong]
    if wrong:
        error = WrongResultError(
            f"{wrong[0].wrong} elements of {wrong[0].case.name} are wrong; {wrong[0].reason}"
            + (f" (and {len(wrong) - 1} more cases)" if wrong[1:] else ""),
            "do not trust results of this machine until the cause is known",
        )
        error.run = run
        raise error


def raise_at_signals(hint: str = NOTHING_MEASURED) -> None:
    """Have signals raise Interrupted with this hint, also while torchrun's agent does not handle
    them."""

    def stop(number: int, _: object) -> None:
        raise Interrupted(
            f"stopped by {signal.Signals(number).name}",
            hint,
            signal_number=number,
        )

    if threading.current_thread() is threading.main_thread():
        for number in INTERRUPTIONS:
            signal.signal(number, stop)
