"""What to expect of the rows of a run, where its header says what hardware it used.

Bounds are checked for every row whose ranks and nodes are known. What others measured is compared
only with plain calls of all ranks: others measured no other ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from commbench.analysis.rows import ResultRow
from commbench.expect.expectation import (
    IMPOSSIBLE,
    NVLS,
    NVLS_TREE,
    RING,
    TREE,
    UNKNOWN,
    Call,
    Expectation,
    Judgement,
    expect,
    judge,
)
from commbench.results.schema import RunHeader
from commbench.spec.case import Case
from commbench.spec.fabrics import Fabric, Nics, unique_gpu
from commbench.spec.links import Peak
from commbench.spec.operations import OPERATIONS
from commbench.units import GB

_HCA_RATE = re.compile(r"(\d{1,5}) Gb/sec", re.ASCII)
_SPEED = re.compile(r"(\d{1,7}) Mbit/s", re.ASCII)
_NVLINK = re.compile(r"NV\d+", re.ASCII)
_LAYERS = ("InfiniBand", "Ethernet")
_ALGORITHMS = {
    "NVLS_TREE": NVLS_TREE,
    "NVLSTREE": NVLS_TREE,
    "NVLS": NVLS,
    "RING": RING,
    "TREE": TREE,
}


class RowJudgement(NamedTuple):
    """A row of a run, judged."""

    row: ResultRow
    judgement: Judgement


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
    if _variables(header).get("NCCL_P2P_DISABLE") == "1":
        return True
    lines = _as_list(header.environment.get("gpu_links"))
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
    hcas = _as_list(header.environment.get("hcas"))
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
    speeds = header.environment.get("interface_speeds")
    names = {rank.interface for rank in header.ranks}
    if not isinstance(speeds, dict) or len(names) != 1:
        return None
    speed = _SPEED.fullmatch(str(speeds.get(name := names.pop())))
    if not speed or not int(speed[1]):
        return None
    rate = int(speed[1]) * GB / 8e3
    return Nics(f"{name}, {speed[0]}", rate, 1, can_reduce=False, source=f"Linux, {name}/speed")


def _variables(header: RunHeader) -> dict[str, Any]:
    found = header.environment.get("variables")
    return found if isinstance(found, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


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
    asked = str(_variables(row.header).get("NCCL_ALGO", ""))
    return _ALGORITHMS.get((row.nccl_selection[0] or asked).strip().upper())


def make_call(
    case: Case, fabric: Fabric, nodes: int, algorithm: str | None = None, nccl: str | None = None
) -> Call | None:
    """The call of a case; None where the ranks or nodes that took part are not known."""
    operation = OPERATIONS[case.operation]
    is_known = case.ranks >= 2 and 1 <= nodes <= case.ranks
    if case.group or operation.block_counts or not operation.busbw_factor or not is_known:
        return None
    return Call(fabric, case.operation, case.ranks, nodes, case.size_bytes, algorithm, nccl)


def is_plain_case(case: Case) -> bool:
    """Whether a case is a call as others measure it: alone, direct and of all ranks."""
    return not (case.part or case.group) and case.call_form.is_reference


def judge_row(row: ResultRow, fabric: Fabric | None = None) -> Judgement | None:
    """Whether a row's bus bandwidth is plausible; None where nothing is known.

    `fabric` is by default that of the run. A row that is not plain is only called impossible.
    """
    case, header = row.measurement.case, row.header
    fabric = fabric or fabric_of(header)
    nccl = str(header.environment.get("nccl") or "") or None
    call = fabric and make_call(case, fabric, header.num_nodes, algorithm_of(row), nccl)
    if call is None or row.busbw is None:
        return None
    found = expect(call)
    if found.bound is None and found.low_bytes_per_s is None:
        return None
    if not is_plain_case(case):
        found = Expectation(call, found.bound, (), None, None)
    return judge(found, row.busbw)


def choose_row(rows: Sequence[ResultRow]) -> RowJudgement | None:
    """The row of a table that says most: one that is impossible; else the largest size for which
    something was published; else the largest size. On CPUs only one that is impossible."""
    fabric = fabric_of(rows[0].header) if rows else None
    if fabric is None:
        return None
    judged = [RowJudgement(row, found) for row in rows if (found := judge_row(row, fabric))]
    impossible = [each for each in judged if each.judgement.verdict == IMPOSSIBLE]
    if impossible:
        return max(impossible, key=lambda each: each.judgement.busbw_bytes_per_s)
    plain = [each for each in judged if fabric.gpu and is_plain_case(each.row.measurement.case)]
    known = [each for each in plain if each.judgement.verdict != UNKNOWN]
    return max(known or plain, key=lambda each: each.row.measurement.case.size_bytes, default=None)
