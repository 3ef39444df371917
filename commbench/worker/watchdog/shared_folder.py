"""The TCPStore in which the ranks met, and the folder of the ranks of a host that another launcher
started, which they find through it."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import torch.distributed as dist

from commbench.host.environment import boot_id
from commbench.worker.entrypoint import RankContext

FOLDER = "commbench/folder/"
"""Key by host: the folder that its ranks share."""
SHARED, LOCK = "commbench-", "lock"
"""How the names of folders begin, and the file in them that is locked while they are in use."""


def connect_store(address: tuple[str, int], timeout_s: float) -> Any:
    """Another client of the store in which the ranks met."""
    # TCPStore itself would retry for long where nobody listens, and log every attempt.
    socket.create_connection(address, timeout_s).close()
    timeout = timedelta(seconds=timeout_s)
    return dist.TCPStore(*address, is_master=False, wait_for_workers=False, timeout=timeout)


def find_store(rank_context: RankContext) -> tuple[str, int] | None:
    """Host and port of the TCPStore in which the ranks met; None where they met in a file."""
    if rank_context.init_method.startswith("file:"):
        return None
    where = rank_context.init_method.removeprefix("tcp://")
    if rank_context.init_method == "env://":
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    host, _, port = where.rpartition(":")
    return host, int(port)


class SharedFolder:
    """The folder of the ranks of a host that another launcher started. The first one to come makes
    it, and the last one to leave removes it."""

    def __init__(self, address: tuple[str, int], rank: int, timeout_s: float) -> None:
        """Raises RuntimeError or OSError where the store cannot be reached."""
        store = connect_store(address, timeout_s)
        memory = Path("/dev/shm")
        parent = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
        host = f"{socket.gethostname()}/{boot_id()}/{os.getuid()}"
        for key in (host, f"{host}/{rank}"):  # a container may not see the folder of the others
            own = f"{parent}/{SHARED}{os.getpid()}-{os.urandom(8).hex()}"
            self.path = Path(store.compare_set(FOLDER + key, "", own).decode())
            lock = _make_folder(self.path) if str(self.path) == own else self._join(timeout_s)
            if lock:
                self._file = lock
                return
        raise OSError(f"{self.path} is not there")

    def _join(self, timeout_s: float) -> IO[str] | None:
        """The lock of a folder that another rank makes; None where it does not come."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with suppress(FileNotFoundError, PermissionError):
                lock = (self.path / LOCK).open()
                fcntl.flock(lock, fcntl.LOCK_SH)
                if os.fstat(lock.fileno()).st_uid == os.getuid():
                    return lock
            time.sleep(0.02)
        return None

    def close(self) -> None:
        """This rank uses it no more."""
        with suppress(OSError), self._file:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self.path, ignore_errors=True)


def _make_folder(path: Path) -> IO[str]:
    """Make a folder that is locked from the beginning, for a launcher removes those that are not.
    Returns its lock."""
    unlocked = Path(tempfile.mkdtemp(prefix="commbench.", dir=path.parent))
    lock = (unlocked / LOCK).open("w")
    fcntl.flock(lock, fcntl.LOCK_SH)
    unlocked.rename(path)
    return lock
