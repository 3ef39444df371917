"""Learns which algorithm and protocol NCCL selects for the calls of a plan, in the ranks that are
measured: also those of other launchers, and of several nodes.

NCCL logs a line for each call if the subsystem TUNING is on (analysis.nccl_log), which costs time.
So it is on during one untimed call of each case only. NCCL reads its variables when it logs first;
`ncclResetDebugInit` makes it read them again. Its library exports that function, though no longer
as a part of the API (NCCL 2.24 and later, src/debug.cc). Without it nothing is learned.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commbench.analysis.nccl_log import SELECTIONS, selections_by_call
from commbench.spec.backends import BACKENDS
from commbench.spec.case import READY, Case
from commbench.spec.computations import AT_ONCE, COMPUTATION
from commbench.spec.operations import OPERATIONS
from commbench.worker.buffers import Arena
from commbench.worker.call_forms import make_call
from commbench.worker.communicator import Communicator
from commbench.worker.context import LaunchTask
from commbench.worker.nccl_log import FILE, MOST_BYTES, VARIABLES, may_log
from commbench.worker.watchdog import rank_state
from commbench.worker.watchdog.hang_analysis import longest_check_s
from commbench.worker.watchdog.rank_state import StateBuffer, set_phase

LIBRARY = "libnccl.so.2"
_NOT_SELECTED_BY = (
    "timing", "launch_mode", "buffers", "overlap", "part", "concurrency", "group_ranks",
)  # fmt: skip
"""Dimensions of a case on which NCCL's selection does not depend."""
Reset = Callable[[], object]


def find_reset() -> Reset | None:
    """The function of the NCCL in this process that makes it read its variables again; None where
    there is none. It loads no library."""
    for library in (LIBRARY, None):
        try:
            loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            return loaded.ncclResetDebugInit
        except (OSError, AttributeError):
            continue
    return None


def learn_selections(
    task: LaunchTask,
    cases: Sequence[Case],
    comm: Communicator,
    arena: Arena,
    state: StateBuffer,
) -> dict[str, Any]:
    """Call each kind and size of case once, and read NCCL's log of it: a fact for the run's
    environment, on rank 0; empty elsewhere, where nothing may be logged, and where it is known
    already. All ranks call this."""
    backend = BACKENDS.get(task.plan.backend)
    if not (backend and backend.is_nccl):
        return {}
    wanted = task.logs_nccl and not task.nccl_selections and may_log(task.plan)
    reset = find_reset() if wanted and not comm.rank else None
    if not comm.share_value(reset is not None):  # as rank 0 says: all ranks make the calls
        return {}
    with _selections_logged(reset) as log:
        for case in _calls_to_make(cases):
            moved_bytes = case.size_bytes * case.parts
            expected_s = longest_check_s(moved_bytes)
            set_phase(state, rank_state.CHECKING, case.index, expected_s=expected_s)
            for own, buffers in arena.of_groups(case):
                comm.device.in_stream(make_call(own, buffers))()
            comm.device.synchronize()
    found = selections_by_call(log)
    return {SELECTIONS: found} if found else {}


def _calls_to_make(cases: Sequence[Case]) -> list[Case]:
    """One case of all for which NCCL selects alike."""
    found: dict[tuple[Any, ...], Case] = {}
    for case in cases:
        operation = OPERATIONS[case.operation]
        is_call = operation.nccl_function and not (case.uses_new_group or operation.registers)
        if case.status == READY and is_call and case.part not in (COMPUTATION, AT_ONCE):
            found.setdefault(case.key(*_NOT_SELECTED_BY), case)
    return list(found.values())


@contextmanager
def _selections_logged(reset: Reset | None) -> Iterator[list[str]]:
    """Let NCCL log its selections while this is open; their lines are in the list afterwards. On a
    rank without `reset` nothing happens."""
    lines: list[str] = []
    if reset is None:
        yield lines
        return
    with tempfile.TemporaryDirectory(prefix="commbench-nccl-") as folder:
        path = Path(folder) / "nccl.log"
        os.environ.update(VARIABLES | {"NCCL_DEBUG_SUBSYS": "TUNING", FILE: str(path)})
        reset()
        try:
            yield lines
        finally:
            for name in (*VARIABLES, FILE):
                os.environ.pop(name, None)
            reset()
        if path.exists():
            with path.open(encoding="utf-8", errors="replace") as file:
                lines += file.read(MOST_BYTES).splitlines()
