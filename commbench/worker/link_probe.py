"""How fast is each host's way to the next? Where hosts take part together, all of them are as slow
as the slowest link; one probe at a time tells which that is."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from commbench.results.schema import LinkProbe
from commbench.worker.communicator import Communicator

HOP_BYTES = 4 << 20
REPEATS = 4


def probe_links(comm: Communicator, leaders: tuple[int, ...]) -> tuple[LinkProbe, ...]:
    """Each leader sends HOP_BYTES to the next and waits for a byte in answer: first every other
    one, so that no two use a link the same way at once, then the rest. On rank 0; empty elsewhere.

    `leaders` holds one rank of each host, the same on every rank. Only for devices of the host:
    with NCCL each pair would need a communicator of its own.
    """
    if len(leaders) < 2 or comm.device.type != "cpu":
        return ()
    pairs = list(zip(leaders, leaders[1:] + leaders[:1], strict=True))
    mine: list[tuple[int, int, float]] = []
    for turn in _turns(pairs):
        dist.barrier(group=comm.group)
        for sender, receiver in turn:
            if comm.rank == sender:
                mine.append((sender, receiver, _send(comm, comm.global_ranks[receiver])))
            elif comm.rank == receiver:
                _answer(comm, comm.global_ranks[sender])
    found = torch.tensor(mine[0] if mine else (-1, -1, 0.0), dtype=torch.float64)
    return tuple(
        LinkProbe(int(part[0]), int(part[1]), HOP_BYTES, round(float(part[2]), 9))
        for part in comm.gather(found)
        if part[0] >= 0
    )


def _turns(pairs: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], ...]:
    """Pairs that do not meet each other; the last of an odd number takes a turn of its own."""
    if len(pairs) % 2:
        return pairs[:-1:2], pairs[1::2], pairs[-1:]
    return pairs[::2], pairs[1::2]


def _send(comm: Communicator, receiver: int) -> float:
    """Seconds of the fastest of a few transfers; the first, which may make connections, is left
    out."""
    data, answer = torch.ones(HOP_BYTES, dtype=torch.uint8), torch.empty(1, dtype=torch.uint8)
    taken = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        dist.send(data, receiver, group=comm.group)
        dist.recv(answer, receiver, group=comm.group)
        taken.append(time.perf_counter() - began)
    return min(taken[1:])


def _answer(comm: Communicator, sender: int) -> None:
    data, answer = torch.empty(HOP_BYTES, dtype=torch.uint8), torch.ones(1, dtype=torch.uint8)
    for _ in range(REPEATS + 1):
        dist.recv(data, sender, group=comm.group)
        dist.send(answer, sender, group=comm.group)
