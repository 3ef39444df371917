"""Where a rank that commbench itself launched begins: a forked or spawned process."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from commbench.errors import CommbenchError
from commbench.worker.desk import leave_error
from commbench.worker.seat import Seat
from commbench.worker.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What the launcher sends a rank to do."""

    task: Task
    desk: Path
    """A private folder of this launch: the meeting point, and what ranks report of their errors."""
    meets_in_file: bool


def enter(errand: Errand) -> None:
    """Run as the rank that torchrun's variables name; exit with the code of what went wrong."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        # The launcher decides when to stop, and then a rank must go at once, also out of a
        # collective that never returns to Python.
        signal.signal(number, signal.SIG_DFL)
    seat = Seat(
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        local_world_size=int(os.environ["LOCAL_WORLD_SIZE"]),
        launcher="local",
        meeting_point=f"file:{errand.desk / 'ranks'}" if errand.meets_in_file else "env://",
        desk=errand.desk,
    )
    from commbench.worker.rank import run_rank

    # A crash writes its stack here and not over the two lines that people read.
    stack = (errand.desk / f"stack-{seat.rank}").open("w")
    if os.environ.get("COMMBENCH_TRACEBACK") != "1":
        faulthandler.enable(stack)
    try:
        run_rank(errand.task, seat)
    except CommbenchError as error:
        leave_error(errand.desk, seat.rank, error)
        sys.exit(error.exit_code)
