"""How a launch ends: checks of the ranks of this node, the error of a failed launch, and the node
exit protocol, by which launchers of several nodes agree on why a launch ended.

Where some ranks stop, the watchdogs of the others report it. Where all ranks of a node stop, no
watchdog is left to do so. And a rank that ends early with exit code 0 counts as done for the agent,
which would wait for the other ranks for ever. The agent calls its rendezvous many times a second,
which calls `check`.

Only the launcher of a rank knows how it ended: other nodes see a lost connection, or a rank that
does not join. Torch's agent on a node whose ranks are all done would wait minutes for the agents of
nodes that failed. And a launcher that is killed cannot report anything; its heartbeats stop. So
launchers exchange heartbeats and the root cause of a failure, in the store in which they met.
"""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from commbench.errors import (
    CommbenchError,
    HangError,
    Interrupted,
    OwnCallError,
    RankError,
    first_line,
    from_wire,
    to_wire,
)
from commbench.plan.plan import Plan
from commbench.worker.watchdog import rank_state
from commbench.worker.watchdog.hangs import STOPPED, realtime_hint
from commbench.worker.watchdog.rank_state import POLL_S, wait_until

KILLED_HINT = "if nobody killed it, look for the out-of-memory killer in dmesg"
CRASHED_HINT = "the lines above may show where; `commbench env` lists the versions in use"
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
EARLY_EXIT_HINT = "something in that process called exit: a library, or a signal handler"
FAILED_HINT = "COMMBENCH_TRACEBACK=1 shows where"


class RankExit(NamedTuple):
    """How a process that the agent started has failed."""

    exit_code: int
    """As of a subprocess: below 0, the number of the signal that ended it."""
    timestamp: int
    """When the exception was raised, in Unix seconds; 0 where that is not known."""
    message: str
    """The exception that ended it; empty where there was none."""


class LaunchOutcome(NamedTuple):
    """How a launch ended, as one node knows."""

    error: CommbenchError | None = None
    is_root_cause: bool = True
    """The error happened, or was found out, on this node; else it is a secondary failure."""


def make_outcome(scratch_dir: Path, failures: Mapping[int, RankExit], plan: Plan) -> LaunchOutcome:
    """How a launch ended in which the ranks `failures` failed on this node. The error is the one
    that a rank recorded, or one that says how a rank died."""
    if not failures:
        return LaunchOutcome()
    if error := rank_state.read_error(scratch_dir):
        return LaunchOutcome(error)
    written = rank_state.read_recorded(scratch_dir, rank_state.FAILURE)
    recorded = {rank: rank_state.RankFailure(*values) for rank, values in written.items()}
    primary = [r for r in failures if r not in recorded or not recorded[r].is_secondary]
    lost_ranks = [failure.lost_ranks for failure in recorded.values() if failure.lost_ranks]
    if not primary and lost_ranks:
        error = RankError(lost_ranks[0], rank_state.LOST_RANK_HINT)
        return LaunchOutcome(error, is_root_cause=False)
    rank = min(primary or failures, key=lambda rank: failures[rank].timestamp)
    kind: type[RankError] = RankError
    exit_code, _, message = failures[rank]
    state = rank_state.read_states(scratch_dir).get(rank, rank_state.RankState())
    doing = _describe_state(state, plan)
    if exit_code < 0:
        how = f"was killed by {_signal_name(-exit_code)}{doing}"
        hint = CRASHED_HINT if -exit_code in CRASHES else KILLED_HINT
    else:
        # torch has the message of an exception that was raised before or after `run_rank`.
        own = recorded.get(rank, rank_state.RankFailure(message.split("\n")[0], False))
        how = f"ended with exit code {exit_code}{doing}" + (f": {own.text}" if own.text else "")
        hint = FAILED_HINT
        if own.is_of_call:
            hint, kind = f"mend the call; {FAILED_HINT}", OwnCallError
    error = _make_rank_error(scratch_dir, rank, how, hint, kind)
    return LaunchOutcome(error, is_root_cause=bool(primary))


def _make_rank_error(
    scratch_dir: Path, rank: int, how: str, hint: str, kind: type[RankError] = RankError
) -> RankError:
    lines = [f"  {line}" for line in rank_state.last_output(scratch_dir, rank)]
    details = "\n".join([f"the last lines that rank {rank} printed:", *lines]) if lines else ""
    return kind(f"rank {rank} on {socket.gethostname()} {how}", hint, details)


def _describe_state(state: rank_state.RankState, plan: Plan) -> str:
    return "" if state.phase == rank_state.DONE else f" while {state.describe(plan.cases())}"


def _signal_name(number: int) -> str:
    """Its name, or its number where it has none (real-time signals)."""
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


class RankSupervisor:
    """Ends ranks of this node that have stopped, so that the agent ends the others."""

    def __init__(self, scratch_dir: Path, plan: Plan) -> None:
        self._scratch_dir = scratch_dir
        self._plan = plan
        self._delays = rank_state.read_delays()
        self._checked = time.monotonic()
        self._heartbeats: dict[int, tuple[int, float]] = {}
        """By rank: its number of heartbeats, and when that was seen first."""
        self._missing: set[int] = set()
        """Ranks whose processes did not exist at the last check."""

    def check(self) -> None:
        """Check all ranks, once a second. Raises RankError for one that ended early with code 0."""
        now = time.monotonic()
        if now - self._checked < self._delays.heartbeat_s:
            return
        is_late = now - self._checked > self._delays.late_s  # this process was not scheduled either
        self._checked = now
        for rank, state in rank_state.read_states(self._scratch_dir).items():
            self._raise_if_exited(rank, state)
            heartbeats, since = self._heartbeats.get(rank, (-1, now))
            limit_s = self._plan.timeout_s + state.expected_ms / 1e3 + self._delays.supervisor_s
            if is_late or heartbeats != state.heartbeats:
                self._heartbeats[rank] = (state.heartbeats, now)
            elif state.pid and state.phase != rank_state.DONE and now - since > limit_s:
                self._end(rank, state, now - since)

    def is_joining(self) -> bool:
        """Whether a rank of this node still waits for others to join."""
        states = rank_state.read_states(self._scratch_dir).values()
        return any(state.phase <= rank_state.JOINING for state in states)

    def kill_ranks(self) -> None:
        """Kill all ranks of this node, also those that are stopped and cannot react to SIGTERM."""
        for state in rank_state.read_states(self._scratch_dir).values():
            rank_state.kill_process(state.pid)

    def _raise_if_exited(self, rank: int, state: rank_state.RankState) -> None:
        if state.phase == rank_state.DONE or rank_state.is_process_alive(state.pid):
            return
        # With any other code than 0, the agent would have noticed it since the last check.
        if rank in self._missing:
            how = f"ended with exit code 0{_describe_state(state, self._plan)}"
            raise _make_rank_error(self._scratch_dir, rank, how, EARLY_EXIT_HINT)
        self._missing.add(rank)

    def _end(self, rank: int, state: rank_state.RankState, silent_s: float) -> None:
        seen = f"no heartbeat for {silent_s:.0f} s, last seen {state.describe(self._plan.cases())}"
        hint = "the process or its host is stopped: check what happened there at that time"
        hint += realtime_hint(self._plan.cpu_mode)
        error = HangError(f"rank {rank} on {socket.gethostname()} {STOPPED}: {seen}", hint)
        rank_state.record_error(self._scratch_dir, rank, error)
        rank_state.kill_process(state.pid)


EXIT_BARRIER = "torchelastic/agent/terminal_state"
"""`_TERMINAL_STATE_SYNC_ID` of torch.distributed.elastic.agent.server.api, the prefix of the keys
of the barrier at which agents of several nodes wait for each other when their ranks are done."""
CHECKS_PER_S = 500
"""How often all nodes together look whether a launch that ends has a root cause."""
NODE_0_LOST = "the launcher of node 0 ended, or cannot be reached"
ROOT_CAUSE, ENDS = "root_cause", "ends"
"""Keys: the first root cause that a node published; what is set once it is, or once all nodes have
ended."""
HOST, HEARTBEATS, ENDED, READ = "host/", "heartbeats/", "ended/", "read/"
"""Keys by node: its host, and counters of its heartbeats, of whether its
launch has ended, and of whether it needs the store no more."""


class NodeExitProtocol:
    """One node's part of the protocol.

    Threads of its own use the store: a call may never return where a link is cut. Where nodes are
    many, their heartbeats are rare (`Delays.launcher_beat_s`): a launcher whose ranks lost others
    reads the root cause when it ends.
    """

    def __init__(self, node: int, nodes: int, delays: rank_state.Delays | None = None) -> None:
        self._node, self._nodes = node, nodes
        self._delays = delays or rank_state.read_delays()
        self._beat_s = self._delays.launcher_beat_s(nodes)
        self._store: Any = None
        self._root_cause: CommbenchError | None = None
        self._lost_node: CommbenchError | None = None
        self._heartbeats: dict[int, tuple[int, float]] = {}
        """On node 0, of each other node: its heartbeats, and when the last one was counted."""
        self._agent_checked = time.monotonic()
        """When the agent called `raise_if_failed` last."""
        self._is_ending = False
        self._stopped = threading.Event()

    def start(self, store: Any, connect: Callable[[], Any]) -> None:
        """Take part, once all nodes have joined the store of node 0; `connect` makes another client
        of it."""
        self._store = store
        for key in (HEARTBEATS, ENDED, READ) if self._node == 0 else ():
            for node in range(self._nodes):  # a read of one that is not there would wait for it
                store.add(f"{key}{node}", 0)
        _start_thread(self._run, connect)

    def raise_if_failed(self, is_joining: Callable[[], bool]) -> None:
        """Raise the root cause that another node has published, if one has, for then this launch
        cannot succeed; or the error about a lost node, if a rank here still waits to join it."""
        self._agent_checked = time.monotonic()
        if self._root_cause:
            raise self._root_cause
        if self._lost_node and is_joining():
            raise self._lost_node

    def exchange(self, own: LaunchOutcome) -> CommbenchError | None:
        """Publish how the launch ended on this node. Returns why it ended: the root cause, from the
        node on which it happened, if any has published it; None if all went well everywhere.

        Takes seconds where something went wrong.
        """
        self._is_ending = True
        if self._store:
            limit_s = self._delays.node_cause_s + self._delays.node_store_s
            _start_thread(self._exchange, own).join(limit_s)
            self._stopped.set()
            self._store = None
        if isinstance(own.error, Interrupted):
            return own.error
        return self._root_cause or own.error or self._lost_node

    def _run(self, connect: Callable[[], Any]) -> None:
        """Publish this node's heartbeats, and look for a root cause and for lost nodes."""
        store: Any = None
        while not self._stopped.wait(self._beat_s if store else self._delays.heartbeat_s):
            try:
                if not store:
                    connection = connect()
                    connection.set(f"{HOST}{self._node}", socket.gethostname())
                    store = connection
                self._root_cause = self._root_cause or _read_root_cause(store)
                store.add(f"{HEARTBEATS}{self._node}", 1)
                if self._node == 0:
                    self._find_lost_node(store)
            except (RuntimeError, OSError) as error:
                if store and not self._is_ending:
                    what = f"{NODE_0_LOST}: {first_line(error)}"
                    self._root_cause = RankError(what, rank_state.LOST_RANK_HINT)
                if store:
                    return

    def _find_lost_node(self, store: Any) -> None:
        """Count the heartbeats of the other nodes, and record the first node that sends none any
        more."""
        now = time.monotonic()
        silent_s = max(self._delays.node_silent_s, 2 * self._beat_s)
        lost = None
        for node, heartbeats in enumerate(self._count(store, HEARTBEATS)):
            last, since = self._heartbeats.get(node, (0, now))
            if heartbeats != last:
                self._heartbeats[node] = (heartbeats, now)
            elif heartbeats and now - since > silent_s and not lost:
                host = store.get(f"{HOST}{node}").decode()
                why = f"node {node} on {host} sent no heartbeat for {now - since:.0f} s: "
                why += "its launcher ended, or the network is down"
                lost = RankError(why, rank_state.LOST_RANK_HINT)
        self._lost_node = lost
        is_agent_waiting = now - self._agent_checked > self._delays.heartbeat_s
        if lost and is_agent_waiting:  # in the exit barrier, because all ranks here are done
            release_exit_barrier(store, self._nodes)

    def _exchange(self, own: LaunchOutcome) -> None:
        store, cause_s = self._store, self._delays.node_cause_s
        store.set_timeout(timedelta(seconds=cause_s))
        if (error := own.error) and own.is_root_cause:
            if isinstance(error, Interrupted):  # for other nodes that is an error of this one
                why = f"node {self._node} on {socket.gethostname()} was {error.message}"
                error = RankError(why, error.hint)
            store.compare_set(ROOT_CAUSE, "", json.dumps(to_wire(error)))
            store.set(ENDS, "")
        if own.error:
            release_exit_barrier(store, self._nodes)
        store.add(f"{ENDED}{self._node}", 1)
        if self._node == 0:
            wait_until(lambda: store.check([ENDS]) or self._have_all(store, ENDED), cause_s)
            store.set(ENDS, "")
        else:
            poll_s = max(POLL_S, self._nodes / CHECKS_PER_S)
            wait_until(lambda: store.check([ENDS]), cause_s, poll_s)
        self._root_cause = _read_root_cause(store) or self._root_cause
        store.add(f"{READ}{self._node}", 1)
        if self._node == 0:  # the store ends with it
            wait_until(lambda: self._have_all(store, READ), self._delays.node_store_s)

    def _count(self, store: Any, key: str) -> list[int]:
        """The counters of all nodes."""
        return [*map(int, store.multi_get([f"{key}{node}" for node in range(self._nodes)]))]

    def _have_all(self, store: Any, key: str) -> bool:
        """Whether all nodes that still have heartbeats have counted up their key."""
        now, gone_s = time.monotonic(), max(self._delays.node_gone_s, 2 * self._beat_s)
        gone = {node for node, (_, since) in self._heartbeats.items() if now - since > gone_s}
        return all(n or node in gone for node, n in enumerate(self._count(store, key)))


def release_exit_barrier(store: Any, nodes: int) -> None:
    """Let agents go that wait for this node after their ranks are done, for up to 300 s: do what
    torch.distributed.elastic.utils.store.barrier does, without waiting."""
    if store.add(f"{EXIT_BARRIER}/num_members", 1) >= nodes:
        store.set(f"{EXIT_BARRIER}/last_member", "")


def _start_thread(function: Callable[..., None], *arguments: Any) -> threading.Thread:
    def run() -> None:
        # The store, or the link to it, may be lost: then nothing more can be known.
        with suppress(RuntimeError, OSError, ValueError, LookupError):
            function(*arguments)

    thread = threading.Thread(target=run, daemon=True, name="commbench-node-exit")
    thread.start()
    return thread


def _read_root_cause(store: Any) -> CommbenchError | None:
    if not store.check([ROOT_CAUSE]):
        return None
    return from_wire(json.loads(store.get(ROOT_CAUSE)))
