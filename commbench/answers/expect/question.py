"""What is asked: hardware, a call, and perhaps a bandwidth, as texts of `commbench expect`; or the
rows of a run, where its header says what hardware it used.

Bounds are checked for every row whose ranks and nodes are known. What others measured is compared
only with plain calls of all ranks: others measured no other ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from commbench.analysis.rows import ResultRow
from commbench.answers.expect.expectation import (
    ALGORITHMS,
    BELOW,
    IMPOSSIBLE,
    NVLS_TREE,
    UNKNOWN,
    Call,
    Expectation,
    Judgement,
    find_expectation,
    judge,
)
from commbench.errors import UsageError
from commbench.plan.case import Case
from commbench.plan.fabrics import (
    LARGEST_NODE,
    Fabric,
    Nics,
    choose_gpu,
    find_gpu,
    make_fabric,
    parse_nics,
    unique_gpu,
)
from commbench.plan.links import Link, Peak, Threshold, find_link, load_thresholds, parse_peak
from commbench.plan.operations import DEFAULT_OPERATION, OPERATIONS, find_operation
from commbench.results.schema import RunHeader
from commbench.units import GB, parse_size, parse_time, parse_tolerance
from commbench.validation import choose
from commbench.views.result import Result

T = TypeVar("T")
_WITHOUT = "--link or --nic alone"


class Demand(NamedTuple):
    """A bandwidth that somebody demands, judged on the smallest machine that it is for."""

    threshold: Threshold
    judgement: Judgement


@dataclass(frozen=True, repr=False)
class Answer(Result, view="answers.expect.document", rows="expectation figures"):
    """What to expect of a call, and whether a given bandwidth is plausible."""

    expectation: Expectation
    judgement: Judgement | None
    """None where no bandwidth was given."""
    demands: tuple[Demand, ...]
    """What others demand of such machines."""

    @property
    def verdict(self) -> str:
        """`plausible`, `low`, `high`, `impossible` or `unknown`; empty without a bandwidth."""
        return self.judgement.verdict if self.judgement else ""


def expect(
    gpu: str | None = None,
    *,
    nodes: int = 1,
    gpus_per_node: int | None = None,
    nic: str | None = None,
    link: str | None = None,
    op: str | None = None,
    size: str | int | None = None,
    algorithm: str | None = None,
    nccl: str | None = None,
    tolerance: str | float | None = None,
    busbw: str | float | None = None,
    algbw: str | float | None = None,
    time: str | float | None = None,
) -> Answer:
    """What bandwidth to expect of hardware, and whether one of `busbw`, `algbw` and `time` is
    plausible (docs/models.md).

    The options are those of `commbench expect`; numbers are in bytes, seconds, and bytes per
    second. The `verdict` of the result is "plausible", "low", "high", "impossible" or "unknown";
    empty without a bandwidth. Raises UsageError for an option that is wrong or missing.
    """
    model = choose_gpu(gpu, "--gpu", _WITHOUT) if gpu else None
    if not gpu and not (nic or link):
        raise UsageError(
            "no hardware is given", f"give RUN, or --gpu, such as --gpu h100; or {_WITHOUT}"
        )
    in_rack = model and model.connects and model.connects > LARGEST_NODE
    per_node = (4 if in_rack else 8) if gpus_per_node is None else gpus_per_node
    for name, number in (("--nodes", nodes), ("--gpus-per-node", per_node)):
        if not 1 <= number <= 1 << 20:
            raise UsageError(f"{name} is {number}", "write a number from 1 on")
    if nodes * per_node < 2:
        raise UsageError("one rank communicates with nobody", "give --nodes or --gpus-per-node")
    fabric = make_fabric(model, parse_nics(nic, model) if nic else None)
    if link:
        own = parse_peak(link, "--link")
        given_link = Link(
            own.name, (), "the given link", own.bytes_per_second, "accelerator", "", ""
        )
        fabric = fabric._replace(link=find_link(own.name) if own.source else given_link)
    operation = find_operation(op or DEFAULT_OPERATION)
    if operation.busbw_factor is None:
        raise UsageError(f"{operation.name} has no bandwidth", "give another --op: all_reduce")
    if algorithm:
        choose("--algorithm", algorithm, dict.fromkeys(ALGORITHMS))
    size_bytes = None if size is None else parse_size(str(size))
    call = Call(
        fabric, operation.name, nodes * per_node, nodes, size_bytes, algorithm or None, nccl or None
    )
    found = find_expectation(call, BELOW if tolerance is None else parse_tolerance(tolerance))
    given = {"busbw": busbw, "algbw": algbw, "time": time}
    bandwidth = _given_busbw(call, {n: value for n, value in given.items() if value is not None})
    judgement = None if bandwidth is None else judge(found, bandwidth)
    return Answer(found, judgement, find_demands(call))


def _given_busbw(call: Call, given: dict[str, str | float]) -> float | None:
    """The bus bandwidth in bytes/s that a bandwidth or a time means."""
    if len(given) > 1:
        names = " and ".join(f"--{name}" for name in given)
        raise UsageError(f"{names} say the same thing", "give one of them")
    for name, value in given.items():
        if isinstance(value, str):
            number = parse_time(value) if name == "time" else _parse_bandwidth(value, f"--{name}")
        else:
            number = float(value)
        if not 0 < number < 1e30:
            raise UsageError(f"--{name} is {value}", "write a number above 0 and below 1e30")
        if name == "busbw":
            return number
        if name == "algbw":
            return number * call.factor
        if call.size_bytes is None:
            raise UsageError("--time needs the size of the message", "add --size, such as 1G")
        return call.size_bytes / number * call.factor
    return None


def _parse_bandwidth(text: str, option: str) -> float:
    """A bandwidth with a unit that has one meaning, in bytes/s."""
    peak = parse_peak(text, option, takes_links=False)
    if peak.is_per_node:
        hint = f"busbw is of one accelerator: write {text.strip().removesuffix('/node')}"
        raise UsageError(f"{option} {text!r} is the speed of a node", hint)
    return peak.bytes_per_second


def find_demands(call: Call) -> tuple[Demand, ...]:
    """What others demand of machines with this accelerator, within a node or between nodes."""
    gpu = call.fabric.gpu
    asked = (gpu.name if gpu else "", call.operation, call.nodes > 1)
    found = [one for one in load_thresholds() if (one.gpu, one.operation, one.nodes > 1) == asked]
    return tuple(Demand(one, judge_threshold(one)) for one in found)


def judge_threshold(threshold: Threshold) -> Judgement:
    """Whether what somebody demands is plausible on the smallest machine that it is for."""
    nics = parse_nics(threshold.nic) if threshold.nic else None
    fabric = make_fabric(find_gpu(threshold.gpu), nics)
    call = Call(fabric, threshold.operation, threshold.ranks, threshold.nodes)
    return judge(find_expectation(call), threshold.low_bytes_per_s)


# Rows of a run

_HCA_RATE = re.compile(r"(\d{1,5}) Gb/sec", re.ASCII)
_SPEED = re.compile(r"(\d{1,7}) Mbit/s", re.ASCII)
_NVLINK = re.compile(r"NV\d+", re.ASCII)
_LAYERS = ("InfiniBand", "Ethernet")
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
    found = find_expectation(call)
    if found.bound is None and found.low_bytes_per_s is None:
        return None
    if not is_plain_case(case):
        found = Expectation(call, found.bound, (), None, None)
    return judge(found, row.busbw)


def choose_row(rows: Sequence[ResultRow]) -> tuple[ResultRow, Judgement] | None:
    """The row of a table that says most, with its judgement: one that is impossible; else the
    largest size for which something was published; else the largest size. On CPUs only one that is
    impossible."""
    fabric = fabric_of(rows[0].header) if rows else None
    if fabric is None:
        return None
    judged = [(row, found) for row in rows if (found := judge_row(row, fabric))]
    impossible = [each for each in judged if each[1].verdict == IMPOSSIBLE]
    if impossible:
        return max(impossible, key=lambda each: each[1].busbw_bytes_per_s)
    plain = [each for each in judged if fabric.gpu and is_plain_case(each[0].measurement.case)]
    known = [each for each in plain if each[1].verdict != UNKNOWN]
    return max(known or plain, key=lambda each: each[0].measurement.case.size_bytes, default=None)
