"""Where torchrun's elastic agents meet; registered with torch's public registry.

On one host: a file, no port, no name, no thread. The agent's own c10d rendezvous opens a TCPStore,
whose threads make the following fork of ranks unsafe, and looks names up. On several nodes: a store
at node 0, as in the agent's static rendezvous, which does not say who is missing.
"""

from __future__ import annotations

import gc
import os
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import FileStore, PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from commbench.errors import CommbenchError, UnavailableError, first_line
from commbench.launch.node_exit import NodeExitProtocol
from commbench.launch.supervisor import RankSupervisor

NAME = "commbench-file"
NODES_NAME = "commbench-nodes"
POLL_S = 0.05
OWN_PORT_S = 10
"""How long node 0 tries to reach its own port, and each node its second connection to it."""
VERDICT = "verdict"
"""Key under which node 0 says what is wrong; nothing, if all have come."""
ANNOUNCED = "announced"
"""Key of a counter: whether it has said so. Asking by adding 0 works with any version of torch."""


class SingleRendezvous(RendezvousHandler):
    """A rendezvous that happens once. Where the agent asks who else waits, the guard looks."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = str(parameters.run_id)
        self._guard: RankSupervisor = parameters.config["guard"]

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        try:
            self.look()
        except CommbenchError:
            self._guard.end_ranks()
            raise
        return 0

    def look(self) -> None:
        """See whether this launch can still go well; raises CommbenchError."""
        self._guard.look()

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


class FileRendezvous(SingleRendezvous):
    """One node that meets itself in the file `agent` of the folder given as endpoint."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        super().__init__(parameters)
        self._folder = Path(parameters.endpoint)

    def get_backend(self) -> str:
        return NAME

    def next_rendezvous(self) -> RendezvousInfo:
        store = FileStore(str(self._folder / "agent"), 1)
        # Ranks meet in a file of their own; address and port are only for their variables.
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo("127.0.0.1", 0))


class TcpStoreRendezvous(SingleRendezvous):
    """Several nodes that meet at node 0's store; raises UnavailableError that says who is missing.

    Its run id has to differ between launches: one may still be closing while the next begins.
    """

    def __init__(self, parameters: RendezvousParameters) -> None:
        super().__init__(parameters)
        host, _, port = parameters.endpoint.rpartition(":")
        self._host, self._port = host, int(port)
        self._where = parameters.endpoint
        self._rank = int(parameters.config["rank"])
        self._count = parameters.max_nodes
        self._timeout_s = float(parameters.config["timeout"])
        self._farewell: NodeExitProtocol = parameters.config["farewell"]

    def get_backend(self) -> str:
        return NODES_NAME

    def look(self) -> None:
        self._farewell.heed(self._guard.is_joining)
        super().look()

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        deadline = time.monotonic() + self._timeout_s
        store = self._receive(deadline) if self._rank == 0 else self._batch(deadline)
        self._farewell.meet_in(store, lambda: self._store(OWN_PORT_S))
        place = RendezvousStoreInfo(self._host, self._port)
        return RendezvousInfo(store, self._rank, self._count, place)

    def _receive(self, deadline: float) -> Any:
        """Node 0: open the store, and wait for the others."""
        self._try_port()
        store = self._store(deadline - time.monotonic(), server=True)
        missing = set(range(1, self._count))
        while missing:
            missing = {node for node in missing if not store.add(_key(node), 0)}
            if missing and time.monotonic() > deadline:
                verdict = self._absence(sorted(missing))
                _announce(store, verdict)
                time.sleep(10 * POLL_S)  # those who came read it meanwhile
                raise _absent(verdict)
            time.sleep(POLL_S if missing else 0)
        _announce(store, "")
        return store

    def _try_port(self) -> None:
        """Raise UnavailableError where the store could not be opened, or not be reached: it would
        go on trying, and say so in pages."""
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        gc.collect()  # what is left of a launch before keeps the port
        try:
            server = socket.create_server(("", self._port), family=family, dualstack_ipv6=dual)
        except OSError as error:
            raise UnavailableError(
                f"port {self._port} cannot be opened on this host: {_words(error)}",
                "give each node its own --node-rank; or choose another port, the same on each: "
                "--master-port PORT",
            ) from None
        try:
            socket.create_connection((self._host, self._port), OWN_PORT_S).close()
        except OSError as error:
            raise UnavailableError(
                f"node 0 cannot reach itself at {self._where}: {_words(error)}",
                "--master-addr has to name node 0's own host, as the others reach it",
            ) from None
        finally:
            server.close()

    def _batch(self, deadline: float) -> Any:
        """Another node: go to the store, and wait for node 0 to say that all have come."""
        why = "nobody answered"
        while (left := deadline - time.monotonic()) > 0:
            try:
                # A store only says that time is up, never what was in the way.
                socket.create_connection((self._host, self._port), left).close()
                store = self._store(left)
                store.add(_key(self._rank), 1)
                while not store.add(ANNOUNCED, 0):
                    if time.monotonic() > deadline:
                        raise UnavailableError(*self._unanswered("node 0 does not answer"))
                    time.sleep(POLL_S)
                verdict = store.get(VERDICT).decode()
            except OSError as error:
                why = _words(error)
            except RuntimeError as error:  # the store of a launch before has just closed
                why = first_line(error)
            else:
                if verdict:
                    raise _absent(verdict)
                return store
            time.sleep(POLL_S)
        raise UnavailableError(*self._unanswered(why))

    def _store(self, timeout_s: float, server: bool = False) -> Any:
        store = TCPStore(
            self._host, self._port, self._count, server, timedelta(seconds=timeout_s),
            wait_for_workers=False, multi_tenant=True,
        )  # fmt: skip
        store.set_timeout(timedelta(seconds=self._timeout_s))
        return PrefixStore(self._run_id, store)

    def _absence(self, missing: list[int]) -> str:
        nodes = f"node{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} of {self._count}"
        return f"{nodes} did not come within {self._timeout_s:g} s to {self._where}"

    def _unanswered(self, why: str) -> tuple[str, str]:
        return (
            f"node {self._rank} cannot reach node 0 at {self._where} within "
            f"{self._timeout_s:g} s: {why}",
            "start the same command with --node-rank 0 there; check --master-addr, --master-port "
            "and the firewall",
        )


def _words(error: OSError) -> str:
    """What the system says of an error; failed look-ups of a name have numbers below 0, and words
    of their own."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or first_line(error)


def _announce(store: Any, verdict: str) -> None:
    store.set(VERDICT, verdict)
    store.add(ANNOUNCED, 1)


def _key(node: int) -> str:
    return f"node-{node}"


def _absent(verdict: str) -> UnavailableError:
    return UnavailableError(
        verdict,
        "start the same command on each node with its --node-rank; --timeout says how long to wait",
    )


def register() -> str:
    """Make the rendezvous of one host known to the agent; its name."""
    rendezvous_handler_registry.register(NAME, FileRendezvous)
    return NAME


def register_nodes() -> str:
    """Make the rendezvous of several nodes known to the agent; its name."""
    rendezvous_handler_registry.register(NODES_NAME, TcpStoreRendezvous)
    return NODES_NAME
