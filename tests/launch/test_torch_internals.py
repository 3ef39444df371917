"""What commbench relies on in the internals of torch, held against the torch that is installed."""

from __future__ import annotations

import inspect
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.distributed import HashStore
from torch.distributed.elastic.agent.server import api as agent_api
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.elastic.utils import store as store_util

from commbench.errors import Interrupted, RankError
from commbench.launch import elastic
from commbench.launch.elastic import does_fork_keep_gpu, make_launch_config, run_agent
from commbench.launch.rendezvous import FileRendezvous, register
from commbench.launch.supervisor import EXIT_BARRIER, RankExit, release_exit_barrier

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class CountingRendezvous(FileRendezvous):
    """A rendezvous of one node that counts how often the agent asks for waiting nodes."""

    name = "commbench-test"
    third_call: Callable[[], None] | None = None
    """What happens in the third call of `num_nodes_waiting`."""
    calls = 0

    def num_nodes_waiting(self) -> int:
        type(self).calls += 1
        if self.calls == 3 and self.third_call:
            type(self).third_call()
        return 0


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(CountingRendezvous, "calls", 0)
    handlers = {n: signal.getsignal(n) for n in (1, 2, 3, 15)}
    yield make_launch_config(
        str(tmp_path / "logs"), 3, min_nodes=1, max_nodes=1, nproc_per_node=2, run_id="test",
        max_restarts=0, monitor_interval=0.02, start_method="fork",
        rdzv_backend=register(CountingRendezvous), rdzv_endpoint=str(tmp_path),
        rdzv_configs={"supervisor": None},
    )  # fmt: skip
    for number, handler in handlers.items():
        signal.signal(number, handler)


def in_rank_1(action: str) -> None:
    """What each rank does: rank 1 an action of its own."""
    if os.environ["RANK"] == "1":
        exec(action)
    time.sleep(0.2)


@record
def raises(action: str) -> None:
    if os.environ["RANK"] == "1":
        raise ValueError(action)


@pytest.mark.parametrize(
    ("action", "exit_code"), [("pass", None), ("os._exit(9)", 9), ("os.kill(os.getpid(), 9)", -9)]
)
def test_the_agent_tells_how_ranks_failed(config: Any, action: str, exit_code: int | None) -> None:
    began = int(time.time())
    result = run_agent(config, in_rank_1, action)
    if exit_code is None:
        assert result == {}
        return
    (failure,) = result.values()
    assert list(result) == [1] and failure.exit_code == exit_code
    assert failure.message == "" and began <= failure.timestamp <= time.time()


class KillsItsReader(NamedTuple):
    """What a rank returns that kills another one where the agent reads it."""

    pid: int

    def __reduce__(self) -> Any:
        return os.kill, (self.pid, signal.SIGKILL)


def returns_early(folder: Path) -> Any:
    """Rank 0 returns, and waits for the agent; then rank 1 returns what kills it."""
    done = folder / "done"
    if os.environ["RANK"] == "0":
        done.write_text(str(os.getpid()))
        return None
    while not (done.exists() and done.read_text()):
        time.sleep(0.01)
    time.sleep(0.3)
    return KillsItsReader(int(done.read_text()))


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_rank_that_is_killed_where_it_waits_for_the_agent_is_told(
    config: Any, tmp_path: Path, start_method: str
) -> None:
    config.start_method = start_method
    (failed,) = run_agent(config, returns_early, tmp_path).items()
    assert (failed[0], failed[1].exit_code) == (0, -signal.SIGKILL)


def test_the_agent_tells_the_exception_of_a_rank(config: Any) -> None:
    result = run_agent(config, raises, "lost")
    assert result[1].exit_code == 1
    assert result[1].message.split("\n")[0] == "ValueError: lost"


def test_the_agent_ends_at_a_signal(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def send() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(CountingRendezvous, "third_call", send)
    with pytest.raises(Interrupted, match="stopped by SIGTERM") as ended:
        run_agent(config, time.sleep, 60)
    assert ended.value.exit_code == 128 + signal.SIGTERM


def test_the_agent_asks_for_waiting_nodes_after_each_look_at_its_ranks(config: Any) -> None:
    run_agent(config, time.sleep, 0.3)
    assert CountingRendezvous.calls >= 5


def test_an_error_of_rendezvous_ends_agents(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RankError("rank 0 has ended")

    monkeypatch.setattr(CountingRendezvous, "third_call", fail)
    with pytest.raises(RankError, match="rank 0 has ended"):
        run_agent(config, time.sleep, 0.5)


def test_the_agent_looks_no_name_up_and_logs_nothing(
    config: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lookups: list[str] = []
    monkeypatch.setattr(socket, "getfqdn", lambda name="": lookups.append(name) or "looked-up")
    monkeypatch.setattr(socket, "gethostbyaddr", lambda name: lookups.append(name))
    run_agent(config, in_rank_1, "os._exit(9)")
    assert not lookups and not caplog.records
    assert socket.getfqdn() == "looked-up" and logging.root.manager.disable == logging.NOTSET
    with elastic._replaced(socket, "getfqdn", elastic._own_name):
        assert agent_api._get_fq_hostname() == socket.gethostname()
    assert "socket.getfqdn(" in inspect.getsource(agent_api)  # else the patch is of no use


def test_the_exit_barrier_of_torch_ends_where_it_is_released() -> None:
    assert EXIT_BARRIER == agent_api._TERMINAL_STATE_SYNC_ID
    store = HashStore()
    store.set_timeout(timedelta(seconds=10))
    waiting = threading.Thread(
        target=store_util.barrier, args=(store, 2), kwargs={"key_prefix": EXIT_BARRIER}
    )
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    release_exit_barrier(store, 2)
    waiting.join(10)
    assert not waiting.is_alive()


def test_ranks_have_as_long_to_end_as_the_launcher_says_where_torch_can(config: Any) -> None:
    version = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
    known = "shutdown_timeout" in type(config).__dataclass_fields__
    assert known == (version >= (2, 12))
    assert not known or config.shutdown_timeout == 3


def test_a_fork_keeps_the_gpu_where_nothing_has_used_it() -> None:
    assert torch.cuda._is_in_bad_fork() is False
    assert does_fork_keep_gpu() is not torch.cuda.is_initialized()


def test_a_failure_without_a_message_or_a_time_is_taken() -> None:
    class Failure:
        exitcode, timestamp, message = -9, None, "Signal 9 (SIGKILL) received by PID 1"

    assert elastic._make_rank_exit(Failure()) == RankExit(-9, 0, "")


COUNTS = """
import threading
from pathlib import Path
from commbench.launch.devices import detect_capabilities, import_torch
import_torch()
from commbench.worker.device import DEVICES
def count():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return 3
DEVICES["cuda"] = DEVICES["cuda"]._replace(number=count)
print(detect_capabilities().devices["cuda"], len([*Path("/proc/self/task").iterdir()]))
"""


def test_ranks_can_be_forked_after_a_driver_started_a_thread_to_count_devices() -> None:
    assert subprocess.check_output([sys.executable, "-c", COUNTS], text=True).split() == ["3", "1"]
