"""Runs on ranks that commbench launches on this node, recorded or temporary ones, and on ranks that
torchrun, srun or mpirun started, of which this process is one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from commbench import errors
from commbench.errors import CommbenchError, RankError, RecordsError
from commbench.launch import launchers
from commbench.launch.devices import raise_nofile_limit
from commbench.output.progress import restore_cursor
from commbench.plan.cases import require_ready_case
from commbench.plan.plan import Plan
from commbench.results.journal import Journal, remove_if_empty
from commbench.results.journal_reader import RunProgress, read_run
from commbench.results.run_folder import JOURNAL, create_folder, new_folder, next_step
from commbench.results.schema import Run, RunEnd
from commbench.runner.planning import PlannedRun, RunListener, restored_process_state
from commbench.units import format_count
from commbench.validation import LONGEST_TEXT
from commbench.worker.entrypoint import LaunchTask
from commbench.worker.watchdog.rank_state import record_error

NOTHING_MEASURED = "nothing was measured yet: run the same command again"
"""The hint for a run that was interrupted before its ranks began to measure."""


def launch_ranks(planned: PlannedRun, listener: RunListener) -> Run | None:
    """Launch the ranks of this node, once or several times, and wait for them.

    Returns the recorded run on node 0, None on others. Raises the CommbenchError that ended it;
    what had been measured is recorded, and given to the listener.
    """
    require_ready_case(planned.plan)
    if planned.options.launcher != launchers.RAY:
        raise_nofile_limit(planned.plan, planned.nodes.ranks_per_node)
    tasks = _make_tasks(planned, listener, folder_exists=True)
    if planned.is_reporter and not planned.progress:
        create_folder(tasks[0].folder)
    listener.status(planned.summary)
    folder, started = tasks[0].folder, time.monotonic()
    journal_bytes = _size_bytes(folder / JOURNAL)
    try:
        for launch in _launches(planned, tasks, listener):
            started = time.monotonic()
            errors.raise_dropped_interruption()
            launch()
    except (CommbenchError, OSError, MemoryError, ImportError) as caught:
        error = caught if isinstance(caught, CommbenchError) else errors.from_os_error(caught)
        errors.ignore_interruptions()
        # The journal of a run that is resumed stays as it was if no rank wrote to it.
        if planned.is_reporter:
            elapsed_s = time.monotonic() - started
            is_as_before = bool(planned.progress) and _size_bytes(folder / JOURNAL) <= journal_bytes
            is_recorded = is_as_before or _record_failure(folder, error, elapsed_s, listener)
            is_refused = isinstance(error, (errors.UsageError, errors.UnavailableError))
            own, more = bool(planned.plan.own_calls), " --history" * planned.options.history
            then = next_step(folder, type(error).__name__, own, more)
            if isinstance(error, errors.Interrupted):
                error.texts = error.texts[0], then if is_recorded else NOTHING_MEASURED
            elif is_recorded and not (is_as_before and is_refused):
                listener.status(f"What was measured is kept in {folder}. {then}")
        if error is caught:
            raise
        raise error from caught
    return read_run(folder) if planned.is_reporter else None


def join_ranks(planned: PlannedRun, listener: RunListener) -> Run | None:
    """Take part in a run as one rank; rank 0 records it.

    Returns the recorded run on rank 0, None on other ranks and where a commbench that started
    torchrun reports it. Raises CommbenchError, with `is_reporter` false where another process
    reports it.
    """
    from commbench.worker.rank import run_rank

    assert planned.rank_context is not None
    # Set by the commbench that started torchrun: it reads the errors there, and reports the run.
    where = os.environ.get(launchers.ERROR_DIR)
    scratch_dir = None if where is None else Path(where)
    is_reporter = planned.is_reporter and not scratch_dir
    context = planned.rank_context._replace(scratch_dir=scratch_dir)
    if scratch_dir and context.is_single_node:
        context = context._replace(init_method=f"file:{scratch_dir / 'ranks'}")
    tasks = _make_tasks(planned, listener if is_reporter else None, folder_exists=bool(scratch_dir))
    if is_reporter:
        listener.status(f"{planned.summary}; joining {context.launcher}'s ranks")

    def report_hang(error: RankError) -> None:
        """Called by another thread: all ranks hang, the main thread of this one too."""
        if scratch_dir:
            record_error(scratch_dir, context.rank, error)
        elif error.is_reporter:
            listener.hung(error)

    try:
        raise_nofile_limit(planned.plan, has_store=planned.is_reporter)
        run_rank(tasks, context, report_hang)
    except Exception as caught:
        error = launchers.describe_failure(caught, context.rank)
        if scratch_dir:
            record_error(scratch_dir, context.rank, error)
            error.is_reporter = False
        elif not isinstance(error, RankError):
            error.is_reporter = is_reporter
        if error is caught:
            raise
        raise error from caught
    return read_run(tasks[0].folder) if is_reporter else None


def run_temporarily(plan: Plan, label: str, *, is_silent: bool = True) -> Run:
    """Measure a plan on ranks launched here, and remove its folder: what the smoke test and the
    doctor measure. Unless `is_silent`, the ranks tell their progress.

    Raises CommbenchError; its `run` is what was recorded until then.
    """
    from commbench.launch.elastic import launch, start_method

    nodes = launchers.NodeConfig(ranks_per_node=plan.world_size)
    method, _ = start_method(plan.device, nodes)
    with TemporaryDirectory(prefix=f"commbench-{label}-") as parent, restored_process_state():
        folder = create_folder(Path(parent) / "run")
        try:
            launch([LaunchTask(plan, label, folder, is_silent=is_silent)], nodes, method)
        except CommbenchError as error:
            with suppress(RecordsError):
                error.run = read_run(folder)
            raise
        return read_run(folder)


def _launches(
    planned: PlannedRun, tasks: list[LaunchTask], listener: RunListener
) -> list[Callable[[], object]]:
    """What starts the ranks for all tasks. Each launch has new processes where these are forked for
    CPUs, which takes 0.2 s; others make new communicators and buffers."""
    from commbench.launch.elastic import launch, start_method

    options, nodes = planned.options, planned.nodes
    if options.launcher == "torchrun":
        if options.verbose:
            listener.status("ranks are started by the torchrun command")
        where = ["--resume" if planned.progress else "--output", str(tasks[0].folder)]
        words = [*options.arguments(), *where]
        return [partial(launchers.launch_with_torchrun, words, launchers.torchrun_line(nodes))]
    if options.launcher == launchers.RAY:
        from commbench.launch.ray_cluster import launch_on_ray

        return [partial(launch_on_ray, tasks, nodes, options.master_port, listener.status)]
    method, why = start_method(planned.plan.device, nodes)
    if options.verbose:
        listener.status(f"ranks are {method}ed by torchrun's agent: {why}")
    if method == "fork" and planned.plan.device == "cpu":
        return [partial(launch, [task], nodes, method) for task in tasks]
    return [partial(launch, tasks, nodes, method)]


def _make_tasks(
    planned: PlannedRun, listener: RunListener | None, folder_exists: bool
) -> list[LaunchTask]:
    """What ranks have to do, launch by launch, in a folder that rank 0 makes unless it exists."""
    if planned.progress:
        if listener:
            listener.status(progress_text(planned.progress))
        return remaining_tasks(planned.progress)
    options = planned.options
    folder = options.output or new_folder(options.name)
    task = LaunchTask(planned.plan, options.name, folder, folder_exists)
    return launch_tasks(task._replace(is_verbose=options.verbose, logs_nccl=options.nccl_log))


def _size_bytes(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _record_failure(
    folder: Path, error: CommbenchError, elapsed_s: float, listener: RunListener
) -> bool:
    """Write how a run ended, `elapsed_s` after its ranks were started, and with which rows.

    Returns whether there is anything to continue; where nothing was measured, the folder of a new
    run is removed."""
    from commbench.analysis.csv_file import ResultsCsv
    from commbench.analysis.rows import make_rows

    restore_cursor()
    try:
        run = read_run(folder)
    except RecordsError:
        remove_if_empty(folder)
        return False
    status = "interrupted" if isinstance(error, errors.Interrupted) else "failed"
    reason, kind = error.message[:LONGEST_TEXT], type(error).__name__
    end = RunEnd(status=status, reason=reason, elapsed_s=round(elapsed_s, 6), error=kind)
    try:
        Journal(folder).end(end)
        if run.measurements:
            ResultsCsv(folder).add(*make_rows(run))  # also the batches of cases that were cut off
    except RecordsError as unwritable:
        listener.status(f"cannot record how the run ended: {unwritable.message}")
    listener.ended(run._replace(end=end), error)
    return True


def remaining_tasks(progress: RunProgress) -> list[LaunchTask]:
    """The launches that are left, the first one perhaps partly done; empty for a complete run."""
    header = progress.run.header
    task = LaunchTask(header.plan, header.label, Path(progress.run.path), launch=progress.launch)
    task = task._replace(resumed_from=header, journal=progress.digest)
    is_finished = progress.run.launches > progress.launch
    current = [] if is_finished else [task._replace(finished=progress.finished)]
    return current + launch_tasks(task)[progress.launch + 1 :]


def launch_tasks(task: LaunchTask) -> list[LaunchTask]:
    """The task of each launch; the first makes the folder, where that does not exist."""
    numbers, exists = range(task.plan.launches), task.folder_exists
    return [task._replace(launch=n, folder_exists=exists or n > 0) for n in numbers]


def progress_text(progress: RunProgress) -> str:
    """What there is of a run, which is kept, and what is measured now."""
    run, launch, finished = progress.run, progress.launch, progress.finished
    plan, several = run.header.plan, run.header.plan.launches > 1
    parts = [f"{run.launches} of {plan.launches} launches"] * several
    if run.launches <= launch:
        of_launch = f" of launch {launch + 1}" * several
        parts.append(f"{len(finished)} of {format_count(len(plan.cases()), 'case')}{of_launch}")
    begun = [m for m in run.measurements if m.batches and m.case.index not in finished]
    more = sum(m.batches[-1].launch == launch for m in begun)
    begun_text = f", and another {more} in part" * bool(more)
    complete = f"{' and '.join(parts)} are complete{begun_text}"
    return f"resuming {run.path}: {complete}. All this is kept, and only the rest is measured now"
