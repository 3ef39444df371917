"""Runs on ranks that commbench launches on this node: recorded, or temporary ones."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from commbench import errors
from commbench.errors import CommbenchError, RecordsError
from commbench.output.paragraphs import fill
from commbench.results.run_folder import JOURNAL, RESULTS, new_folder
from commbench.results.schema import Run, RunEnd
from commbench.runner.planning import PlannedRun, RunListener
from commbench.runner.process_state import restored_process_state
from commbench.runner.resume import launch_tasks, progress_text, remaining_tasks
from commbench.spec.dimensions import HOT
from commbench.spec.operations import OPERATIONS
from commbench.spec.plan import Plan
from commbench.spec.refusals import require_ready_case
from commbench.spec.timing_modes import DEFAULT_TIMING, EAGER, GRAPH
from commbench.validation import LONGEST_TEXT

if TYPE_CHECKING:
    from commbench.worker.context import LaunchTask

NOTHING_MEASURED = "nothing was measured yet: run the same command again"
"""The hint for a run that was interrupted before its ranks began to measure."""


def launch_ranks(planned: PlannedRun, listener: RunListener) -> Run | None:
    """Launch the ranks of this node, once or several times, and wait for them.

    Returns the recorded run on node 0, None on others. Raises the CommbenchError that ended it;
    what had been measured is recorded, and given to the listener.
    """
    from commbench.results.journal_reader import read_run

    require_ready_case(planned.plan)
    tasks = _make_tasks(planned, listener)
    listener.status(planned.summary)
    folder, started = tasks[0].folder, time.monotonic()
    journal_bytes = _size_bytes(folder / JOURNAL)
    try:
        if not planned.progress and (found := _log_nccl_selections(planned, listener)):
            tasks = [replace(task, nccl_selections=found) for task in tasks]
        for task, *later in _groups_of_launches(planned, tasks):
            started = time.monotonic()
            _launch(planned, task, later, listener)
    except (CommbenchError, OSError, MemoryError, ImportError) as caught:
        error = caught if isinstance(caught, CommbenchError) else errors.from_os_error(caught)
        errors.ignore_interruptions()
        # The journal of a run that is resumed stays as it was if no rank wrote to it.
        if planned.is_reporter:
            is_recorded = bool(planned.progress)
            if not is_recorded or _size_bytes(folder / JOURNAL) > journal_bytes:
                elapsed_s = time.monotonic() - started
                is_recorded = _record_failure(folder, error, elapsed_s, listener)
            resume = f"`commbench run --resume {quote(str(folder))}`"
            if isinstance(error, errors.Interrupted):
                error.hint = f"continue with {resume}" if is_recorded else NOTHING_MEASURED
            elif is_recorded:
                listener.status(fill(f"What was measured is kept. {resume} continues the run."))
        if error is caught:
            raise
        raise error from caught
    return read_run(folder) if planned.is_reporter else None


def run_temporarily(plan: Plan, label: str) -> Run:
    """Measure a plan on ranks launched here, without progress, and remove its folder: what the
    smoke test and the doctor measure.

    Raises CommbenchError; its `run` is what was recorded until then.
    """
    from commbench.launch.elastic import launch, start_method
    from commbench.launch.torchrun_command import NodeConfig
    from commbench.results.journal_reader import read_run
    from commbench.results.run_folder import create_folder
    from commbench.worker.context import LaunchTask

    nodes = NodeConfig(ranks_per_node=plan.world_size)
    method, _ = start_method(plan.device, nodes)
    with TemporaryDirectory(prefix=f"commbench-{label}-") as parent, restored_process_state():
        folder = create_folder(Path(parent) / "run")
        task = LaunchTask(plan=plan, label=label, folder=folder, is_silent=True)
        try:
            launch(task, nodes, method)
        except CommbenchError as error:
            try:
                error.run = read_run(folder)
            except RecordsError:
                error.run = None
            raise
        return read_run(folder)


def _groups_of_launches(planned: PlannedRun, tasks: list[LaunchTask]) -> list[list[LaunchTask]]:
    """The launches of a run by the processes that measure them. Each has new ones where they are
    forked for CPUs, which takes 0.2 s; others make new communicators and buffers."""
    from commbench.launch.elastic import start_method

    method, _ = start_method(planned.plan.device, planned.nodes)
    is_forked = planned.options.launcher == "agent" and method == "fork"
    if is_forked and planned.plan.device == "cpu":
        return [[task] for task in tasks]
    return [tasks]


def _launch(
    planned: PlannedRun, task: LaunchTask, later: list[LaunchTask], listener: RunListener
) -> None:
    from commbench.launch.elastic import launch, start_method
    from commbench.launch.process_setup import raise_nofile_limit
    from commbench.launch.torchrun_command import launch_with_torchrun, torchrun_line

    options, nodes = planned.options, planned.nodes
    if options.launcher == "torchrun":
        raise_nofile_limit(planned.plan, nodes.ranks_per_node)
        if options.verbose:
            listener.status("ranks are started by the torchrun command")
        where = ["--resume" if planned.progress else "--output", str(task.folder)]
        launch_with_torchrun([*options.arguments(), *where], torchrun_line(nodes))
        return
    method, why = start_method(planned.plan.device, nodes)
    if options.verbose:
        listener.status(f"ranks are {method}ed by torchrun's agent: {why}")
    launch(task, nodes, method, later)


def _log_nccl_selections(planned: PlannedRun, listener: RunListener) -> dict[str, list[list[str]]]:
    """Which algorithms NCCL selects for the cases of a plan (analysis.nccl_log), by its log of a
    call of each, in ranks of their own: a line for each call costs time. Empty where NCCL is not
    measured, is not to log, or cannot: then the run itself says why."""
    from commbench.analysis.nccl_log import SELECTIONS
    from commbench.launch.elastic import launch, start_method
    from commbench.results.journal_reader import read_run
    from commbench.results.run_folder import create_folder
    from commbench.worker.context import LaunchTask
    from commbench.worker.nccl_log import FILE, VARIABLES, may_log

    options, nodes = planned.options, planned.nodes
    is_possible = options.nccl_log and options.launcher == "agent" and nodes.count == 1
    is_eager = planned.plan.launch_mode != GRAPH
    is_selected = is_eager and any(OPERATIONS[o].nccl_function for o in planned.plan.operations)
    if not is_possible or not is_selected or not may_log(planned.plan):
        return {}
    listener.status("learning which algorithms NCCL selects; --no-nccl-log leaves this out")
    plan = replace(
        planned.plan, iterations=1, warmup=0, launches=1, check=False, order="ascending",
        launch_mode=EAGER, timing=DEFAULT_TIMING, buffers=HOT,
        timeout_s=min(planned.plan.timeout_s, 60.0),
    )  # fmt: skip
    with TemporaryDirectory(prefix="commbench-nccl-") as parent, restored_process_state():
        log = str(Path(parent) / "nccl.%p.log")
        os.environ.update(VARIABLES | {"NCCL_DEBUG_SUBSYS": "TUNING", FILE: log})
        task = LaunchTask(
            plan=plan, label=options.name, folder=create_folder(Path(parent) / "run"),
            is_silent=True, nccl_tuning_log=log,
        )  # fmt: skip
        try:
            launch(task, nodes, start_method(plan.device, nodes)[0])
            found = read_run(task.folder).header.environment.get(SELECTIONS)
        except errors.Interrupted:
            raise
        except CommbenchError as error:
            listener.status(f"NCCL's selections are not known: {error.message}")
            return {}
    return found if isinstance(found, dict) else {}


def _make_tasks(planned: PlannedRun, listener: RunListener) -> list[LaunchTask]:
    """What ranks have to do, launch by launch; node 0 makes the folder."""
    from commbench.results.run_folder import create_folder
    from commbench.worker.context import LaunchTask

    if planned.progress:
        listener.status(progress_text(planned.progress))
        return remaining_tasks(planned.progress)
    options, folder = planned.options, RESULTS
    if planned.is_reporter:
        folder = create_folder(options.output or new_folder(options.name))
    task = LaunchTask(
        plan=planned.plan,
        label=options.name,
        folder=folder,
        is_verbose=options.verbose,
        logs_nccl=options.nccl_log,
    )
    return launch_tasks(task)


def _size_bytes(file: Path) -> int:
    """The size of a file; 0 where there is none."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _record_failure(
    folder: Path, error: CommbenchError, elapsed_s: float, listener: RunListener
) -> bool:
    """Write how a run ended, `elapsed_s` after its ranks were started, and with which rows.

    Returns whether there is anything to continue; where nothing was measured, the folder of a new
    run is removed."""
    from commbench.analysis.csv_file import ResultsCsv
    from commbench.analysis.rows import make_rows
    from commbench.output.progress import restore_cursor
    from commbench.results.journal import Journal, remove_if_empty
    from commbench.results.journal_reader import read_run

    restore_cursor()
    try:
        run = read_run(folder)
    except RecordsError:
        remove_if_empty(folder)
        return False
    status = "interrupted" if isinstance(error, errors.Interrupted) else "failed"
    reason = error.message[:LONGEST_TEXT]
    end = RunEnd(status=status, reason=reason, elapsed_s=round(elapsed_s, 6))
    try:
        Journal(folder).end(end)
        if run.measurements:
            ResultsCsv(folder).add(*make_rows(run))  # also the batches of cases that were cut off
    except RecordsError as unwritable:
        listener.status(f"cannot record how the run ended: {unwritable.message}")
    listener.ended(run._replace(end=end), error)
    return True
