"""What NCCL and torch themselves know of ranks that hang.

NCCL 2.24 and newer have a service for that (RAS), in every process that uses NCCL: one of them per
host answers on localhost:28028, or on NCCL_RAS_ADDR. The protocol is lines of text, as documented
under "RAS" in NCCL's user guide and implemented in src/ras/client_support.cc. Several processes of
a user can listen there at once (SO_REUSEPORT), and those of another job too. So the process that
has taken the connection is looked up in /proc, and only one of this job is asked.

torch's functions for its flight recorder keep Python's lock, and may wait for the device with it:
then the rank could report nothing, and would never end. Its control plane answers in a thread of
its own: an HTTP server in a Unix socket (control_plane/WorkerServer.cpp), which is started for this
one question.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from commbench.errors import RecordsError
from commbench.readers.trace_formats import read_trace
from commbench.units import format_bytes

ADDRESS = "localhost:28028"
REQUEST = b"timeout 1\nverbose status\n"
"""How many seconds NCCL waits for a process that does not answer, and what is asked. NCCL answers
the first line with OK, the second with its report, and then closes the connection."""
MOST_BYTES = 1 << 20
MOST_LINES, MOST_COLUMNS = 40, 160
RETRY_S = 0.02
PROC = Path("/proc")
ASKING_RANKS = 4
"""Only so many ranks ask: one of the lowest ranks that still run reports the hang."""


class RasRequest:
    """A request that is under way in a thread of its own."""

    def __init__(
        self, bound_s: float, variables: Mapping[str, str] = os.environ, pids: Collection[int] = ()
    ) -> None:
        """Ask a process of this host that listens, if it is of this job: this one, one that the
        same process started, or one of `pids`. Give up after `bound_s` seconds."""
        self._pids = pids
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
            while True:
                with socket.create_connection(where, timeout=self._left_s()) as connection:
                    if self._is_ours(connection):
                        self._read_answer(connection)
                        return
                time.sleep(min(RETRY_S, self._left_s()))  # perhaps another takes the next one
        except (OSError, ValueError, OverflowError):
            return  # nobody listens, or the time is up: what has come until then is used

    def _read_answer(self, connection: socket.socket) -> None:
        connection.sendall(REQUEST)
        while len(self._answer) < MOST_BYTES:
            connection.settimeout(self._left_s())
            part = connection.recv(1 << 16)
            if not part:
                return
            self._answer += part

    def _is_ours(self, connection: socket.socket) -> bool:
        """Whether the process at the other end belongs to this job. It is asked nothing until it
        has accepted the connection."""
        ends = connection.getpeername()[1], connection.getsockname()[1]
        while (inode := find_socket(*ends)) == "0":
            time.sleep(min(RETRY_S, self._left_s()))
        known, parent = {os.getpid(), *self._pids}, os.getppid()
        pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
        ours = (pid for pid in pids if pid in known or _parent(pid) == parent)
        return bool(inode) and any(_has_socket(pid, inode) for pid in ours)

    def _left_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def find_socket(local_port: int, remote_port: int) -> str:
    """The inode of the socket of this host that is connected from one port to the other; `0` before
    it is accepted, empty where there is none or it cannot be seen."""
    wanted = [f"{port:04X}" for port in (local_port, remote_port)]
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                if [end.rpartition(":")[2] for end in fields[1:3]] == wanted:
                    return fields[9]
    return ""


def _has_socket(pid: int, inode: str) -> bool:
    with suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if str(entry.readlink()) == f"socket:[{inode}]":
                    return True
    return False


def _parent(pid: int) -> int:
    """The process that started another; 0 where that is not known."""
    with suppress(OSError, ValueError, IndexError):
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def shorten(answer: str) -> list[str]:
    """The lines of an answer, indented, without empty ones and the OK of the first request."""
    lines = [line.rstrip()[:MOST_COLUMNS] for line in answer.splitlines() if line.strip()]
    lines = [f"  {line}" for line in lines if line != "OK"]
    more = len(lines) - MOST_LINES
    return lines[:MOST_LINES] + ([f"  and {more} more lines"] if more > 0 else [])


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
