"""Jobs that run at the same time in processes of their own and return numbers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

from commbench.errors import CommbenchError
from commbench.host.cpu_modes import apply_cpu_mode

Job = Callable[[Callable[[], None]], Iterable[float]]
"""A function that prepares, calls its argument, which waits for all jobs, and returns numbers."""


def run_parallel(jobs: Sequence[Job], realtime: bool = False) -> list[list[float]]:
    """Run jobs at the same time and return the numbers of each; raises OSError where one dies.

    With `realtime` each runs on a core of its own under SCHED_FIFO, where this user may use that.
    """
    context = get_context("fork")
    with ExitStack() as running:
        pipes = []
        for number, job in enumerate(jobs):
            near, far = context.Pipe()
            process = context.Process(target=_run_job, args=(job, realtime, number, far))
            process.start()
            running.callback(process.join)
            running.callback(process.kill)
            running.enter_context(near)
            far.close()
            pipes.append(near)
        try:
            for pipe in pipes:
                pipe.recv()
            for pipe in pipes:
                pipe.send("go")
            return [pipe.recv() for pipe in pipes]
        except EOFError:
            raise ChildProcessError("a process that was to measure has ended") from None


def _run_job(job: Job, realtime: bool, number: int, pipe: Connection) -> None:
    """Do the job in a process of its own, without the parent's handlers; one that fails has no
    numbers."""

    def ready() -> None:
        pipe.send("ready")
        pipe.recv()

    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_DFL)
    if realtime:
        cores = os.sched_getaffinity(0)
        try:
            apply_cpu_mode("realtime", number)
        except CommbenchError:
            os.sched_setaffinity(0, cores)
    numbers: list[float] = []
    with suppress(OSError, EOFError):
        numbers = list(job(ready))
    with suppress(OSError):
        pipe.send(numbers)
