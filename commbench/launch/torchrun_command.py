"""Launching ranks from here: torchrun's elastic agent used as a library, or the command itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from commbench.errors import (
    RankError,
)
from commbench.launch.elastic import NodeConfig
from commbench.launch.scratch import _scratch_dir
from commbench.worker.watchdog.error_files import read_error

PROGRESS = re.compile(r"\[\d+/\d+\] ")
"""How lines begin that tell of progress; torchrun's own are not shown."""


ALONE = "--standalone"


ERROR_DIR = "COMMBENCH_ERROR_DESK"
"""Variable that tells ranks under the plain torchrun command where to leave their errors."""


def launch_with_torchrun(arguments: list[str], line: list[str]) -> None:
    """Run `commbench` under the plain torchrun command, whose ranks then join by themselves.

    `line` is the torchrun command up to its module; `arguments` follow `commbench run`.
    """
    with _scratch_dir() as scratch_dir:
        # On one host all meet in files: what --standalone opens listens on every interface.
        in_file = ["--rdzv-backend=c10d", "--rdzv-conf=store_type=file", "--rdzv-id=commbench",
                   f"--rdzv-endpoint={scratch_dir / 'agent'}", "--nnodes=1"]  # fmt: skip
        words = [part for word in line[1:] for part in (in_file if word == ALONE else [word])]
        command = [sys.executable, "-m", "torch.distributed.run", *words, *arguments]
        environment = os.environ | {ERROR_DIR: str(scratch_dir), "LOGLEVEL": "CRITICAL"}
        if ALONE in line:
            environment.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
        environment.setdefault("OMP_NUM_THREADS", "1")  # as torchrun sets it, without its warning
        process = subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        assert process.stderr is not None
        last_words = "none"
        for text in process.stderr:
            if PROGRESS.match(text):
                sys.stderr.write(text)
            elif text.strip():
                last_words = text.strip()
        if process.wait() and (error := read_error(scratch_dir)):
            raise error
        if process.returncode:
            raise RankError(
                f"torchrun ended with exit code {process.returncode}",
                f"its last words: {last_words}",
            )


def torchrun_line(nodes: NodeConfig) -> list[str]:
    """The torchrun command that starts the same ranks, up to `commbench run`."""
    meeting = (
        [ALONE]
        if nodes.count == 1
        else [
            f"--nnodes={nodes.count}",
            f"--node-rank={nodes.rank}",
            f"--master-addr={nodes.master_addr}",
            f"--master-port={nodes.master_port}",
        ]
    )
    return [
        "torchrun", *meeting, f"--nproc-per-node={nodes.ranks_per_node}",
        "--module", "--", "commbench", "run",
    ]  # fmt: skip
