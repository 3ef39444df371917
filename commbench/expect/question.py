"""What `commbench expect` is asked: hardware, a call, and perhaps a bandwidth, as texts."""

from __future__ import annotations

from typing import NamedTuple

from commbench.errors import UsageError
from commbench.expect.expectation import (
    ALGORITHMS,
    BELOW,
    Call,
    Expectation,
    Judgement,
    expect,
    judge,
)
from commbench.spec.fabrics import (
    LARGEST_NODE,
    choose_gpu,
    find_gpu,
    load_gpus,
    make_fabric,
    parse_nics,
)
from commbench.spec.links import Link, Threshold, find_link, load_thresholds, parse_peak
from commbench.spec.operations import DEFAULT_OPERATION, find_operation
from commbench.units import parse_size, parse_time, parse_tolerance
from commbench.validation import choose

_WITHOUT = "--link or --nic alone, for hardware that no table has"


class Demand(NamedTuple):
    """A bandwidth that somebody demands, judged on the smallest machine that it is for."""

    threshold: Threshold
    judgement: Judgement


class Answer(NamedTuple):
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


def answer(
    *,
    gpu: str | None = None,
    nodes: int = 1,
    gpus_per_node: int | None = None,
    nic: str | None = None,
    link: str | None = None,
    op: str | None = None,
    size: str | int | None = None,
    algorithm: str | None = None,
    nccl: str | None = None,
    tolerance: str | float | None = None,
    **given: str | float | None,
) -> Answer:
    """What to expect of a call, from texts as the command line takes them; numbers are in bytes,
    seconds, and bytes per second. `given` may have one of busbw, algbw and time. Raises UsageError
    for a value that is wrong or missing."""
    model = choose_gpu(gpu, "--gpu", f"give {_WITHOUT}") if gpu else None
    if not gpu and not (nic or link):
        names = ", ".join(known.name for known in load_gpus())
        raise UsageError("no hardware is given", f"give --gpu, one of {names}; or {_WITHOUT}")
    in_rack = model and model.connects and model.connects > LARGEST_NODE
    per_node = (4 if in_rack else 8) if gpus_per_node is None else gpus_per_node
    for name, number in (("--nodes", nodes), ("--gpus-per-node", per_node)):
        if not 1 <= number <= 1 << 20:
            raise UsageError(f"{name} is {number}", "write a number from 1 on")
    if nodes * per_node < 2:
        raise UsageError("one rank communicates with nobody", "give --nodes or --gpus-per-node")
    fabric = make_fabric(model, parse_nics(nic, model) if nic else None)
    if link:
        fabric = fabric._replace(link=_parse_link(link))
    operation = find_operation(op or DEFAULT_OPERATION)
    if operation.busbw_factor is None:
        raise UsageError(f"{operation.name} has no bandwidth to expect", "choose another --op")
    if algorithm:
        choose("--algorithm", algorithm, dict.fromkeys(ALGORITHMS))
    size_bytes = None if size is None else parse_size(str(size))
    call = Call(
        fabric, operation.name, nodes * per_node, nodes, size_bytes, algorithm or None, nccl or None
    )
    found = expect(call, BELOW if tolerance is None else parse_tolerance(tolerance))
    busbw = _given_busbw(call, {n: value for n, value in given.items() if value is not None})
    return Answer(found, None if busbw is None else judge(found, busbw), find_demands(call))


def _parse_link(text: str) -> Link:
    peak = parse_peak(text, "--link")
    if peak.source:
        return find_link(peak.name)
    return Link(peak.name, (), "the given link", peak.bytes_per_second, "accelerator", "", "")


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
        hint = f"it is of one accelerator: write {text.strip().removesuffix('/node')}"
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
    return judge(expect(call), threshold.low_bytes_per_s)
