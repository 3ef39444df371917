"""Runs one measurement, new or resumed: on launched or external ranks; returns the recorded run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from commbench.errors import RecordsError, UsageError, WrongResultError, raise_at_signals
from commbench.plan.workload_fit import EVERY_STEP
from commbench.results.files import path_exists
from commbench.results.journal import Journal
from commbench.results.journal_reader import RunProgress, read_progress, read_run
from commbench.results.run_folder import JOURNAL, find_run, holds_rounds, resume_command
from commbench.results.schema import COMPLETE, WRONG, Run, RunEnd, RunHeader, is_imported
from commbench.runner import launched_ranks
from commbench.runner.option import Option, value_text
from commbench.runner.planning import RunListener, find_rank_context, plan_run
from commbench.runner.run_options import RUN_OPTIONS, RunOptions
from commbench.units import format_count

if TYPE_CHECKING:
    from commbench.answers.history.store import History


def run(options: RunOptions, listener: RunListener) -> Run | None:
    """Measure, or resume a run: as a rank where an external launcher started ranks, otherwise on
    ranks launched from here.

    Returns the recorded run where it is reported, None on other ranks and nodes. Raises
    WrongResultError for a run with wrong results, and any other CommbenchError that ended it.
    """
    rank_context = find_rank_context(options)
    is_first = (rank_context.rank if rank_context else options.node_rank) == 0
    progress = None
    if options.history and is_first:
        with _open_history(options.db):
            pass  # its errors are told before anything is measured
    if options.resume is not None:
        progress = find_resumable(options)
        if not launched_ranks.remaining_tasks(progress):
            if not is_first:
                return None
            whole = complete(progress)
            adds = "" if whole.header.plan.is_soak else " (--launches adds launches)"
            listener.status(f"{whole.path} is complete: there is nothing to resume{adds}")
            return _finish(whole, replace(options, plots=False), listener)
        options = with_recorded_plan(options, progress.run.header)
    if not rank_context:
        nothing_yet = launched_ranks.NOTHING_MEASURED
        raise_at_signals("nothing new was measured" if progress else nothing_yet)
    measure = launched_ranks.join_ranks if rank_context else launched_ranks.launch_ranks
    recorded = measure(plan_run(options, progress), listener)
    if recorded and not rank_context:
        raise_at_signals(f"the run is complete: `commbench show {quote(recorded.path)}` prints it")
    return _finish(recorded, options, listener) if recorded else None


def _finish(run: Run, options: RunOptions, listener: RunListener) -> Run:
    """Report and draw a run that has ended, and add it to the history, also where nobody reads the
    report to its end; WrongResultError if anything was wrong."""
    try:
        _report(run, options, listener)
    finally:
        if options.history and all(m.status != WRONG for m in run.measurements):
            _add_to_history(run, options.db, listener)
    require_correct(run)
    return run


def _report(run: Run, options: RunOptions, listener: RunListener) -> None:
    from commbench.answers.pairs.document import pairs_files
    from commbench.results.files import write_new

    listener.ended(run, None)
    for name, text in pairs_files(run).items():
        if not path_exists(path := Path(run.path) / name):
            write_new(path, text)
            listener.status(f"{path}: pairs of ranks")
    if options.plots:
        from commbench.answers.show.plots import no_picture, run_pictures
        from commbench.views.draw import write_pictures

        pictures = run_pictures([run])
        for file in write_pictures(pictures, Path(run.path), is_again=True):
            listener.status(f"{file}: plot of {run.name}")
        if not pictures:
            listener.status(no_picture([run]).message)
    listener.status(f"results are in {run.path}")


def _open_history(db: Path | None) -> History:
    from commbench.answers.history import store

    return store.History(db, is_written=True)


def _add_to_history(run: Run, db: Path | None, listener: RunListener) -> None:
    from commbench.analysis.load import as_loaded_run

    with _open_history(db) as history:
        added = history.add(as_loaded_run(run))
    rows = format_count(added.rows, "row")
    do = "does" if added.waited == 1 else "do"
    rows += f"; {added.waited} {do} not count: the ranks waited for a core" * bool(added.waited)
    listener.status(f"{added.outcome} in the history {history.path}: {rows}")


def require_correct(run: Run) -> None:
    """Raise WrongResultError, with the run, if any result was wrong."""
    wrong = [measurement for measurement in run.measurements if measurement.status == WRONG]
    if wrong:
        case, reason = wrong[0].case, wrong[0].reason
        elements = format_count(wrong[0].wrong or 0, "wrong element")
        what = f"{case.name} has {elements}; {reason}"
        hint = "do not trust results of this machine until the cause is known"
        if case.call:
            what = f"{reason}, in {case.name}"
            hint = f"correct {case.call}: a call that is wrong has no times"
        more = f" (and {format_count(len(wrong) - 1, 'more case')})" if wrong[1:] else ""
        error = WrongResultError(what + more, hint)
        error.run = run
        raise error


def find_resumable(options: RunOptions) -> RunProgress:
    """What there is of the run that --resume names.

    Raises RecordsError where there is no such run, UsageError for an option that contradicts it.
    """
    path = _find(options)
    if holds_rounds(path):
        hint = f"`{resume_command(path)}` continues it"
        raise UsageError(f"{path} is a setting of a sweep", hint)
    journal = path if path.is_file() else path / JOURNAL
    if journal.name != JOURNAL or not path_exists(journal):
        hint = f"give a run folder with a {JOURNAL}, or measure again"
        raise RecordsError(f"{path} cannot be resumed", hint)
    progress = read_progress(path)
    if is_imported(progress.run.header):
        raise RecordsError(f"{path} was imported and cannot be resumed", "measure it again")
    _require_agreement(options, progress.run)
    header = progress.run.header
    plan = header.plan.extended(options.launches or 0)
    return progress._replace(run=progress.run._replace(header=header._replace(plan=plan)))


def _find(options: RunOptions) -> Path:
    assert options.resume is not None
    try:
        return find_run(options.resume)
    except RecordsError as error:
        rank_context = find_rank_context(options)
        if options.nnodes == 1 and (not rank_context or rank_context.is_single_node):
            raise
        hint = "every node needs the folder of the run: copy it to this node"
        raise RecordsError(error.message, hint) from None


def _require_agreement(options: RunOptions, run: Run) -> None:
    """Raise UsageError for an option that was given and differs from the recorded run."""
    header = run.header
    known = header.plan
    backend, device = options.backend or known.backend, options.device or known.device
    plan = options.plan(backend, device, known.world_size)
    for given in (option for name, option in RUN_OPTIONS.items() if name in options.given):
        option = RUN_OPTIONS.get(given.sets, given)
        if not option.is_kept:
            continue
        here = getattr(plan, option.plan) if option.plan else getattr(options, option.name)
        there = _recorded_value(option, header)
        if here != there and not (option.may_grow and here > there):
            more = f"give more than {there} to extend this run, " * option.may_grow
            flag = f"--no-{given.flag[2:]}" if here is False else given.flag
            hint = f"leave out {flag} to continue it, or --resume to start a new one"
            why = f"{flag} contradicts {run.path}: {_text(here)} here, {_text(there)} there"
            raise UsageError(why, more + hint)


def with_recorded_plan(options: RunOptions, header: RunHeader) -> RunOptions:
    """The options that make the recorded plan on as many ranks per node."""
    kept = [option for option in RUN_OPTIONS.values() if option.is_kept]
    recorded = {option.name: _recorded_value(option, header) for option in kept}
    plan, step = header.plan, (EVERY_STEP,) if header.plan.workload else ()
    recorded |= {"matrix": plan.matrix, "own_calls": plan.own_calls}
    return replace(options, **recorded, workload_values=plan.workload, step=step)


def complete(progress: RunProgress) -> Run:
    """The run, all of whose cases are finished; its end is written where that is missing."""
    from commbench.analysis.csv_file import ResultsCsv
    from commbench.analysis.rows import make_rows

    folder = Path(progress.run.path)
    if not progress.run.end or progress.run.end.status != COMPLETE:
        Journal(folder).end(RunEnd(status=COMPLETE))
        ResultsCsv(folder).add(*make_rows(progress.run))
    return read_run(folder)


def _recorded_value(option: Option, header: RunHeader) -> Any:
    """The value of an option in a recorded run."""
    if option.plan:
        return getattr(header.plan, option.plan)
    if option.name == "nproc_per_node":
        return len(header.ranks) // header.launched_nodes
    return getattr(header, option.name)


def _text(value: Any) -> str:
    return "as needed" if value is None else value_text(value) or "none"
