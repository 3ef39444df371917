"""The heartbeats of all ranks, and the diagnosis that one of them makes for all.

The ranks of a host share a folder: their states are there, what they tell of a hang or a failure,
and the diagnosis. One of them leads the host: the first to come that still lives. Where there are
several hosts, each leader publishes one record for its host, in the TCPStore in which the ranks
met, with one operation per heartbeat (`Delays.host_beat_s`): `compare_set` replaces the record that
it wrote last, and returns what another leader has put in its place, an alarm or a diagnosis.

A rank that hangs or has lost a connection asks for a diagnosis. The first leader to claim it reads
all records, puts an alarm in their place, reads them again after `Delays.answer_s`, and puts the
diagnosis in their place. Who has not answered to the alarm is lost.

Where rank 0 served the store and ended, the leader of its host opens another one in its place, and
the other hosts have `Delays.answer_s` to find it. Where none comes, each host reports on its own.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from commbench.worker.entrypoint import RankContext
from commbench.worker.watchdog import rank_state
from commbench.worker.watchdog.rank_state import DONE, MISSED_BEATS, Delays, RankState
from commbench.worker.watchdog.shared_folder import connect_store, find_store, open_store

HANGS, LOST = "hangs", "lost"
"""Why a rank asks for a diagnosis."""
HOSTS, CLAIM = "commbench/hosts", "commbench/claim"
"""Keys: the names of all hosts, each with a space behind it; the leader that makes a diagnosis."""
RECORD = "commbench/record/"
"""Key by host: its record."""
ALARM, DIAGNOSIS, COMPRESSED = b"!", b"=", b"x"
"""How a message to a host begins, and how a record does."""
RANKS_PER_CORE = 8
"""From twice as many on, heartbeats may be late."""


class Heartbeat(NamedTuple):
    """What is known of a rank."""

    host: str
    state: RankState
    stack: tuple[str, ...] = ()
    """The calls of its main thread, innermost last; only once it has found that nothing moves."""
    failure: str = ""
    """How it failed, if it did."""
    recorded: str = ""
    """What torch's flight recorder has recorded of it, once nothing moves."""
    missed: int = 0
    """How many heartbeats the leader of its host has missed since the last one."""

    @property
    def is_in_torch(self) -> bool:
        """Whether its innermost Python call is torch's, as in a rank that waits for others."""
        return bool(self.stack) and "/torch/" in self.stack[-1]

    @property
    def has_left(self) -> bool:
        """Whether it has left its call, and waits until the other ranks have left theirs."""
        return bool(self.stack) and "/commbench/worker/communicator.py" in self.stack[-1]

    @property
    def is_silent(self) -> bool:
        """Whether its watchdog has stopped."""
        return self.missed >= MISSED_BEATS


Heartbeats = Mapping[int, Heartbeat]
"""By rank, without the ranks that cannot be reached."""


class Diagnosis(NamedTuple):
    """Which ranks hang or are lost; the same for all."""

    message: str
    """Empty where none is."""
    hint: str = ""
    details: str = ""
    reporter: int = 0
    """The rank that reports it, of those that are left."""
    ranks: tuple[int, ...] = ()
    """The ranks that failed."""
    silent: tuple[int, ...] = ()
    """The ranks whose watchdogs have stopped."""


class HostFolder:
    """The folder that the ranks of a host share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._host = socket.gethostname()
        self._diagnosis = path / "diagnosis"

    def tell(self, rank: int, stack: tuple[str, ...], failure: str, recorded: str) -> None:
        """Write what a rank tells of a hang or of its failure."""
        rank_state.record(self.path, rank_state.REPORT, rank, (stack, failure, recorded))

    def heartbeats(self, missed: Mapping[int, int] | None = None) -> dict[int, Heartbeat]:
        """The heartbeats of the ranks of this host, by rank."""
        told = rank_state.read_recorded(self.path, rank_state.REPORT)
        found = {}
        for rank, state in sorted(rank_state.read_states(self.path).items()):
            stack, failure, recorded = told.get(rank, ((), "", ""))
            count = (missed or {}).get(rank, 0)
            found[rank] = Heartbeat(self._host, state, tuple(stack), failure, recorded, count)
        return found

    def ask(self, why: str) -> None:
        """Ask the leader for a diagnosis."""
        (self.path / f"asked-{why}").touch()

    @property
    def asked(self) -> str:
        """Why a rank of this host asks for a diagnosis; empty where none does."""
        return next((w for w in (HANGS, LOST) if (self.path / f"asked-{w}").exists()), "")

    def publish(self, diagnosis: Diagnosis) -> None:
        """Answer to the ranks of this host."""
        rank_state.write_json(self._diagnosis, diagnosis)
        for why in (HANGS, LOST):
            (self.path / f"asked-{why}").unlink(missing_ok=True)

    def read(self, since: float = 0.0) -> Diagnosis | None:
        """The diagnosis; None where there is none, and where one that found nothing was made before
        a time (`time.time`)."""
        with suppress(FileNotFoundError):
            found = decode_diagnosis(self._diagnosis.read_text())
            if found.message or self._diagnosis.stat().st_mtime >= since:
                return found
        return None


def decode_diagnosis(text: str | bytes) -> Diagnosis:
    """The diagnosis of a JSON text."""
    found = Diagnosis(*json.loads(text))
    return found._replace(ranks=tuple(found.ranks), silent=tuple(found.silent))


def encode_record(heartbeats: Heartbeats) -> bytes:
    """The record of a host; compressed, since many ranks tell the same."""
    return zlib.compress(json.dumps([*heartbeats.values()]).encode(), 1)


def decode_record(record: bytes) -> dict[int, Heartbeat]:
    """The heartbeats in a record of a host."""
    beats = (Heartbeat(*values) for values in json.loads(zlib.decompress(record)))
    read = (b._replace(state=RankState(*b.state), stack=tuple(b.stack)) for b in beats)
    return {beat.state.rank: beat for beat in read}


class StoreRecords:
    """The records of all hosts in a TCPStore, as the leader of one host uses them."""

    def __init__(self, store: Any, name: str) -> None:
        self._store, self._name, self._key = store, name, RECORD + name
        self._last, self._claimed = b"", b""

    def beat(self, record: bytes) -> bytes:
        """Publish the record of this host. Returns the message that was in its place; empty where
        there was none."""
        is_new, message = not self._last, b""
        while (found := self._store.compare_set(self._key, self._last, record)) != record:
            self._last = found  # a message, or what this host's leader before this one wrote
            message = message if found.startswith(COMPRESSED) else found
        self._last = record
        if is_new:
            self._store.append(HOSTS, f"{self._name} ")
        return message

    def claim(self, takes_over: bool) -> bool:
        """Whether this leader makes the diagnosis. It takes over from one that did not come to an
        end, if it may."""
        expected = self._claimed if takes_over else b""
        own = f"{self._name} {time.monotonic_ns()}".encode()
        self._claimed = self._store.compare_set(CLAIM, expected, own)
        return self._claimed == own

    def release(self) -> None:
        """Let others make the next diagnosis."""
        self._store.compare_set(CLAIM, self._claimed, "")

    def _names(self) -> list[str]:
        """The names of all hosts; a leader that follows another one adds its host's once more."""
        return [*dict.fromkeys(self._store.get(HOSTS).decode().split())]

    def read(self) -> dict[str, bytes]:
        """What is in the place of each record, by host."""
        names = self._names()
        return dict(zip(names, self._store.multi_get([RECORD + n for n in names]), strict=True))

    def send(self, message: bytes) -> None:
        """Put a message in the place of all records."""
        names = self._names()
        self._store.multi_set([RECORD + name for name in names], [message] * len(names))


def join_records(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> dict[int, Heartbeat]:
    """The heartbeats of all ranks, of the records before an alarm and after it; those of a host
    that has not answered are silent."""
    found = {}
    for name, record in {**first, **second}.items():
        if record.startswith(COMPRESSED):
            found.update(decode_record(record))
        elif (before := first.get(name, b"")).startswith(COMPRESSED):
            for rank, beat in decode_record(before).items():
                found[rank] = beat._replace(missed=MISSED_BEATS)
    return dict(sorted(found.items()))


Diagnose = Callable[[str, Heartbeats, bool], Diagnosis]
"""Makes a diagnosis: why it is asked for, of which heartbeats, whether the store is lost."""


class HostLeader:
    """What the leader of a host does for all of its ranks, in a thread of its own: a call of the
    store can take long where a link is cut."""

    def __init__(
        self, folder: HostFolder, rank_context: RankContext, delays: Delays, diagnose: Diagnose
    ) -> None:
        self._folder, self._delays, self._diagnose = folder, delays, diagnose
        hosts = -(-rank_context.world_size // rank_context.local_world_size)
        self._beat_s, self._answer_s = delays.host_beat_s(hosts), delays.answer_s(hosts)
        self._address = None if rank_context.is_single_node else find_store(rank_context)
        """Of the store; None where the ranks of this host are all there are."""
        self._records: StoreRecords | None = None
        self._reached = 0.0
        """When the store answered last; 0: never."""
        self._is_store_lost = False
        """It did not answer once: one that came in its place may not know all hosts."""
        self._beats: dict[int, tuple[int, int]] = {}
        """Of each rank its heartbeats, and how many looks have not seen another."""
        self._missed: dict[int, int] = {}
        """How many heartbeats of each rank were missed. Where many ranks share a core, a heartbeat
        may be late, unless the process is stopped."""
        self._next_beat = self._asked = self._alarmed = self._due = 0.0
        """When to publish next, when this host began to ask, when an alarm came, when the diagnosis
        is due that this leader makes; 0: never."""
        self._first: dict[str, bytes] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="commbench-heartbeats")
        self._thread.start()

    def look(self) -> None:
        """Count heartbeats that are missed; to be called once per heartbeat."""
        beats, missed, states = {}, {}, rank_state.read_states(self._folder.path)
        patience = max(1, len(states) // (RANKS_PER_CORE * (os.cpu_count() or 1)))
        for rank, state in states.items():
            before, looks = self._beats.get(rank, (-1, 0))
            looks = looks + 1 if before == state.heartbeats else 0
            if state.phase != DONE and not rank_state.is_process_alive(state.pid):
                looks = max(looks, patience * MISSED_BEATS)
            beats[rank], missed[rank] = (state.heartbeats, looks), looks // patience
            if missed[rank] < MISSED_BEATS <= looks and rank_state.is_process_stopped(state.pid):
                missed[rank] = MISSED_BEATS
        self._beats, self._missed = beats, missed

    def close(self) -> None:
        """Publish for the last time. A thread within a call of the store would crash this process
        when it ends."""
        self._stopped.set()
        self._thread.join(2 * self._delays.store_s)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stopped.wait(self._delays.heartbeat_s / 4)
            asked, now = self._folder.asked, time.monotonic()
            self._asked = (self._asked or now) if asked else 0.0
            with suppress(FileNotFoundError):  # the folder is removed at the end
                if self._address:
                    self._use_store(asked, now, is_last)
                elif asked and now - self._asked >= self._answer_s:
                    self._conclude(asked, self._heartbeats())

    def _heartbeats(self) -> dict[int, Heartbeat]:
        return self._folder.heartbeats(self._missed)

    def _conclude(self, why: str, heartbeats: Heartbeats) -> Diagnosis:
        diagnosis = self._diagnose(why, heartbeats, self._is_store_lost)
        self._folder.publish(diagnosis)
        return diagnosis

    def _connect(self, address: tuple[str, int]) -> Any:
        """A client of the store; of another one in its place, where rank 0 of this host ended with
        the store that it served."""
        try:
            return connect_store(address, self._delays.store_s)
        except ConnectionRefusedError:
            first = self._heartbeats().get(0)
            if not first or not first.is_silent or first.state.phase == DONE:
                raise
            self._is_store_lost = True
            self._folder.ask(LOST)
            # In the place of the one that has ended.
            return open_store(address, self._delays.store_s, is_master=True)

    def _use_store(self, asked: str, now: float, is_last: bool) -> None:
        is_due = bool(self._due) and now >= self._due
        if asked == LOST and not self._alarmed:  # few hosts lose a connection at once
            self._next_beat = min(self._next_beat, self._reached + self._delays.heartbeat_s)
        if now < self._next_beat and not is_due and not is_last:
            return
        try:
            if not self._records:
                assert self._address
                store = self._connect(self._address)
                self._records = StoreRecords(store, self._folder.path.name)
            self._beat(self._records, asked, now)
            self._reached = now
            if is_due:
                self._due = 0.0
                self._finish(self._records, asked)
        except (RuntimeError, ValueError, OSError) as error:
            self._records = None  # not there yet, lost or cut off: retried with the next heartbeat
            self._next_beat = now + self._delays.heartbeat_s
            is_gone = bool(self._reached) and isinstance(error, ConnectionRefusedError)
            self._is_store_lost |= is_gone
            waited_s = now - max(self._asked, self._reached)
            if (asked or is_gone) and waited_s > self._answer_s:
                self._is_store_lost = True
                self._conclude(asked or LOST, self._heartbeats())

    def _beat(self, records: StoreRecords, asked: str, now: float) -> None:
        """Publish the record; follow a message; claim the diagnosis if this host asks for one."""
        if not (heartbeats := self._heartbeats()):
            return
        message = records.beat(encode_record(heartbeats))
        self._next_beat = now + self._beat_s
        if message.startswith(DIAGNOSIS):
            self._folder.publish(decode_diagnosis(message[1:]))
        elif message.startswith(ALARM):
            self._alarmed = now
        patience_s = 2 * self._answer_s
        if self._alarmed and now - self._alarmed > patience_s:
            self._alarmed = 0.0
        if self._alarmed and any(0 < beat.missed < MISSED_BEATS for beat in heartbeats.values()):
            self._next_beat = now + self._delays.heartbeat_s  # it may be lost: tell soon
        takes_over = now - self._asked > patience_s
        if asked and not self._due and not self._alarmed and records.claim(takes_over):
            self._first = records.read()
            records.send(ALARM)
            self._due = now + self._answer_s

    def _finish(self, records: StoreRecords, asked: str) -> None:
        """Make the diagnosis that this leader has claimed."""
        records.beat(encode_record(self._heartbeats()))
        diagnosis = self._conclude(asked or LOST, join_records(self._first, records.read()))
        if diagnosis.message:
            records.send(DIAGNOSIS + json.dumps(diagnosis).encode())
        else:
            records.release()
