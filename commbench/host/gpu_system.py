"""What a host offers to communication between GPUs: their links, network adapters (HCAs), and the
settings of the kernel that decide whether data takes a short way. And counters of faults of links
and GPUs, from the kernel and NVML: what rose during a run may have cost it time. No root needed."""

from __future__ import annotations

import re
import resource
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from commbench.host import procfs
from commbench.host.gpus import MOST_NVLINKS, SWITCH, Gpu, NvmlGpu, call, load, read_gpus

MOMENTARY = (
    "near_cores", "link_speed", "ecc_errors", "clock_mhz", "temperature_c", "throttle_reasons",
    "nvlink_peers",
)  # fmt: skip
"""Fields of a Gpu that are not recorded with a run: they change, or depend on the process."""
ACS_CAPABILITY = 0x000D
ACS_REDIRECTS = 0x000C
"""Bits of the ACS control register: redirect requests, and completions, to the root complex."""
BRIDGE_CLASS = "0x0604"


class Hca(NamedTuple):
    """A port of a network adapter that can do RDMA."""

    name: str
    """Such as `mlx5_0:1`, as NCCL_IB_HCA takes it."""
    address: str
    rate: str = ""
    """Such as `400 Gb/sec (4X NDR)`."""
    state: str = ""
    """Such as `ACTIVE`."""
    link_layer: str = ""
    """`InfiniBand` or `Ethernet`."""
    numa_node: int | None = None


class GpuSystem(NamedTuple):
    """The host around its GPUs; None is unknown."""

    driver: str | None = None
    """The version of NVIDIA's driver."""
    links: tuple[str, ...] = ()
    """The link matrix: for each GPU a line with its link to each GPU and HCA, as `nvidia-smi topo
    -m` names them; see link_name."""
    hcas: tuple[Hca, ...] = ()
    gpudirect: bool | None = None
    """Whether an HCA can read and write the memory of NVIDIA's GPUs: by the module nvidia_peermem,
    or by dma-buf, which the driver's open kernel modules have."""
    redirecting_bridges: int | None = None
    """PCIe bridges whose access control (ACS) sends data between devices through the processor."""
    shm_bytes: int | None = None
    """Size of /dev/shm."""
    memlock_bytes: int | None = None
    """Memory that this process may lock; None: no limit."""


def read_gpu_system(gpus: Sequence[Gpu], host: Path = procfs.HOST) -> GpuSystem:
    """What is known of the host around these GPUs."""
    hcas = read_hcas(host)
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return GpuSystem(
        driver=_read_driver(host),
        links=tuple(make_link_matrix(gpus, hcas, host)),
        hcas=hcas,
        gpudirect=_read_gpudirect(host) if any("NVIDIA" in gpu.name for gpu in gpus) else None,
        redirecting_bridges=count_redirecting_bridges(host),
        shm_bytes=shutil.disk_usage(shm).total if (shm := host / "dev/shm").exists() else None,
        memlock_bytes=None if limit == resource.RLIM_INFINITY else limit,
    )


def read_hcas(host: Path = procfs.HOST) -> tuple[Hca, ...]:
    """The ports of the adapters in /sys/class/infiniband, by name."""
    return tuple(map(_read_hca, sorted((host / "sys/class/infiniband").glob("*/ports/*"))))


def _read_hca(port: Path) -> Hca:
    adapter = port.parents[1]
    node = procfs.read_number(adapter / "device/numa_node")
    return Hca(
        name=f"{adapter.name}:{port.name}",
        address=(adapter / "device").resolve().name,
        rate=procfs.read_text(port / "rate") or "",
        state=(procfs.read_text(port / "state") or "").partition(":")[2].strip(),
        link_layer=procfs.read_text(port / "link_layer") or "",
        numa_node=node if node is not None and node >= 0 else None,
    )


def make_link_matrix(gpus: Sequence[Gpu], hcas: Sequence[Hca], host: Path) -> Iterator[str]:
    """For each GPU `ADDRESS: LINK LINK ...`: to each GPU in turn, then to each HCA."""
    if len(gpus) + len(hcas) < 2:
        return
    for gpu in gpus:
        links = [link_name(gpu, other, host) for other in gpus]
        links += [pci_link(gpu, hca, host) for hca in hcas]
        yield f"{gpu.address}: {' '.join(links)}"


def link_name(gpu: Gpu, other: Gpu, host: Path = procfs.HOST) -> str:
    """The link between two GPUs: `X` to itself, `NV` and the number of NVLinks, also through
    switches; otherwise that of pci_link."""
    if gpu.address == other.address:
        return "X"
    through = min(peers.nvlink_peers.count(SWITCH) for peers in (gpu, other))
    if number := gpu.nvlink_peers.count(other.address) + through:
        return f"NV{number}"
    return pci_link(gpu, other, host)


def pci_link(gpu: Gpu, other: Gpu | Hca, host: Path = procfs.HOST) -> str:
    """The way between two devices, in the words of `nvidia-smi topo -m`: PIX (one PCIe switch), PXB
    (several), PHB (the host bridge), NODE (host bridges of one NUMA node), SYS (between NUMA
    nodes); `?` where the kernel does not show it."""
    paths = [_pci_path(device.address, host) for device in (gpu, other)]
    if not all(paths):
        return "?"
    shared = [a for a, b in zip(*paths, strict=False) if a == b]  # a tree: only the first can be
    if not shared:
        return "NODE" if gpu.numa_node is not None and gpu.numa_node == other.numa_node else "SYS"
    if len(shared) == 1:
        return "PHB"
    return "PIX" if all(len(path) - len(shared) <= 2 for path in paths) else "PXB"


def _pci_path(address: str, host: Path) -> list[str]:
    """The root complex, the bridges and the device itself: `pci0000:00`, `0000:00:01.0`, ..."""
    parts = (host / "sys/bus/pci/devices" / address).resolve().parts
    roots = [i for i, part in enumerate(parts) if re.fullmatch(r"pci[0-9a-f]{4}:[0-9a-f]{2}", part)]
    return list(parts[roots[0] :]) if roots else []


def count_redirecting_bridges(host: Path = procfs.HOST) -> int | None:
    """PCIe bridges with ACS redirects; None where this user may not read their configuration."""
    known = []
    for device in (host / "sys/bus/pci/devices").glob("*"):
        if (procfs.read_text(device / "class") or "").startswith(BRIDGE_CLASS):
            with suppress(OSError):
                known.append(acs_control((device / "config").read_bytes()))
    redirects = [bool(control & ACS_REDIRECTS) for control in known if control is not None]
    return sum(redirects) if redirects else None


def acs_control(config: bytes) -> int | None:
    """The ACS control register in the configuration space of a PCIe device, 0 where it has none;
    None where only the first part can be read, as by a user without privilege (PCI Express Base
    Specification 7.7.8: capability 0x000d, the control register 6 bytes into it)."""
    if len(config) < 0x104:
        return None
    offset, seen = 0x100, set()
    while offset and offset not in seen and offset + 8 <= len(config):
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == ACS_CAPABILITY:
            return int.from_bytes(config[offset + 6 : offset + 8], "little")
        offset = header >> 20
    return 0


def _read_driver(host: Path) -> str | None:
    """The version of NVIDIA's driver as the kernel shows it, else as NVML knows it of this host."""
    text = procfs.read_text(host / "proc/driver/nvidia/version") or ""
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    if not found and host == procfs.HOST and (nvml := load()):
        return call(nvml, "nvmlSystemGetDriverVersion")  # type: ignore[no-any-return]
    return found[1] if found else None


def _read_gpudirect(host: Path) -> bool:
    if any((host / "sys/module" / name).exists() for name in ("nvidia_peermem", "nv_peer_mem")):
        return True
    return "Open Kernel Module" in (procfs.read_text(host / "proc/driver/nvidia/version") or "")


@lru_cache(maxsize=2)
def gpu_facts(host: Path = procfs.HOST) -> dict[str, Any]:
    """What is recorded of the GPUs and HCAs of this host with a run: `gpu_driver`, `gpus`,
    `gpu_links` and `hcas`; without those that there are none of. Read once: it does not change."""
    gpus, hcas = read_gpus((), host), read_hcas(host)
    known = {
        "gpu_driver": _read_driver(host),
        "gpus": [_known(gpu._asdict()) for gpu in gpus],
        "gpu_links": list(make_link_matrix(gpus, hcas, host)),
        "hcas": [_known(hca._asdict()) for hca in hcas],
    }
    return {name: value for name, value in known.items() if value}


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record that are known and last, with lists for tuples, as JSON has them."""
    kept = {n: v for n, v in fields.items() if n not in MOMENTARY and v not in (None, "", ())}
    return {n: list(v) if isinstance(v, tuple) else v for n, v in kept.items()}


GPU_FACTS = ("gpu_driver", "gpus", "gpu_links", "hcas")
"""The names of what gpu_facts records."""
IDENTITIES = ("address", "uuid", "name", "unreachable", "numa_node")
UNITS = {"_w": " W", "_mhz": " MHz"}


def describe_gpu_facts(facts: dict[str, Any]) -> dict[str, str]:
    """What gpu_facts recorded as texts of a line, equal GPUs together and without what identifies
    one; whatever has another form, as damaged files may, is shown as it is."""
    texts = {"gpu_driver": str(facts.get("gpu_driver") or "")}
    lists = {name: found for name, found in facts.items() if isinstance(found, list)}
    for name in ("gpus", "hcas"):
        described = Counter(map(_describe, lists.get(name, [])))
        texts[name] = "; ".join(f"{n} x {text}" if n > 1 else text for text, n in described.items())
    lines = [str(line).partition(": ")[2] for line in lists.get("gpu_links", [])]
    kinds = Counter(word for line in lines for word in line.split() if word != "X")
    if len(lines) == 1 or len(kinds) > 1:
        texts["gpu_links"] = "; ".join(lines)
    else:
        texts["gpu_links"] = f"{next(iter(kinds))} between all" if kinds else ""
    return {name: text for name, text in texts.items() if text}


def _describe(item: Any) -> str:
    """A GPU or an HCA in a few words."""
    if not isinstance(item, dict):
        return str(item)
    words = [str(item.get("name", ""))]
    for name, value in item.items():
        if name not in IDENTITIES:
            end, unit = next(((e, u) for e, u in UNITS.items() if name.endswith(e)), ("", ""))
            text = f"{value:g}" if isinstance(value, float) else str(value)
            text = ("on" if value else "off") if isinstance(value, bool) else text
            words.append(f"{name.removesuffix(end).replace('_', ' ')} {text}{unit}")
    return ", ".join(words)


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
    return next((counter.meaning for counter in COUNTERS if counter.name in key.split()), "")


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
