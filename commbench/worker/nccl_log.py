"""Lets NCCL log how it makes the communicator, and reads that.

Only rank 0 logs, only the subsystem INIT: a few hundred lines while connections are made and none
for a call, so that nothing is written while calls are timed. NCCL reads these variables once, when
it logs for the first time; they are removed again after that.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from commbench.analysis.nccl_log import parse_communicator
from commbench.host.environment import nccl_settings
from commbench.spec.backends import BACKENDS
from commbench.spec.plan import Plan

VARIABLES = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT"}
FILE = "NCCL_DEBUG_FILE"
MOST_BYTES = 4 << 20


class NcclLog:
    """The log of this rank, in a file of its own, which is removed when it has been read."""

    def __init__(self, scratch_dir: Path | None) -> None:
        descriptor, path = tempfile.mkstemp(prefix="nccl-", suffix=".log", dir=scratch_dir)
        os.close(descriptor)
        self._path = Path(path)
        os.environ.update(VARIABLES | {FILE: path})

    def restore_variables(self) -> None:
        """NCCL has read the variables: they are no part of the run's environment."""
        for name in (*VARIABLES, FILE):
            os.environ.pop(name, None)

    def read(self) -> dict[str, Any]:
        """What it says until now (parse_communicator); empty where it cannot be read."""
        try:
            with self._path.open(encoding="utf-8", errors="replace") as file:
                return parse_communicator(file.read(MOST_BYTES).splitlines())
        except OSError:
            return {}
        finally:
            self.remove()

    def remove(self) -> None:
        """Remove the variables and the file."""
        self.restore_variables()
        self._path.unlink(missing_ok=True)


def may_log(plan: Plan) -> bool:
    """Whether the backend is NCCL, and the user has not set what it logs."""
    backend = BACKENDS.get(plan.backend)
    known = nccl_settings() | os.environ
    return bool(backend and backend.is_nccl) and not any(n in known for n in (*VARIABLES, FILE))


def start_log(plan: Plan, rank: int, scratch_dir: Path | None) -> NcclLog | None:
    """The log of rank 0; None on other ranks, with another backend, where the user has set what
    NCCL logs, and where no file can be made."""
    if rank or not may_log(plan):
        return None
    try:
        return NcclLog(scratch_dir)
    except OSError:
        return None
