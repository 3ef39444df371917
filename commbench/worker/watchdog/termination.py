"""A rank that somebody else started is ended by them: mpirun and `srun --kill-on-bad-exit` do that
at once where another rank ended. It stays for a moment, in which there is something to be said.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

SIGNAL = signal.SIGTERM
STAY_S = 0.5
"""Open MPI kills 1 s later. Who left sooner would look to others like the one that ended."""


def keep_for_later() -> None:
    """Have the signal wait for a thread that asks for it; for this thread, and those it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {SIGNAL})


def when_dismissed(speak: Callable[[], None]) -> None:
    """Speak when the signal comes, and then end as it ends others; also out of an operation that
    never returns to Python."""

    def wait() -> None:
        signal.sigwait({SIGNAL})
        ends = time.monotonic() + STAY_S
        threading.Thread(target=speak, daemon=True).start()
        time.sleep(ends - time.monotonic())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGNAL})
        os.kill(os.getpid(), SIGNAL)

    threading.Thread(target=wait, daemon=True, name="commbench-dismissal").start()
