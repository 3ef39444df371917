"""Launching ranks from here: torchrun's elastic agent used as a library, or the command itself."""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commbench.errors import (
    CommbenchError,
    Interrupted,
    RankError,
    UnavailableError,
    first_line,
    ignore_interruptions,
)
from commbench.launch.aftermath import Ending, what_happened
from commbench.launch.farewell import Farewell
from commbench.launch.files import allow_files
from commbench.plan import READY
from commbench.worker.desk import read_error
from commbench.worker.entry import Errand, enter
from commbench.worker.task import Task

MONITOR_INTERVAL_S = 0.02
SHUTDOWN_S = 3
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals at which the agent ends its ranks."""
PROGRESS = re.compile(r"\[\d+/\d+\] ")
"""How lines begin that tell of progress; torchrun's own are not shown."""
DESK, LOCK = "commbench", "lock"
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
    allow_files(task.plan, nodes.ranks_per_node, serves=nodes.count > 1 and nodes.rank == 0)
    with _desk() as desk:
        errand = Errand(task=task, desk=desk, meets_in_file=nodes.count == 1, launcher=os.getpid())
        farewell = Farewell(nodes.rank, nodes.count)
        config = _launch_config(errand, nodes, method, farewell)
        with _no_name_lookups():
            if error := farewell.say(_run_agent(config, errand)):
                gc.collect()  # an agent that was cut short holds semaphores
                raise error


def _run_agent(config: Any, errand: Errand) -> Ending:
    """Start the ranks of this node, and wait until they have ended."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    if config.start_method == "fork":
        # What a rank needs is imported and computed once here, and stays in pages that ranks share.
        import commbench.worker.rank  # noqa: F401
        from commbench.worker.patterns import prepare

        cases = (case for case in errand.task.cases() if case.status == READY)
        prepare(cases, errand.task.plan.world_size)
        gc.collect()
        gc.freeze()
    handlers = {number: signal.getsignal(number) or signal.SIG_DFL for number in STOPPING}
    try:
        elastic_launch(config, enter)(errand)
        return Ending()
    except SignalException as signalled:
        handlers = dict.fromkeys(STOPPING, signal.SIG_IGN)
        ignore_interruptions()
        interrupted = Interrupted(
            f"stopped by {signalled.sigval.name}",
            "what was measured is kept: `commbench show` prints it, where node 0 runs",
            signal_number=signalled.sigval,
        )
        return Ending(interrupted)
    except CommbenchError as error:
        return Ending(error.with_traceback(None))
    except ChildFailedError as failed:
        return what_happened(errand.desk, failed.failures, errand.task.plan)
    except (RuntimeError, OSError, TimeoutError) as error:
        trouble = UnavailableError(
            f"the ranks could not be started: {first_line(error)}",
            "for several nodes check --master-addr and --master-port on each of them",
        )
        trouble.__cause__ = error
        return Ending(trouble)  # other nodes may be there already, and wait
    finally:
        gc.unfreeze()
        _handle(handlers)  # the agent leaves its own


def _handle(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _launch_config(errand: Errand, nodes: Nodes, method: str, farewell: Farewell) -> Any:
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    from commbench.launch.guard import Guard
    from commbench.launch.rendezvous import register, register_nodes

    told: dict[str, Any] = {"guard": Guard(errand.desk, errand.task.plan)}
    if nodes.count == 1:
        backend, endpoint = register(), str(errand.desk)
    else:
        backend, endpoint = register_nodes(), f"{nodes.master_addr}:{nodes.master_port}"
        told |= {"rank": nodes.rank, "timeout": errand.task.plan.timeout_s, "farewell": farewell}
    # How long to wait for ranks that are told to end; older versions of torch only know 30 s.
    known = LaunchConfig.__dataclass_fields__
    patience = {"shutdown_timeout": SHUTDOWN_S} if "shutdown_timeout" in known else {}
    return LaunchConfig(
        **patience,
        min_nodes=nodes.count,
        max_nodes=nodes.count,
        nproc_per_node=nodes.ranks_per_node,
        run_id=f"commbench-{errand.task.launch}",
        max_restarts=0,
        monitor_interval=MONITOR_INTERVAL_S,
        start_method=method,
        logs_specs=DefaultLogsSpecs(log_dir=str(errand.desk / "logs")),
        rdzv_backend=backend,
        rdzv_endpoint=endpoint,
        rdzv_configs=told,
    )


def launch_with_torchrun(arguments: list[str], line: list[str]) -> None:
    """Run `commbench` under the plain torchrun command, whose ranks then join by themselves.

    `line` is the torchrun command up to its module; `arguments` follow `commbench run`.
    """
    with _desk() as desk:
        # On one host all meet in files: what --standalone opens listens on every interface.
        in_file = ["--rdzv-backend=c10d", "--rdzv-conf=store_type=file", "--rdzv-id=commbench",
                   f"--rdzv-endpoint={desk / 'agent'}", "--nnodes=1"]  # fmt: skip
        words = [part for word in line[1:] for part in (in_file if word == ALONE else [word])]
        command = [sys.executable, "-m", "torch.distributed.run", *words, *arguments]
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


@contextmanager
def _desk() -> Iterator[Path]:
    """A private folder for one launch, in memory where that is possible; removed at the end, or by
    a later launch where this process is killed."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    for desk in parent.glob(f"{DESK}-*"):
        _clear_away(desk)
    unlocked = Path(tempfile.mkdtemp(prefix=f"{DESK}.", dir=parent))
    desk = parent / f"{DESK}-{os.getpid()}-{unlocked.suffix[1:]}"
    try:
        with (unlocked / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            unlocked.rename(desk)
            yield desk
    finally:
        for left in (unlocked, desk):
            shutil.rmtree(left, ignore_errors=True)


def _clear_away(desk: Path) -> None:
    """Remove the desk of a launcher that is no more: the kernel has taken back its lock."""
    with suppress(OSError), (desk / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(desk, ignore_errors=True)


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
