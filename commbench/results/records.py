"""Records of a journal: where the ranks ran, how long they took to join; wrong elements, the checks
of a soak, and what a launch found out about the numbers of a case."""

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


class WrongElement(NamedTuple):
    """The first element of a rank's result that is not the expected one."""

    rank: int
    element: int
    """Element index in the rank's receive buffer."""
    expected: str
    got: str
    """Values as text, because JSON has no number for NaN, nor for every int64."""


class Check(NamedTuple):
    """Some calls of a case that were checked in a soak, one after another, each with new data."""

    case: int
    """The index of the case."""
    cycle: int
    """As that of a batch; 0 before the first cycle."""
    start_s: float
    """As of a batch."""
    elapsed_s: float
    """How long it took, with filling and comparing."""
    calls: int
    """How many calls were checked."""
    wrong_ranks: tuple[int, ...] = ()
    """The ranks that had wrong elements, in ascending order."""
    wrong_elements: tuple[int, ...] = ()
    """How many elements were wrong on each of them."""
    first_wrong: WrongElement | None = None
    first_call: int = 0
    """Which of the case's checked calls the first wrong element is of, from 1."""


class Numerics(NamedTuple):
    """The result of a sum, compared with the exact sum of the same data in FP64."""

    data: str
    """The name of a kind of data (plan.dtypes)."""
    seed: int
    elements: int
    """How many were compared, over all ranks; 0 where a call of the user's own has another result,
    so that there are no errors."""
    not_finite: int
    """How many of them were infinite or NaN; the errors are those of the others."""
    max_abs_error: float
    rms_relative_error: float
    """The root mean square of the errors over that of the exact elements."""
    max_ulp: float
    """The largest error in units in the last place of the exact element, of the element type."""
    sqnr_db: float | None
    """Signal to quantisation noise: -20 log10 of the RMS relative error; None for no error."""
    bias: float
    """The mean error over the root mean square of the exact elements."""
    same_on_ranks: bool | None
    """Whether all ranks have the same bits; None where they have other elements."""
    repeats: bool
    """Whether each of CALLS calls of the same data gave the same bits (worker.numerics)."""
    sample: str = ""
    """The bits of up to 1,024 elements of the lowest rank that has a result, base64."""
    codec_s: tuple[float, ...] = ()
    """Of a compressed form: seconds until all ranks have encoded, added and decoded, without
    communication, each time it was measured."""
