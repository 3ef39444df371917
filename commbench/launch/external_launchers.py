"""Joining ranks that somebody else started: the table of launchers, known by their variables."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from commbench.errors import UnavailableError, UsageError
from commbench.worker.context import RankContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalLauncher:
    """A launcher, by the environment variables it gives each rank."""

    name: str
    rank: str
    world_size: str
    local_rank: str
    local_world_size: str
    job: str
    """Something that is the same in all ranks of a job and differs between jobs."""
    hosts: str = ""
    """The list of hosts, first host first."""
    master: str = ""
    """Set where the launcher itself names the meeting point (torchrun)."""


STARTERS = (
    ExternalLauncher(
        name="torchrun",
        rank="RANK",
        world_size="WORLD_SIZE",
        local_rank="LOCAL_RANK",
        local_world_size="LOCAL_WORLD_SIZE",
        job="TORCHELASTIC_RUN_ID",
        master="MASTER_ADDR",
    ),
    ExternalLauncher(
        name="mpirun",
        rank="OMPI_COMM_WORLD_RANK",
        world_size="OMPI_COMM_WORLD_SIZE",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
        local_world_size="OMPI_COMM_WORLD_LOCAL_SIZE",
        job="PMIX_NAMESPACE",
    ),
    ExternalLauncher(
        name="mpirun",
        rank="PMI_RANK",
        world_size="PMI_SIZE",
        local_rank="MPI_LOCALRANKID",
        local_world_size="MPI_LOCALNRANKS",
        job="",
    ),
    ExternalLauncher(
        name="srun",
        rank="SLURM_PROCID",
        # The step's, not the job's: in a batch script itself, outside srun, there is no step.
        world_size="SLURM_STEP_NUM_TASKS",
        local_rank="SLURM_LOCALID",
        local_world_size="SLURM_STEP_TASKS_PER_NODE",
        job="SLURM_JOB_ID",
        hosts="SLURM_STEP_NODELIST",
    ),
)
"""In order: what is started within another (torchrun under srun) comes first."""

FIRST_PORT, PORTS = 20_000, 10_000


def detect_rank_context(
    master_addr: str | None, master_port: int | None, environment: Mapping[str, str] = os.environ
) -> RankContext | None:
    """This process's seat among ranks that somebody else started; None where there are none.

    One rank alone is no group, and launches as usual. Raises UsageError where variables contradict,
    UnavailableError where nothing tells the ranks where to meet.
    """
    for starter in STARTERS:
        # srun sets PMI_RANK too where its --mpi is pmi2, but no local rank beside it.
        if {starter.rank, starter.world_size, starter.local_rank} <= environment.keys():
            alone = _number(environment, starter.world_size) == 1
            if not alone or starter.master in environment:
                return _seat(starter, environment, master_addr, master_port)
    return None


def _seat(
    starter: ExternalLauncher,
    environment: Mapping[str, str],
    master_addr: str | None,
    port: int | None,
) -> RankContext:
    rank, world_size = _number(environment, starter.rank), _number(environment, starter.world_size)
    if not 0 <= rank < world_size:
        raise UsageError(
            f"{starter.rank}={rank} is not a rank of {starter.world_size}={world_size}",
            f"these variables say that {starter.name} started this process; unset them to launch",
        )
    local_world_size = _tasks_here(environment, starter)
    local_rank = _number(environment, starter.local_rank, default=rank % local_world_size)
    if not 0 <= local_rank < local_world_size <= world_size:
        raise UsageError(
            f"rank {local_rank} of {local_world_size} on a node, in a world of {world_size}, "
            "cannot be",
            f"see the variables that {starter.name} sets; unset them to launch here",
        )
    return RankContext(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_world_size=local_world_size,
        launcher=starter.name,
        meeting_point=_meeting_point(
            starter, environment, master_addr, port, local_world_size == world_size
        ),
    )


def _meeting_point(
    starter: ExternalLauncher,
    environment: Mapping[str, str],
    address: str | None,
    port: int | None,
    one_host: bool,
) -> str:
    if starter.master and starter.master in environment and not address:
        return "env://"
    address = address or environment.get("MASTER_ADDR") or _first_host(starter, environment)
    if not address and one_host:
        address = "127.0.0.1"
    if not address:
        raise UnavailableError(
            f"{starter.name} does not say where the ranks can meet",
            "name rank 0's host with --master-addr HOST (and --master-port PORT)",
        )
    if port is None:
        # The same in all ranks of a job, hardly the same in two jobs on one host.
        job = environment.get(starter.job, "") + environment.get("SLURM_STEP_ID", "")
        of_job = FIRST_PORT + zlib.crc32(job.encode()) % PORTS
        port = _number(environment, "MASTER_PORT", default=of_job)
    return f"tcp://{address}:{port}"


def _first_host(starter: ExternalLauncher, environment: Mapping[str, str]) -> str:
    """The first of a Slurm host list such as `n[03-05,9],login`; empty where there is none."""
    hosts = environment.get(starter.hosts, "") if starter.hosts else ""
    first_numbers = re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", hosts)
    return first_numbers.split(",")[0]


def _tasks_here(environment: Mapping[str, str], starter: ExternalLauncher) -> int:
    """Ranks on this node; Slurm writes all nodes' as `2(x3),1`."""
    text = environment.get(starter.local_world_size, "1")
    node = _number(environment, "SLURM_NODEID", default=0) if starter.hosts else 0
    if not re.fullmatch(r"\d+(\(x\d+\))?(,\d+(\(x\d+\))?)*", text):
        raise UsageError(
            f"{starter.local_world_size}={text!r} is not a number of ranks",
            f"{starter.name} sets it; unset it to launch here",
        )
    per_node: list[int] = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        per_node += [int(number)] * int(times or 1)
    if not 0 <= node < len(per_node) or not per_node[node]:
        raise UsageError(
            f"{starter.local_world_size}={text} has no ranks for node {node}",
            f"{starter.name} sets it; unset it to launch here",
        )
    return per_node[node]


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"{name}={text!r} is not a number", "the launcher sets it; unset it to launch here"
        ) from None
