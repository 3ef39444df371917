"""Launching ranks from here: torchrun's elastic agent used as a library, or the command itself."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SCRATCH_DIR, LOCK = "commbench", "lock"


@contextmanager
def _scratch_dir() -> Iterator[Path]:
    """A private folder for one launch, in memory where that is possible; removed at the end, or by
    a later launch where this process is killed."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    for scratch_dir in parent.glob(f"{SCRATCH_DIR}-*"):
        _clear_away(scratch_dir)
    unlocked = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_DIR}.", dir=parent))
    scratch_dir = parent / f"{SCRATCH_DIR}-{os.getpid()}-{unlocked.suffix[1:]}"
    try:
        with (unlocked / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            unlocked.rename(scratch_dir)
            yield scratch_dir
    finally:
        for left in (unlocked, scratch_dir):
            shutil.rmtree(left, ignore_errors=True)


def _clear_away(scratch_dir: Path) -> None:
    """Remove the desk of a launcher that is no more: the kernel has taken back its lock."""
    with suppress(OSError), (scratch_dir / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(scratch_dir, ignore_errors=True)
