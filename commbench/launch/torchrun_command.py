"""Starts ranks with the plain torchrun command (`--launcher torchrun`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass

from commbench.errors import RankError
from commbench.worker.watchdog.error_files import read_error

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
            raise RankError(
                f"torchrun ended with exit code {process.returncode}",
                f"its last line: {last_line}",
            )


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
