"""`commbench run --resume`: finds the run, checks the options, and lists what is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from commbench.errors import RecordsError, UsageError
from commbench.results.journal import Journal
from commbench.results.journal_reader import RunProgress, read_progress, read_run
from commbench.results.run_folder import JOURNAL, find_run
from commbench.results.schema import COMPLETE, Run, RunEnd, RunHeader, is_imported
from commbench.runner.option import RunOption, value_text
from commbench.runner.planning import find_rank_context
from commbench.runner.run_options import RUN_OPTIONS, RunOptions
from commbench.spec.workload_fit import EVERY_STEP
from commbench.worker.context import LaunchTask


def find_resumable(options: RunOptions) -> RunProgress:
    """What there is of the run that --resume names.

    Raises RecordsError where there is no such run, UsageError for an option that contradicts it.
    """
    path = _find(options)
    if path.is_file() and path.name != JOURNAL:
        raise RecordsError(f"{path} cannot be resumed", f"give a run folder with a {JOURNAL}")
    progress = read_progress(path)
    if is_imported(progress.run.header):
        raise RecordsError(f"{path} was imported and cannot be resumed", "measure it again")
    _require_agreement(options, progress.run)
    return progress


def _find(options: RunOptions) -> Path:
    assert options.resume is not None
    try:
        return find_run(options.resume)
    except RecordsError as error:
        rank_context = find_rank_context(options)
        if options.nnodes == 1 and (not rank_context or rank_context.is_single_node):
            raise
        raise RecordsError(
            error.message, "every node needs the folder of the run: copy it to this node"
        ) from None


def _require_agreement(options: RunOptions, run: Run) -> None:
    """Raise UsageError for an option that was given and differs from the recorded run."""
    header = run.header
    plan = options.plan(
        options.backend or header.plan.backend,
        options.device or header.plan.device,
        header.plan.world_size,
    )
    for given in (option for name, option in RUN_OPTIONS.items() if name in options.given):
        option = RUN_OPTIONS.get(given.sets, given)
        if not option.is_fixed:
            continue
        here = getattr(plan, option.plan) if option.plan else getattr(options, option.name)
        there = _recorded_value(option, header)
        if here != there:
            raise UsageError(
                f"{given.flag} contradicts {run.path}: {_text(here)} here, {_text(there)} there",
                f"leave out {given.flag} to continue this run, or --resume to start a new one",
            )


def with_recorded_plan(options: RunOptions, header: RunHeader) -> RunOptions:
    """The options that make the recorded plan on as many ranks per node."""
    recorded = {
        option.name: _recorded_value(option, header)
        for option in RUN_OPTIONS.values()
        if option.is_fixed
    }
    return replace(
        options,
        **recorded,
        matrix=header.plan.matrix,
        workload_values=header.plan.workload,
        step=(EVERY_STEP,),
    )


def complete(progress: RunProgress) -> Run:
    """The run, all of whose cases are finished; its end is written where that is missing."""
    from commbench.analysis.csv_file import ResultsCsv
    from commbench.analysis.rows import make_rows

    folder = Path(progress.run.path)
    if not progress.run.end or progress.run.end.status != COMPLETE:
        Journal(folder).end(RunEnd(status=COMPLETE))
        ResultsCsv(folder).add(*make_rows(progress.run))
    return read_run(folder)


def _recorded_value(option: RunOption, header: RunHeader) -> Any:
    """The value of an option in a recorded run."""
    if option.plan:
        return getattr(header.plan, option.plan)
    if option.name == "nproc_per_node":
        return len(header.ranks) // header.launched_nodes
    return getattr(header, option.name)


def _text(value: Any) -> str:
    return "as needed" if value is None else value_text(value)


def remaining_tasks(progress: RunProgress) -> list[LaunchTask]:
    """The launches that are left, the first one perhaps partly done; empty for a complete run."""
    header = progress.run.header
    task = LaunchTask(
        plan=header.plan,
        label=header.label,
        folder=Path(progress.run.path),
        launch=progress.launch,
        resumed_from=header,
        journal=progress.digest,
    )
    end = progress.run.end
    is_finished = len(progress.finished) == len(header.plan.cases()) or (
        end is not None and end.status == COMPLETE
    )
    current = [] if is_finished else [replace(task, finished=progress.finished)]
    return current + launch_tasks(task)[progress.launch + 1 :]


def launch_tasks(task: LaunchTask) -> list[LaunchTask]:
    """The task of each launch; the first makes the folder, where that does not exist."""
    return [
        replace(task, launch=number, folder_exists=task.folder_exists or number > 0)
        for number in range(task.plan.launches)
    ]


def progress_text(progress: RunProgress) -> str:
    """One line that says how far a run has come."""
    plan = progress.run.header.plan
    launch = f" of launch {progress.launch + 1} of {plan.launches}" if plan.launches > 1 else ""
    count = f"{len(progress.finished)} of {len(plan.cases())} cases{launch}"
    begun = [m for m in progress.run.measurements if m.batches]
    more = sum(m.case.index not in progress.finished for m in begun)
    samples = f", {more} others have samples" if more else ""
    return f"resuming {progress.run.path}: {count} are finished{samples}"
