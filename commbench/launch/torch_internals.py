"""Everything in this folder that relies on the internals of torch, one function for each.

Checked with torch 2.6 to 2.13; tests/launch/test_torch_internals.py checks the installed one. What
`rendezvous` uses is public: torch.distributed.elastic.rendezvous.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import spawn
from typing import Any, NamedTuple

AGENT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals at which the agent ends all ranks."""
EXIT_BARRIER = "torchelastic/agent/terminal_state"
"""`_TERMINAL_STATE_SYNC_ID` of torch.distributed.elastic.agent.server.api, the prefix of the keys
of the barrier at which agents of several nodes wait for each other when their ranks are done."""


class RankExit(NamedTuple):
    """How a process that the agent started has failed."""

    exit_code: int
    """As of a subprocess: below 0, the number of the signal that ended it."""
    timestamp: int
    """When the exception was raised, in Unix seconds; 0 where that is not known."""
    message: str
    """The exception that ended it; empty where there was none."""


class AgentResult(NamedTuple):
    """How the agent has ended."""

    failures: dict[int, RankExit]
    """The ranks of this node that ended with another code than 0."""
    signal_number: signal.Signals | None = None
    """The signal at which the agent ended all ranks."""


def run_agent(config: Any, function: Callable[[Any], None], argument: Any) -> AgentResult:
    """Run `function(argument)` as the ranks of this node under torchrun's agent; wait for them.

    `elastic_launch` is what torchrun itself calls. It raises what the rendezvous of this launch
    raises, also from `num_nodes_waiting`, which the agent calls after each look at its ranks.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    try:
        with (
            _replaced(socket, "getfqdn", _own_name),
            _replaced(spawn, "get_preparation_data", _preparation_without_main),
            _without_agent_logs(),
            _noted_signals(),
        ):
            elastic_launch(config, function)(argument)
    except SignalException as signalled:
        return AgentResult({}, signalled.sigval)
    except ChildFailedError as failed:
        failures = failed.failures.items()
        return AgentResult({rank: _make_rank_exit(failure) for rank, failure in failures})
    return AgentResult({})


_signal_pipe: list[int] = []
"""The pipe into which Python writes the numbers of the signals that come, while an agent runs."""


@contextmanager
def _noted_signals() -> Iterator[None]:
    """Note the signals that come. The agent turns a signal into an exception, and Python drops one
    that is raised while a rank is forked, in a function of os.register_at_fork."""
    if threading.current_thread() is not threading.main_thread():  # no other gets signals
        yield
        return
    _signal_pipe[:] = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(_signal_pipe[1], warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        for descriptor in _signal_pipe:
            os.close(descriptor)
        _signal_pipe.clear()


def raise_missed_signal() -> None:
    """Raise the agent's exception for a signal that came while it went on as if there were none;
    for the agent to call after each look at its ranks."""
    from torch.distributed.elastic.multiprocessing.api import SignalException

    if not _signal_pipe:
        return
    with suppress(BlockingIOError):
        for number in os.read(_signal_pipe[0], 64):
            if number in AGENT_SIGNALS:
                raise SignalException(f"signal {number}", signal.Signals(number))


def make_launch_config(log_dir: str, shutdown_s: int, **options: Any) -> Any:
    """A LaunchConfig with these options. Ranks that are told to end have `shutdown_s` for it;
    before torch 2.12 there is no such option, and it is 30 s."""
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    if "shutdown_timeout" in LaunchConfig.__dataclass_fields__:
        options["shutdown_timeout"] = shutdown_s
    return LaunchConfig(**options, logs_specs=DefaultLogsSpecs(log_dir=log_dir))


def release_exit_barrier(store: Any, nodes: int) -> None:
    """Let agents go that wait for this node after their ranks are done, for up to 300 s: do what
    torch.distributed.elastic.utils.store.barrier does, without waiting."""
    if store.add(f"{EXIT_BARRIER}/num_members", 1) >= nodes:
        store.set(f"{EXIT_BARRIER}/last_member", "")


def does_fork_keep_gpu() -> bool:
    """Whether a process that is forked from this one could use the GPU. Forks one to find out."""
    import torch

    child = os.fork()
    if not child:
        os._exit(int(torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork()))
    return os.waitpid(child, 0)[1] == 0


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


def _make_rank_exit(failure: Any) -> RankExit:
    """From a ProcessFailure, whose message is a dict where the function raised an exception."""
    message = failure.message
    text = message.get("message") if isinstance(message, dict) else ""
    return RankExit(failure.exitcode, int(failure.timestamp or 0), str(text or "").strip())
