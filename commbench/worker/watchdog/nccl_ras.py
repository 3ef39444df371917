"""Asks NCCL itself what its communicators do, when ranks hang.

NCCL 2.24 and newer have a service for that (RAS), in every process that uses NCCL: one of them per
host answers on localhost:28028, or on NCCL_RAS_ADDR. The protocol is lines of text, as documented
under "RAS" in NCCL's user guide and implemented in src/ras/client_support.cc.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping

ADDRESS = "localhost:28028"
REQUEST = b"timeout 1\nverbose status\n"
"""How many seconds NCCL waits for a process that does not answer, and what is asked. NCCL answers
the first line with OK, the second with its report, and then closes the connection."""
MOST_BYTES = 1 << 20
MOST_LINES, MOST_COLUMNS = 40, 160
ASKING_RANKS = 4
"""Only so many ranks ask: one of the lowest ranks that still run reports the hang."""


class RasRequest:
    """A request that is under way in a thread of its own."""

    def __init__(self, bound_s: float, variables: Mapping[str, str] = os.environ) -> None:
        """Ask the process of this host that listens; give up after `bound_s` seconds."""
        self._answer = bytearray()
        self._address = variables.get("NCCL_RAS_ADDR", ADDRESS)
        self._deadline = time.monotonic() + bound_s
        self._thread = threading.Thread(target=self._ask, daemon=True, name="commbench-nccl-ras")
        self._thread.start()

    def finish(self) -> str:
        """What NCCL has answered by the deadline, shortened, with a heading; empty without an
        answer, as from a version without RAS."""
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        lines = shorten(bytes(self._answer).decode(errors="replace"))
        return "\n".join([f"NCCL's RAS at {self._address} says:", *lines]) if lines else ""

    def _ask(self) -> None:
        host, _, port = self._address.rpartition(":")
        try:
            where = (host.strip("[]"), int(port))
            with socket.create_connection(where, timeout=self._left_s()) as connection:
                connection.sendall(REQUEST)
                while len(self._answer) < MOST_BYTES:
                    connection.settimeout(self._left_s())
                    part = connection.recv(1 << 16)
                    if not part:
                        return
                    self._answer += part
        except (OSError, ValueError, OverflowError):
            return  # nobody listens, or the time is up: what has come until then is used

    def _left_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def shorten(answer: str) -> list[str]:
    """The lines of an answer, indented, without empty ones and the OK of the first request."""
    lines = [line.rstrip()[:MOST_COLUMNS] for line in answer.splitlines() if line.strip()]
    lines = [f"  {line}" for line in lines if line != "OK"]
    more = len(lines) - MOST_LINES
    return lines[:MOST_LINES] + ([f"  and {more} more lines"] if more > 0 else [])
