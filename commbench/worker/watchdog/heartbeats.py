"""Heartbeats: each rank publishes its state once a second, for the others to read when one hangs.

Ranks that commbench started on one host share a scratch folder, in which their states are. All
others publish theirs in the TCPStore in which they met, over a connection of their own.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist

from commbench.worker.context import RankContext
from commbench.worker.watchdog.error_files import read_failures, write_json
from commbench.worker.watchdog.rank_state import RankState, read_states

HEARTBEAT, PUBLISHED = "commbench/heartbeat/", "commbench/published/"
"""Keys by rank: its heartbeat, and how many it published."""
LOST_RANK = "commbench/lost_rank"
"""Key of a counter of reports."""


class Heartbeat(NamedTuple):
    """What a rank publishes about itself."""

    host: str
    state: RankState
    stack: tuple[str, ...] = ()
    """The calls of its main thread, innermost last; only once it has found that nothing moves."""
    failure: str = ""
    """How it failed, if it did."""
    recorded: str = ""
    """What torch's flight recorder has recorded of it, once nothing moves."""

    @property
    def is_in_torch(self) -> bool:
        """Whether its innermost Python call is torch's, as in a rank that waits for others."""
        return bool(self.stack) and "/torch/" in self.stack[-1]


class FileHeartbeats:
    """All ranks are on this host, their states in one folder. The launcher ends them all when one
    is lost."""

    has_lost_rank = False
    """Whether a rank has reported a lost one, or rank 0, which has the store, is lost itself."""

    def __init__(self, scratch_dir: Path, rank: int) -> None:
        self._scratch_dir = scratch_dir
        self._rank = rank
        self._host = socket.gethostname()

    def publish(self, heartbeat: Heartbeat) -> None:
        """Replace this rank's heartbeat."""
        if heartbeat.stack:
            found = (heartbeat.stack, heartbeat.recorded)
            write_json(self._scratch_dir / f"calls-{self._rank}", found)

    def read(self) -> dict[int, Heartbeat]:
        """The heartbeats by rank, without the ranks that cannot be reached."""
        failures = read_failures(self._scratch_dir)
        causes = {rank: each.text for rank, each in failures.items() if not each.is_secondary}
        found = {}
        for rank, state in read_states(self._scratch_dir).items():
            stack, recorded = self._calls(rank)
            cause = causes.get(rank, "")
            found[rank] = Heartbeat(self._host, state, tuple(stack), cause, recorded)
        return found

    def report_lost_rank(self) -> None:
        """Tell all ranks that one of them is lost."""

    def close(self) -> None:
        """Read no more, and publish no more than what was published before."""

    def _calls(self, rank: int) -> tuple[Sequence[str], str]:
        path = self._scratch_dir / f"calls-{rank}"
        return json.loads(path.read_text()) if path.exists() else ((), "")


class TcpStoreHeartbeats:
    """The same for ranks of several hosts, or of another launcher. A thread of its own uses the
    store, because a call can take long where a link is cut."""

    def __init__(
        self, address: tuple[str, int], rank: int, world_size: int, timeout_s: float
    ) -> None:
        self.has_lost_rank = False
        self._address = address
        self._rank, self._world_size = rank, world_size
        self._timeout_s = timeout_s
        self._reports_loss = False
        self._is_closed = False
        self._own: Heartbeat | None = None
        self._found: dict[int, Heartbeat] = {}
        self._read_requested = threading.Event()
        self._changed = threading.Event()
        threading.Thread(target=self._run, daemon=True, name="commbench-heartbeats").start()

    def publish(self, heartbeat: Heartbeat) -> None:
        self._own = heartbeat
        self._changed.set()

    def read(self) -> dict[int, Heartbeat]:
        self._found = {}
        self._read_requested.set()
        self._changed.set()
        deadline = time.monotonic() + self._timeout_s
        while self._read_requested.is_set() and time.monotonic() < deadline:
            time.sleep(0.05)
        own = {self._rank: self._own} if self._own else {}
        return dict(sorted((self._found | own).items()))

    def report_lost_rank(self) -> None:
        self._reports_loss = True
        self._changed.set()

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()

    def _run(self) -> None:
        store: Any = None
        was_reached = False
        while not self._is_closed:
            self._changed.wait()
            self._changed.clear()
            read_requested = self._read_requested.is_set()
            try:
                store = store or self._connect()
                if self._own:
                    store.set(f"{HEARTBEAT}{self._rank}", json.dumps(self._own))
                    store.add(f"{PUBLISHED}{self._rank}", 1)
                self.has_lost_rank = bool(store.add(LOST_RANK, int(self._reports_loss)))
                was_reached = True
                if read_requested:
                    self._read_all(store)
            except ConnectionRefusedError:
                store, self.has_lost_rank = None, was_reached
            except (RuntimeError, ValueError, OSError):
                store = None  # not there yet, lost or cut off: retried with the next heartbeat
            if read_requested:
                self._read_requested.clear()

    def _connect(self) -> Any:
        """Another client of the store in which the ranks met."""
        # TCPStore itself would retry for long where nobody listens, and log every attempt.
        socket.create_connection(self._address, self._timeout_s).close()
        timeout = timedelta(seconds=self._timeout_s)
        return dist.TCPStore(
            *self._address, is_master=False, wait_for_workers=False, timeout=timeout
        )

    def _read_all(self, store: Any) -> None:
        for rank in range(self._world_size):
            if store.add(f"{PUBLISHED}{rank}", 0):  # to get a key that does not exist would wait
                host, state, stack, *rest = json.loads(store.get(f"{HEARTBEAT}{rank}"))
                self._found[rank] = Heartbeat(host, RankState(*state), tuple(stack), *rest)


HeartbeatStore = FileHeartbeats | TcpStoreHeartbeats
"""Where this rank publishes its heartbeats and reads those of the others."""


def open_heartbeats(rank_context: RankContext, timeout_s: float) -> HeartbeatStore:
    """The store that this rank shares with the others."""
    rank, world_size = rank_context.rank, rank_context.world_size
    if address := find_store(rank_context):
        return TcpStoreHeartbeats(address, rank, world_size, timeout_s)
    assert rank_context.scratch_dir  # who meets in a file has it there
    return FileHeartbeats(rank_context.scratch_dir, rank)


def find_store(rank_context: RankContext) -> tuple[str, int] | None:
    """Host and port of the TCPStore in which the ranks met; None where they met in a file."""
    if rank_context.init_method.startswith("file:"):
        return None
    where = rank_context.init_method.removeprefix("tcp://")
    if rank_context.init_method == "env://":
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    host, _, port = where.rpartition(":")
    return host, int(port)
