"""What a check measures: TCP over the loopback and copies of memory, in processes of their own,
which gloo cannot exceed; and a small run in every CPU mode, compared with the mode `plain`. Its
launches are in rounds: drift of the host affects all modes alike."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from math import comb
from multiprocessing import get_context
from multiprocessing.connection import Connection
from random import Random
from statistics import geometric_mean
from typing import NamedTuple

from commbench.analysis.rows import make_rows
from commbench.analysis.statistics import median
from commbench.errors import CommbenchError, Interrupted
from commbench.host.cpu import PLAIN, apply_cpu_mode
from commbench.host.facts import HostFacts
from commbench.host.procfs import read_free_bytes
from commbench.plan.operations import DEFAULT_OPERATION
from commbench.plan.plan import CPU_MODES, Plan
from commbench.runner.launched_ranks import run_temporarily
from commbench.stats import CHANGED, UNDECIDED, Estimate, decide

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
    """One way, between two processes."""
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


# CPU modes

FALSE_ALARMS = 0.05
"""How often noise alone may make a mode faster or slower, of all comparisons of a check together:
by Bonferroni's inequality each may do so in this share over their number."""
MODES = (PLAIN, *(mode for mode in CPU_MODES if mode != PLAIN))
SIZES = (1 << 10, 64 << 10, 1 << 20, 16 << 20)
SMALL, LARGE = SIZES[:-1], SIZES[-1:]
"""Sizes whose time depends on the scheduler, and on memory. Each group is compared as a whole:
every further comparison is one more chance to take noise for a difference."""
COMPARISONS = 2 * (len(MODES) - 1)
"""Of each mode but PLAIN with it, of the small and of the large sizes."""


def chance_of(first: int, second: int) -> float:
    """How often the times of so many launches of one distribution have disjoint ranges: in
    2 / C(n+m, n), the smallest p-value of the exact rank-sum test: 10 % for 3 and 3, 0.2 % for 6
    and 6."""
    return 2 / comb(first + second, first)


FEWEST_LAUNCHES = next(n for n in range(1, 99) if chance_of(n, n) * COMPARISONS <= FALSE_ALARMS)
"""Of each of two modes, for a verdict."""


class SizeResult(NamedTuple):
    """The result of one launch for one size."""

    size_bytes: int
    iterations: int
    time_s: float
    busbw_bytes_per_s: float | None
    stalled_share: float | None
    queued_share: float | None
    throttled_share: float | None
    stolen_share: float | None


class Trial(NamedTuple):
    """One launch in one mode."""

    round: int
    """From 0."""
    mode: str
    points: tuple[SizeResult, ...] = ()
    elapsed_s: float = 0.0
    trouble: CommbenchError | None = None
    """Why it has no points; its mode is not tried again."""


def try_modes(
    ranks: int, rounds: int, seed: int, deadline: float, print_status: Callable[[str], None]
) -> Iterator[Trial]:
    """Launch every mode in every round, in random order; the first launch, of PLAIN, is made in any
    case. Ends early where the
    next one, if it took as long as the longest before it, would pass the deadline (monotonic)."""
    generator = Random(seed)
    order = [(r, mode) for r in range(rounds) for mode in generator.sample(MODES, len(MODES))]
    order.sort(key=lambda trial: trial != (0, PLAIN))  # the others are compared with it
    # The budget of each size; starting ranks, aligning and warming up take time too.
    budget_s = min(0.2, 0.05 * max(0.1, deadline - time.monotonic()) / len(order))
    longest, refused = 0.0, set()
    for number, (round_, mode) in enumerate(order, start=1):
        if mode in refused:
            continue
        start = time.monotonic()
        if longest and start + longest > deadline:
            return
        print_status(f"[{number}/{len(order)}] round {round_ + 1} of {rounds}, {mode}")
        plan = Plan(
            operations=(DEFAULT_OPERATION,), sizes=SIZES, backend="gloo", device="cpu",
            world_size=ranks, cpu_mode=mode, budget_s=budget_s, check=False,
            timeout_s=30.0, seed=seed + round_,
        )  # fmt: skip
        points, trouble = _launch(plan)
        if trouble:
            refused.add(mode)
        elapsed_s = time.monotonic() - start
        longest = max(longest, elapsed_s)
        yield Trial(round_, mode, points, elapsed_s, trouble)


def _launch(plan: Plan) -> tuple[tuple[SizeResult, ...], CommbenchError | None]:
    """The results of a launch, or why there is none."""
    try:
        rows = make_rows(run_temporarily(plan, "doctor"))
    except Interrupted:
        raise
    except CommbenchError as error:
        return (), error
    return tuple(
        SizeResult(
            row.measurement.case.size_bytes, row.time.iterations, row.time.median, row.busbw,
            *(getattr(row.interference, name) for name in SizeResult._fields[4:]),
        )
        for row in rows if row.time
    ), None  # fmt: skip


class ModeEffect(NamedTuple):
    """The results of a mode for some sizes, and how it compares with another mode."""

    mode: str
    sizes_bytes: tuple[int, ...]
    time_s: Estimate
    """Of the medians of the launches; of several sizes the geometric mean."""
    launches: int
    ratio: Estimate | None
    """`time_s` over the other mode's, from the fastest launch over the slowest one to the slowest
    over the fastest; None where the other mode was not measured."""
    verdict: str
    """Whether it is faster or slower beyond noise, or undecided; empty without a ratio."""
    chance: float | None
    """The probability that noise alone separates the launches of the two modes."""
    busbw_bytes_per_s: float | None
    """The median of the launches, of a single size."""
    stalled_share: float | None
    queued_share: float | None
    """Medians of the launches; of several sizes the largest."""


def compare_mode(
    trials: Sequence[Trial], mode: str, sizes: tuple[int, ...], other: str = PLAIN
) -> ModeEffect | None:
    """The effect of a mode on the time of these sizes; None where it was not measured.

    It is faster or slower if each of its launches is, by 5 % or more in the median, and if noise
    alone does that in none of COMPARISONS with 95 % (FALSE_ALARMS).
    """
    mine, theirs = (_launches(trials, name, sizes) for name in (mode, other))
    if not mine:
        return None
    own, ratio, chance, verdict = _mean_time(mine), None, None, ""
    if theirs and mode != other:
        others = _mean_time(theirs)
        (least, most), (low, high) = own.ends, others.ends
        ratio = Estimate(own.value / others.value, least / high, most / low)
        chance = chance_of(len(mine), len(theirs))
        verdict = decide(Estimate(ratio.value), 0.05)
        is_apart = least > high or most < low
        if chance * COMPARISONS > FALSE_ALARMS or not is_apart or verdict not in CHANGED:
            verdict = UNDECIDED

    def largest(name: str) -> float | None:
        """Of the sizes, the largest median of the launches."""
        columns = ([getattr(point, name) for point in column] for column in zip(*mine, strict=True))
        known = (sorted(v for v in column if v is not None) for column in columns)
        return max((median(values) for values in known if values), default=None)

    busbw = largest("busbw_bytes_per_s") if len(sizes) == 1 else None
    shares = largest("stalled_share"), largest("queued_share")
    return ModeEffect(mode, sizes, own, len(mine), ratio, verdict, chance, busbw, *shares)


def _launches(trials: Sequence[Trial], mode: str, sizes: tuple[int, ...]) -> list[list[SizeResult]]:
    """The points of these sizes, for each launch of a mode that has all of them."""
    own = [
        [point for point in trial.points if point.size_bytes in sizes and point.time_s > 0]
        for trial in trials
        if trial.mode == mode
    ]
    return [points for points in own if len(points) == len(sizes)]


def _mean_time(launches: Sequence[Sequence[SizeResult]]) -> Estimate:
    """The median of the launches and their extremes, of the geometric mean over sizes."""
    return median_range(geometric_mean(point.time_s for point in own) for own in launches)
