"""Finds out whether ranks have the same GPU, and lets NCCL accept that."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from commbench.worker.context import RankContext

if TYPE_CHECKING:
    from commbench.worker.communicator import Communicator

MULTI_RANK_NCCL = (2, 30)
"""The first NCCL that can put several ranks on one GPU."""


def find_shared_gpus(comm: Communicator) -> tuple[bool, bool]:
    """Whether two ranks have the same device of the same boot of a host, and whether NCCL refuses
    them for that: to it a part of a GPU (MIG) is its GPU (nccl#1716). The same on every rank.

    How many devices a rank sees says nothing about that: many launchers show each rank its own.
    """
    device = comm.device
    if not device.is_async:
        return False, False

    def decide(all_: list[list[str]]) -> list[bool]:
        # RCCL tells the partitions of AMD's GPUs from each other.
        to_nccl = [[*gpu, "" if part.startswith("MIG-") else part] for *gpu, part in all_]
        return [len(set(map(tuple, keys))) < len(keys) for keys in (all_, to_nccl)]

    shared, refused = comm.agree(device.identity, decide)
    return shared, refused


def nccl_version() -> tuple[int, ...]:
    """The version of NCCL; () in a torch without it."""
    return tuple(torch.cuda.nccl.version()) if dist.is_nccl_available() else ()


def share_gpus(rank_context: RankContext, version: tuple[int, ...]) -> bool:
    """Let NCCL put several ranks on one GPU, which it refuses to ranks of one host; whether that
    takes a detour. Takes effect before the first operation.

    NCCL from 2.30 on can do it. To an older one each rank becomes a host, by a name of its own, and
    talks over sockets: functional, and no measure of performance.
    """
    if version >= MULTI_RANK_NCCL:
        os.environ.setdefault("NCCL_MULTI_RANK_GPU_ENABLE", "1")
        return False
    os.environ["NCCL_HOSTID"] = f"commbench-rank{rank_context.rank}"
    for name, value in (("P2P_DISABLE", "1"), ("SHM_DISABLE", "1"), ("NET", "Socket")):
        os.environ.setdefault(f"NCCL_{name}", value)
    if rank_context.is_single_node:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    return True
