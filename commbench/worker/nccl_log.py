"""Lets NCCL log how it makes the communicator, and reads that.

Only rank 0 logs, only the subsystem INIT: a few hundred lines while connections are made and none
for a call, so that nothing is written while calls are timed. NCCL reads these variables once, when
it logs for the first time; they then become again what the user has set. `ncclResetDebugInit` makes
NCCL read them once more. Its library exports that function, though no longer as a part of the API
(NCCL 2.24 and later, src/debug.cc).
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from commbench.host.environment import nccl_settings
from commbench.output.console import print_status
from commbench.spec.backends import BACKENDS
from commbench.spec.plan import Plan

VARIABLES = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT"}
FILE = "NCCL_DEBUG_FILE"
MOST_BYTES = 4 << 20
LIBRARIES = ("libnccl.so.2", "librccl.so.1", "libtorch_cuda.so", None)
"""Where NCCL may be: its library, AMD's, torch if NCCL is built into it, any other."""
Reset = Callable[[], object]


def find_reset() -> Reset | None:
    """The function of the NCCL in this process that makes it read its variables again; None where
    there is none. It loads no library."""
    for library in LIBRARIES:
        try:
            loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            return loaded.ncclResetDebugInit
        except (OSError, AttributeError):
            continue
    return None


class NcclLog:
    """The log of a subsystem that the NCCL of this rank writes into a file, if it reads its
    variables while they are set."""

    def __init__(self, path: Path, subsystem: str = "INIT", reset: Reset | None = None) -> None:
        self._path, self._offset, self._reset = path, 0, reset
        known = nccl_settings() | os.environ
        self._before = {name: known.get(name) for name in (*VARIABLES, FILE)}
        os.environ.update(VARIABLES | {"NCCL_DEBUG_SUBSYS": subsystem, FILE: str(path)})

    def restore_variables(self) -> None:
        """NCCL has read the variables: they are no part of the run's environment."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def read_more(self) -> list[str]:
        """The lines since the last time; none where they cannot be read. Warnings are printed where
        the user wants them."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(MOST_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        lines = data.decode(errors="replace").splitlines()
        for line in lines if self._before["NCCL_DEBUG"] else ():
            if " NCCL WARN " in line:
                print_status(line)
        return lines

    def remove(self) -> list[str]:
        """Remove the file, whose last lines are returned, and let NCCL log as the user wants."""
        self.restore_variables()
        lines = self.read_more()
        if self._reset:
            self._reset()
        self._path.unlink(missing_ok=True)
        return lines


def may_log(plan: Plan) -> bool:
    """Whether the backend is NCCL, and the user has not set what it logs, but for warnings."""
    backend = BACKENDS.get(plan.backend)
    known = nccl_settings() | os.environ
    is_free = known.get("NCCL_DEBUG", "").upper() in ("", "WARN")
    others = (name in known for name in ("NCCL_DEBUG_SUBSYS", FILE))
    return bool(backend and backend.is_nccl and is_free) and not any(others)


def start_log(plan: Plan, rank: int, scratch_dir: Path | None) -> NcclLog | None:
    """The log of rank 0; None on other ranks, with another backend, where the user has set what
    NCCL logs, where NCCL could not go on to print warnings, and where no file can be made."""
    if rank or not may_log(plan):
        return None
    warns = "NCCL_DEBUG" in nccl_settings() | os.environ
    reset = find_reset() if warns else None
    if warns and not reset:
        return None
    try:
        descriptor, path = tempfile.mkstemp(prefix="nccl-", suffix=".log", dir=scratch_dir)
    except OSError:
        return None
    os.close(descriptor)
    return NcclLog(Path(path), reset=reset)
