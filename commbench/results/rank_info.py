"""Records of a journal: where the ranks ran, and how long they took to join."""

from __future__ import annotations

from typing import NamedTuple


class RankInfo(NamedTuple):
    """One rank: where it ran."""

    rank: int
    host: str
    pid: int
    device: str
    """Such as `cpu` or `cuda:0 NVIDIA H200`."""
    cores: tuple[int, ...] = ()
    """Cores it was allowed to run on while measuring."""
    cpu_mode: str = ""
    local_rank: int = 0
    """Its number on its host."""
    interface: str = ""
    """The network interface that it uses, where it could be found out; see worker.introduction."""
    address: str = ""
    """The address of that interface."""
    device_uuid: str = ""
    """Identifies the GPU; empty on a CPU."""
    pci_bus_id: str = ""
    """Of the GPU, such as `0000:1b:00.0`."""
    numa_node: int | None = None
    """Of the GPU; None where it is unknown, or the host has only one."""
    near_cores: int | None = None
    """How many of `cores` are on that node."""


class LinkProbe(NamedTuple):
    """One timed transfer from a host's first rank to the next host's, with a byte in return."""

    sender: int
    receiver: int
    size_bytes: int
    seconds: float


class StartUp(NamedTuple):
    """How long the ranks needed until they could communicate, in seconds."""

    init_s: float
    """init_process_group, on the slowest rank. It contains waiting for the rank that came last."""
    init_fastest_s: float
    """init_process_group, on the fastest rank: about the time after the last rank came."""
    groups_s: float
    """The groups of --mesh or --groups, all together; the slowest rank."""
    connect_s: float
    """The first operation of the group of all ranks, and on GPUs of each group; the slowest
    rank."""
    rendezvous_s: float | None = None
    """The part of init_process_group in which a rank opens the store where the ranks meet, on the
    slowest rank. This and the next one are None in runs of commbench before 0.3."""
    agreement_s: float | None = None
    """From then on until the first case: the ranks compare their plans, try each operation, take
    memory and measure the links between hosts; on the fastest rank, which came last."""
