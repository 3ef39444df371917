"""The node exit protocol: two nodes in this process, over a real store."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import TCPStore

from commbench.errors import CommbenchError, Interrupted, RankError
from commbench.launch.supervisor import NODE_0_LOST, LaunchOutcome, NodeExitProtocol
from commbench.worker.watchdog.rank_state import Delays

DIED = RankError("rank 1 on b was killed by SIGKILL", "look there", "its last words")
SHORT = Delays(
    heartbeat_s=0.02, node_cause_s=0.6, node_store_s=0.6, node_silent_s=0.3, node_gone_s=0.2
)
SECONDARY = LaunchOutcome(RankError("rank 1 on b ended", "see there"), is_root_cause=False)


@pytest.fixture
def store() -> Any:
    return TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=5))


@pytest.fixture
def nodes(store: Any) -> Iterator[tuple[NodeExitProtocol, NodeExitProtocol]]:
    def connect() -> Any:
        return TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=5))

    both = NodeExitProtocol(0, 2, SHORT), NodeExitProtocol(1, 2, SHORT)
    both[0].start(store, connect)
    both[1].start(connect(), connect)
    yield both
    for node in both:
        node._stopped.set()


def exchange_both(
    nodes: tuple[NodeExitProtocol, NodeExitProtocol], first: LaunchOutcome, second: LaunchOutcome
) -> list[CommbenchError | None]:
    """What each of two nodes comes to that end at once."""
    found: list[CommbenchError | None] = [None, None]

    def exchange(node: int, ending: LaunchOutcome) -> None:
        found[node] = nodes[node].exchange(ending)

    threads = [threading.Thread(target=exchange, args=pair) for pair in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found


def raised(check: Callable[[], None]) -> CommbenchError:
    """What `check` raises, in the end."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            check()
        except CommbenchError as error:
            return error
        time.sleep(0.01)
    raise AssertionError("nothing was raised")


def to_text(error: CommbenchError | None) -> tuple[str, str, str]:
    assert error
    return error.message, error.hint, error.details


def test_nodes_without_errors_find_no_root_cause(nodes: Any) -> None:
    assert exchange_both(nodes, LaunchOutcome(), LaunchOutcome()) == [None, None]


def test_all_nodes_report_the_root_cause_of_the_node_that_knows_it(nodes: Any) -> None:
    for found in exchange_both(nodes, SECONDARY, LaunchOutcome(DIED)):
        assert type(found) is RankError and to_text(found) == to_text(DIED)


def test_a_node_without_errors_reports_the_failure_of_another(nodes: Any) -> None:
    assert to_text(exchange_both(nodes, LaunchOutcome(), LaunchOutcome(DIED))[0]) == to_text(DIED)


def test_while_ranks_run_a_node_raises_the_root_cause_of_another(nodes: Any) -> None:
    first, second = nodes
    first.raise_if_failed(lambda: True)
    telling = threading.Thread(target=second.exchange, args=(LaunchOutcome(DIED),))
    telling.start()
    assert to_text(raised(lambda: first.raise_if_failed(lambda: False))) == to_text(DIED)
    telling.join()


def test_where_all_failures_are_secondary_each_node_reports_its_own(nodes: Any) -> None:
    other = LaunchOutcome(RankError("rank 0 on a ended", ""), is_root_cause=False)
    assert exchange_both(nodes, SECONDARY, other) == [SECONDARY.error, other.error]


def test_an_interrupted_node_tells_the_others_and_ends_as_interrupted(nodes: Any) -> None:
    interrupted = Interrupted("stopped by SIGINT", "go on")
    first, second = exchange_both(nodes, SECONDARY, LaunchOutcome(interrupted))
    assert second is interrupted
    assert isinstance(first, RankError)
    assert first.message == f"node 1 on {socket.gethostname()} was stopped by SIGINT"


def test_a_silent_node_is_named_while_ranks_wait_for_others_to_come(nodes: Any) -> None:
    first, second = nodes
    time.sleep(0.1)
    second._stopped.set()  # as a launcher that is killed
    found = raised(lambda: first.raise_if_failed(lambda: True))
    assert found.message.startswith(f"node 1 on {socket.gethostname()} sent no heartbeat for ")
    first.raise_if_failed(lambda: False)  # now ranks see for themselves who is gone
    began = time.monotonic()
    assert first.exchange(SECONDARY) == SECONDARY.error
    assert time.monotonic() - began < 0.6  # nobody waits for who is gone


def test_a_node_whose_heartbeats_return_is_not_lost(nodes: Any, store: Any) -> None:
    first, second = nodes
    time.sleep(0.1)
    second._stopped.set()
    raised(lambda: first.raise_if_failed(lambda: True))
    again = threading.Thread(target=second._run, args=(lambda: store,), daemon=True)
    second._stopped.clear()
    again.start()
    deadline = time.monotonic() + 10
    while first._lost_node and time.monotonic() < deadline:
        time.sleep(0.01)
    first.raise_if_failed(lambda: True)
    second._stopped.set()
    again.join()


def test_without_the_store_of_node_0_the_others_end(store: Any) -> None:
    second = NodeExitProtocol(1, 2, SHORT)
    server = [store]

    class Lost:
        """A connection that is lost after a while."""

        def __getattr__(self, name: str) -> Any:
            if not server:
                raise RuntimeError("Connection was likely closed")
            return getattr(server[0], name)

    second.start(Lost(), Lost)
    time.sleep(0.1)
    second.raise_if_failed(lambda: True)
    server.clear()
    found = raised(lambda: second.raise_if_failed(lambda: False))
    assert found.message.startswith(NODE_0_LOST)
    assert second.exchange(SECONDARY) is found
