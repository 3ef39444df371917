"""What a check measures of the host, in processes of their own: one TCP connection over the
loopback, and copies of memory: the ways of gloo on one host."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple

from commbench.analysis.statistics import median
from commbench.errors import CommbenchError
from commbench.host.cpu import apply_cpu_mode
from commbench.host.facts import HostFacts
from commbench.host.procfs import read_free_bytes
from commbench.stats import Estimate

Job = Callable[[Callable[[], None]], Iterable[float]]
"""A function that prepares, calls its argument, which waits for all jobs, and returns numbers."""


def run_parallel(jobs: Sequence[Job], realtime: bool = False) -> list[list[float]]:
    """Run jobs at the same time and return the numbers of each; raises OSError where one dies.

    With `realtime` each runs on a core of its own under SCHED_FIFO, where this user may use that.
    """
    context = get_context("fork")
    with ExitStack() as running:
        pipes = []
        for number, job in enumerate(jobs):
            near, far = context.Pipe()
            process = context.Process(target=_run_job, args=(job, realtime, number, far))
            process.start()
            running.callback(process.join)
            running.callback(process.kill)
            running.enter_context(near)
            far.close()
            pipes.append(near)
        try:
            for pipe in pipes:
                pipe.recv()
            for pipe in pipes:
                pipe.send("go")
            return [pipe.recv() for pipe in pipes]
        except EOFError:
            raise ChildProcessError("a process that was to measure has ended") from None


def _run_job(job: Job, realtime: bool, number: int, pipe: Connection) -> None:
    """Do the job in a process of its own, without the parent's handlers; one that fails has no
    numbers."""

    def ready() -> None:
        pipe.send("ready")
        pipe.recv()

    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_DFL)
    if realtime:
        cores = os.sched_getaffinity(0)
        try:
            apply_cpu_mode("realtime", number)
        except CommbenchError:
            os.sched_setaffinity(0, cores)
    numbers: list[float] = []
    with suppress(OSError, EOFError):
        numbers = list(job(ready))
    with suppress(OSError):
        pipe.send(numbers)


REPEATS = 5
"""Repeats of each; the first fifth of the time of one more warms up, as TCP opens its windows."""
BEYOND_CACHE = 2


class HostBandwidth(NamedTuple):
    """What median_range finds of the repeats; None where a rate could not be measured."""

    loopback_bytes_per_s: Estimate | None
    """One way over one connection of two processes, which sends 4 MiB at once."""
    round_trip_s: Estimate | None
    """For a byte there and one back."""
    copy_one_bytes_per_s: Estimate | None
    """What one core copies."""
    copy_all_bytes_per_s: Estimate | None
    """What all cores copy together."""
    cores: int
    """The number of all cores."""
    undisturbed: bool
    """Whether the first three were measured under SCHED_FIFO, ahead of other work."""


def median_range(values: Iterable[float]) -> Estimate:
    """The median of at least one value, and the least and largest of several in place of an
    interval."""
    ordered = sorted(values)
    ends = (ordered[0], ordered[-1]) if len(ordered) > 1 else ()
    return Estimate(median(ordered), *ends)


def measure_host_bandwidth(facts: HostFacts, seconds: float) -> HostBandwidth:
    """Measure in a twelfth of the seconds that the whole check takes. Buffers are at least twice as
    large as the cache, and have at most a quarter of the free memory."""
    scale = min(1.0, seconds / 60)
    cores, cache = len(facts.cores), facts.cache_bytes or 64 << 20
    own_part = -(-cache // (facts.cache_cores or cores))
    return HostBandwidth(
        measure_loopback(scale * 0.5),
        measure_round_trip(scale * 0.1),
        measure_copy_rate(1, cache, scale * 0.2),
        measure_copy_rate(cores, own_part, scale * 0.2),
        cores,
        facts.fifo_permitted is True,
    )


def measure_loopback(seconds: float) -> Estimate | None:
    """Bytes per second that loopback TCP carries one way, in REPEATS of `seconds` each; None where
    there is no loopback."""

    def send(peer: socket.socket) -> None:
        chunk = bytes(4 << 20)
        while True:
            peer.sendall(chunk)

    def receive(peer: socket.socket, seconds: float) -> float:
        buffer = bytearray(1 << 20)
        return _rate(lambda: _require_bytes(peer.recv_into(buffer)), seconds)

    return _measure_pair(send, receive, seconds)


def measure_round_trip(seconds: float) -> Estimate | None:
    """Seconds for one byte to go there and one to come back; a repeat gives its median."""

    def answer(peer: socket.socket) -> None:
        while byte := peer.recv(1):
            peer.sendall(byte)

    def ask(peer: socket.socket, seconds: float) -> float:
        taken: list[float] = []
        start = now = time.perf_counter()
        while now - start < seconds or not taken:
            peer.sendall(b"?")
            _require_bytes(len(peer.recv(1)))
            before, now = now, time.perf_counter()
            taken.append(now - before)
        return median(sorted(taken))

    return _measure_pair(answer, ask, seconds)


def _measure_pair(
    far: Callable[[socket.socket], object],
    near: Callable[[socket.socket, float], float],
    seconds: float,
) -> Estimate | None:
    """What the near end of a connection measures in each repeat while the far end answers."""

    def serve(ready: Callable[[], None]) -> list[float]:
        with _prepare(server.accept()[0]) as peer:
            ready()
            near(peer, 0.2 * seconds)
            return [near(peer, seconds) for _ in range(REPEATS)]

    def connect(ready: Callable[[], None]) -> list[float]:
        with _prepare(socket.create_connection(server.getsockname(), 10)) as peer:
            ready()
            far(peer)
        return []

    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(10)
            found = run_parallel([serve, connect], realtime=True)[0]
    except OSError:
        return None
    return median_range(found) if found else None


def _prepare(peer: socket.socket) -> socket.socket:
    peer.settimeout(10)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def _rate(move: Callable[[], int], seconds: float) -> float:
    """Bytes per second of a function that moves some, again and again."""
    moved, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or not moved:
        moved += move()
    return moved / elapsed


def _require_bytes(number: int) -> int:
    if not number:
        raise ConnectionError("the other process is gone")
    return number


def measure_copy_rate(cores: int, cache_bytes: int, seconds: float) -> Estimate | None:
    """Bytes per second that `cores` processes copy at once; None where there is too little memory.

    A byte that is copied is read once and written once. Buffers exceed the last-level cache, of
    which each process has `cache_bytes`.
    """
    size = max(16 << 20, BEYOND_CACHE * cache_bytes)
    if 2 * size * cores > 0.25 * (read_free_bytes() or 0):
        return None

    def copy(ready: Callable[[], None]) -> list[float]:
        source, target = (memoryview(mmap.mmap(-1, size)) for _ in range(2))
        for offset in range(0, size, 4096):
            source[offset] = target[offset] = 1  # the kernel allocates the page
        ready()

        def move() -> int:
            target[:] = source  # one memcpy of the C library
            return size

        return [_rate(move, seconds) for _ in range(REPEATS)]

    try:
        # Under SCHED_FIFO on a single core only, so that the host can go on working on the others.
        found = run_parallel([copy] * cores, realtime=cores == 1)
    except OSError:
        return None
    return median_range([sum(rates) for rates in zip(*found, strict=True)])
