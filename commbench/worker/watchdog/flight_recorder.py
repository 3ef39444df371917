"""Writes down what torch's flight recorder has recorded of a rank, when ranks hang.

torch's functions for that keep Python's lock, and may wait for the device with it: then the rank
could report nothing, and would never end. Its control plane answers in a thread of its own: an HTTP
server in a Unix socket (control_plane/WorkerServer.cpp), which is started for this one question.
"""

from __future__ import annotations

import socket
import threading
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from commbench.errors import RecordsError
from commbench.importers.traces.registry import read_trace
from commbench.units import format_bytes

FOLDER = "flight_recorder"
"""Of a run folder; `rank_3.json` is the dump of rank 3."""
HANDLERS = ("dump_nccl_trace_json", "fr_trace_json")
"""What to ask: for NCCL, and for gloo, which torch 2.13 records too."""


class FlightRecorderDump:
    """A dump that is under way in a thread of its own."""

    def __init__(self, folder: Path, rank: int, bound_s: float) -> None:
        """Write the dump into the folder; wait at most `bound_s` seconds for torch."""
        self.summary = ""
        """Which call hangs, as far as the dump tells; empty until it is written, and where torch
        has recorded nothing."""
        self._path, self._bound_s = folder / f"rank_{rank}.json", bound_s
        self._server: Any = None  # never ended: it would wait for its threads
        threading.Thread(target=self._run, daemon=True, name="commbench-flight-recorder").start()

    def _run(self) -> None:
        try:
            if not (dump := self._ask()):
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_bytes(dump)
            self.summary = summarise(self._path)
        except (OSError, HTTPException, AttributeError, RuntimeError, RecordsError):
            return  # this torch has none, it does not answer, or there is no place for the file

    def _ask(self) -> bytes:
        """The dump as JSON; empty where nothing is recorded."""
        with TemporaryDirectory(prefix="commbench-") as private:
            path = f"{private}/socket"
            self._server = torch._C._distributed_c10d._WorkerServer(path, -1)
            dumps = (self._post(path, handler) for handler in HANDLERS)
            return next((dump for dump in dumps if b'"entries":[{' in dump), b"")

    def _post(self, path: str, handler: str) -> bytes:
        connection = HTTPConnection("localhost")
        with socket.socket(socket.AF_UNIX) as connection.sock:
            connection.sock.settimeout(self._bound_s)
            connection.sock.connect(path)
            connection.request("POST", f"/handler/{handler}")
            return connection.getresponse().read()


def summarise(path: Path) -> str:
    """The first call in a dump that had not ended, or the last one that had."""
    calls = read_trace(path).calls
    call = next((call for call in calls if not call.has_ended), calls[-1])
    size = f" {format_bytes(call.size_bytes)}" if call.size_bytes else ""
    return (
        f"call {call.sequence} of group {call.group}, {call.operation} {call.dtype}{size}, "
        f"has {'' if call.has_ended else 'not '}ended"
    )
