"""The watch of a rank: a thread that looks once a second whether the rank still moves.

Where a rank has not moved for longer than its operation may take, all have stopped: one of them
was stopped, loops, never came, or lost its link. Each rank's watch then finds out which, says so,
and ends its rank.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from commbench.errors import RankError
from commbench.plan import Case, Plan
from commbench.worker.board import Board, Post, board_for
from commbench.worker.position import (
    BEATS,
    BYTES,
    DONE,
    PID,
    STILL_MS,
    Row,
    move,
    open_row,
    read_positions,
    read_row,
)
from commbench.worker.seat import Seat

BEAT_S = 1.0
LATE_S = 5.0
"""A watch that itself was not let run for so long knows nothing of the time meanwhile."""
SLOWEST_BPS = 10e6
"""Bytes per second that any operation is expected to reach."""
LISTENING_BEATS = 3
"""How long a watch listens for the others' beats before it judges."""
CALLS_SHOWN = 8
STOPPED, STOPPED_ALL = "answers no more", "answer no more"

Tell = Callable[[RankError, bool], None]
"""Tells people of an error; the second argument: this rank speaks for all."""


class Verdict(NamedTuple):
    """Who keeps everybody waiting, and how that shows."""

    guilty: tuple[int, ...]
    how: str


class Watch:
    """Looks after one rank until it is told that the rank is done."""

    def __init__(self, row: Row, board: Board, seat: Seat, timeout_s: float, tell: Tell) -> None:
        self.row = row
        self.cases: Sequence[Case] = ()
        """The cases of the plan, for the words of a report."""
        self._board = board
        self._rank, self._ranks = seat.rank, seat.world_size
        self._timeout_s = timeout_s
        self._tell = tell
        self._host = socket.gethostname()
        self._desk = seat.desk
        self._main = threading.main_thread().ident or 0
        self._over = threading.Event()
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
        first that is left. Takes `patience_s`."""
        first = self._board.read()
        time.sleep(patience_s)
        second = self._board.read()
        failed = [(rank, post.word) for rank, post in second.items() if post.word]
        gone = failed or [
            (rank, "")
            for rank in range(self._ranks)
            if rank not in second or _is_silent(rank, first, second)
        ]
        gone = [(rank, word) for rank, word in gone if rank != self._rank]
        if not gone:
            return "", True
        ranks = [rank for rank, _ in gone]
        first_left = min(rank for rank in range(self._ranks) if rank not in ranks)
        return _blame(ranks, gone[0][1], second, self.cases), self._rank == first_left

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
            if now - moved > allowed_s(self._timeout_s, self.row[BYTES]):
                self._give_up()

    def _post(self, **more: Any) -> None:
        self.row[BEATS] += 1
        self._board.post(Post(self._host, read_row(self.row), **more))

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
        silent = [rank for rank in second if _is_silent(rank, first, second)]
        speaks = self._rank == min((r for r in second if r not in silent), default=self._rank)
        verdict = judge(first, second, self._ranks)
        self._tell(report(verdict, second, self.cases, self._timeout_s), speaks)
        for rank in silent:
            # A stopped rank would outlive the others: it does not even see that it is to end.
            if rank != self._rank and self._is_ours(rank, second[rank]):
                _kill(second[rank].position.pid)
        if not speaks:
            time.sleep(BEAT_S)  # the first to end may end all
        os._exit(RankError.exit_code)

    def _is_ours(self, rank: int, post: Post) -> bool:
        """Whether to end that rank: one of the same launcher, whose guard ends all others."""
        if self._desk:
            return rank in read_positions(self._desk)
        return post.host == self._host


@contextmanager
def watched(plan: Plan, seat: Seat, tell: Tell) -> Iterator[Watch]:
    """A watch over this rank, whose position is noted in `watch.row`."""
    watch = Watch(open_row(seat.desk, seat.rank), board_for(seat), seat, plan.timeout_s, tell)
    watch.cases = plan.cases()
    try:
        yield watch
        move(watch.row, DONE)
    finally:
        watch.end()


def allowed_s(timeout_s: float, bytes_: int) -> float:
    """How long a rank may stand still: --timeout, and its bytes at SLOWEST_BPS."""
    return timeout_s + bytes_ / SLOWEST_BPS


def judge(first: Mapping[int, Post], second: Mapping[int, Post], ranks: int) -> Verdict:
    """Who keeps everybody waiting, from what ranks posted and what they posted seconds later.

    In this order: ranks that nobody hears of, those whose watch has stopped too, those that are
    behind all others, and of these the ones that do not wait within torch.
    """
    unheard = tuple(rank for rank in range(ranks) if rank not in second)
    if unheard:
        return Verdict(unheard, "cannot be heard of")
    waiting = [rank for rank in second if second[rank].position.phase != DONE]
    silent = tuple(rank for rank in waiting if _is_silent(rank, first, second))
    if silent:
        return Verdict(silent, STOPPED if len(silent) == 1 else STOPPED_ALL)
    least = min((second[rank].position.progress for rank in waiting), default=(0, 0, 0))
    behind = tuple(rank for rank in waiting if second[rank].position.progress == least)
    busy = tuple(rank for rank in behind if second[rank].stack and not second[rank].waits)
    if busy and len(busy) < len(waiting):
        place = second[busy[0]].stack[-1].rpartition("/")[2]
        return Verdict(busy, f"{'is' if len(busy) == 1 else 'are'} at {place}")
    if len(behind) == ranks:
        return Verdict((), "all ranks wait")
    return Verdict(behind, "is behind" if len(behind) == 1 else "are behind")


def report(
    verdict: Verdict, posts: Mapping[int, Post], cases: Sequence[Case], timeout_s: float
) -> RankError:
    """What to tell of ranks that stand still: who keeps the others waiting, and who is where."""
    guilty, how = verdict
    longest_ms = max((post.position.still_ms for post in posts.values()), default=0)
    words = [f"{_named(guilty, posts)} {how}" if guilty else how]
    places: dict[tuple[bool, str], list[int]] = {}
    for rank, post in sorted(posts.items()):
        places.setdefault((rank not in guilty, post.position.told(cases)), []).append(rank)
    for (innocent, told), ranks in sorted(places.items()):
        moved = f"moved last {longest_ms / 1000:.0f} s ago,"
        seen = how in (STOPPED, STOPPED_ALL) and not innocent  # it may have moved since it said so
        words.append(f"{_named(ranks, posts)} {'was last seen' if seen else moved} {told}")
    stacks = [
        f"rank {rank} on {posts[rank].host} is at:\n  " + "\n  ".join(posts[rank].stack)
        for rank in guilty
        if rank in posts and posts[rank].stack
    ]
    return RankError(
        "; ".join(words),
        f"an operation may take --timeout ({timeout_s:g} s) and its bytes at "
        f"{SLOWEST_BPS / 1e6:g} MB/s; look first at the host and the link of who is named first",
        "\n".join(stacks),
    )


def _blame(
    ranks: Sequence[int], word: str, posts: Mapping[int, Post], cases: Sequence[Case]
) -> str:
    known = posts.get(ranks[0])
    doing = f", last seen {known.position.told(cases)}" if known else ""
    return f"{_named(ranks, posts)} {'failed' if word else 'ended'}{doing}" + (
        f": {word}" if word else ""
    )


def _stack(thread: int) -> tuple[str, ...]:
    """The innermost calls of a thread, innermost last."""
    frame = sys._current_frames().get(thread)
    calls: list[str] = []
    while frame and len(calls) < CALLS_SHOWN:
        calls.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(reversed(calls))


def _is_silent(rank: int, first: Mapping[int, Post], second: Mapping[int, Post]) -> bool:
    return rank in first and first[rank].position.beats == second[rank].position.beats


def _named(ranks: Sequence[int], posts: Mapping[int, Post]) -> str:
    """`rank 2 on b`, `ranks 0, 1 on a`, `ranks 0-3`."""
    hosts = {posts[rank].host for rank in ranks if rank in posts}
    where = f" on {', '.join(sorted(hosts))}" if 0 < len(hosts) <= 3 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}{where}"


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers, runs of three and more put together: `0-3, 5, 6`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )


def _place(call: str) -> str:
    return call.rpartition("/")[2]


def _kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
