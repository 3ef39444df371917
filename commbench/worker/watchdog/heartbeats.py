"""The board: where ranks see each other's positions when nothing moves any more.

On one host that commbench itself started ranks on, positions lie on the desk. Elsewhere each rank
posts its own, once a second and over a connection of its own, in the store that the ranks met in.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch.distributed as dist

from commbench.worker.context import RankContext
from commbench.worker.watchdog.rank_state import RankState, read_positions

STORE_TIMEOUT_S = 5.0
KEY, POSTED, ALARM = "commbench/post/", "commbench/posted/", "commbench/alarm"


class Heartbeat(NamedTuple):
    """What a rank tells the others of itself."""

    host: str
    position: RankState
    stack: tuple[str, ...] = ()
    """Where its main thread is, innermost call last; only once it has found that nothing moves."""
    word: str = ""
    """How it failed, if it did."""

    @property
    def waits(self) -> bool:
        """Whether it is within torch, as a rank is that waits for others."""
        return bool(self.stack) and "/torch/" in self.stack[-1]


class HeartbeatStore(Protocol):
    """Where this rank posts, and reads what others posted."""

    alarmed: bool
    """Whether a rank has raised the alarm, or the place where all post is gone."""

    def post(self, post: Heartbeat) -> None:
        """Replace what this rank has posted."""

    def read(self) -> dict[int, Heartbeat]:
        """What ranks have posted, by rank; those that cannot be heard are left out."""

    def alarm(self) -> None:
        """Tell all ranks that one of them is gone."""


class FileHeartbeats:
    """All ranks are on this host, their rows on one desk; whoever made that ends them."""

    alarmed = False

    def __init__(self, scratch_dir: Path, rank: int) -> None:
        self._scratch_dir = scratch_dir
        self._rank = rank
        self._host = socket.gethostname()

    def post(self, post: Heartbeat) -> None:
        if post.stack:
            unfinished = self._scratch_dir / f"post-{self._rank}.new"
            unfinished.write_text(json.dumps(post.stack))
            unfinished.replace(self._scratch_dir / f"post-{self._rank}")

    def read(self) -> dict[int, Heartbeat]:
        return {
            rank: Heartbeat(self._host, position, self._stack(rank))
            for rank, position in read_positions(self._scratch_dir).items()
        }

    def alarm(self) -> None:
        pass

    def _stack(self, rank: int) -> tuple[str, ...]:
        path = self._scratch_dir / f"post-{rank}"
        return tuple(json.loads(path.read_text())) if path.exists() else ()


class TcpStoreHeartbeats:
    """Ranks of several hosts, or of another launcher. A thread of its own talks to the store, for
    that may take long where a link is cut."""

    def __init__(self, rank_context: RankContext) -> None:
        self._seat = rank_context
        self.alarmed = False
        self._alarms = False
        self._mine: Heartbeat | None = None
        self._found: dict[int, Heartbeat] = {}
        self._asked = threading.Event()
        self._changed = threading.Event()
        threading.Thread(target=self._talk, daemon=True, name="commbench-board").start()

    def post(self, post: Heartbeat) -> None:
        self._mine = post
        self._changed.set()

    def read(self) -> dict[int, Heartbeat]:
        self._found = {}
        self._asked.set()
        self._changed.set()
        deadline = time.monotonic() + STORE_TIMEOUT_S
        while self._asked.is_set() and time.monotonic() < deadline:
            time.sleep(0.05)
        mine = {self._seat.rank: self._mine} if self._mine else {}
        return dict(sorted((self._found | mine).items()))

    def alarm(self) -> None:
        self._alarms = True
        self._changed.set()

    def _talk(self) -> None:
        store: Any = None
        was_there = False
        while True:
            self._changed.wait()
            self._changed.clear()
            asked = self._asked.is_set()
            try:
                store = store or _own_connection(self._seat)
                if self._mine:
                    store.set(f"{KEY}{self._seat.rank}", json.dumps(self._mine))
                    store.add(f"{POSTED}{self._seat.rank}", 1)
                self.alarmed = bool(store.add(ALARM, int(self._alarms)))
                was_there = True
                if asked:
                    self._read_all(store)
            except ConnectionRefusedError:
                store, self.alarmed = None, was_there
            except (RuntimeError, ValueError, OSError):
                store = None  # not there yet, gone, or cut off: try again with the next post
            if asked:
                self._asked.clear()

    def _read_all(self, store: Any) -> None:
        for rank in range(self._seat.world_size):
            if store.add(f"{POSTED}{rank}", 0):  # getting what is not there would wait for it
                host, position, stack, word = json.loads(store.get(f"{KEY}{rank}"))
                self._found[rank] = Heartbeat(host, RankState(*position), tuple(stack), word)


def board_for(rank_context: RankContext) -> HeartbeatStore:
    """The board on which this rank and its peers can see each other."""
    if (
        rank_context.scratch_dir
        and rank_context.one_host
        and rank_context.meeting_point.startswith("file:")
    ):
        return FileHeartbeats(rank_context.scratch_dir, rank_context.rank)
    return TcpStoreHeartbeats(rank_context)


def store_of(rank_context: RankContext) -> tuple[str, int]:
    """Host and port of the store in which the ranks met."""
    where = rank_context.meeting_point.removeprefix("tcp://")
    if rank_context.meeting_point == "env://":
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    host, _, port = where.rpartition(":")
    return host, int(port)


def _own_connection(rank_context: RankContext) -> Any:
    """Another client of the store in which the ranks met."""
    host, port = store_of(rank_context)
    # The store's own attempts go on for long where nobody listens any more, and say so in pages.
    socket.create_connection((host, port), STORE_TIMEOUT_S).close()
    return dist.TCPStore(
        host,
        port,
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=STORE_TIMEOUT_S),
    )
