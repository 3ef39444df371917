"""Measures the link from each host to the next. In a collective all hosts are as slow as the
slowest link; a probe of each link shows which one that is."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from commbench.results.schema import LinkProbe
from commbench.worker.communicator import Communicator

PROBE_BYTES = 4 << 20
REPEATS = 4


def probe_links(comm: Communicator, leaders: tuple[int, ...]) -> tuple[LinkProbe, ...]:
    """Each leader sends PROBE_BYTES to the next one and waits for a byte in answer: first every
    second leader, so that no link is used twice at once, then the others. On rank 0; empty
    elsewhere.

    `leaders` holds one rank of each host, the same on every rank. Only for CPUs: with NCCL each
    pair would need a communicator of its own.
    """
    if len(leaders) < 2 or comm.device.is_async:
        return ()
    pairs = list(zip(leaders, leaders[1:] + leaders[:1], strict=True))
    own: list[tuple[int, int, float]] = []
    for disjoint in _disjoint_pairs(pairs):
        dist.barrier(group=comm.group)
        for sender, receiver in disjoint:
            if comm.rank == sender:
                own.append((sender, receiver, _send(comm, comm.global_ranks[receiver])))
            elif comm.rank == receiver:
                _answer(comm, comm.global_ranks[sender])
    found = torch.tensor(own[0] if own else (-1, -1, 0.0), dtype=torch.float64)
    return tuple(
        LinkProbe(int(part[0]), int(part[1]), PROBE_BYTES, round(float(part[2]), 9))
        for part in comm.gather(found)
        if part[0] >= 0
    )


def _disjoint_pairs(pairs: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], ...]:
    """Pairs in groups of which no two share a rank; the last of an odd number is a group of its
    own."""
    if len(pairs) % 2:
        return pairs[:-1:2], pairs[1::2], pairs[-1:]
    return pairs[::2], pairs[1::2]


def _send(comm: Communicator, receiver: int) -> float:
    """Seconds of the fastest of REPEATS transfers, after one that may make connections."""
    data, answer = torch.ones(PROBE_BYTES, dtype=torch.uint8), torch.empty(1, dtype=torch.uint8)
    seconds = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        dist.send(data, receiver, group=comm.group)
        dist.recv(answer, receiver, group=comm.group)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def _answer(comm: Communicator, sender: int) -> None:
    data, answer = torch.empty(PROBE_BYTES, dtype=torch.uint8), torch.ones(1, dtype=torch.uint8)
    for _ in range(REPEATS + 1):
        dist.recv(data, sender, group=comm.group)
        dist.send(answer, sender, group=comm.group)
