"""How many files a launch may have open: a connection and a pipe are files too."""

from __future__ import annotations

from commbench.errors import UnavailableError
from commbench.spec.plan import Plan

OF_A_PROCESS = 32
"""Measured with torch 2.13 and gloo: 16, and so many again for other versions and devices."""
OF_A_LAUNCHED_RANK = 4
"""Pipes between the launcher and a rank, which the ranks that are forked later inherit."""
AT_A_STORE = 2
"""Connections of a rank to the store: those of its groups, and that of its watch."""
ENOUGH = 4096


def raise_nofile_limit(plan: Plan, launched: int = 0, serves: bool = False) -> None:
    """Raise the limit of open files to what this process and the ranks it launches need, where that
    is more. It `serves` where others come to its store. Raises UnavailableError at the hard limit.
    """
    import resource

    # gloo connects every rank with every other; what NCCL opens is its own affair.
    connections = (1 if plan.device == "cpu" else 0) + (AT_A_STORE if serves else 0)
    needed = OF_A_PROCESS + OF_A_LAUNCHED_RANK * launched + connections * plan.world_size
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UnavailableError(
            f"{plan.world_size} ranks need {needed} open files, and {hard} are allowed",
            f"allow more open files: ulimit -n {max(needed, ENOUGH)}",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
