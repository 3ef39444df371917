"""A run that leaves no folder behind: what the smoke test and the doctor measure."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from commbench.errors import CommbenchError, RecordsError
from commbench.results.schema import Run
from commbench.runner.process_state import restored_process_state
from commbench.spec.plan import Plan


def run_temporarily(plan: Plan, label: str) -> Run:
    """Measure a plan on ranks launched here, without progress, and remove its folder.

    Raises CommbenchError; its `run` is what was recorded until then.
    """
    from commbench.launch.elastic import NodeConfig, launch, start_method
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
