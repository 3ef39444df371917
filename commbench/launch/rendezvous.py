"""The rendezvous of torchrun's elastic agents, registered with torch's public registry.

On one host: a FileStore, which needs no port, no host name and no thread. The agent's own c10d
rendezvous opens a TCPStore, whose threads make the following fork of ranks unsafe, and looks names
up. On several nodes: a TCPStore at node 0, as in the agent's static rendezvous, which does not say
which nodes are missing.
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
from torch.distributed.elastic import rendezvous as elastic

from commbench import errors
from commbench.errors import CommbenchError, UnavailableError, first_line
from commbench.launch.supervisor import CHECKS_PER_S, NodeExitProtocol, RankSupervisor
from commbench.output.text import list_some

POLL_S = 0.05
OWN_PORT_S = 10
"""Timeout of node 0's connection to its own port, and of each node's second one to it."""
JOINED, NUMBER_JOINED = "node-", "nodes"
"""Keys: by node a counter of whether it has joined; how many have."""
MOST_MISSING = 20
"""Nodes that an error names."""
MISSING_HINT = (
    "start the same command on each node with its --node-rank; --timeout says how long to wait"
)
REFUSAL = "refusal"
"""Key under which node 0 says why the launch cannot start; empty if all nodes have joined."""


class SingleRendezvous(elastic.RendezvousHandler):
    """A rendezvous that happens once. Where the agent asks whether more nodes wait, which it does
    after each look at its ranks, the supervisor checks them too."""

    name: str
    """Of the rendezvous in torch's registry."""

    def __init__(self, parameters: elastic.RendezvousParameters) -> None:
        self._run_id, self._endpoint = str(parameters.run_id), parameters.endpoint
        self._supervisor: RankSupervisor = parameters.config["supervisor"]

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        errors.raise_dropped_interruption()
        try:
            self.check()
        except CommbenchError:
            self._supervisor.kill_ranks()
            raise
        return 0

    def check(self) -> None:
        """Raise CommbenchError if this launch cannot succeed any more."""
        self._supervisor.check()

    def get_backend(self) -> str:
        return self.name

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


class FileRendezvous(SingleRendezvous):
    """One node alone; its store is the file `agent` in the folder given as endpoint."""

    name = "commbench-file"

    def next_rendezvous(self) -> elastic.RendezvousInfo:
        store = FileStore(str(Path(self._endpoint) / "agent"), 1)
        # Ranks use a file of their own; address and port only set MASTER_ADDR and MASTER_PORT.
        return elastic.RendezvousInfo(store, 0, 1, elastic.RendezvousStoreInfo("127.0.0.1", 0))


class TcpStoreRendezvous(SingleRendezvous):
    """Several nodes, in a store at node 0; raises UnavailableError that names missing nodes.

    Its run id has to differ between launches: one may still be closing while the next begins.
    """

    name = "commbench-nodes"

    def __init__(self, parameters: elastic.RendezvousParameters) -> None:
        super().__init__(parameters)
        host, _, port = parameters.endpoint.rpartition(":")
        self._host, self._port = host, int(port)
        self._rank = int(parameters.config["rank"])
        self._count = parameters.max_nodes
        self._timeout_s = float(parameters.config["timeout"])
        self._node_exit: NodeExitProtocol = parameters.config["node_exit"]

    def check(self) -> None:
        self._node_exit.raise_if_failed(self._supervisor.is_joining)
        super().check()

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> elastic.RendezvousInfo:
        deadline = time.monotonic() + self._timeout_s
        store = self._await_nodes(deadline) if self._rank == 0 else self._join(deadline)
        self._node_exit.start(store, lambda: self._open_store(OWN_PORT_S))
        address = elastic.RendezvousStoreInfo(self._host, self._port)
        return elastic.RendezvousInfo(store, self._rank, self._count, address)

    def _await_nodes(self, deadline: float) -> Any:
        """Node 0: open the store, and wait for the others."""
        self._try_port()
        store = self._open_store(deadline - time.monotonic(), server=True)
        while store.add(NUMBER_JOINED, 0) < self._count - 1:
            if time.monotonic() > deadline:
                missing = [n for n in range(1, self._count) if not store.add(f"{JOINED}{n}", 0)]
                if not missing:
                    break
                names = list_some([*map(str, missing)], MOST_MISSING)
                nodes = f"node{'s' * (len(missing) > 1)} {names}"
                within = f"within {self._timeout_s:g} s to {self._endpoint}"
                refusal = f"{nodes} of {self._count} did not connect {within}"
                store.set(REFUSAL, refusal)
                time.sleep(10 * POLL_S)  # the nodes that have joined read it meanwhile
                raise UnavailableError(refusal, MISSING_HINT)
            time.sleep(POLL_S)
        store.set(REFUSAL, "")
        return store

    def _try_port(self) -> None:
        """Raise UnavailableError where the store could not be opened, or not be reached: TCPStore
        itself would retry for long, and log every attempt."""
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        gc.collect()  # the store of the last launch would keep the port
        try:
            server = socket.create_server(("", self._port), family=family, dualstack_ipv6=dual)
        except OSError as error:
            why = f"port {self._port} cannot be opened on this host: {_os_error_text(error)}"
            hint = "give each node its own --node-rank, or all nodes another --master-port PORT"
            raise UnavailableError(why, hint) from None
        try:
            socket.create_connection((self._host, self._port), OWN_PORT_S).close()
        except OSError as error:
            why = f"node 0 cannot reach itself at {self._endpoint}: {_os_error_text(error)}"
            hint = "--master-addr must be the host of node 0, as the other nodes reach it"
            raise UnavailableError(why, hint) from None
        finally:
            server.close()

    def _join(self, deadline: float) -> Any:
        """Another node: connect to the store, and wait until node 0 says that all have joined."""
        why = "nobody answered"
        while (left := deadline - time.monotonic()) > 0:
            try:
                # TCPStore reports a timeout, never what caused it.
                socket.create_connection((self._host, self._port), left).close()
                store = self._open_store(left)
                if store.add(f"{JOINED}{self._rank}", 1) == 1:  # not again after a lost connection
                    store.add(NUMBER_JOINED, 1)
                while not store.check([REFUSAL]):
                    if time.monotonic() > deadline:
                        raise self._unreachable("node 0 does not answer")
                    time.sleep(max(POLL_S, self._count / CHECKS_PER_S))
                refusal = store.get(REFUSAL).decode()
            except OSError as error:
                why = _os_error_text(error)
            except RuntimeError as error:  # the store of the last launch has just closed
                why = first_line(error)
            else:
                if refusal:
                    raise UnavailableError(refusal, MISSING_HINT)
                return store
            time.sleep(POLL_S)
        raise self._unreachable(why)

    def _open_store(self, timeout_s: float, server: bool = False) -> Any:
        store = TCPStore(
            self._host, self._port, self._count, server, timedelta(seconds=timeout_s),
            wait_for_workers=False, multi_tenant=True,
        )  # fmt: skip
        store.set_timeout(timedelta(seconds=self._timeout_s))
        return PrefixStore(self._run_id, store)

    def _unreachable(self, why: str) -> UnavailableError:
        what = f"node {self._rank} cannot reach node 0 at {self._endpoint}"
        hint = "start the same command with --node-rank 0 on that host; check --master-addr, "
        hint += "--master-port and the firewall"
        return UnavailableError(f"{what} within {self._timeout_s:g} s: {why}", hint)


def _os_error_text(error: OSError) -> str:
    """The system's text for an error. A failed name lookup has a number below 0, and a text of its
    own."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or first_line(error)


def register(handler: type[SingleRendezvous]) -> str:
    """Register a rendezvous with torch; returns its name for the agent."""
    elastic.rendezvous_handler_registry.register(handler.name, handler)
    return handler.name
