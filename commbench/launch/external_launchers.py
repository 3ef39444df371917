"""Ranks that another launcher started: the table of launchers, known by environment variables."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from commbench.errors import UnavailableError, UsageError
from commbench.worker.context import RankContext


class ExternalLauncher(NamedTuple):
    """A launcher, by the environment variables it gives each rank."""

    name: str
    rank: str
    world_size: str
    local_rank: str
    local_world_size: str
    job: str = ""
    """The variable that is equal in all ranks of a job and differs between jobs."""
    hosts: str = ""
    """The variable with the list of hosts, rank 0's first; empty where there is none."""
    master: str = ""
    """The variable with rank 0's address, where the launcher sets it itself (torchrun)."""


EXTERNAL_LAUNCHERS = (
    ExternalLauncher(
        "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
        job="TORCHELASTIC_RUN_ID", master="MASTER_ADDR",
    ),
    ExternalLauncher(
        "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", job="PMIX_NAMESPACE",
    ),
    ExternalLauncher("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # The step's size, not the job's: in a batch script itself, outside srun, there is no step.
    ExternalLauncher(
        "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
        "SLURM_STEP_TASKS_PER_NODE", job="SLURM_JOB_ID", hosts="SLURM_STEP_NODELIST",
    ),
)  # fmt: skip
"""In the order of detection: one that runs inside another (torchrun under srun) comes first."""

FIRST_PORT, PORTS = 20_000, 10_000


def detect_rank_context(
    master_addr: str | None, master_port: int | None, environment: Mapping[str, str] = os.environ
) -> RankContext | None:
    """The rank context of this process, if another launcher started it among several; else None.

    Raises UsageError where variables contradict each other, UnavailableError where none says where
    the ranks can meet.
    """
    for launcher in EXTERNAL_LAUNCHERS:
        # srun sets PMI_RANK too where its --mpi is pmi2, but no local rank beside it.
        if {launcher.rank, launcher.world_size, launcher.local_rank} <= environment.keys():
            is_alone = _parse_number(environment, launcher.world_size) == 1
            if not is_alone or launcher.master in environment:
                return _make_rank_context(launcher, environment, master_addr, master_port)
    return None


def _make_rank_context(
    launcher: ExternalLauncher,
    environment: Mapping[str, str],
    master_addr: str | None,
    port: int | None,
) -> RankContext:
    rank = _parse_number(environment, launcher.rank)
    world_size = _parse_number(environment, launcher.world_size)
    if not 0 <= rank < world_size:
        raise UsageError(
            f"{launcher.rank}={rank} is not a rank of {launcher.world_size}={world_size}",
            f"{launcher.name} sets these variables; unset them to launch ranks here",
        )
    local_world_size = _find_local_world_size(environment, launcher)
    local_rank = _parse_number(environment, launcher.local_rank, default=rank % local_world_size)
    if not 0 <= local_rank < local_world_size <= world_size:
        raise UsageError(
            f"rank {local_rank} of {local_world_size} on a node, in a world of {world_size}, "
            "cannot be",
            f"see the variables that {launcher.name} sets; unset them to launch ranks here",
        )
    return RankContext(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_world_size=local_world_size,
        launcher=launcher.name,
        init_method=_find_init_method(
            launcher, environment, master_addr, port, local_world_size == world_size
        ),
    )


def _find_init_method(
    launcher: ExternalLauncher,
    environment: Mapping[str, str],
    address: str | None,
    port: int | None,
    one_host: bool,
) -> str:
    if launcher.master and launcher.master in environment and not address:
        return "env://"
    address = address or environment.get("MASTER_ADDR") or _first_host(launcher, environment)
    if not address and one_host:
        address = "127.0.0.1"
    if not address:
        raise UnavailableError(
            f"{launcher.name} does not say on which host rank 0 is",
            "give the host of rank 0: --master-addr HOST (and --master-port PORT)",
        )
    if port is None:
        # Equal in all ranks of a job, and rarely equal in two jobs on one host.
        job = environment.get(launcher.job, "") + environment.get("SLURM_STEP_ID", "")
        port_of_job = FIRST_PORT + zlib.crc32(job.encode()) % PORTS
        port = _parse_number(environment, "MASTER_PORT", default=port_of_job)
    return f"tcp://{address}:{port}"


def _first_host(launcher: ExternalLauncher, environment: Mapping[str, str]) -> str:
    """The first of a Slurm host list such as `n[03-05,9],login`; empty where there is none."""
    hosts = environment.get(launcher.hosts, "") if launcher.hosts else ""
    first_numbers = re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", hosts)
    return first_numbers.split(",")[0]


def _find_local_world_size(environment: Mapping[str, str], launcher: ExternalLauncher) -> int:
    """The number of ranks on this node. Slurm gives the numbers of all nodes, such as `2(x3),1`."""
    text = environment.get(launcher.local_world_size, "1")
    node = _parse_number(environment, "SLURM_NODEID", default=0) if launcher.hosts else 0
    if not re.fullmatch(r"\d+(\(x\d+\))?(,\d+(\(x\d+\))?)*", text):
        raise UsageError(
            f"{launcher.local_world_size}={text!r} is not a number of ranks",
            f"{launcher.name} sets it; unset it to launch ranks here",
        )
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    per_node = [int(ranks) for ranks, nodes in groups for _ in range(int(nodes or 1))]
    if not 0 <= node < len(per_node) or not per_node[node]:
        raise UsageError(
            f"{launcher.local_world_size}={text} has no ranks for node {node}",
            f"{launcher.name} sets it; unset it to launch ranks here",
        )
    return per_node[node]


def _parse_number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"{name}={text!r} is not a number",
            "the launcher sets it; unset it to launch ranks here",
        ) from None
