"""Starts the ranks of this node with torchrun's elastic agent, used as a library. The default."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from commbench.errors import (
    CommbenchError,
    Interrupted,
    UnavailableError,
    first_line,
    ignore_interruptions,
)
from commbench.launch.devices import raise_nofile_limit
from commbench.launch.launchers import NodeConfig
from commbench.launch.supervisor import (
    LaunchOutcome,
    NodeExitProtocol,
    RankSupervisor,
    make_outcome,
)
from commbench.launch.torch_internals import (
    AGENT_SIGNALS,
    does_fork_keep_gpu,
    make_launch_config,
    run_agent,
)
from commbench.plan.case import READY
from commbench.worker.entrypoint import LaunchTask, WorkerArgs, worker_main

MONITOR_INTERVAL_S = 0.02
"""How often the agent looks at its ranks, at most."""
LOOKS_PER_S = 3200
"""How many ranks it looks at in a second: one takes it 50 us, and the ranks need the cores."""
SHUTDOWN_S = 3
"""How long ranks have to end after a signal, before the agent kills them."""
NODE_0_KEEPS = "node 0 keeps what was measured: `commbench show` prints it there"
RUN_AGAIN = "run the same command again"
"""The hints for an interrupted launch; the process that records the run knows a better one."""
SCRATCH_DIR, LOCK = "commbench", "lock"


def start_method(device: str, nodes: NodeConfig) -> tuple[str, str]:
    """`fork` or `spawn`, and why. Forking shares one import of torch among all ranks; it is safe
    only from a process with a single thread that has not touched the GPU."""
    if nodes.count > 1:
        return "spawn", "the agent's store for several nodes runs threads in this process"
    threads = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    if len(threads) > 1:
        return "spawn", f"this process has {len(threads)} threads ({', '.join(threads)})"
    if device != "cpu" and not does_fork_keep_gpu():
        return "spawn", "the GPU driver is already initialised in this process"
    return "fork", "this process has a single thread"


def launch(
    task: LaunchTask, nodes: NodeConfig, method: str, later: Sequence[LaunchTask] = ()
) -> None:
    """Run a task, and later ones, on ranks of this node, started with `method`, and wait for them.

    Raises what a rank reported, RankError for one that died, Interrupted for a signal.
    """
    has_store = nodes.count > 1 and nodes.rank == 0
    raise_nofile_limit(task.plan, nodes.ranks_per_node, has_store=has_store)
    with open_scratch_dir() as scratch_dir:
        worker_args = WorkerArgs(
            task=task,
            scratch_dir=scratch_dir,
            uses_file_store=nodes.count == 1,
            launcher_pid=os.getpid(),
            later=tuple(later),
        )
        node_exit = NodeExitProtocol(nodes.rank, nodes.count)
        config = _make_config(worker_args, nodes, method, node_exit)
        try:
            if error := node_exit.exchange(_run_ranks(config, worker_args)):
                # An agent that was cut short holds semaphores. What is frozen is older than it, and
                # is left out: to look at all objects of torch takes 0.2 s.
                gc.collect()
                raise error
        finally:
            gc.unfreeze()


@contextmanager
def open_scratch_dir() -> Iterator[Path]:
    """A private folder for one launch, in memory if possible. It is removed at the end; if this
    process is killed, a later launch removes it."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    for scratch_dir in parent.glob(f"{SCRATCH_DIR}-*"):
        _remove_if_unused(scratch_dir)
    unlocked = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_DIR}.", dir=parent))
    scratch_dir = parent / f"{SCRATCH_DIR}-{os.getpid()}-{unlocked.suffix[1:]}"
    try:
        with (unlocked / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            unlocked.rename(scratch_dir)
            yield scratch_dir
    finally:
        for folder in (unlocked, scratch_dir):
            shutil.rmtree(folder, ignore_errors=True)


def _remove_if_unused(scratch_dir: Path) -> None:
    """Remove the folder of a launcher that has ended, which shows by its lock: the kernel has
    released it."""
    with suppress(OSError), (scratch_dir / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(scratch_dir, ignore_errors=True)


def _make_config(
    worker_args: WorkerArgs, nodes: NodeConfig, method: str, node_exit: NodeExitProtocol
) -> Any:
    """The LaunchConfig of the agent."""
    from commbench.launch.rendezvous import FileRendezvous, TcpStoreRendezvous, register

    plan = worker_args.task.plan
    settings: dict[str, Any] = {"supervisor": RankSupervisor(worker_args.scratch_dir, plan)}
    if nodes.count == 1:
        backend, endpoint = register(FileRendezvous), str(worker_args.scratch_dir)
    else:
        backend = register(TcpStoreRendezvous)
        endpoint = f"{nodes.master_addr}:{nodes.master_port}"
        settings |= {"rank": nodes.rank, "timeout": plan.timeout_s, "node_exit": node_exit}
    return make_launch_config(
        str(worker_args.scratch_dir / "logs"),
        SHUTDOWN_S,
        min_nodes=nodes.count,
        max_nodes=nodes.count,
        nproc_per_node=nodes.ranks_per_node,
        run_id=f"commbench-{worker_args.task.launch}",
        max_restarts=0,
        monitor_interval=max(MONITOR_INTERVAL_S, nodes.ranks_per_node / LOOKS_PER_S),
        start_method=method,
        rdzv_backend=backend,
        rdzv_endpoint=endpoint,
        rdzv_configs=settings,
    )


def _run_ranks(config: Any, worker_args: WorkerArgs) -> LaunchOutcome:
    """Start the ranks of this node, and wait until they have ended."""
    if config.start_method == "fork":
        _prepare_fork(worker_args.task)
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {n: signal.getsignal(n) or signal.SIG_DFL for n in AGENT_SIGNALS if is_main}
    try:
        result = run_agent(config, worker_main, worker_args)
        if result.signal_number is None:
            return make_outcome(worker_args.scratch_dir, result.failures, worker_args.task.plan)
        handlers = dict.fromkeys(AGENT_SIGNALS, signal.SIG_IGN)
        ignore_interruptions()
        return LaunchOutcome(
            Interrupted(
                f"stopped by {result.signal_number.name}",
                NODE_0_KEEPS if config.max_nodes > 1 else RUN_AGAIN,
                signal_number=result.signal_number,
            )
        )
    except CommbenchError as error:
        return LaunchOutcome(error.with_traceback(None))
    except (RuntimeError, OSError, TimeoutError) as error:
        not_started = UnavailableError(
            f"the ranks could not be started: {first_line(error)}",
            "with several nodes, check --master-addr and --master-port on each node",
        )
        not_started.__cause__ = error
        return LaunchOutcome(not_started)  # not raised: other nodes may already be waiting
    finally:
        for number, handler in handlers.items():  # the agent has installed its own
            signal.signal(number, handler)


def _prepare_fork(task: LaunchTask) -> None:
    """Import and compute once what every rank needs, in memory that forked ranks share."""
    import commbench.worker.rank  # noqa: F401
    from commbench.worker.verify import prepare

    prepare(case for case in task.cases() if case.status == READY)
    gc.freeze()
