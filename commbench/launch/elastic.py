"""Launching ranks from here: torchrun's elastic agent used as a library, or the command itself."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commbench.errors import (
    CommbenchError,
    Interrupted,
    UnavailableError,
    first_line,
    ignore_interruptions,
)
from commbench.launch.exit_report import LaunchOutcome, what_happened
from commbench.launch.file_limits import raise_nofile_limit
from commbench.launch.node_exit import NodeExitProtocol
from commbench.launch.scratch import _scratch_dir
from commbench.spec.case import READY
from commbench.worker.context import LaunchTask
from commbench.worker.entrypoint import WorkerArgs, worker_main

MONITOR_INTERVAL_S = 0.02
SHUTDOWN_S = 3
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals at which the agent ends its ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """This node among those that run the same command."""

    count: int = 1
    rank: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int = 29500
    ranks_per_node: int = 1


def start_method(device: str, nodes: NodeConfig) -> tuple[str, str]:
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


def launch(task: LaunchTask, nodes: NodeConfig, method: str) -> None:
    """Carry out a task on ranks of this node and wait for them.

    Raises what a rank reported, RankError for one that died, Interrupted for a signal.
    """
    raise_nofile_limit(task.plan, nodes.ranks_per_node, serves=nodes.count > 1 and nodes.rank == 0)
    with _scratch_dir() as scratch_dir:
        worker_args = WorkerArgs(
            task=task, scratch_dir=scratch_dir, meets_in_file=nodes.count == 1, launcher=os.getpid()
        )
        node_exit = NodeExitProtocol(nodes.rank, nodes.count)
        config = _launch_config(worker_args, nodes, method, node_exit)
        with _no_name_lookups():
            if error := node_exit.say(_run_agent(config, worker_args)):
                gc.collect()  # an agent that was cut short holds semaphores
                raise error


def _run_agent(config: Any, worker_args: WorkerArgs) -> LaunchOutcome:
    """Start the ranks of this node, and wait until they have ended."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    if config.start_method == "fork":
        # What a rank needs is imported and computed once here, and stays in pages that ranks share.
        import commbench.worker.rank  # noqa: F401
        from commbench.worker.verification_data import prepare

        cases = (case for case in worker_args.task.cases() if case.status == READY)
        prepare(cases, worker_args.task.plan.world_size)
        gc.collect()
        gc.freeze()
    handlers = {number: signal.getsignal(number) or signal.SIG_DFL for number in STOPPING}
    try:
        elastic_launch(config, worker_main)(worker_args)
        return LaunchOutcome()
    except SignalException as signalled:
        handlers = dict.fromkeys(STOPPING, signal.SIG_IGN)
        ignore_interruptions()
        interrupted = Interrupted(
            f"stopped by {signalled.sigval.name}",
            "what was measured is kept: `commbench show` prints it, where node 0 runs",
            signal_number=signalled.sigval,
        )
        return LaunchOutcome(interrupted)
    except CommbenchError as error:
        return LaunchOutcome(error.with_traceback(None))
    except ChildFailedError as failed:
        return what_happened(worker_args.scratch_dir, failed.failures, worker_args.task.plan)
    except (RuntimeError, OSError, TimeoutError) as error:
        trouble = UnavailableError(
            f"the ranks could not be started: {first_line(error)}",
            "for several nodes check --master-addr and --master-port on each of them",
        )
        trouble.__cause__ = error
        return LaunchOutcome(trouble)  # other nodes may be there already, and wait
    finally:
        gc.unfreeze()
        _handle(handlers)  # the agent leaves its own


def _handle(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _launch_config(
    worker_args: WorkerArgs, nodes: NodeConfig, method: str, node_exit: NodeExitProtocol
) -> Any:
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    from commbench.launch.rendezvous import register, register_nodes
    from commbench.launch.supervisor import RankSupervisor

    told: dict[str, Any] = {"guard": RankSupervisor(worker_args.scratch_dir, worker_args.task.plan)}
    if nodes.count == 1:
        backend, endpoint = register(), str(worker_args.scratch_dir)
    else:
        backend, endpoint = register_nodes(), f"{nodes.master_addr}:{nodes.master_port}"
        told |= {
            "rank": nodes.rank,
            "timeout": worker_args.task.plan.timeout_s,
            "farewell": node_exit,
        }
    # How long to wait for ranks that are told to end; older versions of torch only know 30 s.
    known = LaunchConfig.__dataclass_fields__
    patience = {"shutdown_timeout": SHUTDOWN_S} if "shutdown_timeout" in known else {}
    return LaunchConfig(
        **patience,
        min_nodes=nodes.count,
        max_nodes=nodes.count,
        nproc_per_node=nodes.ranks_per_node,
        run_id=f"commbench-{worker_args.task.launch}",
        max_restarts=0,
        monitor_interval=MONITOR_INTERVAL_S,
        start_method=method,
        logs_specs=DefaultLogsSpecs(log_dir=str(worker_args.scratch_dir / "logs")),
        rdzv_backend=backend,
        rdzv_endpoint=endpoint,
        rdzv_configs=told,
    )


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
