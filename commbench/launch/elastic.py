"""Starts the ranks of this node with torchrun's elastic agent, used as a library: the default.

From run_agent on: what relies on the internals of torch, one function for each. Checked with
torch 2.6 to 2.13; tests/launch/test_torch_internals.py checks the installed one.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, spawn
from pathlib import Path
from typing import Any

from commbench import errors
from commbench.host.procfs import ask_child
from commbench.launch import supervisor
from commbench.launch.devices import raise_nofile_limit
from commbench.launch.launchers import NodeConfig
from commbench.plan.case import READY
from commbench.worker.entrypoint import LaunchTask, WorkerArgs, worker_main
from commbench.worker.watchdog import shared_folder

MONITOR_INTERVAL_S = 0.02
"""How often the agent looks at its ranks, at most."""
LOOKS_PER_S = 3200
"""How many ranks it looks at in a second: one takes it 50 us, and the ranks need the cores."""
SHUTDOWN_S = 3
"""How long ranks have to end after a signal, before the agent kills them."""
NODE_0_KEEPS = "node 0 keeps what was measured: `commbench show` prints it there"
RUN_AGAIN = "run the same command again"
"""The hints for an interrupted launch; the process that records the run knows a better one."""


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


def launch(tasks: Sequence[LaunchTask], nodes: NodeConfig, method: str) -> None:
    """Run tasks, one after another, on ranks of this node that `method` starts, and wait for them.

    Raises what a rank reported, RankError for one that died, Interrupted for a signal.
    """
    has_store = nodes.count > 1 and nodes.rank == 0
    raise_nofile_limit(tasks[0].plan, nodes.ranks_per_node, has_store=has_store)
    with open_scratch_dir() as scratch_dir:
        worker_args = WorkerArgs(tuple(tasks), scratch_dir, os.getpid())
        node_exit = supervisor.NodeExitProtocol(nodes.rank, nodes.count)
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
    scratch_dir = shared_folder.new_path()
    for other in scratch_dir.parent.glob(f"{shared_folder.SHARED}*"):
        shared_folder.remove_if_unused(other)
    try:
        with shared_folder.make_locked(scratch_dir):
            yield scratch_dir
    finally:
        shutil.rmtree(scratch_dir, ignore_errors=True)


def _make_config(
    worker_args: WorkerArgs, nodes: NodeConfig, method: str, node_exit: supervisor.NodeExitProtocol
) -> Any:
    """The LaunchConfig of the agent."""
    from commbench.launch.rendezvous import FileRendezvous, TcpStoreRendezvous, register

    task, scratch_dir = worker_args.tasks[0], worker_args.scratch_dir
    settings: dict[str, Any] = {"supervisor": supervisor.RankSupervisor(scratch_dir, task.plan)}
    if nodes.count == 1:
        backend, endpoint = register(FileRendezvous), str(scratch_dir)
    else:
        backend = register(TcpStoreRendezvous)
        endpoint = f"{nodes.master_addr}:{nodes.master_port}"
        settings |= {"rank": nodes.rank, "timeout": task.plan.timeout_s, "node_exit": node_exit}
    return make_launch_config(
        str(scratch_dir / "logs"),
        SHUTDOWN_S,
        min_nodes=nodes.count,
        max_nodes=nodes.count,
        nproc_per_node=nodes.ranks_per_node,
        run_id=f"commbench-{task.launch}",
        max_restarts=0,
        monitor_interval=max(MONITOR_INTERVAL_S, nodes.ranks_per_node / LOOKS_PER_S),
        start_method=method,
        rdzv_backend=backend,
        rdzv_endpoint=endpoint,
        rdzv_configs=settings,
    )


def _run_ranks(config: Any, worker_args: WorkerArgs) -> supervisor.LaunchOutcome:
    """Start the ranks of this node, and wait until they have ended."""
    task = worker_args.tasks[0]
    if config.start_method == "fork":
        _prepare_fork(task)
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {n: signal.getsignal(n) or signal.SIG_DFL for n in errors.INTERRUPTIONS if is_main}
    try:
        failures = run_agent(config, worker_main, worker_args)
        return supervisor.make_outcome(worker_args.scratch_dir, failures, task.plan)
    except errors.CommbenchError as error:
        if isinstance(error, errors.Interrupted):
            errors.ignore_interruptions()
            handlers = dict.fromkeys(errors.INTERRUPTIONS, signal.SIG_IGN)
        return supervisor.LaunchOutcome(error.with_traceback(None))
    except (RuntimeError, OSError, TimeoutError) as error:
        why = f"the ranks could not be started: {errors.first_line(error)}"
        hint = "with several nodes, check --master-addr and --master-port on each node"
        not_started = errors.UnavailableError(why, hint)
        not_started.__cause__ = error
        # Not raised: other nodes may already be waiting.
        return supervisor.LaunchOutcome(not_started)
    finally:
        for each, handler in handlers.items():  # the agent has installed its own
            signal.signal(each, handler)


def _prepare_fork(task: LaunchTask) -> None:
    """Import and compute once what every rank needs, in memory that forked ranks share."""
    import commbench.worker.rank  # noqa: F401
    from commbench.worker.verify import prepare

    prepare(case for case in task.cases() if case.status == READY)
    gc.freeze()


def run_agent(
    config: Any, function: Callable[[Any], None], argument: Any
) -> dict[int, supervisor.RankExit]:
    """Run `function(argument)` as the ranks of this node under torchrun's agent; wait for them, and
    return those that ended with another code than 0.

    `elastic_launch` is what torchrun itself calls. It raises what the rendezvous of this launch
    raises, also from `num_nodes_waiting`, which the agent calls after each look at its ranks.
    Raises Interrupted for a signal at which the agent has ended all ranks.
    """
    from torch.distributed.elastic.multiprocessing import api
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    # Ranks get SIGTERM: at SIGINT, one that Python still starts would print where it was.
    on_signal = errors.SignalHandler(lambda s: api.SignalException(s.name, signal.SIGTERM))
    try:
        with (
            _replaced(socket, "getfqdn", _own_name),
            _replaced(spawn, "get_preparation_data", _preparation_without_main),
            _replaced(api, "_terminate_process_handler", on_signal),
            _replaced(api.MultiprocessContext, "_start", _start_with_own_event()),
            _without_agent_logs(),
        ):
            errors.raise_dropped_interruption()
            errors.handle_interruptions(on_signal)
            elastic_launch(config, function)(argument)
            return {}
    except ChildFailedError as failed:
        return {rank: _make_rank_exit(failure) for rank, failure in failed.failures.items()}
    except api.SignalException as signalled:
        number = signal.Signals[str(signalled)]
    # Raised here, it does not hold the agent, which has semaphores.
    hint = NODE_0_KEEPS if config.max_nodes > 1 else RUN_AGAIN
    raise errors.Interrupted(f"stopped by {number.name}", hint, signal_number=number)


def make_launch_config(log_dir: str, shutdown_s: int, **options: Any) -> Any:
    """A LaunchConfig with these options. Ranks that are told to end have `shutdown_s` for it;
    before torch 2.12 there is no such option, and it is 30 s."""
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    if "shutdown_timeout" in LaunchConfig.__dataclass_fields__:
        options["shutdown_timeout"] = shutdown_s
    return LaunchConfig(**options, logs_specs=DefaultLogsSpecs(log_dir=log_dir))


def does_fork_keep_gpu() -> bool:
    """Whether a process that is forked from this one could use the GPU. Forks one to find out."""
    from torch import cuda

    return ask_child(lambda: cuda.is_initialized() or cuda._is_in_bad_fork()) is False


@contextmanager
def _replaced(module: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Have this function in place of one of a module."""
    original = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, original)


def _own_name(name: str = "") -> str:
    """In place of socket.getfqdn, which the agent calls for each of its events: it asks a name
    server for this host's name, and a lost answer takes 5 s."""
    return name or socket.gethostname()


_PREPARATION = spawn.get_preparation_data


def _preparation_without_main(name: str) -> dict[str, Any]:
    """In place of a function of the standard library's multiprocessing: keeps spawned ranks from
    importing the caller's main module, which they do not need. A script that calls commbench.run
    without `if __name__ == "__main__"` would start again in each of them."""
    data = _PREPARATION(name)
    return {key: value for key, value in data.items() if not key.startswith("init_main")}


class FinishedEvent:
    """In place of the multiprocessing.Event at which ranks that are done wait for the agent, whose
    `set` never returns where one of them was killed while it waited."""

    def __init__(self, context: Any) -> None:
        self._number = context.nprocs
        pipe = get_context(context.start_method).Pipe
        self._reader, self._writer = pipe(duplex=False)

    def set(self) -> None:
        """Let all ranks go on."""
        os.write(self._writer.fileno(), bytes(self._number))

    def wait(self) -> None:
        """Wait until `set` was called."""
        os.read(self._reader.fileno(), 1)


def _start_with_own_event() -> Callable[[Any], None]:
    """In place of MultiprocessContext._start: the same with a FinishedEvent."""
    from torch.distributed.elastic.multiprocessing.api import MultiprocessContext

    original = MultiprocessContext._start

    def start(context: Any) -> None:
        context._worker_finished_event = FinishedEvent(context)
        original(context)

    return start


@contextmanager
def _without_agent_logs() -> Iterator[None]:
    """Disable logging: the agent logs a traceback for each rank that fails, and commbench prints
    what happened in two lines. COMMBENCH_TRACEBACK enables it."""
    level = logging.root.manager.disable
    logging.disable(logging.NOTSET if os.environ.get("COMMBENCH_TRACEBACK") else logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)


def _make_rank_exit(failure: Any) -> supervisor.RankExit:
    """From a ProcessFailure, whose message is a dict where the function raised an exception."""
    message = failure.message
    text = str(message.get("message") or "") if isinstance(message, dict) else ""
    return supervisor.RankExit(failure.exitcode, int(failure.timestamp or 0), text.strip())
