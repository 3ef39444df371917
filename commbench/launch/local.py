"""Launching ranks from here: torchrun's elastic agent used as a library, or the command itself."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commbench.errors import (
    CommbenchError,
    Interrupted,
    RankError,
    UnavailableError,
    first_line,
)
from commbench.plan import READY
from commbench.worker.desk import Failure, read_error, read_failures
from commbench.worker.entry import Errand, enter
from commbench.worker.task import Task

MONITOR_INTERVAL_S = 0.02
MEETING_TIMEOUT_S = 120
PROGRESS = re.compile(r"\[\d+/\d+\] ")
"""How lines begin that tell of progress; torchrun's own are not shown."""
ALONE = "--standalone"
ERROR_DESK = "COMMBENCH_ERROR_DESK"
"""Variable that tells ranks under the plain torchrun command where to leave their errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """This node among those that run the same command."""

    count: int = 1
    rank: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int = 29500
    ranks_per_node: int = 1


def start_method(device: str, nodes: Nodes) -> tuple[str, str]:
    """`fork` or `spawn`, and why. Forking shares one import of torch among all ranks; it is safe
    only from a process with a single thread that has not touched the GPU."""
    if nodes.count > 1:
        return "spawn", "the agent's store for several nodes runs threads in this process"
    threads = _thread_names()
    if len(threads) > 1:
        return "spawn", f"this process has {len(threads)} threads ({', '.join(threads)})"
    if device != "cpu" and not _fork_keeps_gpu():
        return "spawn", "the GPU driver is already initialised in this process"
    return "fork", "this process has a single thread"


def launch(task: Task, nodes: Nodes, method: str) -> None:
    """Carry out a task on ranks of this node and wait for them.

    Raises what a rank reported, RankError for one that died, Interrupted for a signal.
    """
    with _desk() as desk:
        errand = Errand(task=task, desk=desk, meets_in_file=nodes.count == 1)
        config = _launch_config(desk, nodes, method)
        with _no_name_lookups():
            _run_agent(config, errand)


def _run_agent(config: Any, errand: Errand) -> None:
    import gc

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    if config.start_method == "fork":
        # What a rank needs is imported and computed once here, and stays in pages that ranks share.
        import commbench.worker.rank  # noqa: F401
        from commbench.worker.patterns import prepare

        cases = (case for case in errand.task.plan.cases() if case.status == READY)
        prepare(cases, errand.task.plan.world_size)
        gc.collect()
        gc.freeze()
    try:
        elastic_launch(config, enter)(errand)
    except SignalException as signalled:
        raise Interrupted(
            f"stopped by {signalled.sigval.name}",
            f"finished cases are kept in {errand.task.folder}",
            signalled.sigval,
        ) from None
    except ChildFailedError as failed:
        raise _what_happened(errand.desk, failed.failures) from None
    except (RuntimeError, OSError, TimeoutError) as error:
        raise UnavailableError(
            f"the ranks could not be started: {first_line(error)}",
            "for several nodes check --master-addr and --master-port on each of them",
        ) from error
    finally:
        gc.unfreeze()


def _launch_config(desk: Path, nodes: Nodes, method: str) -> Any:
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    if nodes.count == 1:
        from commbench.launch.rendezvous import register

        meeting: dict[str, Any] = {"rdzv_backend": register(), "rdzv_endpoint": str(desk)}
    else:
        meeting = {
            "rdzv_backend": "static",
            "rdzv_endpoint": f"{nodes.master_addr}:{nodes.master_port}",
            "rdzv_configs": {"rank": nodes.rank, "timeout": MEETING_TIMEOUT_S},
        }
    return LaunchConfig(
        min_nodes=nodes.count,
        max_nodes=nodes.count,
        nproc_per_node=nodes.ranks_per_node,
        run_id="commbench",
        max_restarts=0,
        monitor_interval=MONITOR_INTERVAL_S,
        start_method=method,
        logs_specs=DefaultLogsSpecs(log_dir=str(desk / "logs")),
        **meeting,
    )


def launch_with_torchrun(arguments: list[str], line: list[str], folder: Path) -> None:
    """Run `commbench` under the plain torchrun command, whose ranks then join by themselves.

    `line` is the torchrun command up to its module; `arguments` follow `commbench run`.
    """
    with _desk() as desk:
        # On one host all meet in files: what --standalone opens listens on every interface.
        in_file = ["--rdzv-backend=c10d", "--rdzv-conf=store_type=file", "--rdzv-id=commbench",
                   f"--rdzv-endpoint={desk / 'agent'}", "--nnodes=1"]  # fmt: skip
        words = [part for word in line[1:] for part in (in_file if word == ALONE else [word])]
        command = [
            sys.executable, "-m", "torch.distributed.run", *words,
            *arguments, "--output", str(folder),
        ]  # fmt: skip
        environment = os.environ | {ERROR_DESK: str(desk), "LOGLEVEL": "CRITICAL"}
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
        if process.wait() and (error := read_error(desk)):
            raise error
        if process.returncode:
            raise RankError(
                f"torchrun ended with exit code {process.returncode}",
                f"its last words: {last_words}",
            )


def torchrun_line(nodes: Nodes) -> list[str]:
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


def _what_happened(desk: Path, failures: dict[int, Any]) -> CommbenchError:
    """The error of ranks that failed: what one of them reported, or how it died."""
    if error := read_error(desk):
        return error
    told = read_failures(desk)
    guilty = [(r, f) for r, f in failures.items() if r not in told or not told[r].echo]
    rank, failure = min(guilty or failures.items(), key=lambda item: item[1].timestamp or 0)
    host = socket.gethostname()
    if failure.exitcode < 0:
        return RankError(
            f"rank {rank} on {host} was killed by {failure.signal_name()}",
            "if nobody killed it, look for the out-of-memory killer in dmesg",
        )
    return RankError(
        f"rank {rank} on {host} ended with exit code {failure.exitcode}"
        + _words(failure, told.get(rank)),
        "COMMBENCH_TRACEBACK=1 shows where",
    )


def _words(failure: Any, told: Failure | None) -> str:
    """What is known of an exception that ended a rank; torch has its message where it was raised
    too early or too late to be left on the desk."""
    message = failure.message.get("message") if isinstance(failure.message, dict) else None
    words = told.text if told else str(message or "").strip().split("\n")[0]
    return f": {words}" if words else ""


@contextmanager
def _desk() -> Iterator[Path]:
    """A private folder for one launch, in memory where that is possible; removed at the end."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="commbench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _no_name_lookups() -> Iterator[None]:
    """Keep the agent from asking a name server for this host's name with each of its events: a
    lost answer costs 5 s."""
    original = socket.getfqdn
    socket.getfqdn = lambda name="": name or socket.gethostname()
    level = logging.root.manager.disable
    # The agent logs a traceback for each rank that fails; what happened is said in two lines.
    logging.disable(logging.NOTSET if os.environ.get("COMMBENCH_TRACEBACK") else logging.CRITICAL)
    try:
        yield
    finally:
        socket.getfqdn = original
        logging.disable(level)


def _thread_names() -> list[str]:
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        import threading

        return [thread.name for thread in threading.enumerate()]
    return [(task / "comm").read_text().strip() for task in tasks.iterdir()]


def _fork_keeps_gpu() -> bool:
    """Whether a forked process could use the GPU: asked of a forked process."""
    import torch

    child = os.fork()
    if not child:
        os._exit(int(torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork()))
    return os.waitpid(child, 0)[1] == 0
