"""SIGTERM for a rank that another launcher started.

mpirun and `srun --kill-on-bad-exit` send it to all ranks as soon as one has ended. The rank then
stays for a moment, in which it can report which rank that was.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

SIGNAL = signal.SIGTERM


def block_sigterm() -> None:
    """Block SIGTERM in this thread and in those it starts, for a TerminationThread to receive."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {SIGNAL})


class TerminationThread:
    """Calls `report` when SIGTERM comes, and ends the process `delay_s` later as SIGTERM does; also
    out of an operation that never returns to Python."""

    def __init__(self, report: Callable[[], None], delay_s: float) -> None:
        self._report = report
        self._delay_s = delay_s
        self._closed = False
        self._thread = threading.Thread(target=self._wait, daemon=True, name="commbench-sigterm")
        self._thread.start()

    def close(self) -> None:
        """End the thread, and unblock SIGTERM in the thread that calls this."""
        self._closed = True
        if self._thread.is_alive():
            signal.pthread_kill(self._thread.ident or 0, SIGNAL)
        self._thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGNAL})

    def _wait(self) -> None:
        signal.sigwait({SIGNAL})
        if self._closed:
            return
        deadline = time.monotonic() + self._delay_s
        threading.Thread(target=self._report, daemon=True).start()
        time.sleep(max(0.0, deadline - time.monotonic()))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGNAL})
        os.kill(os.getpid(), SIGNAL)
