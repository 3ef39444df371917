"""Learns which algorithm and protocol NCCL selects for the calls of a plan, in the ranks that are
measured: also those of other launchers, and of several nodes.

NCCL logs a line for each call if the subsystem TUNING is on (analysis.nccl_log), which costs time.
So it is on during one untimed call of each case only, and what the log grows by belongs to that
case: a line has a function and bytes, but not the form, the memory or the dtype of the call. Cases
in graphs are not learned. Where find_reset finds nothing, only ranks learn that log from the start.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from commbench.analysis.nccl_log import SELECTIONS, selection_entries, selection_key
from commbench.spec.backends import BACKENDS
from commbench.spec.case import READY, Case
from commbench.spec.computations import AT_ONCE, COMPUTATION
from commbench.spec.operations import OPERATIONS
from commbench.spec.timing_modes import EAGER
from commbench.worker.buffers import Arena
from commbench.worker.call_forms import make_call
from commbench.worker.communicator import Communicator
from commbench.worker.context import LaunchTask
from commbench.worker.nccl_log import NcclLog, find_reset, may_log
from commbench.worker.watchdog import rank_state
from commbench.worker.watchdog.hang_analysis import longest_check_s
from commbench.worker.watchdog.rank_state import StateBuffer, set_phase


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
    path = task.nccl_tuning_log.replace("%p", str(os.getpid()))
    wanted = task.logs_nccl and not task.nccl_selections and may_log(task.plan)
    reset = find_reset() if wanted and not comm.rank else None
    if not comm.share_value(bool(path or reset)):  # as rank 0 says: all ranks make the calls
        return {}
    found = {}
    with tempfile.TemporaryDirectory(prefix="commbench-nccl-") as folder:
        file = Path(path or f"{folder}/nccl.log")
        log = NcclLog(file, "TUNING", reset) if path or reset else None
        read_more = log.read_more if log else list
        if reset:
            reset()
        try:
            for case in _calls_to_make(cases):
                expected_s = longest_check_s(case.size_bytes * case.parts)
                set_phase(state, rank_state.CHECKING, case.index, expected_s=expected_s)
                read_more()  # of earlier calls
                for own, buffers in arena.of_groups(case):
                    comm.device.in_stream(make_call(own, buffers))()
                comm.device.synchronize()
                if entries := selection_entries(read_more()):
                    found[selection_key(case)] = entries
        finally:
            if log:
                log.remove()
    return {SELECTIONS: found} if found else {}


def _calls_to_make(cases: Sequence[Case]) -> list[Case]:
    """One case of all for which NCCL selects alike."""
    found: dict[str, Case] = {}
    for case in cases:
        operation = OPERATIONS[case.operation]
        is_call = operation.nccl_function and not (case.uses_new_group or operation.registers)
        is_measured = case.status == READY and case.part not in (COMPUTATION, AT_ONCE)
        if is_measured and is_call and case.launch_mode == EAGER:
            found.setdefault(selection_key(case), case)
    return list(found.values())
