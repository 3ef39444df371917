"""Jobs that run at the same time in processes of their own and return numbers."""

from __future__ import annotations

import os
import signal
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

from commbench.errors import CommbenchError
from commbench.host.cpu_modes import apply_cpu_mode

READY = b"r"

Job = Callable[[Callable[[], None]], Iterable[float]]
"""A function that prepares, calls its argument, which waits for all jobs, and returns numbers."""


def run_parallel(jobs: Sequence[Job], realtime: bool = False) -> list[list[float]]:
    """Run jobs at the same time and return the numbers of each; raises OSError where one dies.

    With `realtime` each runs on a core of its own under SCHED_FIFO, where this user may use that.
    """
    with ExitStack() as running:
        gate, opener = os.pipe()
        running.callback(os.close, gate)
        gates = [_start(job, realtime, i, (gate, opener), running) for i, job in enumerate(jobs)]
        for answers in gates:
            if os.read(answers, 1) != READY:
                os.close(opener)
                raise ChildProcessError("a process that was to measure has ended")
        os.close(opener)
        return [_read_numbers(answers) for answers in gates]


def _start(job: Job, realtime: bool, number: int, gate: tuple[int, int], running: ExitStack) -> int:
    """Start a process for a job, which is killed at the end; returns the pipe of its numbers."""
    answers, writer = os.pipe()
    child = os.fork()
    if not child:
        _run_job(job, realtime, number, gate, writer)
    running.callback(os.waitpid, child, 0)
    running.callback(os.kill, child, signal.SIGKILL)
    running.callback(os.close, answers)
    os.close(writer)
    return answers


def _run_job(job: Job, realtime: bool, number: int, gate: tuple[int, int], writer: int) -> None:
    """Do the job and end this process, without the parent's handlers and clean-up."""

    def ready() -> None:
        os.close(gate[1])
        os.write(writer, READY)
        os.read(gate[0], 1)  # returns when all writing ends of the gate are closed

    try:
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signal_number, signal.SIG_DFL)
        if realtime:
            _apply_realtime(number)
        os.write(writer, array("d", job(ready)).tobytes())
    finally:
        os._exit(0)


def _apply_realtime(number: int) -> None:
    cores = os.sched_getaffinity(0)
    try:
        apply_cpu_mode("realtime", number)
    except CommbenchError:
        os.sched_setaffinity(0, cores)


def _read_numbers(answers: int) -> list[float]:
    received = b""
    while part := os.read(answers, 4096):
        received += part
    return [value for (value,) in struct.iter_unpack("d", received)]
