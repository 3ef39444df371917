"""The watch of a rank: a thread that looks once a second whether the rank still moves.

Where a rank has not moved for longer than its operation may take, all have stopped: one of them
was stopped, loops, never came, or lost its link. Each rank's watch then finds out which, says so,
and ends its rank.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from commbench.errors import RankError
from commbench.spec.case import Case
from commbench.spec.plan import Plan
from commbench.worker.context import RankContext
from commbench.worker.watchdog.error_files import LEFT
from commbench.worker.watchdog.hang_analysis import allowed_s, blame, is_silent, judge, report
from commbench.worker.watchdog.heartbeats import Heartbeat, HeartbeatStore, board_for, store_of
from commbench.worker.watchdog.rank_state import (
    BEATS,
    BYTES,
    DONE,
    PID,
    STILL_MS,
    StateBuffer,
    end,
    is_there,
    open_row,
    read_positions,
    read_row,
    set_phase,
)
from commbench.worker.watchdog.termination import keep_for_later, when_dismissed

BEAT_S = 1.0
LATE_S = 5.0
"""A watch that itself was not let run for so long knows nothing of the time meanwhile."""
LISTENING_BEATS = 3
"""How long a watch listens for the others' beats before it judges."""
STAY_S = 3.0
"""Others learn up to 2 s later that a rank is gone."""
CALLS_SHOWN = 8

Tell = Callable[[RankError, bool], None]
"""Tells people of an error; the second argument: this rank speaks for all."""


class Watchdog:
    """Looks after one rank until it is told that the rank is done."""

    def __init__(
        self,
        row: StateBuffer,
        board: HeartbeatStore,
        rank_context: RankContext,
        timeout_s: float,
        tell: Tell,
    ) -> None:
        self.row = row
        self.cases: Sequence[Case] = ()
        """The cases of the plan, for the words of a report."""
        self.neighbours: Mapping[int, int] = {}
        """The processes of ranks of this host that somebody else started, by rank."""
        self._board = board
        self._rank, self._ranks = rank_context.rank, rank_context.world_size
        self._timeout_s = timeout_s
        self._tell = tell
        self._host = socket.gethostname()
        self._scratch_dir = rank_context.scratch_dir
        self._store_host = _host_of_store(rank_context)
        self._main = threading.main_thread().ident or 0
        self._over = threading.Event()
        self._joined = rank_context.joined
        self._judging = threading.Lock()
        self._judged = False
        """Who is gone has been found out."""
        row[PID] = os.getpid()
        self._post()
        self._thread = threading.Thread(target=self._look, daemon=True, name="commbench-watch")
        self._thread.start()

    def end(self) -> None:
        """The rank is done."""
        self._over.set()
        self._thread.join()

    def confess(self, word: str) -> None:
        """Tell the other ranks that this one has failed."""
        self._post(word=word)

    def blame(self, patience_s: float) -> tuple[str, bool]:
        """What the other ranks' positions tell of a connection that was lost: which of them ended,
        and what it was doing; empty where none did. And whether this rank speaks for all, as the
        first that is left. Takes `patience_s`, in which the watch goes on."""
        with self._judging:
            self._board.alarm()
            first = self._board.read()
            time.sleep(patience_s)
            self._judged = True
            return self._gone(first, self._board.read())

    def say(self, blames: str, is_reporter: bool) -> None:
        """Tell of ranks that are gone, if this one speaks. Then stay until the others know as much:
        some launchers end all ranks with the first, and rank 0's store ends with it."""
        if is_reporter:
            self._tell(RankError(blames, LEFT), True)
        time.sleep(STAY_S)

    def _gone(
        self, first: Mapping[int, Heartbeat], second: Mapping[int, Heartbeat]
    ) -> tuple[str, bool]:
        failed = [(rank, post.word) for rank, post in second.items() if post.word]
        if self._store_host and set(second) <= {self._rank} and self._rank:
            # Nothing answers where all post, which is at rank 0.
            return f"rank 0 on {self._store_host} ended, or cannot be reached", self._rank == 1
        gone = failed or [
            (rank, "")
            for rank in range(self._ranks)
            if rank not in second or is_silent(rank, first, second)
        ]
        gone = [(rank, word) for rank, word in gone if rank != self._rank]
        if not gone:
            return "", True
        ranks = [rank for rank, _ in gone]
        first_left = min(rank for rank in range(self._ranks) if rank not in ranks)
        return blame(ranks, gone[0][1], second, self.cases), self._rank == first_left

    def dismissed(self) -> None:
        """The launcher ends this rank. If a rank of this host ended before, say so: nobody will see
        how the others' positions go on."""
        left = [rank for rank, pid in self.neighbours.items() if is_there(pid)]
        gone = [rank for rank in self.neighbours if rank not in left]
        if not gone or self._over.is_set() or self._judged or self._rank != min(left):
            return
        known = {rank: post for rank, post in self._board.read().items() if rank in gone}
        if not any(post.word for post in known.values()):  # who has words says them
            where = "" if known else f" on {self._host}"
            self._tell(RankError(blame(gone, "", known, self.cases, where), LEFT), True)

    def _look(self) -> None:
        looked = moved = time.monotonic()
        seen = read_row(self.row).progress
        while not self._over.wait(BEAT_S):
            now = time.monotonic()
            progress = read_row(self.row).progress
            if progress != seen or now - looked > LATE_S:
                seen, moved = progress, now
            looked = now
            self.row[STILL_MS] = round(1000 * (now - moved))
            self._post()
            if self._joined and self._board.alarmed:
                self._answer(progress)
            if now - moved > allowed_s(self._timeout_s, self.row[BYTES]):
                self._give_up()

    def _answer(self, progress: tuple[int, int, int]) -> None:
        """Another rank has lost one. This one may not see that for long: if it does not move on
        either, find out who is gone, say so, and end."""
        if self._judged or not self._judging.acquire(blocking=False):
            return  # the main thread has seen it
        try:
            first = self._board.read()
            self._beat_on(LISTENING_BEATS * BEAT_S)
            blames, is_reporter = self._gone(first, self._board.read())
            self._judged = bool(blames) and progress == read_row(self.row).progress
        finally:
            self._judging.release()
        if self._judged and not self._over.is_set():
            if is_reporter:
                self._tell(RankError(blames, LEFT), True)
            self._beat_on(STAY_S)
            os._exit(RankError.exit_code)

    def _beat_on(self, seconds: float) -> None:
        """Let others see for so long that this rank is there, unless it is done."""
        for _ in range(round(seconds / BEAT_S)):
            if not self._over.wait(BEAT_S):
                self._post()

    def _post(self, **more: Any) -> None:
        self.row[BEATS] += 1
        self._board.post(Heartbeat(self._host, read_row(self.row), **more))

    def _give_up(self) -> None:
        """Find out who keeps everybody waiting, say so, and end this rank."""
        stack = _stack(self._main)
        self._post(stack=stack)
        first = self._board.read()
        for _ in range(LISTENING_BEATS):
            if self._over.wait(BEAT_S):
                return
            self._post(stack=stack)
        second = self._board.read()
        silent = [rank for rank in second if is_silent(rank, first, second)]
        is_reporter = self._rank == min((r for r in second if r not in silent), default=self._rank)
        verdict = judge(first, second, self._ranks)
        self._tell(report(verdict, second, self.cases, self._timeout_s), is_reporter)
        for rank in silent:
            # A stopped rank would outlive the others: it does not even see that it is to end.
            if rank != self._rank and self._is_ours(rank, second[rank]):
                end(second[rank].position.pid)
        if not is_reporter:
            time.sleep(BEAT_S)  # the first to end may end all
        os._exit(RankError.exit_code)

    def _is_ours(self, rank: int, post: Heartbeat) -> bool:
        """Whether to end that rank: one of the same launcher, whose guard ends all others."""
        if self._scratch_dir:
            return rank in read_positions(self._scratch_dir)
        return post.host == self._host


@contextmanager
def watching(plan: Plan, rank_context: RankContext, tell: Tell) -> Iterator[Watchdog]:
    """A watch over this rank, whose position is noted in `watch.row`."""
    if rank_context.joined:
        keep_for_later()  # threads inherit that
    watch = Watchdog(
        open_row(rank_context.scratch_dir, rank_context.rank),
        board_for(rank_context),
        rank_context,
        plan.timeout_s,
        tell,
    )
    watch.cases = plan.cases()
    if rank_context.joined:
        when_dismissed(watch.dismissed)
    try:
        yield watch
        set_phase(watch.row, DONE)
    finally:
        watch.end()


def _host_of_store(rank_context: RankContext) -> str:
    """The host of the store in which ranks post; empty where they post in files."""
    if rank_context.meeting_point.startswith("file:"):
        return ""
    return socket.gethostname() if rank_context.one_host else store_of(rank_context)[0]


def _stack(thread: int) -> tuple[str, ...]:
    """The innermost calls of a thread, innermost last."""
    frame = sys._current_frames().get(thread)
    calls: list[str] = []
    while frame and len(calls) < CALLS_SHOWN:
        calls.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(reversed(calls))
