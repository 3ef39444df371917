"""The TCPStore in which the ranks met, the folder of the ranks of a host that another launcher
started, which they find through it, and folders that are locked while they are in use."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import torch.distributed as dist

from commbench.host.environment import boot_id
from commbench.worker.entrypoint import RankContext
from commbench.worker.watchdog.rank_state import wait_until

FOLDER = "commbench/folder/"
"""Key by host: the folder that its ranks share."""
SHARED, LOCK = "commbench-", "lock"
"""How the names of folders begin, and the file in them that is locked while they are in use."""


def connect_store(address: tuple[str, int], timeout_s: float) -> Any:
    """Another client of the store in which the ranks met."""
    # TCPStore itself would retry for long where nobody listens, and log every attempt.
    socket.create_connection(address, timeout_s).close()
    return open_store(address, timeout_s)


def open_store(address: tuple[str, int], timeout_s: float, is_master: bool = False) -> Any:
    """A client of a store, or the store itself, which ends with this process."""
    timeout = timedelta(seconds=timeout_s)
    return dist.TCPStore(*address, is_master=is_master, wait_for_workers=False, timeout=timeout)


def find_store(rank_context: RankContext) -> tuple[str, int] | None:
    """Host and port of the TCPStore in which the ranks met; None where they met in a file."""
    if rank_context.init_method.startswith("file:"):
        return None
    if rank_context.init_method == "env://":
        return os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "0"))
    host, _, port = rank_context.init_method.removeprefix("tcp://").rpartition(":")
    return host, int(port)


class SharedFolder:
    """The folder of the ranks of a host that another launcher started. The first one to come makes
    it, and the last one to leave removes it."""

    def __init__(self, address: tuple[str, int], rank: int, timeout_s: float) -> None:
        """Raises RuntimeError or OSError where the store cannot be reached."""
        store = connect_store(address, timeout_s)
        host = f"{socket.gethostname()}/{boot_id()}/{os.getuid()}"
        for key in (host, f"{host}/{rank}"):  # a container may not see the folder of the others
            own = new_path()
            self.path = Path(store.compare_set(FOLDER + key, "", str(own)).decode())
            if lock := make_locked(own) if self.path == own else wait_until(self._join, timeout_s):
                self._file = lock
                return
        raise OSError(f"{self.path} is not there")

    def _join(self) -> IO[str] | None:
        """The lock of a folder that another rank makes; None where it is not there yet."""
        with suppress(FileNotFoundError, PermissionError):
            lock = (self.path / LOCK).open()
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock.fileno()).st_uid == os.getuid():
                return lock
        return None

    def close(self) -> None:
        """This rank uses it no more."""
        self._file.close()
        remove_if_unused(self.path)


def new_path() -> Path:
    """A path for a private folder that is not there yet, in memory if possible."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    return parent / f"{SHARED}{os.getpid()}-{os.urandom(8).hex()}"


def make_locked(path: Path) -> IO[str]:
    """Make a folder that is locked from the beginning, for a launcher removes those that are not.
    Returns its lock."""
    unlocked = Path(tempfile.mkdtemp(prefix="commbench.", dir=path.parent))
    try:
        lock = (unlocked / LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_SH)
        unlocked.rename(path)
        return lock
    finally:
        shutil.rmtree(unlocked, ignore_errors=True)


def remove_if_unused(folder: Path) -> None:
    """Remove a folder that no process uses, which shows by its lock: the kernel releases those of
    processes that have ended."""
    with suppress(OSError), (folder / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
