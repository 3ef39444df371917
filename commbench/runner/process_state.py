"""Saves and restores what a run changes of the process that calls it."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from commbench.errors import INTERRUPTIONS

_SIGNALS = (*INTERRUPTIONS, signal.SIGQUIT)


@contextmanager
def restored_process_state() -> Iterator[None]:
    """Put back signal handlers, environment variables, cores, scheduling policy, the number of
    torch's threads and garbage collection as they were.

    Meanwhile torch has one compute thread, as in every rank that is forked from this process.
    """
    variables = dict(os.environ)
    collects = gc.isenabled()
    cores, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
    priority = os.sched_getparam(0)
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS} if is_main else {}
    torch: Any = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 0
    if torch:
        torch.set_num_threads(_compute_threads())
    try:
        yield
    finally:
        if torch:
            torch.set_num_threads(threads)
        for number, handler in handlers.items():
            if handler is not None:  # None: it was not set from Python
                signal.signal(number, handler)
        with suppress(OSError):  # a policy that may be left need not be one that may be entered
            os.sched_setscheduler(0, policy, priority)
        os.sched_setaffinity(0, cores)
        (gc.enable if collects else gc.disable)()
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)


def _compute_threads() -> int:
    """OMP_NUM_THREADS, or 1 where that is not a number."""
    text = os.environ.get("OMP_NUM_THREADS", "1")
    return int(text) if text.isdecimal() and int(text) else 1
