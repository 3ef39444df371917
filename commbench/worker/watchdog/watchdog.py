"""The watchdog thread of a rank: shows that the rank lives, notices hung and lost ranks, and ends
its rank.

It looks once a second. Three things make it act, each with a method of its own: the rank has made
no progress for longer than its operation may take (`_end_hang`), there is a diagnosis of lost ranks
(`_follow`), another launcher sends SIGTERM (`on_sigterm`). Where torch reports a lost connection to
the rank itself, the rank asks which one was lost (`find_lost_ranks`). `heartbeats` says how all
come to one diagnosis.

mpirun and `srun --kill-on-bad-exit` send SIGTERM to all ranks as soon as one has ended. A rank then
stays for a moment, in which it can report which rank that was.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from commbench.errors import HangError, RankError
from commbench.plan.plan import Plan
from commbench.worker.entrypoint import RankContext
from commbench.worker.groups import uses_nccl
from commbench.worker.watchdog import hangs, heartbeats, rank_state, shared_folder
from commbench.worker.watchdog.heartbeats import HANGS, LOST, Diagnosis, HostFolder
from commbench.worker.watchdog.rank_state import DONE, Delays, StateBuffer, read_state

POLL_S = 0.2

ReportError = Callable[[RankError], None]
"""Reports an error to people: one rank does it for all, as `is_reporter` says."""


class Watchdog:
    """Watches one rank until `stop` is called."""

    def __init__(
        self, rank_context: RankContext, plan: Plan, report: ReportError, delays: Delays
    ) -> None:
        self._context, self._rank = rank_context, rank_context.rank
        self._plan, self._cases = plan, plan.cases()
        self._report = report
        self._delays = delays
        self.dump_folder: Path | None = None
        """For what torch's flight recorder has recorded; None where that is not kept."""
        self._dump: hangs.FlightRecorderDump | None = None
        hosts = -(-rank_context.world_size // rank_context.local_world_size)
        self._answer_s = delays.answer_s(hosts)
        self._stay_s = delays.stay_s if hosts == 1 else max(delays.stay_s, self._answer_s)
        self._main_thread = threading.main_thread().ident or 0
        self._stopped = threading.Event()
        self._told: tuple[tuple[str, ...], str, str] = (), "", ""
        """What this rank tells the others: a stack, a failure, what torch has recorded."""
        self._is_diagnosed = False
        """This rank knows which ranks are lost."""
        self._reporting = threading.Lock()
        """Held by the first thread that reports lost ranks: several may come to know them."""
        self._folder: HostFolder | None = None
        """None until the ranks of this host have one."""
        self._shared: shared_folder.SharedFolder | None = None
        self._leader: heartbeats.HostLeader | None = None
        self.state: StateBuffer
        """What the rank does, which it records itself."""
        if rank_context.scratch_dir:
            self._open(rank_context.scratch_dir)
            self.state = self._shown
        else:
            self.state = rank_state.open_state(None, self._rank)
        self.publish()
        self._thread = threading.Thread(target=self._run, daemon=True, name="commbench-watchdog")
        self._thread.start()

    def _open(self, path: Path) -> None:
        """Have a place among the ranks of this host."""
        states = rank_state.open_states(path, self._rank)
        self._predecessors = rank_state.Predecessors(states)
        self._shown = rank_state.own_state(states)
        self._folder = HostFolder(path)

    def _join_host(self) -> None:
        """Find the folder of the ranks of this host; where the store is not there yet, the next
        heartbeat tries again."""
        if address := shared_folder.find_store(self._context):
            with suppress(RuntimeError, OSError):
                self._shared = shared_folder.SharedFolder(address, self._rank, self._delays.store_s)
                self._open(self._shared.path)

    def stop(self) -> None:
        """Watch no more: the rank is done, or ends with an error."""
        self._stopped.set()
        self._thread.join()
        self.publish()
        if self._leader:
            self._leader.close()
        if self._shared:
            self._shared.close()

    def report_failure(self, failure: str) -> bool:
        """Publish a failure that other ranks may have too, at the same time. Returns whether this
        rank is to report it: the lowest that has one."""
        self.publish(failure=failure)
        if not self._context.is_external:
            return True  # the launcher chooses
        failed = self.find_lost_ranks().ranks
        self._stay(self._stay_s)
        return self._rank == min(failed, default=self._rank)

    def find_lost_ranks(self) -> Diagnosis:
        """Which ranks ended, after torch has reported a lost connection; takes seconds."""
        return self._ask(LOST) or Diagnosis("", reporter=self._rank)

    def report_lost_ranks(self, lost: Diagnosis) -> None:
        """Report lost ranks, where this rank is the reporter. Then stay until the others know them
        too: some launchers end all ranks with the first, and rank 0's store ends with it."""
        if self._rank == lost.reporter and self._reporting.acquire(blocking=False):
            self._report(RankError(lost.message, lost.hint))
        self._stay(self._stay_s)

    def on_sigterm(self) -> None:
        """Report which ranks of this host have ended, when another launcher ends this one: nobody
        will live to see their heartbeats stop. The lowest rank that is left reports."""
        if not self._folder or self._stopped.is_set() or self._is_diagnosed:
            return
        known = self._folder.heartbeats()
        pids = {rank: beat.state.pid for rank, beat in known.items() if beat.state.phase != DONE}
        left = [rank for rank, pid in pids.items() if rank_state.is_process_alive(pid)]
        lost = [rank for rank in pids if rank not in left]
        if not lost or self._rank != min(left, default=self._rank):
            return
        has_reported = any(known[rank].failure for rank in lost)
        if not has_reported and self._reporting.acquire(blocking=False):
            message = hangs.describe_lost_ranks(lost, known, self._cases)
            self._report(RankError(message, rank_state.LOST_RANK_HINT))

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
            if not self._folder:
                self._join_host()
            self._keep_up()
            if self._context.is_external and stalled_s > self._delays.listen_s:
                self._follow()
            expected_s = self.state[rank_state.EXPECTED_MS] / 1e3
            if stalled_s > self._plan.timeout_s + expected_s:
                self._end_hang()

    def _keep_up(self) -> None:
        """What is due once per heartbeat: to show that this rank lives, and to lead the host if the
        ranks before it do not."""
        self.publish()
        if not self._folder:
            return
        if not self._leader and not self._predecessors.is_any_alive():
            delays, context = self._delays, self._context
            self._leader = heartbeats.HostLeader(self._folder, context, delays, self._diagnose)
        if self._leader:
            self._leader.look()

    def publish(self, stack: tuple[str, ...] = (), failure: str = "") -> None:
        """Show that this rank lives, and tell how it failed or where it hangs, if it does."""
        self.state[rank_state.HEARTBEATS] += 1
        recorded = self._dump.summary if self._dump else ""
        told = stack or self._told[0], failure or self._told[1], recorded
        if not self._folder:
            return
        if self._shown is not self.state:
            self._shown[:] = self.state
        if told != self._told:
            self._folder.tell(self._rank, *told)
            self._told = told

    def _stay(self, seconds: float) -> None:
        """Go on for so long, whichever thread this is."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, self._delays.heartbeat_s))
            if threading.current_thread() is self._thread:
                self._keep_up()

    def _diagnose(self, why: str, beats: heartbeats.Heartbeats, is_store_lost: bool) -> Diagnosis:
        about = self._context, self._plan, self.dump_folder
        return hangs.diagnose(*about, why, beats, is_store_lost)

    def _ask(self, why: str) -> Diagnosis | None:
        """The diagnosis of all ranks, which one of them makes; None where none comes, and where
        this rank ends meanwhile."""
        began, deadline = time.time(), time.monotonic() + 4 * self._answer_s
        is_own_thread = threading.current_thread() is self._thread
        found, next_beat = None, 0.0
        while not found and time.monotonic() < deadline:
            if is_own_thread and self._stopped.is_set():
                return None
            if self._folder:
                self._folder.ask(why)
                found = self._folder.read(began)
            if is_own_thread and time.monotonic() >= next_beat:
                next_beat = time.monotonic() + self._delays.heartbeat_s
                self._keep_up()
            time.sleep(min(POLL_S, self._delays.heartbeat_s))
        if not found and why == HANGS:
            found = self._diagnose(why, self._folder.heartbeats() if self._folder else {}, False)
        self._is_diagnosed = bool(found and found.message)
        return found

    def _follow(self) -> None:
        """There may be a diagnosis of lost ranks, which this rank may not notice for long, as it
        makes no progress: report it, and end this rank."""
        lost = self._folder.read() if self._folder else None
        if not lost or not lost.message or self._is_diagnosed:
            return
        self._is_diagnosed = True
        self.report_lost_ranks(lost)
        if not self._stopped.is_set():
            os._exit(RankError.exit_code)

    def _end_hang(self) -> None:
        """Find out which ranks keep all others waiting, report it and end this rank."""
        ras = self._ask_nccl()
        if folder := self.dump_folder:
            self._dump = hangs.FlightRecorderDump(folder, self._rank, self._delays.listen_s)
        self.publish(_read_stack(self._main_thread))
        found = self._ask(HANGS)
        if not found or self._stopped.is_set():
            return
        is_reporter = self._rank == found.reporter
        said = ras.finish() if ras and is_reporter else ""
        details = "\n".join(filter(None, (found.details, said)))
        self._report(HangError(found.message, found.hint, details, is_reporter=is_reporter))
        # A stopped process does not react to SIGTERM, so it would outlive the others of its host.
        states = rank_state.read_states(self._folder.path) if self._folder else {}
        for rank in {*found.silent}.intersection(states) - {self._rank}:
            rank_state.kill_process(states[rank].pid)
        if not is_reporter or self._context.is_external:
            self._stay(self._stay_s if self._context.is_external else self._delays.heartbeat_s)
        os._exit(RankError.exit_code)

    def _ask_nccl(self) -> hangs.RasRequest | None:
        """Ask NCCL while this rank listens to the others; None where that makes no sense."""
        if not uses_nccl(self._plan) or self._rank >= hangs.ASKING_RANKS:
            return None
        states = rank_state.read_states(self._folder.path) if self._folder else {}
        return hangs.RasRequest(self._delays.listen_s, [each.pid for each in states.values()])


@contextmanager
def watching(plan: Plan, rank_context: RankContext, report: ReportError) -> Iterator[Watchdog]:
    """A watchdog of this rank, which records what it does in `watchdog.state`."""
    if rank_context.is_external:
        block_sigterm()  # the threads that are started from now on inherit that
    delays = rank_state.read_delays()
    watchdog = Watchdog(rank_context, plan, report, delays)
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
    while frame and len(calls) < 8:
        calls.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(reversed(calls))


def block_sigterm() -> None:
    """Block SIGTERM in this thread and in those it starts, for a TerminationThread to receive."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


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
            signal.pthread_kill(self._thread.ident or 0, signal.SIGTERM)
        self._thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _wait(self) -> None:
        signal.sigwait({signal.SIGTERM})
        if self._closed:
            return
        deadline = time.monotonic() + self._delay_s
        threading.Thread(target=self._report, daemon=True).start()
        time.sleep(max(0.0, deadline - time.monotonic()))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.kill(os.getpid(), signal.SIGTERM)
