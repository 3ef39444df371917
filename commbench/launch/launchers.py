"""Other launchers: ranks that one has started, known by environment variables; and the plain
torchrun command (`--launcher torchrun`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from socket import gethostname
from typing import NamedTuple

from commbench.errors import (
    CommbenchError,
    OwnCallError,
    RankError,
    UnavailableError,
    UsageError,
    reason_of,
)
from commbench.worker.entrypoint import RankContext
from commbench.worker.watchdog.rank_state import CallError, read_error


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
    env = {"MASTER_ADDR", "RANK", "WORLD_SIZE"} <= environment.keys() and not master_addr
    if env and _parse_number(environment, "WORLD_SIZE") > 1:
        why = "MASTER_ADDR, RANK and WORLD_SIZE are set, but LOCAL_RANK is not"
        how = "start each rank with LOCAL_RANK and LOCAL_WORLD_SIZE, as torchrun does"
        raise UsageError(why, f"{how}; or unset RANK")
    return None


def _make_rank_context(
    launcher: ExternalLauncher, environment: Mapping[str, str], address: str | None,
    port: int | None,
) -> RankContext:  # fmt: skip
    rank = _parse_number(environment, launcher.rank)
    world_size = _parse_number(environment, launcher.world_size)
    if not 0 <= rank < world_size:
        why = f"{launcher.rank}={rank} is not a rank of {launcher.world_size}={world_size}"
        raise _variable_error(why, launcher.name)
    local_world_size = _find_local_world_size(environment, launcher)
    local_rank = _parse_number(environment, launcher.local_rank, default=rank % local_world_size)
    if not 0 <= local_rank < local_world_size <= world_size:
        size = f"{local_world_size} on a node, in a world of {world_size}"
        raise _variable_error(f"rank {local_rank} of {size}, cannot be", launcher.name)
    is_one_host = local_world_size == world_size
    numbers = rank, world_size, local_rank, local_world_size
    where = _find_init_method(launcher, environment, address, port, is_one_host)
    return RankContext(*numbers, launcher.name, where)


def _find_init_method(
    launcher: ExternalLauncher, environment: Mapping[str, str], address: str | None,
    port: int | None, is_one_host: bool,
) -> str:  # fmt: skip
    if launcher.master and launcher.master in environment and not address:
        return "env://"
    # The first of a Slurm host list such as `n[03-05,9],login`.
    hosts = re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", environment.get(launcher.hosts, ""))
    address = address or environment.get("MASTER_ADDR") or hosts.split(",")[0]
    address = address or ("127.0.0.1" if is_one_host else "")
    if not address:
        hint = "give the host of rank 0: --master-addr HOST (and --master-port PORT)"
        raise UnavailableError(f"{launcher.name} does not say on which host rank 0 is", hint)
    if port is None:
        # Equal in all ranks of a job, and rarely equal in two jobs on one host.
        job = environment.get(launcher.job, "") + environment.get("SLURM_STEP_ID", "")
        port_of_job = FIRST_PORT + zlib.crc32(job.encode()) % PORTS
        port = _parse_number(environment, "MASTER_PORT", default=port_of_job)
    return f"tcp://{address}:{port}"


def _find_local_world_size(environment: Mapping[str, str], launcher: ExternalLauncher) -> int:
    """The number of ranks on this node. Slurm gives the numbers of all nodes, such as `2(x3),1`."""
    variable = launcher.local_world_size
    text = environment.get(variable, "1")
    node = _parse_number(environment, "SLURM_NODEID", default=0) if launcher.hosts else 0
    if not re.fullmatch(r"\d+(\(x\d+\))?(,\d+(\(x\d+\))?)*", text):
        raise _variable_error(f"{variable}={text!r} is not a number of ranks", launcher.name)
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    per_node = [int(ranks) for ranks, nodes in groups for _ in range(int(nodes or 1))]
    if not 0 <= node < len(per_node) or not per_node[node]:
        raise _variable_error(f"{variable}={text} has no ranks for node {node}", launcher.name)
    return per_node[node]


def _parse_number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise _variable_error(f"{name}={text!r} is not a number", "the launcher") from None


def _variable_error(message: str, launcher: str) -> UsageError:
    return UsageError(message, f"{launcher} sets these variables; unset them to launch ranks here")


def describe_failure(error: Exception, rank: int) -> CommbenchError:
    """The error of what ended a rank: itself where a person can act on it, else of a collective
    that failed, since another rank or the network is gone."""
    if isinstance(error, CommbenchError):
        return error
    hint = "look at the rank that failed first; COMMBENCH_TRACEBACK=1 shows where it failed"
    kind = OwnCallError if isinstance(error, CallError) else RankError
    return kind(f"rank {rank} on {gethostname()} failed: {reason_of(error)}", hint)


RAY = "ray"
LAUNCHERS = {
    "agent": "torchrun's, as a library",
    "torchrun": "the command",
    RAY: "actors of a Ray cluster, on all nodes",
}
"""What starts ranks from here, by its name in --launcher, for the help. That of Ray starts the
ranks of all nodes, and this host need not be one of them."""

PROGRESS = re.compile(r"\[\d+ %\] ")
"""The beginning of lines about progress. torchrun's own lines are not printed."""
STANDALONE = "--standalone"
ERROR_DIR = "COMMBENCH_ERROR_DIR"
"""Variable with the folder in which ranks under the torchrun command record their errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """This node among those that run the same command."""

    count: int = 1
    rank: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int = 29500
    ranks_per_node: int = 1


def launch_with_torchrun(arguments: list[str], torchrun: list[str]) -> None:
    """Run `commbench run ARGUMENTS` on the ranks of a torchrun command, which is given up to its
    module. Raises the error that a rank recorded, or RankError."""
    from commbench.launch.elastic import open_scratch_dir  # imports torch

    with open_scratch_dir() as scratch_dir:
        # On one host the agent uses a file: what --standalone opens listens on every interface.
        in_file = ["--rdzv-backend=c10d", "--rdzv-conf=store_type=file", "--rdzv-id=commbench",
                   f"--rdzv-endpoint={scratch_dir / 'agent'}", "--nnodes=1"]  # fmt: skip
        options = [o for word in torchrun[1:] for o in (in_file if word == STANDALONE else [word])]
        command = [sys.executable, "-m", "torch.distributed.run", *options, *arguments]
        environment = os.environ | {ERROR_DIR: str(scratch_dir), "LOGLEVEL": "CRITICAL"}
        if STANDALONE in torchrun:
            environment.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
        environment.setdefault("OMP_NUM_THREADS", "1")  # as torchrun sets it, without its warning
        process = subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        assert process.stderr is not None
        last_line = "none"
        for line in process.stderr:
            if PROGRESS.match(line):
                sys.stderr.write(line)
            elif line.strip():
                last_line = line.strip()
        if process.wait() and (error := read_error(scratch_dir)):
            raise error
        if process.returncode:
            hint = f"its last line: {last_line}"
            raise RankError(f"torchrun ended with exit code {process.returncode}", hint)


def torchrun_line(nodes: NodeConfig) -> list[str]:
    """The torchrun command that starts the same ranks, up to `commbench run`."""
    rendezvous = [STANDALONE]
    if nodes.count > 1:
        rendezvous = [
            f"--nnodes={nodes.count}", f"--node-rank={nodes.rank}",
            f"--master-addr={nodes.master_addr}", f"--master-port={nodes.master_port}",
        ]  # fmt: skip
    return [
        "torchrun", *rendezvous, f"--nproc-per-node={nodes.ranks_per_node}",
        "--module", "--", "commbench", "run",
    ]  # fmt: skip
