"""What the launchers of several nodes tell each other when a launch goes wrong, and at its end.

How a rank ended only its own launcher knows: other nodes see a lost connection, or a rank that does
not come. Where all ranks of a node are done, torch's agent there waits minutes for the agents of
nodes that failed. And a launcher that is killed says nothing any more: its node falls silent.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from commbench.errors import (
    CommbenchError,
    Interrupted,
    RankError,
    first_line,
    from_wire,
    to_wire,
)
from commbench.launch.exit_report import LaunchOutcome
from commbench.worker.watchdog.error_files import LEFT

PATIENCE_S = 3.0
"""How long a node that sees no more than an echo of what happened waits for what others know."""
LINGER_S = 5.0
"""How long node 0 stays for others to read what it knows: their ranks find out within 3 s."""
POLL_S = 0.02
BEAT_S = 1.0
SILENT_S = 6.0
"""How long nothing may be heard of a node while ranks come, and after they are done. In between the
ranks themselves see who is gone, and are patient as --timeout says."""
GONE_S = 3.0
"""For how long a node is silent that nobody waits for when all take leave."""
LOST = "the launcher of node 0 has ended, or cannot be reached any more"
EXIT_BARRIER = "torchelastic/agent/terminal_state"
"""Where torch's agents wait for each other, in the words of torch/distributed/elastic: a counter
`num_members`, and a key `last_member` that the last one sets."""
ACCOUNT, TOLD = "account", "told"
"""The first account at first hand of what happened, and a counter: whether there is one."""
HOST, BEATS, ENDED, READ = "host/", "beats/", "ended/", "read/"
"""By node: its host, and counters of how often its launcher has looked here, whether its launch has
ended, and whether it needs the store no more."""


class NodeExitProtocol:
    """How one node of several takes leave of the others.

    Threads of its own talk to the store: where a link is cut, that may take for ever.
    """

    def __init__(self, node: int, nodes: int) -> None:
        self._node, self._nodes = node, nodes
        self._store: Any = None
        self._account: CommbenchError | None = None
        self._silent: CommbenchError | None = None
        self._heard: dict[int, tuple[int, float]] = {}
        """On node 0, of each other one: its beats, and when the last one was heard."""
        self._asked = time.monotonic()
        """When the agent asked last whether it may go on."""
        self._ending = threading.Event()
        self._over = threading.Event()

    def meet_in(self, store: Any, connect: Callable[[], Any]) -> None:
        """All nodes have come to this store, which is node 0's; `connect` gives another client."""
        self._store = store
        _start(self._listen, connect)

    def heed(self, joining: Callable[[], bool]) -> None:
        """Raise what another node has told, if one has, for this launch cannot go well any more; or
        that one fell silent while ranks were still `joining` the others."""
        self._asked = time.monotonic()
        if self._account:
            raise self._account
        if self._silent and joining():
            raise self._silent

    def say(self, mine: LaunchOutcome) -> CommbenchError | None:
        """Tell the other nodes how it ended here. What ended the launch: the account of the node
        that it happened on, where there is one; None if all went well everywhere.

        Takes seconds where something went wrong.
        """
        self._ending.set()
        if self._store:
            _start(self._exchange, mine).join(PATIENCE_S + LINGER_S)
            self._over.set()
            self._store = None
        if isinstance(mine.error, Interrupted):
            return mine.error
        return self._account or mine.error or self._silent

    def _listen(self, connect: Callable[[], Any]) -> None:
        store: Any = None
        while not self._over.wait(BEAT_S):
            try:
                if not store:
                    connection = connect()
                    connection.set(f"{HOST}{self._node}", socket.gethostname())
                    store = connection
                self._account = self._account or _told(store)
                store.add(f"{BEATS}{self._node}", 1)
                if self._node == 0:
                    self._hear(store)
            except (RuntimeError, OSError) as error:
                if store and not self._ending.is_set():
                    self._account = RankError(f"{LOST}: {first_line(error)}", LEFT)
                if store:
                    return

    def _hear(self, store: Any) -> None:
        """Hear which nodes still beat; note the first one that is silent."""
        now = time.monotonic()
        silent = None
        for node in range(1, self._nodes):
            beats = store.add(f"{BEATS}{node}", 0)
            last, since = self._heard.get(node, (0, now))
            if beats != last:
                self._heard[node] = (beats, now)
            elif beats and now - since > SILENT_S and not silent:
                host = store.get(f"{HOST}{node}").decode()
                silent = RankError(
                    f"node {node} on {host} fell silent {now - since:.0f} s ago: its launcher has "
                    "ended, or its link is cut",
                    LEFT,
                )
        self._silent = silent
        if silent and now - self._asked > BEAT_S:  # the agent waits, for all its ranks are done
            _release(store, self._nodes)

    def _exchange(self, mine: LaunchOutcome) -> None:
        store = self._store
        store.set_timeout(timedelta(seconds=PATIENCE_S))
        if mine.error and mine.first_hand:
            account = to_wire(_for_others(mine.error, self._node))
            store.compare_set(ACCOUNT, "", json.dumps(account))
            store.add(TOLD, 1)
        if mine.error:
            _release(store, self._nodes)
        store.add(f"{ENDED}{self._node}", 1)
        _wait(lambda: store.add(TOLD, 0) or self._all(store, ENDED), PATIENCE_S)
        self._account = _told(store) or self._account
        store.add(f"{READ}{self._node}", 1)
        if self._node == 0:  # the store ends with it
            _wait(lambda: self._all(store, READ), LINGER_S)

    def _all(self, store: Any, what: str) -> bool:
        """Whether all nodes have done it that are not gone."""
        now = time.monotonic()
        gone = {node for node, (_, since) in self._heard.items() if now - since > GONE_S}
        return all(store.add(f"{what}{n}", 0) for n in range(self._nodes) if n not in gone)


def _start(what: Callable[..., None], *arguments: Any) -> threading.Thread:
    def quietly() -> None:
        # Other nodes, or the way to them, may be gone: then there is no more to be known.
        with suppress(RuntimeError, OSError, ValueError, LookupError):
            what(*arguments)

    thread = threading.Thread(target=quietly, daemon=True, name="commbench-farewell")
    thread.start()
    return thread


def _told(store: Any) -> CommbenchError | None:
    if not store.add(TOLD, 0):
        return None
    return from_wire(json.loads(store.get(ACCOUNT)))


def _release(store: Any, nodes: int) -> None:
    """Come to the barrier at which agents wait whose ranks are done, without waiting there."""
    if store.add(f"{EXIT_BARRIER}/num_members", 1) >= nodes:
        store.set(f"{EXIT_BARRIER}/last_member", "")


def _wait(until: Callable[[], object], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not until() and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _for_others(error: CommbenchError, node: int) -> CommbenchError:
    if not isinstance(error, Interrupted):
        return error
    return RankError(f"node {node} on {socket.gethostname()} was {error.message}", error.hint)
