"""A run of which this process is one rank, started by torchrun, srun or mpirun."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from socket import gethostname

from commbench.errors import CommbenchError, RankError, reason_of
from commbench.results.run_folder import new_folder
from commbench.results.schema import Run
from commbench.runner.planning import PlannedRun, RunListener
from commbench.runner.resume import launch_tasks, progress_text, remaining_tasks


def join_ranks(planned: PlannedRun, listener: RunListener) -> Run | None:
    """Take part in a run as one rank; rank 0 records it.

    Returns the recorded run on rank 0, None on other ranks and where a commbench that started
    torchrun reports it. Raises CommbenchError, with `is_reporter` false where another process
    reports it.
    """
    from commbench.launch.process_setup import raise_nofile_limit
    from commbench.launch.torchrun_command import ERROR_DIR
    from commbench.results.journal_reader import read_run
    from commbench.worker.context import LaunchTask
    from commbench.worker.rank import run_rank
    from commbench.worker.watchdog.error_files import record_error

    assert planned.rank_context is not None
    # Set by the commbench that started torchrun: it reads the errors there, and reports the run.
    scratch_dir = Path(os.environ[ERROR_DIR]) if ERROR_DIR in os.environ else None
    is_reporter = planned.is_reporter and not scratch_dir
    context = replace(planned.rank_context, scratch_dir=scratch_dir)
    if scratch_dir and context.is_single_node:
        context = replace(context, init_method=f"file:{scratch_dir / 'ranks'}")
    if planned.progress:
        if is_reporter:
            listener.status(progress_text(planned.progress))
        tasks = remaining_tasks(planned.progress)
    else:
        options = planned.options
        folder = options.output or new_folder(options.name)
        task = LaunchTask(
            plan=planned.plan, label=options.name, folder=folder, folder_exists=bool(scratch_dir),
            is_verbose=options.verbose,
        logs_nccl=options.nccl_log,
        )  # fmt: skip
        tasks = launch_tasks(task)
    if is_reporter:
        listener.status(f"{planned.summary}; joining {context.launcher}'s ranks")

    def report_hang(error: RankError, reports: bool) -> None:
        """Called by another thread: all ranks hang, the main thread of this one too."""
        if scratch_dir:
            record_error(scratch_dir, context.rank, error)
        elif reports:
            listener.hung(error)

    try:
        raise_nofile_limit(planned.plan, has_store=planned.is_reporter)
        run_rank(tasks, context, report_hang)
    except Exception as caught:
        error = caught if isinstance(caught, CommbenchError) else _rank_error(caught, context.rank)
        if scratch_dir:
            record_error(scratch_dir, context.rank, error)
            error.is_reporter = False
        elif not isinstance(error, RankError):
            error.is_reporter = is_reporter
        if error is caught:
            raise
        raise error from caught
    return read_run(tasks[0].folder) if is_reporter else None


def _rank_error(error: Exception, rank: int) -> RankError:
    """The error of a collective that failed: another rank or the network is gone."""
    return RankError(
        f"rank {rank} on {gethostname()} failed: {reason_of(error)}",
        "look at the rank that failed first; COMMBENCH_TRACEBACK=1 shows where it failed",
    )
