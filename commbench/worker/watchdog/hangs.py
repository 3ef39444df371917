"""What the heartbeats of all ranks say: which ranks hang or are lost, and the error to report; and
what NCCL and torch themselves know of ranks that hang.

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
from collections.abc import Collection, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from commbench import errors, units
from commbench.host.procfs import read_stat
from commbench.plan.case import Case
from commbench.plan.plan import Plan
from commbench.readers.trace_formats import read_trace
from commbench.stats import collect
from commbench.worker.entrypoint import RankContext
from commbench.worker.watchdog.heartbeats import LOST, Diagnosis, Heartbeats
from commbench.worker.watchdog.rank_state import DONE, LOST_RANK_HINT
from commbench.worker.watchdog.shared_folder import find_store

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
STILL_IN = "still in a call that the others have left"
IS_AT, ARE_AT = "is at ", "are at "
"""Symptoms that name a line of Python outside of torch."""
MOST_NAMED = 10
"""Different places in which ranks are, and stacks, that an error tells."""
MOST_CHARACTERS = 160
"""Of the numbers of ranks in a row."""


def longest_check_s(size_bytes: int, slowest_bps: float = 0.0) -> float:
    """How long checking a case may take beside --timeout; `slowest_bps` is the lowest rate that an
    earlier check has seen, in bytes per second, 0 where there was none."""
    return CHECK_PASSES * size_bytes / max(SLOWEST_BPS, slowest_bps / SLOWER_THAN_BEFORE)


def longest_iteration_s(size_bytes: int, calls: int, checked_s: float) -> float:
    """How long an iteration of so many calls may take beside --timeout. `checked_s` is how long the
    call took that was checked, 0 where none was."""
    return calls * (SLOWER_THAN_CHECKED * checked_s or size_bytes / SLOWEST_BPS)


def diagnose_hang(heartbeats: Heartbeats, world_size: int) -> tuple[tuple[int, ...], str]:
    """Which ranks keep all others waiting, and how that shows, as the predicate of a sentence about
    them.

    In this order: ranks without a heartbeat, those whose watchdogs have stopped, those that are
    behind all others; of these the ones in a call that all others have left, or else the ones that
    do not wait within torch.
    """
    unreachable = tuple(rank for rank in range(world_size) if rank not in heartbeats)
    if unreachable:
        return unreachable, "cannot be reached"
    running = [rank for rank in heartbeats if heartbeats[rank].state.phase != DONE]
    silent = tuple(rank for rank in running if heartbeats[rank].is_silent)
    if silent:
        return silent, STOPPED if len(silent) == 1 else STOPPED_ALL
    least = min((heartbeats[rank].state.progress for rank in running), default=(0, 0, 0))
    behind = tuple(rank for rank in running if heartbeats[rank].state.progress == least)
    stacks = {rank: heartbeats[rank].stack for rank in behind}
    inside = tuple(rank for rank in behind if heartbeats[rank].is_in_torch)
    left = tuple(rank for rank in behind if heartbeats[rank].has_left)
    if inside and left and len(inside) + len(left) == len(behind):
        return inside, f"{'is' if len(inside) == 1 else 'are'} {STILL_IN}"
    busy = tuple(rank for rank in behind if stacks[rank] and rank not in inside)
    if busy:
        call = stacks[busy[0]][-1].rpartition("/")[2]
        return busy, f"{IS_AT if len(busy) == 1 else ARE_AT}{call}"
    if len(behind) == world_size:
        return (), "all ranks wait"
    return behind, "is behind" if len(behind) == 1 else "are behind"


def make_hang_error(
    culprits: Sequence[int], symptom: str, heartbeats: Heartbeats, plan: Plan
) -> errors.RankError:
    """The error that says which ranks keep the others waiting, and what each rank does."""
    cases = plan.cases()
    still_s = max((h.state.still_ms for h in heartbeats.values()), default=0) / 1000
    clauses = [f"{name_ranks(culprits, heartbeats)} {symptom}" if culprits else symptom]
    in_order = sorted(heartbeats.items())
    doing = (((r not in culprits, beat.state.describe(cases)), r) for r, beat in in_order)
    states = sorted(collect(doing).items())
    for (is_waiting, state), ranks in states[:MOST_NAMED]:
        # A culprit that stopped may have moved after its last heartbeat.
        is_old = symptom in (STOPPED, STOPPED_ALL) and not is_waiting
        has = "has" if len(ranks) == 1 else "have"
        since = "was last seen" if is_old else f"{has} made no progress for {still_s:.0f} s,"
        clauses.append(f"{name_ranks(ranks, heartbeats)} {since} {state}")
    if others := sum(len(ranks) for _, ranks in states[MOST_NAMED:]):
        clauses.append(f"{units.format_count(others, 'other rank')} elsewhere")
    beats = ((r, heartbeats[r]) for r in culprits if r in heartbeats and heartbeats[r].stack)
    stacks = ["\n  ".join([f"rank {r} on {beat.host} is at:", *beat.stack]) for r, beat in beats]
    is_line = symptom.startswith((IS_AT, ARE_AT))
    network = "check first the host and the link of the rank that is named first"
    look = f"look at {symptom.partition(' at ')[2]} first" if is_line else network
    if not is_line and any(case.call for case in cases):
        look = f"do all ranks make the same calls? If so, {network}"
    hint = (
        f"an operation may take --timeout ({plan.timeout_s:g} s), and in addition "
        f"{SLOWER_THAN_CHECKED:g} times as long as in its check; {look}"
    )
    if symptom in (STOPPED, STOPPED_ALL):
        hint += realtime_hint(plan.cpu_mode)
    return errors.RankError("; ".join(clauses), hint, "\n".join(stacks[:MOST_NAMED]))


def realtime_hint(cpu_mode: str) -> str:
    """What else may have stopped the watchdog of a rank, in this CPU mode."""
    why = "; realtime keeps the core of a rank from other threads: try --cpu-mode plain"
    return why if cpu_mode == "realtime" else ""


def describe_dumps(heartbeats: Heartbeats, folder: Path | None) -> str:
    """What torch's flight recorder has recorded of each rank, with a heading; empty where that is
    nothing."""
    recorded = collect((beat.recorded, rank) for rank, beat in sorted(heartbeats.items()))
    lines = [f"  {name_ranks(r, heartbeats)}: {text}" for text, r in recorded.items() if text]
    lines[MOST_DUMPS:] = ["  and others"] if len(lines) > MOST_DUMPS else []
    return "\n".join([f"torch's flight recorder, dumped to {folder}:", *lines]) if lines else ""


def find_lost_ranks(heartbeats: Heartbeats, world_size: int) -> list[int]:
    """The ranks that have ended: those that published a failure, or else those without further
    heartbeats."""
    failed = [rank for rank, heartbeat in heartbeats.items() if heartbeat.failure]
    known = (heartbeats.get(rank) for rank in range(world_size))
    return failed or [rank for rank, beat in enumerate(known) if not beat or beat.is_silent]


def diagnose(
    context: RankContext, plan: Plan, dump_folder: Path | None, why: str, heartbeats: Heartbeats,
    is_store_lost: bool = False,
) -> Diagnosis:  # fmt: skip
    """The diagnosis for all ranks, which one of them makes: why it is asked for, and whether the
    store is lost, so that only the heartbeats of one host are known. torch's flight recorder writes
    into the folder."""
    lost, cases = find_lost_ranks(heartbeats, context.world_size), plan.cases()
    store_host, _ = find_store(context) or ("", 0)
    silent = tuple(rank for rank, beat in heartbeats.items() if beat.is_silent)
    left = heartbeats.keys() - {*lost}
    reporter = min(left, default=context.rank)
    if is_store_lost:  # nothing is known of other hosts
        lost = [rank for rank in lost if rank in heartbeats]
    if is_store_lost and why == LOST and 0 not in heartbeats:
        # One rank of all hosts reports it: the next of rank 0's host, or one of the second host.
        message = f"rank 0 on {store_host} ended, or cannot be reached"
        heirs = [rank for rank in (1, context.local_world_size) if rank in left]
        return Diagnosis(message, LOST_RANK_HINT, reporter=heirs[0] if heirs else -1, ranks=(0,))
    has_failed = any(beat.failure for beat in heartbeats.values())
    if why == LOST or has_failed:
        # Of a hang: it failed first, and then did not end. What it has under way may wait.
        lost = [rank for rank in lost if rank != context.rank or has_failed]
        message = describe_lost_ranks(lost, heartbeats, cases) if lost else ""
        return Diagnosis(message, LOST_RANK_HINT, "", reporter, tuple(lost), silent)
    culprits, symptom = diagnose_hang(heartbeats, context.world_size)
    if culprits == (0,) and 0 not in heartbeats and store_host:
        symptom = f"on {store_host} {symptom}"
    error = make_hang_error(culprits, symptom, heartbeats, plan)
    dumps = describe_dumps(heartbeats, dump_folder)
    details = "\n".join(filter(None, (error.details, dumps)))
    answering = min((r for r in heartbeats if r not in silent), default=context.rank)
    return Diagnosis(*error.texts, details, answering, (), silent)


def describe_lost_ranks(ranks: Sequence[int], heartbeats: Heartbeats, cases: Sequence[Case]) -> str:
    """The message about ranks that have ended: what the first one did, and its failure, if any."""
    known = heartbeats.get(ranks[0])
    failure = known.failure if known else ""
    doing = f", last seen {known.state.describe(cases)}" if known else ""
    how = f"failed{doing}: {failure}" if failure else f"ended{doing}"
    return f"{name_ranks(ranks, heartbeats)} {how}"


def name_ranks(ranks: Sequence[int], heartbeats: Heartbeats) -> str:
    """`rank 2 on b`, `ranks 0, 1 on a`, `ranks 0-3`."""
    hosts = {heartbeats[rank].host for rank in ranks if rank in heartbeats}
    where = f" on {', '.join(sorted(hosts))}" if 0 < len(hosts) <= 3 else ""
    some = format_ranks(ranks)
    if len(some) > MOST_CHARACTERS:
        few = some[:MOST_CHARACTERS].rpartition(", ")[0]
        some = f"{few} and more, {units.format_count(len(ranks), 'rank')} in all"
    return f"rank{'s' if len(ranks) > 1 else ''} {some}{where}"


def format_ranks(ranks: Sequence[int]) -> str:
    """Ascending ranks, three and more consecutive ones as a range: `0-3, 5, 6`."""
    consecutive = groupby(enumerate(ranks), lambda placed: placed[1] - placed[0])
    spans = [[rank for _, rank in own] for _, own in consecutive]
    texts = (f"{s[0]}-{s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in spans)
    return ", ".join(texts)


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

    def __init__(self, bound_s: float, pids: Collection[int]) -> None:
        """Ask a process of this host that listens, if it is of this job: this one, one that the
        same process started, or one of `pids`. Give up after `bound_s` seconds."""
        self._pids = pids
        self._answer = bytearray()
        self._address = os.environ.get("NCCL_RAS_ADDR", ADDRESS)
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
        # Where nobody listens, or the time is up, what has come until then is used.
        with suppress(OSError, ValueError, OverflowError):
            where = (host.strip("[]"), int(port))
            while True:
                with socket.create_connection(where, timeout=self._left_s()) as connection:
                    if self._is_ours(connection):
                        self._read_answer(connection)
                        return
                time.sleep(min(RETRY_S, self._left_s()))  # perhaps another takes the next one

    def _read_answer(self, connection: socket.socket) -> None:
        connection.sendall(REQUEST)
        while len(self._answer) < MOST_BYTES:
            connection.settimeout(self._left_s())
            if not (part := connection.recv(1 << 16)):
                return
            self._answer += part

    def _is_ours(self, connection: socket.socket) -> bool:
        """Whether the process at the other end belongs to this job. It is asked nothing until it
        has accepted the connection."""
        ends = connection.getpeername()[1], connection.getsockname()[1]
        while (inode := find_socket(*ends)) == "0":
            time.sleep(min(RETRY_S, self._left_s()))
        known, parent = {os.getpid(), *self._pids}, [str(os.getppid())]
        pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
        ours = (pid for pid in pids if pid in known or read_stat(pid)[1:2] == parent)
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
        # Perhaps this torch has none, it does not answer, or there is no place for the file.
        with suppress(OSError, HTTPException, AttributeError, RuntimeError, errors.RecordsError):
            if dump := self._ask():
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_bytes(dump)
                self.summary = summarise(self._path)

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
    size = units.format_bytes(call.size_bytes) if call.size_bytes else ""
    what = " ".join(filter(None, (call.operation, call.dtype, size)))
    ended = f"has {'' if call.has_ended else 'not '}ended"
    return f"call {call.sequence} of group {call.group}, {what}, {ended}"
