"""The watchdog thread of a rank: publishes heartbeats, notices hung and lost ranks, and ends its
rank.

It looks once a second. Three things make it act, each with a method of its own: the rank has made
no progress for longer than its operation may take (`_end_hang`), another rank has reported a lost
one (`_follow_report`), another launcher sends SIGTERM (`on_sigterm`). Where torch reports a lost
connection to the rank itself, the rank asks its watchdog which one was lost (`find_lost_ranks`).

mpirun and `srun --kill-on-bad-exit` send SIGTERM to all ranks as soon as one has ended. A rank then
stays for a moment, in which it can report which rank that was.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from commbench.errors import RankError
from commbench.plan.plan import Plan
from commbench.worker.entrypoint import RankContext
from commbench.worker.groups import uses_nccl
from commbench.worker.watchdog import hang_analysis, rank_state
from commbench.worker.watchdog.hang_analysis import (
    Heartbeat,
    Heartbeats,
    HeartbeatStore,
    LostRanks,
    find_store,
    open_heartbeats,
)
from commbench.worker.watchdog.hang_evidence import ASKING_RANKS, FlightRecorderDump, RasRequest
from commbench.worker.watchdog.rank_state import (
    LOST_RANK_HINT,
    Delays,
    StateBuffer,
    read_delays,
    read_state,
)

CALLS_SHOWN = 8

ReportError = Callable[[RankError, bool], None]
"""Reports an error to people; the second argument: this rank reports it for all."""


class Watchdog:
    """Watches one rank until `stop` is called."""

    def __init__(
        self,
        state: StateBuffer,
        store: HeartbeatStore,
        rank_context: RankContext,
        plan: Plan,
        report: ReportError,
        delays: Delays,
    ) -> None:
        self.state = state
        self.local_pids: Mapping[int, int] = {}
        """The processes of the ranks of this host that another launcher started, by rank."""
        self._store = store
        self._context, self._rank = rank_context, rank_context.rank
        self._plan, self._cases = plan, plan.cases()
        self._report = report
        self._delays = delays
        self._host = socket.gethostname()
        address = find_store(rank_context)
        self._store_host = address[0] if address else ""
        """The host of the store in which ranks publish; empty where they publish in files."""
        if address and rank_context.is_single_node:
            self._store_host = self._host
        self._main_thread = threading.main_thread().ident or 0
        self._stopped = threading.Event()
        self._diagnosing = threading.Lock()
        self.dump_folder: Path | None = None
        """For what torch's flight recorder has recorded; None where that is not kept."""
        self._dump: FlightRecorderDump | None = None
        self._failure = ""
        self._is_diagnosed = False
        """This rank knows which ranks are lost."""
        state[rank_state.PID] = os.getpid()
        self.publish()
        self._thread = threading.Thread(target=self._run, daemon=True, name="commbench-watchdog")
        self._thread.start()

    def stop(self) -> None:
        """Watch no more: the rank is done, or ends with an error."""
        self._stopped.set()
        self._thread.join()
        self._store.close()

    def report_failure(self, failure: str) -> bool:
        """Publish a failure that other ranks may have too, at the same time. Returns whether this
        rank is to report it: the lowest that has one."""
        self.publish(failure=failure)
        if not self._context.is_external:
            return True  # the launcher chooses
        with self._diagnosing:
            self._store.report_lost_rank()
            self._is_diagnosed = True
            time.sleep(self._delays.listen_s)
            failed = [rank for rank, found in self._store.read().items() if found.failure]
            is_reporter = self._rank == min(failed, default=self._rank)
            time.sleep(self._delays.stay_s)
        return is_reporter

    def find_lost_ranks(self) -> LostRanks:
        """Which ranks ended, after torch has reported a lost connection; takes `listen_s`."""
        with self._diagnosing:
            self._store.report_lost_rank()
            return self._diagnose_lost_ranks(time.sleep)

    def report_lost_ranks(
        self, lost: LostRanks, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """Report lost ranks, where this rank is the reporter. Then stay until the others know them
        too: some launchers end all ranks with the first, and rank 0's store ends with it."""
        if lost.is_reporter:
            self._report(lost.error(), True)
        sleep(self._delays.stay_s)

    def on_sigterm(self) -> None:
        """Report which ranks of this host have ended, when another launcher ends this one: nobody
        will live to see their heartbeats stop. The lowest rank that is left reports."""
        left = [rank for rank, pid in self.local_pids.items() if rank_state.is_process_alive(pid)]
        lost = [rank for rank in self.local_pids if rank not in left]
        if not lost or self._stopped.is_set() or self._is_diagnosed or self._rank != min(left):
            return
        known = {rank: h for rank, h in self._store.read().items() if rank in lost}
        if not any(heartbeat.failure for heartbeat in known.values()):  # else they report it
            where = "" if known else f" on {self._host}"
            message = hang_analysis.describe_lost_ranks(lost, known, self._cases, where)
            self._report(RankError(message, LOST_RANK_HINT), True)

    def _run(self) -> None:
        progress = read_state(self.state).progress
        updated = moved = time.monotonic()
        while not self._stopped.wait(self._delays.heartbeat_s):
            before, progress = progress, read_state(self.state).progress
            late_s, updated = time.monotonic() - updated, time.monotonic()
            if progress != before or late_s > self._delays.late_s:
                moved = updated
            stalled_s = updated - moved
            self.state[rank_state.STILL_MS] = round(1000 * stalled_s)
            self.publish()
            if self._context.is_external and self._store.has_lost_rank:
                self._follow_report()
            expected_s = self.state[rank_state.EXPECTED_MS] / 1e3
            if stalled_s > self._plan.timeout_s + expected_s:
                self._end_hang()

    def publish(self, stack: tuple[str, ...] = (), failure: str = "") -> None:
        """Publish a heartbeat with what this rank does, and how it failed, if it did."""
        self.state[rank_state.HEARTBEATS] += 1
        self._failure = failure or self._failure
        recorded = self._dump.summary if self._dump else ""
        state = read_state(self.state)
        self._store.publish(Heartbeat(self._host, state, stack, self._failure, recorded))

    def _keep_publishing(self, seconds: float, stack: tuple[str, ...] = ()) -> None:
        """Publish heartbeats for so long, or until the rank is done."""
        for _ in range(round(seconds / self._delays.heartbeat_s)):
            if not self._stopped.wait(self._delays.heartbeat_s):
                self.publish(stack)

    def _diagnose_lost_ranks(self, sleep: Callable[[float], object]) -> LostRanks:
        first = self._store.read()
        sleep(self._delays.listen_s)
        self._is_diagnosed = True
        second = self._store.read()
        return hang_analysis.diagnose_lost_ranks(
            first, second, self._rank, self._context.world_size, self._store_host, self._cases
        )

    def _follow_report(self) -> None:
        """Another rank has reported a lost one, which this rank may not notice for long. Unless it
        makes progress, find out which one was lost, report it and end this rank."""
        if self._is_diagnosed or not self._diagnosing.acquire(blocking=False):
            return  # the main thread has noticed it
        try:
            before = read_state(self.state).progress
            lost = self._diagnose_lost_ranks(self._keep_publishing)
            after = read_state(self.state).progress
            self._is_diagnosed = bool(lost.message) and before == after
        finally:
            self._diagnosing.release()
        if self._is_diagnosed and not self._stopped.is_set():
            self.report_lost_ranks(lost, self._keep_publishing)
            os._exit(RankError.exit_code)

    def _end_hang(self) -> None:
        """Find out which ranks keep all others waiting, report it and end this rank."""
        stack = _read_stack(self._main_thread)
        ras = self._ask_nccl()
        if self.dump_folder:
            self._dump = FlightRecorderDump(self.dump_folder, self._rank, self._delays.listen_s)
        self.publish(stack)
        first = self._store.read()
        self._keep_publishing(self._delays.listen_s, stack)
        if self._stopped.is_set():
            return
        second = self._store.read()
        silent = hang_analysis.find_silent(first, second)
        is_reporter = self._rank == min((r for r in second if r not in silent), default=self._rank)
        diagnosis = hang_analysis.diagnose_hang(first, second, self._context.world_size)
        error = hang_analysis.make_hang_error(diagnosis, second, self._cases, self._plan.timeout_s)
        if failed := [rank for rank, heartbeat in second.items() if heartbeat.failure]:
            # It failed first, and then did not end: what it has under way, or NCCL, may wait.
            message = hang_analysis.describe_lost_ranks(failed, second, self._cases)
            error = RankError(message, LOST_RANK_HINT)
        if is_reporter:
            dumps = hang_analysis.describe_dumps(second, self.dump_folder)
            found = (error.details, dumps, ras.finish() if ras else "")
            error.details = "\n".join(filter(None, found))
        self._report(error, is_reporter)
        self._kill(silent, second)
        if not is_reporter:
            time.sleep(self._delays.heartbeat_s)  # the first to end may end all
        os._exit(RankError.exit_code)

    def _ask_nccl(self) -> RasRequest | None:
        """Ask NCCL while this rank listens to the others; None where that makes no sense."""
        if uses_nccl(self._plan) and self._rank < ASKING_RANKS:
            return RasRequest(self._delays.listen_s, pids=self.local_pids.values())
        return None

    def _kill(self, ranks: Sequence[int], heartbeats: Heartbeats) -> None:
        """Kill those of some stopped ranks that run here: they would outlive the others, for a
        stopped process does not react to SIGTERM."""
        if self._context.scratch_dir:
            here = set(rank_state.read_states(self._context.scratch_dir))
        else:
            here = {rank for rank in ranks if heartbeats[rank].host == self._host}
        for rank in here.intersection(ranks) - {self._rank}:
            rank_state.kill_process(heartbeats[rank].state.pid)


@contextmanager
def watching(plan: Plan, rank_context: RankContext, report: ReportError) -> Iterator[Watchdog]:
    """A watchdog of this rank, which records what it does in `watchdog.state`."""
    if rank_context.is_external:
        block_sigterm()  # the threads that are started from now on inherit that
    delays = read_delays()
    watchdog = Watchdog(
        rank_state.open_state(rank_context.scratch_dir, rank_context.rank),
        open_heartbeats(rank_context, delays.store_s),
        rank_context,
        plan,
        report,
        delays,
    )
    termination = None
    if rank_context.is_external:
        termination = TerminationThread(watchdog.on_sigterm, delays.sigterm_s)
    try:
        yield watchdog
        rank_state.set_phase(watchdog.state, rank_state.DONE)
    finally:
        watchdog.stop()
    if termination:  # after an error it stays: there is still something to report
        termination.close()


def _read_stack(thread: int) -> tuple[str, ...]:
    """The innermost calls of a thread, innermost last."""
    frame = sys._current_frames().get(thread)
    calls: list[str] = []
    while frame and len(calls) < CALLS_SHOWN:
        calls.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(reversed(calls))


SIGNAL = signal.SIGTERM


def block_sigterm() -> None:
    """Block SIGTERM in this thread and in those it starts, for a TerminationThread to receive."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {SIGNAL})


class TerminationThread:
    """Calls `report` when SIGTERM comes, and ends the process `delay_s` later as SIGTERM does; also
    out of an operation that never returns to Python."""

    def __init__(self, report: Callable[[], None], delay_s: float) -> None:
        self._report = report
        self._delay_s = delay_s
        self._closed = False
        self._thread = threading.Thread(target=self._wait, daemon=True, name="commbench-sigterm")
        self._thread.start()

    def close(self) -> None:
        """End the thread, and unblock SIGTERM in the thread that calls this."""
        self._closed = True
        if self._thread.is_alive():
            signal.pthread_kill(self._thread.ident or 0, SIGNAL)
        self._thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGNAL})

    def _wait(self) -> None:
        signal.sigwait({SIGNAL})
        if self._closed:
            return
        deadline = time.monotonic() + self._delay_s
        threading.Thread(target=self._report, daemon=True).start()
        time.sleep(max(0.0, deadline - time.monotonic()))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGNAL})
        os.kill(os.getpid(), SIGNAL)
