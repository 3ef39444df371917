"""What launchers of several nodes tell each other: two, in this process, over a real store."""

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
from commbench.launch import node_exit as node_exit
from commbench.launch.exit_report import LaunchOutcome
from commbench.launch.node_exit import NodeExitProtocol

DIED = RankError("rank 1 on b was killed by SIGKILL", "look there", "its last words")
ECHO = LaunchOutcome(RankError("rank 1 on b ended", "see there"), first_hand=False)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, seconds in (("BEAT_S", 0.02), ("PATIENCE_S", 0.6), ("LINGER_S", 0.6),
                          ("SILENT_S", 0.3), ("GONE_S", 0.2)):  # fmt: skip
        monkeypatch.setattr(node_exit, name, seconds)
    return TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=5))


@pytest.fixture
def nodes(store: Any) -> Iterator[tuple[NodeExitProtocol, NodeExitProtocol]]:
    def connect() -> Any:
        return TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=5))

    both = NodeExitProtocol(0, 2), NodeExitProtocol(1, 2)
    both[0].meet_in(store, connect)
    both[1].meet_in(connect(), connect)
    yield both
    for node in both:
        node._over.set()


def say_both(
    nodes: tuple[NodeExitProtocol, NodeExitProtocol], first: LaunchOutcome, second: LaunchOutcome
) -> list[CommbenchError | None]:
    """What each of two nodes comes to that end at once."""
    found: list[CommbenchError | None] = [None, None]

    def say(node: int, ending: LaunchOutcome) -> None:
        found[node] = nodes[node].say(ending)

    threads = [threading.Thread(target=say, args=pair) for pair in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found


def raised(heed: Callable[[], None]) -> CommbenchError:
    """What heeding raises, in the end."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            heed()
        except CommbenchError as error:
            return error
        time.sleep(0.01)
    raise AssertionError("nothing was raised")


def words(error: CommbenchError | None) -> tuple[str, str, str]:
    assert error
    return error.message, error.hint, error.details


def test_nodes_on_which_all_went_well_have_nothing_to_tell(nodes: Any) -> None:
    assert say_both(nodes, LaunchOutcome(), LaunchOutcome()) == [None, None]


def test_who_knows_how_it_happened_is_believed_by_all(nodes: Any) -> None:
    for found in say_both(nodes, ECHO, LaunchOutcome(DIED)):
        assert type(found) is RankError and words(found) == words(DIED)


def test_a_node_on_which_all_went_well_hears_that_another_failed(nodes: Any) -> None:
    assert words(say_both(nodes, LaunchOutcome(), LaunchOutcome(DIED))[0]) == words(DIED)


def test_while_ranks_run_a_node_heeds_what_another_tells(nodes: Any) -> None:
    first, second = nodes
    first.heed(lambda: True)
    telling = threading.Thread(target=second.say, args=(LaunchOutcome(DIED),))
    telling.start()
    assert words(raised(lambda: first.heed(lambda: False))) == words(DIED)
    telling.join()


def test_where_only_an_echo_came_everybody_tells_their_own(nodes: Any) -> None:
    other = LaunchOutcome(RankError("rank 0 on a ended", ""), first_hand=False)
    assert say_both(nodes, ECHO, other) == [ECHO.error, other.error]


def test_an_interrupted_node_says_so_to_others_and_ends_as_interrupted(nodes: Any) -> None:
    interrupted = Interrupted("stopped by SIGINT", "go on")
    first, second = say_both(nodes, ECHO, LaunchOutcome(interrupted))
    assert second is interrupted
    assert isinstance(first, RankError)
    assert first.message == f"node 1 on {socket.gethostname()} was stopped by SIGINT"


def test_a_silent_node_is_named_while_ranks_wait_for_others_to_come(nodes: Any) -> None:
    first, second = nodes
    time.sleep(0.1)
    second._over.set()  # as a launcher that is killed
    found = raised(lambda: first.heed(lambda: True))
    assert found.message.startswith(f"node 1 on {socket.gethostname()} fell silent ")
    first.heed(lambda: False)  # now ranks see for themselves who is gone
    began = time.monotonic()
    assert first.say(ECHO) == ECHO.error
    assert time.monotonic() - began < 0.6  # nobody waits for who is gone


def test_who_was_silent_for_a_while_is_forgiven(nodes: Any, store: Any) -> None:
    first, second = nodes
    time.sleep(0.1)
    second._over.set()
    raised(lambda: first.heed(lambda: True))
    again = threading.Thread(target=second._listen, args=(lambda: store,), daemon=True)
    second._over.clear()
    again.start()
    deadline = time.monotonic() + 10
    while first._silent and time.monotonic() < deadline:
        time.sleep(0.01)
    first.heed(lambda: True)
    second._over.set()
    again.join()


def test_without_node_0_the_others_end(store: Any) -> None:
    second = NodeExitProtocol(1, 2)
    server = [store]

    class Lost:
        """A connection that is lost after a while."""

        def __getattr__(self, name: str) -> Any:
            if not server:
                raise RuntimeError("Connection was likely closed")
            return getattr(server[0], name)

    second.meet_in(Lost(), Lost)
    time.sleep(0.1)
    second.heed(lambda: True)
    server.clear()
    found = raised(lambda: second.heed(lambda: False))
    assert found.message.startswith(node_exit.LOST)
    assert second.say(ECHO) is found
