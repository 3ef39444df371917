"""The heartbeats that each rank publishes once a second, and what two readings of all of them say:
which ranks hang or are lost, and the error to report.

Ranks that commbench started on one host share a scratch folder, in which their states are. All
others publish theirs in the TCPStore in which they met, over a connection of their own. Both
diagnoses compare the heartbeats `first` with those read some seconds later, `second`.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist

from commbench.errors import RankError
from commbench.plan.case import Case
from commbench.worker.entrypoint import RankContext
from commbench.worker.watchdog.rank_state import (
    DONE,
    LOST_RANK_HINT,
    RankState,
    read_failures,
    read_states,
    write_json,
)

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


SLOWEST_BPS = 10e6
"""Bytes per second that any operation is expected to reach, before one of the run was timed."""
CHECK_PASSES = 4
"""How often a check goes through the bytes of a case: fill, poison, call, compare."""
SLOWER_THAN_CHECKED = 3.0
"""An operation is expected to take at most so many times as long as when it was checked."""
SLOWER_THAN_BEFORE = 10.0
"""A check is expected to be at most so many times slower, per byte, than the slowest before it."""
MOST_DUMPS = 20
"""Different dumps that are described."""
STOPPED, STOPPED_ALL = "does not answer", "do not answer"

Heartbeats = Mapping[int, Heartbeat]
"""By rank."""


class HangDiagnosis(NamedTuple):
    """Which ranks keep all others waiting."""

    culprits: tuple[int, ...]
    symptom: str
    """How that shows, as the predicate of a sentence about them."""


class LostRanks(NamedTuple):
    """Which ranks have ended, as another rank finds out."""

    message: str
    """Empty where none has."""
    is_reporter: bool
    """Of the ranks that are left, this one reports it."""

    def error(self) -> RankError:
        """What ranks end with that lost others."""
        return RankError(self.message, LOST_RANK_HINT, is_reporter=self.is_reporter)


def longest_check_s(size_bytes: int, slowest_bps: float = 0.0) -> float:
    """How long checking a case may take beside --timeout; `slowest_bps` is the lowest rate that an
    earlier check has seen, in bytes per second, 0 where there was none."""
    return CHECK_PASSES * size_bytes / max(SLOWEST_BPS, slowest_bps / SLOWER_THAN_BEFORE)


def longest_iteration_s(size_bytes: int, calls: int, checked_s: float) -> float:
    """How long an iteration of so many calls may take beside --timeout. `checked_s` is how long the
    call took that was checked, 0 where none was."""
    return calls * (SLOWER_THAN_CHECKED * checked_s or size_bytes / SLOWEST_BPS)


def find_silent(first: Heartbeats, second: Heartbeats) -> list[int]:
    """The ranks whose watchdogs published nothing between two readings."""
    return [
        rank
        for rank, heartbeat in second.items()
        if rank in first and first[rank].state.heartbeats == heartbeat.state.heartbeats
    ]


def diagnose_hang(first: Heartbeats, second: Heartbeats, world_size: int) -> HangDiagnosis:
    """Which ranks keep all others waiting.

    In this order: ranks without a heartbeat, those whose watchdogs have stopped, those that are
    behind all others, and of these the ones that do not wait within torch.
    """
    unreachable = tuple(rank for rank in range(world_size) if rank not in second)
    if unreachable:
        return HangDiagnosis(unreachable, "cannot be reached")
    running = [rank for rank in second if second[rank].state.phase != DONE]
    silent = tuple(rank for rank in find_silent(first, second) if rank in running)
    if silent:
        return HangDiagnosis(silent, STOPPED if len(silent) == 1 else STOPPED_ALL)
    least = min((second[rank].state.progress for rank in running), default=(0, 0, 0))
    behind = tuple(rank for rank in running if second[rank].state.progress == least)
    busy = tuple(rank for rank in behind if second[rank].stack and not second[rank].is_in_torch)
    if busy and len(busy) < len(running):
        call = second[busy[0]].stack[-1].rpartition("/")[2]
        return HangDiagnosis(busy, f"{'is' if len(busy) == 1 else 'are'} at {call}")
    if len(behind) == world_size:
        return HangDiagnosis((), "all ranks wait")
    return HangDiagnosis(behind, "is behind" if len(behind) == 1 else "are behind")


def make_hang_error(
    diagnosis: HangDiagnosis, heartbeats: Heartbeats, cases: Sequence[Case], timeout_s: float
) -> RankError:
    """The error that says which ranks keep the others waiting, and what each rank does."""
    culprits, symptom = diagnosis
    still_s = max((h.state.still_ms for h in heartbeats.values()), default=0) / 1000
    clauses = [f"{_name_ranks(culprits, heartbeats)} {symptom}" if culprits else symptom]
    ranks_by_state: dict[tuple[bool, str], list[int]] = {}
    for rank, heartbeat in sorted(heartbeats.items()):
        key = (rank not in culprits, heartbeat.state.describe(cases))
        ranks_by_state.setdefault(key, []).append(rank)
    for (is_waiting, state), ranks in sorted(ranks_by_state.items()):
        # A culprit that stopped may have moved after its last heartbeat.
        is_old = symptom in (STOPPED, STOPPED_ALL) and not is_waiting
        since = "was last seen" if is_old else f"made progress {still_s:.0f} s ago,"
        clauses.append(f"{_name_ranks(ranks, heartbeats)} {since} {state}")
    stacks = [
        f"rank {rank} on {heartbeats[rank].host} is at:\n  " + "\n  ".join(heartbeats[rank].stack)
        for rank in culprits
        if rank in heartbeats and heartbeats[rank].stack
    ]
    return RankError(
        "; ".join(clauses),
        f"an operation may take --timeout ({timeout_s:g} s) and {SLOWER_THAN_CHECKED:g} times as "
        "long as in its check; check first the host and the link of the rank that is named first",
        "\n".join(stacks),
    )


def describe_dumps(heartbeats: Heartbeats, folder: Path | None) -> str:
    """What torch's flight recorder has recorded of each rank, with a heading; empty where that is
    nothing."""
    ranks_by_text: dict[str, list[int]] = {}
    for rank, heartbeat in sorted(heartbeats.items()):
        if heartbeat.recorded:
            ranks_by_text.setdefault(heartbeat.recorded, []).append(rank)
    lines = [f"  {_name_ranks(r, heartbeats)}: {text}" for text, r in ranks_by_text.items()]
    lines[MOST_DUMPS:] = ["  and others"] if len(lines) > MOST_DUMPS else []
    return "\n".join([f"torch's flight recorder, dumped to {folder}:", *lines]) if lines else ""


def diagnose_lost_ranks(
    first: Heartbeats,
    second: Heartbeats,
    rank: int,
    world_size: int,
    store_host: str,
    cases: Sequence[Case],
) -> LostRanks:
    """Which other ranks have ended, as `rank` sees it: those that published a failure, or else
    those without further heartbeats. `store_host` is that of the store which rank 0 has, if any."""
    if store_host and set(second) <= {rank} and rank:
        message = f"rank 0 on {store_host} ended, or cannot be reached"
        return LostRanks(message, is_reporter=rank == 1)
    lost = [other for other, heartbeat in second.items() if heartbeat.failure]
    if not lost:
        silent = find_silent(first, second)
        lost = [other for other in range(world_size) if other not in second or other in silent]
    lost = [other for other in lost if other != rank]
    if not lost:
        return LostRanks("", is_reporter=True)
    lowest_left = min(other for other in range(world_size) if other not in lost)
    return LostRanks(describe_lost_ranks(lost, second, cases), rank == lowest_left)


def describe_lost_ranks(
    ranks: Sequence[int], heartbeats: Heartbeats, cases: Sequence[Case], where: str = ""
) -> str:
    """The message about ranks that have ended: what the first one did, and its failure, if any."""
    known = heartbeats.get(ranks[0])
    failure = known.failure if known else ""
    doing = f", last seen {known.state.describe(cases)}" if known else ""
    return f"{_name_ranks(ranks, heartbeats)}{where} {'failed' if failure else 'ended'}{doing}" + (
        f": {failure}" if failure else ""
    )


def _name_ranks(ranks: Sequence[int], heartbeats: Heartbeats) -> str:
    """`rank 2 on b`, `ranks 0, 1 on a`, `ranks 0-3`."""
    hosts = {heartbeats[rank].host for rank in ranks if rank in heartbeats}
    where = f" on {', '.join(sorted(hosts))}" if 0 < len(hosts) <= 3 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}{where}"


def format_ranks(ranks: Sequence[int]) -> str:
    """Ascending ranks, three and more consecutive ones as a range: `0-3, 5, 6`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    return ", ".join(
        f"{span[0]}-{span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans
    )
