"""What the launchers of several nodes tell each other when a launch goes wrong, and at its end.

How a rank ended only its own launcher knows: other nodes see a lost connection, or a rank that does
not come. And where all ranks of a node are done, torch's agent there waits minutes for the agents
of nodes that failed.
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

from commbench.errors import ERRORS_BY_NAME, CommbenchError, Interrupted, RankError
from commbench.launch.aftermath import Ending

PATIENCE_S = 3.0
"""How long a node that sees no more than an echo of what happened waits for what others know."""
LINGER_S = 5.0
"""How long node 0 stays for others to read what it knows: their ranks find out within 3 s."""
POLL_S = 0.02
LISTEN_S = 1.0
EXIT_BARRIER = "torchelastic/agent/terminal_state"
"""Where torch's agents wait for each other: torch/distributed/elastic/agent/server/api.py."""
ACCOUNT, TOLD = "account", "told"
"""The first account at first hand of what happened, and a counter: whether there is one."""
ENDED, READ = "ended", "read"
"""Counters of nodes: whose launch has ended, and that need the store no more."""


class Farewell:
    """How one node of several takes leave of the others.

    Threads of its own talk to the store: where a link is cut, that may take for ever.
    """

    def __init__(self, node: int, nodes: int) -> None:
        self._node, self._nodes = node, nodes
        self._store: Any = None
        self._account: CommbenchError | None = None
        self._over = threading.Event()

    def meet_in(self, store: Any, connect: Callable[[], Any]) -> None:
        """All nodes have come to this store, which is node 0's; `connect` gives another client."""
        self._store = store
        _start(self._listen, connect)

    def heed(self) -> None:
        """Raise what another node has told, if one has, for this launch cannot go well any more."""
        if self._account:
            raise self._account

    def say(self, mine: Ending) -> CommbenchError | None:
        """Tell the other nodes how it ended here. What ended the launch: the account of the node
        that it happened on, where there is one; None if all went well everywhere.

        Takes seconds where something went wrong.
        """
        self._over.set()
        if self._store:
            _start(self._exchange, mine).join(PATIENCE_S + LINGER_S)
            self._store = None
        if isinstance(mine.error, Interrupted) or not self._account:
            return mine.error
        return self._account

    def _listen(self, connect: Callable[[], Any]) -> None:
        store = connect()
        while not self._account and not self._over.wait(LISTEN_S):
            self._account = _told(store)

    def _exchange(self, mine: Ending) -> None:
        store = self._store
        store.set_timeout(timedelta(seconds=PATIENCE_S))
        if mine.error and mine.first_hand:
            store.compare_set(ACCOUNT, "", _written(_for_others(mine.error, self._node)))
            store.add(TOLD, 1)
        if mine.error:
            _release(store, self._nodes)
        store.add(ENDED, 1)
        _wait(lambda: store.add(TOLD, 0) or store.add(ENDED, 0) >= self._nodes, PATIENCE_S)
        self._account = _told(store)
        store.add(READ, 1)
        if self._node == 0:  # the store ends with it
            _wait(lambda: store.add(READ, 0) >= self._nodes, LINGER_S)


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
    kind, *words = json.loads(store.get(ACCOUNT))
    return ERRORS_BY_NAME[kind](*words)


def _release(store: Any, nodes: int) -> None:
    """Come to the barrier at which agents wait whose ranks are done, and wait for nobody."""
    from torch.distributed.elastic.utils.store import barrier

    with suppress(RuntimeError):
        barrier(store, nodes, EXIT_BARRIER, barrier_timeout=POLL_S)
    store.set_timeout(timedelta(seconds=PATIENCE_S))


def _wait(until: Callable[[], object], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not until() and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _for_others(error: CommbenchError, node: int) -> CommbenchError:
    if not isinstance(error, Interrupted):
        return error
    return RankError(f"node {node} on {socket.gethostname()} was {error.message}", error.hint)


def _written(error: CommbenchError) -> str:
    return json.dumps([type(error).__name__, error.message, error.hint, error.details])
