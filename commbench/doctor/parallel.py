"""Jobs done at the same time in processes of their own, each of which answers with numbers."""

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
"""Prepares, calls what it is given, which returns when all jobs are ready, and gives answers."""


def together(jobs: Sequence[Job], undisturbed: bool = False) -> list[list[float]]:
    """The answers of jobs that are done at the same time; raises OSError where one of them dies.

    `undisturbed`: each keeps to one core, before all other work, where this user may ask for that.
    """
    with ExitStack() as running:
        gate, opener = os.pipe()
        running.callback(os.close, gate)
        gates = [_start(job, undisturbed, i, (gate, opener), running) for i, job in enumerate(jobs)]
        for answers in gates:
            if os.read(answers, 1) != READY:
                os.close(opener)
                raise ChildProcessError("a process that was to measure has ended")
        os.close(opener)
        return [_numbers(answers) for answers in gates]


def _start(
    job: Job, undisturbed: bool, number: int, gate: tuple[int, int], running: ExitStack
) -> int:
    """Start a process that does the job; where its answers can be read. It is killed at the end."""
    answers, told = os.pipe()
    child = os.fork()
    if not child:
        _do(job, undisturbed, number, gate, told)
    running.callback(os.waitpid, child, 0)
    running.callback(os.kill, child, signal.SIGKILL)
    running.callback(os.close, answers)
    os.close(told)
    return answers


def _do(job: Job, undisturbed: bool, number: int, gate: tuple[int, int], told: int) -> None:
    """Do the job and end this process, without a word and without what its parent would do."""

    def ready() -> None:
        os.close(gate[1])
        os.write(told, READY)
        os.read(gate[0], 1)  # ends when nobody can open the gate any more

    try:
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signal_number, signal.SIG_DFL)
        if undisturbed:
            _settle(number)
        os.write(told, array("d", job(ready)).tobytes())
    finally:
        os._exit(0)


def _settle(number: int) -> None:
    cores = os.sched_getaffinity(0)
    try:
        apply_cpu_mode("realtime", number)
    except CommbenchError:
        os.sched_setaffinity(0, cores)


def _numbers(answers: int) -> list[float]:
    told = b""
    while part := os.read(answers, 4096):
        told += part
    return [value for (value,) in struct.iter_unpack("d", told)]
