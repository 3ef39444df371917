"""Counters of faults of links and GPUs, from the kernel and NVML: what rose during a run may have
cost it time. None of them needs root."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from commbench.host import procfs
from commbench.host.gpus import MOST_NVLINKS, NvmlGpu

PORT, NVLINK, GPU, EVENT = "port", "NVLink", "GPU", "event"
LARGEST_RISE = 1 << 50
MOST_RISEN = 40
"""Counters of one rank that are recorded: those that rose most."""


class FaultCounter(NamedTuple):
    """A number that rises when something goes wrong."""

    name: str
    """Of a port as the kernel calls it."""
    source: str
    """PORT: a file in /sys/class/infiniband/*/ports/*/counters or hw_counters. NVLINK, GPU: what
    NVML returns of each link of a GPU, and of a GPU. EVENT: what NVML reports of a GPU."""
    meaning: str
    """What an increase means and where to look, in a few words."""
    query: tuple[Any, ...] = ()
    """The function of NVML, and what it takes after the GPU and the link."""


_LINK_ERRORS = "nvmlDeviceGetNvLinkErrorCounter"
COUNTERS = (
    FaultCounter("symbol_error", PORT, "bits arrived wrong: check the cable"),
    FaultCounter("link_error_recovery", PORT, "the link trained anew: check the cable"),
    FaultCounter("link_downed", PORT, "the link went down: check the cable"),
    FaultCounter("port_rcv_errors", PORT, "packets arrived damaged: check the cable"),
    FaultCounter("port_rcv_remote_physical_errors", PORT, "another link damages packets"),
    FaultCounter("port_xmit_discards", PORT, "packets were dropped: look for congestion"),
    FaultCounter("local_link_integrity_errors", PORT, "bits arrived wrong: check the cable"),
    FaultCounter("excessive_buffer_overrun_errors", PORT, "buffers ran over: check flow control"),
    FaultCounter("out_of_sequence", PORT, "packets were lost or overtaken"),
    FaultCounter("packet_seq_err", PORT, "packets were lost: check flow control"),
    FaultCounter("local_ack_timeout_err", PORT, "a peer did not answer: check the way to it"),
    FaultCounter("rnr_nak_retry_err", PORT, "a receiver was not ready: look at its host"),
    FaultCounter("implied_nak_seq_err", PORT, "answers were lost: check flow control"),
    FaultCounter("rx_icrc_encapsulated", PORT, "packets arrived damaged: check the cables"),
    FaultCounter("roce_adp_retrans", PORT, "packets were sent again: look for congestion"),
    FaultCounter("retrans_pkts", PORT, "packets were sent again: look for congestion"),
    FaultCounter("nvlink_replay", NVLINK, "data were sent again: check it", (_LINK_ERRORS, 0)),
    FaultCounter("nvlink_recovery", NVLINK, "the link trained anew: check it", (_LINK_ERRORS, 1)),
    FaultCounter("nvlink_crc_flit", NVLINK, "data arrived damaged: check it", (_LINK_ERRORS, 2)),
    FaultCounter("nvlink_crc_data", NVLINK, "data arrived damaged: check it", (_LINK_ERRORS, 3)),
    FaultCounter(
        "pcie_replay", GPU, "data were sent again: check the slot",
        ("nvmlDeviceGetPcieReplayCounter",),
    ),
    FaultCounter(
        "ecc_uncorrected", GPU, "memory was damaged: reset or replace the GPU",
        ("nvmlDeviceGetTotalEccErrors", 1, 0),
    ),
    FaultCounter("xid", EVENT, "the driver reported a fault: look up the Xid"),
)  # fmt: skip
"""The numbers are nvmlNvLinkErrorCounter_t, NVML_MEMORY_ERROR_TYPE_UNCORRECTED and
NVML_VOLATILE_ECC of nvml.h."""


def explain_counter(key: str) -> str:
    """The meaning of a counter, given as FaultWatch names it; empty for an unknown one."""
    words = key.split()
    return next((counter.meaning for counter in COUNTERS if counter.name in words), "")


class FaultWatch:
    """Counts what goes wrong from now on at a GPU, and if asked at all network ports of a host."""

    def __init__(
        self, gpu: NvmlGpu | None, address: str, has_ports: bool, host: Path = procfs.HOST
    ) -> None:
        self._gpu, self._address, self._has_ports, self._host = gpu, address, has_ports, host
        self._before = self._read()
        self._take_xids = gpu.watch_xids() if gpu else None

    def read_risen(self) -> dict[str, int] | None:
        """By how much each counter rose, by its place and name; without those that did not, or were
        set back. None where there is none to read."""
        after = self._read()
        if not after and not self._take_xids:
            return None
        rises = {key: value - self._before.get(key, value) for key, value in after.items()}
        for xid in self._take_xids() if self._take_xids else ():
            key = f"{self._address} xid {xid}"
            rises[key] = rises.get(key, 0) + 1
        most = sorted(rises.items(), key=lambda rise: -rise[1])[:MOST_RISEN]
        return {key: rise for key, rise in most if 0 < rise <= LARGEST_RISE}

    def _read(self) -> dict[str, int]:
        found = read_port_counters(self._host) if self._has_ports else {}
        return found | (read_gpu_counters(self._gpu, self._address) if self._gpu else {})


def read_port_counters(host: Path = procfs.HOST) -> dict[str, int]:
    """The counters of the ports of all adapters for RDMA, such as `mlx5_0:1 symbol_error`."""
    found: dict[str, int] = {}
    for port in sorted((host / "sys/class/infiniband").glob("*/ports/*")):
        place = f"{port.parents[1].name}:{port.name}"
        for counter in COUNTERS:
            if counter.source == PORT:
                files = (port / folder / counter.name for folder in ("counters", "hw_counters"))
                known = [value for value in map(procfs.read_number, files) if value is not None]
                found |= {f"{place} {counter.name}": value for value in known}
    return found


def read_gpu_counters(gpu: NvmlGpu, address: str) -> dict[str, int]:
    """The counters of a GPU and of its NVLinks, such as `0000:1b:00.0 link 3 nvlink_replay`."""
    found: dict[str, int | None] = {}
    for name, source, _, query in COUNTERS:
        if source == GPU:
            found[f"{address} {name}"] = gpu.ask(*query)
        elif source == NVLINK:
            for link in range(MOST_NVLINKS):
                found[f"{address} link {link} {name}"] = gpu.ask(query[0], link, *query[1:])
    return {key: value for key, value in found.items() if value is not None}
