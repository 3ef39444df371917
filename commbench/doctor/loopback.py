"""What TCP over the loopback interface carries between two processes: gloo's way on one host."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial

from commbench.doctor.parallel import together
from commbench.doctor.sample_range import SampleRange, spread

WRITE_BYTES = 4 << 20
READ_BYTES = 1 << 20
CONNECT_TIMEOUT_S = 10.0
WARMUP_PART = 0.2
"""Of the time of one repeat; the windows of TCP open meanwhile."""


def bandwidth(repeats: int, seconds: float) -> SampleRange | None:
    """Bytes per second one way, over `repeats` times of so many seconds; None without loopback."""
    buffer = bytearray(READ_BYTES)
    return _measured(_pour, partial(_receive, buffer=buffer), repeats, seconds)


def round_trip(repeats: int, seconds: float) -> SampleRange | None:
    """Seconds for one byte to go there and one to come back: per repeat the median of them all."""
    return _measured(_echo, _ping, repeats, seconds)


def _measured(
    far: Callable[[socket.socket], object],
    near: Callable[[socket.socket, float], float],
    repeats: int,
    seconds: float,
) -> SampleRange | None:
    """What the near end of a connection measures in each repeat, with the far end at work."""

    def serve(ready: Callable[[], None]) -> list[float]:
        with _prepared(server.accept()[0]) as peer:
            ready()
            near(peer, WARMUP_PART * seconds)
            return [near(peer, seconds) for _ in range(repeats)]

    def connect(ready: Callable[[], None]) -> list[float]:
        with _prepared(socket.create_connection(server.getsockname(), CONNECT_TIMEOUT_S)) as peer:
            ready()
            far(peer)
        return []

    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(CONNECT_TIMEOUT_S)
            found = together([serve, connect], undisturbed=True)[0]
    except OSError:
        return None
    return spread(found) if found else None


def _prepared(peer: socket.socket) -> socket.socket:
    peer.settimeout(CONNECT_TIMEOUT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def _receive(peer: socket.socket, seconds: float, buffer: bytearray) -> float:
    received, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds or not received:
        received += _checked(peer.recv_into(buffer))
    return received / elapsed


def _ping(peer: socket.socket, seconds: float) -> float:
    taken: list[float] = []
    began = now = time.perf_counter()
    while now - began < seconds or not taken:
        peer.sendall(b"?")
        _checked(len(peer.recv(1)))
        before, now = now, time.perf_counter()
        taken.append(now - before)
    return spread(taken).median


def _checked(number: int) -> int:
    if not number:
        raise ConnectionError("the other process is gone")
    return number


def _pour(peer: socket.socket) -> None:
    chunk = bytes(WRITE_BYTES)
    while True:
        peer.sendall(chunk)


def _echo(peer: socket.socket) -> None:
    while byte := peer.recv(1):
        peer.sendall(byte)
