"""A rendezvous for torchrun's elastic agent on one host: a file, no port, no name, no thread.

Registered with torch's public registry. The agent's own c10d rendezvous opens a TCPStore, whose
threads make the following fork of ranks unsafe, and looks names up.
"""

from __future__ import annotations

from pathlib import Path

from torch.distributed import FileStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

NAME = "commbench-file"


class FileRendezvous(RendezvousHandler):
    """One node that meets itself in the file `agent` of the folder given as endpoint."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._folder = Path(parameters.endpoint)
        self._run_id = str(parameters.run_id)

    def get_backend(self) -> str:
        return NAME

    def next_rendezvous(self) -> RendezvousInfo:
        store = FileStore(str(self._folder / "agent"), 1)
        # Ranks meet in a file of their own; address and port are only for their variables.
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo("127.0.0.1", 0))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


def register() -> str:
    """Make the rendezvous known to the agent; its name."""
    rendezvous_handler_registry.register(NAME, FileRendezvous)
    return NAME
