"""One `commbench run` from request to table: choose a place, plan, launch or join, report."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from commbench.errors import (
    CommbenchError,
    RankError,
    first_line,
)
from commbench.results.run_folder import new_folder
from commbench.runner.reporting import _choice, _say, report
from commbench.runner.run_options import RunOptions
from commbench.spec.plan import Plan

if TYPE_CHECKING:
    from commbench.launch.devices import Target
    from commbench.results.journal_reader import RunProgress
    from commbench.worker.context import RankContext


def _join(
    request: RunOptions,
    place: Target,
    plan: Plan,
    rank_context: RankContext,
    before: RunProgress | None,
) -> None:
    """Take part as a rank that somebody else started; rank 0 speaks and writes for all."""
    from commbench.launch.process_setup import raise_nofile_limit
    from commbench.launch.torchrun_command import ERROR_DIR
    from commbench.results.journal_reader import read_run
    from commbench.worker.context import LaunchTask
    from commbench.worker.rank import run_rank
    from commbench.worker.watchdog.error_files import record_error

    is_reporter = rank_context.rank == 0
    scratch_dir = Path(os.environ[ERROR_DIR]) if ERROR_DIR in os.environ else None
    rank_context = replace(rank_context, scratch_dir=scratch_dir)
    if scratch_dir and rank_context.one_host:
        rank_context = replace(rank_context, meeting_point=f"file:{scratch_dir / 'ranks'}")
    if before:
        from commbench.runner.tasks import progress_text, remaining_tasks

        _say(progress_text(before), is_reporter and not scratch_dir)
        (task,) = remaining_tasks(before)
    else:
        folder = request.output or new_folder(request.name)
        task = LaunchTask(
            plan=plan, label=request.name, folder=folder, folder_exists=bool(scratch_dir)
        )
    if is_reporter and not scratch_dir:
        choice = _choice(place, plan, resumed=before is not None)
        _say(f"{choice}; joining {rank_context.launcher}'s ranks")
    try:
        raise_nofile_limit(plan, has_store=is_reporter)
        run_rank(task, rank_context, partial(_tell, scratch_dir, rank_context.rank))
    except Exception as error:
        told = error if isinstance(error, CommbenchError) else _failure(error, rank_context)
        if scratch_dir:
            record_error(scratch_dir, rank_context.rank, told)
        if scratch_dir or not (told.is_reporter if isinstance(told, RankError) else is_reporter):
            sys.exit(told.exit_code)
        if told is error:
            raise
        raise told from error
    if is_reporter and not scratch_dir:
        report(read_run(task.folder), request)


def _failure(error: Exception, rank_context: RankContext) -> RankError:
    """A collective that failed: another rank is gone, or the network. torch says what it saw."""
    return RankError(
        f"rank {rank_context.rank} on {gethostname()} failed: {first_line(error)}",
        "the first rank that failed tells most; COMMBENCH_TRACEBACK=1 shows where",
    )


def _tell(scratch_dir: Path | None, rank: int, error: RankError, is_reporter: bool) -> None:
    """Say that all ranks stand still, from a rank whose main thread does."""
    from commbench.output.console import print_error
    from commbench.worker.watchdog.error_files import record_error

    if scratch_dir:
        record_error(scratch_dir, rank, error)
    elif is_reporter:
        print_error(error.message, error.hint, error.details)
