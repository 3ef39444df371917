"""The speed of the host itself, which rank 0 measures now and then.

The measurement is small and the same in every run, so that a comparison of two runs knows whether
the host was slower during one of them.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import Any

import torch

INTERVAL_S = 0.1
"""The least time between two measurements. One takes about 2 ms."""
MOST_S = 1e-3
"""Round trips, and copies, are repeated for so long; one of each is made on a slow host too."""
COPY_BYTES = 4 << 20


class HostSpeedProbe:
    """Measures the speed of the host now and then."""

    def __init__(self) -> None:
        self._due = 0.0
        self._source = torch.zeros(COPY_BYTES, dtype=torch.uint8)
        self._target = torch.zeros_like(self._source)
        self._echo: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            self._echo = subprocess.Popen(
                ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
            # Not on the core of this rank: the message has to wake another one.
            own = os.sched_getaffinity(0)
            if others := set(range(os.cpu_count() or 1)) - own:
                os.sched_setaffinity(self._echo.pid, others)

    def measure_if_due(self) -> dict[str, Any]:
        """Fields of a Batch: the median seconds of a message to another process and back, None
        where none answers, and of a copy in memory. Empty where they were measured a short time
        ago."""
        if time.monotonic() < self._due:
            return {}
        found = {
            "host_round_trip_s": self._time_round_trip(),
            "host_copy_s": _median_s(lambda: self._target.copy_(self._source)),
        }
        self._due = time.monotonic() + INTERVAL_S
        return found

    def close(self) -> None:
        """End the other process."""
        if self._echo:
            self._echo.kill()
            self._echo.communicate()

    def _time_round_trip(self) -> float | None:
        echo = self._echo
        if not (echo and echo.stdin and echo.stdout):
            return None
        to, back = echo.stdin.fileno(), echo.stdout.fileno()

        def round_trip() -> None:
            os.write(to, b"\0")
            os.read(back, 1)

        try:
            return _median_s(round_trip)
        except OSError:
            return None


def _median_s(call: Callable[[], object]) -> float:
    spent: list[float] = []
    while not spent or sum(spent) < MOST_S:
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return median(spent)
