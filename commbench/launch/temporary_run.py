"""A run in a temporary folder, for commands that need its results but keep no folder."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from commbench.errors import CommbenchError, RecordsError
from commbench.launch.elastic import NodeConfig, launch, start_method
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import create_folder
from commbench.results.schema import Run
from commbench.spec.plan import Plan
from commbench.worker.context import LaunchTask


def run_in_temporary_folder(plan: Plan, label: str) -> tuple[Run | None, CommbenchError | None]:
    """Run a plan on ranks of this host, in a folder that is removed afterwards.

    Returns the run as far as it was recorded, and the error that ended it.
    """
    nodes = NodeConfig(ranks_per_node=plan.world_size)
    with TemporaryDirectory(prefix=f"commbench-{label}-") as scratch, _signal_handlers_restored():
        folder = create_folder(Path(scratch) / "run")
        method, _ = start_method(plan.device, nodes)
        try:
            launch(LaunchTask(plan=plan, label=label, folder=folder, silent=True), nodes, method)
        except CommbenchError as error:
            try:
                return read_run(folder), error
            except RecordsError:
                return None, error
        return read_run(folder), None


@contextmanager
def _signal_handlers_restored() -> Iterator[None]:
    """Restore the signal handlers afterwards, since torchrun's agent leaves its own behind."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
