"""Prepares the launcher process for ranks: imports torch, raises the limit of open files."""

from __future__ import annotations

import gc
import os

from commbench.errors import UnavailableError
from commbench.spec.plan import Plan

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
FILES_OF_A_PROCESS = 32
"""Measured with torch 2.13 and gloo: 16, and so many again for other versions and devices."""
FILES_OF_A_LAUNCHED_RANK = 4
"""Pipes between the launcher and a rank, which the ranks that are forked later inherit."""
CONNECTIONS_TO_A_STORE = 2
"""Of each rank to rank 0's: those of its groups, and that of its watchdog."""
SUGGESTED_LIMIT = 4096


def import_torch() -> None:
    """Import torch, once for this process and all ranks forked from it.

    One compute thread per process: torchrun's default, and a thread of a numeric library would make
    forking unsafe. Garbage is not collected meanwhile, which takes a fifth of the time of an import
    and finds little.
    """
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, "1")
    # Its warnings about nodes that join and leave would come between the lines of commbench.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    gc.disable()
    try:
        import torch  # noqa: F401
    finally:
        gc.enable()


def raise_nofile_limit(plan: Plan, launched: int = 0, *, has_store: bool = False) -> None:
    """Raise the limit of open files to what this process and the ranks it launches need: it counts
    connections and pipes too. `has_store`: all ranks connect to a store in this process.

    Raises UnavailableError where the hard limit is lower.
    """
    import resource

    # gloo connects every rank with every other. What NCCL opens is not counted.
    connections = (plan.device == "cpu") + CONNECTIONS_TO_A_STORE * has_store
    needed = (
        FILES_OF_A_PROCESS + FILES_OF_A_LAUNCHED_RANK * launched + connections * plan.world_size
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UnavailableError(
            f"{plan.world_size} ranks need {needed} open files, but only {hard} are allowed",
            f"allow more open files: ulimit -n {max(needed, SUGGESTED_LIMIT)}",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
