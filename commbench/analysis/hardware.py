"""What hardware a run used, by its header: accelerators, links, networks, cores, and NCCL's
algorithm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import TypeVar

from commbench.analysis.rows import ResultRow
from commbench.plan.links import Fabric, Nics, Peak, unique_gpu
from commbench.results.schema import RunHeader
from commbench.units import GB, format_count

T = TypeVar("T")
_HCA_RATE = re.compile(r"(\d{1,5}) Gb/sec", re.ASCII)
_SPEED = re.compile(r"(\d{1,7}) Mbit/s", re.ASCII)
_NVLINK = re.compile(r"NV\d+", re.ASCII)
_LAYERS = ("InfiniBand", "Ethernet")
RING, TREE, NVLS, NVLS_TREE = "ring", "tree", "nvls", "nvlstree"
ALGORITHMS = (RING, TREE, NVLS, NVLS_TREE)
"""Algorithms of NCCL that can be asked about."""
_ALGORITHMS = {"NVLS_TREE": NVLS_TREE} | {name.upper(): name for name in ALGORITHMS}


def fabric_of(header: RunHeader) -> Fabric | None:
    """What connected the ranks of a run, by its header; None where nothing is known of it."""
    if header.gpu_shared:
        return None
    gpu = unique_gpu(header.devices) if header.plan.device != "cpu" else None
    link = gpu.link if gpu else None
    if gpu and _has_no_nvlink(header):
        link = gpu.slot
    nics = _nics_of(header)
    return Fabric(gpu, link, nics) if gpu or nics else None


def _has_no_nvlink(header: RunHeader) -> bool:
    """Whether the link matrix or a variable says that NVLink was not used."""
    if _recorded(header, "variables", dict).get("NCCL_P2P_DISABLE") == "1":
        return True
    lines = _recorded(header, "gpu_links", list)
    rows = [str(line).partition(": ")[2].split() for line in lines]
    between = [word for row in rows for word in row[: len(rows)] if word != "X"]
    return bool(between) and not any(_NVLINK.fullmatch(word) or word == "?" for word in between)


def _nics_of(header: RunHeader) -> Nics | None:
    """The network of a node: the ports of its adapters (HCAs) that are up, or, for gloo, the
    network interface of its ranks. None on one node, and where a rate is not known."""
    if header.num_nodes < 2:
        return None
    if header.plan.device == "cpu":
        return _interface_of(header)
    hcas = _recorded(header, "hcas", list)
    ports = [port for port in hcas if isinstance(port, dict)]
    ports = [port for port in ports if str(port.get("state") or "ACTIVE") == "ACTIVE"]
    rates = [_HCA_RATE.match(str(port.get("rate"))) for port in ports]
    is_known = all(rate and int(rate[1]) for rate in rates)
    if not (ports and is_known and all(port.get("link_layer") in _LAYERS for port in ports)):
        return None
    speeds = sorted(int(rate[1]) for rate in rates if rate)
    fastest = speeds.count(speeds[-1])
    same = f"{fastest} x {speeds[-1]} Gbit/s"
    others = len(speeds) - fastest
    name = f"{same} and {others} slower" if others else same
    reduces = any(port.get("link_layer") == "InfiniBand" for port in ports)
    source = "the adapters that the run recorded"
    return Nics(name, sum(speeds) * GB / 8, len(speeds), can_reduce=reduces, source=source)


def _interface_of(header: RunHeader) -> Nics | None:
    """The one interface that all ranks used, if the speed of it was recorded."""
    speeds = _recorded(header, "interface_speeds", dict)
    names = {rank.interface for rank in header.ranks}
    if len(names) != 1:
        return None
    speed = _SPEED.fullmatch(str(speeds.get(name := names.pop())))
    if not speed or not int(speed[1]):
        return None
    rate = int(speed[1]) * GB / 8e3
    return Nics(f"{name}, {speed[0]}", rate, 1, can_reduce=False, source=f"Linux, {name}/speed")


def _recorded(header: RunHeader, name: str, kind: type[T]) -> T:
    """What the header has of that name; empty where that is of another kind."""
    found = header.environment.get(name)
    found = list(found) if isinstance(found, tuple) else found
    return found if isinstance(found, kind) else kind()


def peak_remark(header: RunHeader, peak: Peak) -> str:
    """That a peak is faster than the links of the run, with the likely mistake; empty otherwise."""
    fabric = fabric_of(header) or Fabric()
    link, nics = fabric.link, fabric.nics
    known = [(link.what, link.bytes_per_second)] if link else []
    if peak.is_per_node:
        known = [(nics.name, nics.bytes_per_second)] if nics else []
    for what, speed in known:
        times = peak.bytes_per_second / speed
        if times >= 1.01:
            mistakes = {2: "both directions together", 8: "Gbit/s taken for GB/s"}
            near = [text for ratio, text in mistakes.items() if abs(times / ratio - 1) < 0.02]
            likely = "".join(f"; the peak is {text}" for text in near)
            used = f"the run used {what}, {speed / GB:g} GB/s one way"
            return f"This peak is impossible: {used}{likely}."
    return ""


def algorithm_of(row: ResultRow) -> str | None:
    """The algorithm of NCCL by its log, or where a variable allows only one; None if unknown."""
    asked = str(_recorded(row.header, "variables", dict).get("NCCL_ALGO", ""))
    return _ALGORITHMS.get((row.nccl_selection[0] or asked).strip().upper())


def find_crowd(headers: Sequence[RunHeader], threads: int = 1) -> str:
    """`4 ranks share 2 cores`, of the run and host with the most ranks, or `threads` of each, for
    its cores; empty where none on CPUs share cores."""
    cores: dict[tuple[int, str], list[tuple[int, ...]]] = {}
    for number, header in enumerate(headers):
        for rank in header.ranks if header.plan.device == "cpu" else ():
            cores.setdefault((number, rank.host), []).append(rank.cores)
    pairs = [(threads * len(own), len({*chain(*own)})) for own in cores.values() if all(own)]
    most, number = max(pairs, key=lambda pair: pair[0] / pair[1], default=(0, 0))
    what = "ranks" if threads == 1 else "threads"
    return f"{most} {what} share {format_count(number, 'core')}" if most > number else ""
