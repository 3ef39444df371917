"""What a person asks of `commbench job`, read and checked before anything is printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commbench.backends import BACKENDS
from commbench.errors import UsageError
from commbench.jobs.job import Job, variables_of

if TYPE_CHECKING:
    from commbench.cli.ask import Request


def job_of(
    words: Sequence[str],
    *,
    nodes: int,
    ranks_per_node: int,
    gpus_per_node: int | None,
    variables: Sequence[str],
) -> Job:
    """The job that runs `commbench run WORDS`; refuses what that would refuse on every rank."""
    from commbench.cli.lazy import command
    from commbench.cli.run import request_of

    said: dict[str, Any] = command("run").make_context("commbench run", list(words)).params
    _refuse_what_the_job_says(said)
    request = request_of(said)
    job = Job(
        title=request.name,
        words=tuple(words),
        output=None if request.output is None else str(request.output),
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        gpus_per_node=_gpus(request, ranks_per_node) if gpus_per_node is None else gpus_per_node,
        variables=variables_of(list(variables)),
    )
    _refuse_in_vain(request, job.nodes * job.ranks_per_node)
    return job


def _refuse_what_the_job_says(said: dict[str, Any]) -> None:
    for option, wrong, why in (
        ("--nnodes", said["nnodes"] != 1, "say --nodes before the --"),
        ("--node-rank", said["node_rank"], "leave it out: the cluster numbers the nodes"),
        ("--nproc-per-node", said["nproc_per_node"] is not None, "say it before the --"),
        ("--master-addr", said["master_addr"], "leave it out: the ranks find each other"),
        ("--master-port", said["master_port"], "leave it out: the ranks find each other"),
        ("--launcher", said["launcher"] != "agent", "leave it out: the cluster starts the ranks"),
        ("--launches", said["launches"] > 1, "submit the job several times"),
        ("--dry-run", said["dry_run"], "leave it out: nothing is measured here"),
    ):
        if wrong:
            raise UsageError(f"{option} after the -- does not go with a job", why)


def _device(request: Request) -> str:
    """The device type that the request names or its backend implies; cpu where nothing does."""
    known = BACKENDS.get(request.backend or "")
    return request.device or (known.devices[0] if known else "cpu")


def _gpus(request: Request, ranks_per_node: int) -> int:
    return 0 if _device(request) == "cpu" else ranks_per_node


def _refuse_in_vain(request: Request, world_size: int) -> None:
    """Refuse what is known to be impossible now, not after a time in the queue."""
    from commbench.cli.session import refuse_nothing

    plan = request.plan(request.backend or "gloo", _device(request), world_size)
    if request.backend:
        refuse_nothing(plan)
