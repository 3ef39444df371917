"""One `commbench run` from request to table: choose a place, plan, launch or join, report."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from commbench.errors import (
    CommbenchError,
    from_os_error,
    ignore_interruptions,
)
from commbench.results.run_folder import RESULTS, new_folder
from commbench.runner.reporting import _choice, _give_up, _has_grown, _say, report
from commbench.runner.run_options import RunOptions
from commbench.spec.plan import Plan, require_ready_case

if TYPE_CHECKING:
    from commbench.launch.devices import Target
    from commbench.launch.elastic import NodeConfig
    from commbench.results.journal_reader import RunProgress
    from commbench.worker.context import LaunchTask


def _launch(
    request: RunOptions, place: Target, plan: Plan, nodes: NodeConfig, before: RunProgress | None
) -> None:
    from commbench.launch.elastic import launch, start_method
    from commbench.launch.process_setup import raise_nofile_limit
    from commbench.launch.torchrun_command import launch_with_torchrun, torchrun_line
    from commbench.results.journal_reader import read_run
    from commbench.results.run_folder import JOURNAL

    require_ready_case(plan)
    _say(_choice(place, plan, resumed=before is not None))
    writes, began = nodes.rank == 0, time.monotonic()
    tasks = _make_tasks(request, plan, writes, before)
    folder = tasks[0].folder
    had_bytes = (folder / JOURNAL).stat().st_size if writes else 0

    def give_up(error: CommbenchError) -> None:
        ignore_interruptions()
        if writes and (not before or _has_grown(folder / JOURNAL, had_bytes)):
            _give_up(folder, error, time.monotonic() - began)

    try:
        if request.launcher == "torchrun":
            raise_nofile_limit(plan, nodes.ranks_per_node)
            _say("ranks are started by the torchrun command", request.verbose)
            place_of_run = ["--resume" if before else "--output", str(folder)]
            launch_with_torchrun([*request.arguments(), *place_of_run], torchrun_line(nodes))
        else:
            for task in tasks:
                began = time.monotonic()
                _say(f"launch {task.launch + 1} of {plan.launches}", plan.launches > 1)
                method, why = start_method(plan.device, nodes)
                _say(f"ranks are {method}ed by torchrun's agent: {why}", request.verbose)
                launch(task, nodes, method)
    except CommbenchError as error:
        give_up(error)
        raise
    except (OSError, MemoryError, ImportError) as error:
        trouble = from_os_error(error)
        give_up(trouble)
        raise trouble from error
    if writes:
        report(read_run(folder), request)


def _make_tasks(
    request: RunOptions, plan: Plan, writes: bool, before: RunProgress | None
) -> list[LaunchTask]:
    """What ranks are to do, launch by launch; the folder is there, if this node writes."""
    from commbench.results.run_folder import create_folder
    from commbench.worker.context import LaunchTask

    if before:
        from commbench.runner.tasks import progress_text, remaining_tasks

        _say(progress_text(before))
        return remaining_tasks(before)
    folder = create_folder(request.output or new_folder(request.name)) if writes else RESULTS
    task = LaunchTask(plan=plan, label=request.name, folder=folder)
    return [replace(task, launch=number) for number in range(plan.launches)]
