"""A call whose bandwidth is expected, and the most that the links allow it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from commbench.analysis.environment import RING, TREE
from commbench.analysis.figures import peak_fraction
from commbench.plan.case import Case
from commbench.plan.links import NODE, Fabric, Link, Peak, load_links
from commbench.plan.operations import DEFAULT_OPERATION, OPERATIONS
from commbench.views.formats import fields_of


class Call(NamedTuple):
    """The operation whose bandwidth is expected."""

    fabric: Fabric
    operation: str = DEFAULT_OPERATION
    ranks: int = 8
    nodes: int = 1
    size_bytes: int | None = None
    """None: so large that more bytes make it no faster."""
    algorithm: str | None = None
    """One of ALGORITHMS; None where it is not known."""
    nccl: str | None = None
    """The version of NCCL; None where it is not known."""

    @property
    def parts(self) -> int:
        """How many parts only the network connects: 1 where nothing crosses it."""
        return self.fabric.count_parts(self.ranks, self.nodes)

    @property
    def factor(self) -> float:
        """Bus bandwidth over algorithm bandwidth; 0 for an operation without bandwidth."""
        factor = OPERATIONS[self.operation].busbw_factor
        return factor(self.ranks) if factor else 0.0

    @property
    def node_factor(self) -> float | None:
        """The rate of a node's network over the bus bandwidth; None on one node."""
        return self.part_factor(self.parts)

    def part_factor(self, parts: int) -> float | None:
        """What each of several parts of the ranks sends to the others, over the bus bandwidth,
        where data crosses between them only once, as in hierarchical algorithms: for all_reduce
        (k-1)/k x n/(n-1), n ranks in k parts. None for one part, and where it is not known."""
        operation = OPERATIONS[self.operation]
        if parts < 2 or not self.factor or operation.is_paired or operation.block_counts:
            return None
        found = peak_fraction(operation, self.ranks, parts, 1 / self.factor, Peak("", 1.0, NODE))
        return found.rate_bytes_per_s if found else None

    def as_json(self) -> dict[str, Any]:
        """The fields, and how much a node sends."""
        return fields_of(self, "node_factor")


def make_call(
    case: Case, fabric: Fabric, nodes: int, algorithm: str | None = None, nccl: str | None = None
) -> Call | None:
    """The call of a case; None where the ranks or nodes that took part are not known."""
    operation = OPERATIONS[case.operation]
    is_known = case.ranks >= 2 and 1 <= nodes <= case.ranks
    if case.group or operation.block_counts or not operation.busbw_factor or not is_known:
        return None
    return Call(fabric, case.operation, case.ranks, nodes, case.size_bytes, algorithm, nccl)


class Bound(NamedTuple):
    """The largest bus bandwidth that a link allows."""

    busbw_bytes_per_s: float
    link: str
    """The link: `NVLink 4: H100, H200, GH200`."""
    speed_bytes_per_s: float
    """Its speed one way."""
    per: str
    source: str
    why_more: str = ""
    """Why the bus bandwidth may exceed the speed; empty where it may not."""


def find_bound(call: Call) -> Bound | None:
    """The lowest of the bounds of the links; None where none is known.

    * **Link of an accelerator**: the bus bandwidth is at most its speed (Chan et al. 2007). Where
      the switch reduces (NVLS), fewer bytes pass it: at most `factor` times the speed, except in a
      ring or a tree of NCCL. Ranks of several nodes may use the network beside it.
    * **Bridges** connect a few accelerators each. What passes between those uses their slots, which
      send once for all of them.
    * **Network of a node**: whatever the algorithm, a node sends `node_factor` times the bus
      bandwidth (Chan et al. 2007), or with SHARP S only. A ring sends all that crosses a link of a
      rank through the network of each node too, so it is at most as fast as that.
    """
    if call.ranks < 2 or not call.factor:
        return None
    found = [*_within_nodes(call), *_between_nodes(call)]
    return min(found, key=lambda bound: bound.busbw_bytes_per_s, default=None)


def _within_nodes(call: Call) -> Iterator[Bound]:
    fabric, parts, operation = call.fabric, call.parts, OPERATIONS[call.operation]
    gpu, link, nics = fabric
    slot = gpu.slot if gpu else None
    if gpu and gpu.connects and fabric.bridged(call.ranks, call.nodes):
        factor = call.part_factor(-(-call.ranks // gpu.connects))
        if slot and factor and call.nodes == 1:
            speed, why = slot.bytes_per_second, f"bridges connect {gpu.connects}, which send once"
            busbw = max(speed * gpu.connects / factor, speed)
            yield Bound(busbw, slot.what, speed, "accelerator", slot.source, f"{why} for all")
        return
    if link is None or call.ranks <= parts:
        return
    speed, what = speed_of(link, -(-call.ranks // parts)), link.what
    if parts > 1 and link is not slot:
        if nics:
            speed += nics.bytes_per_second * parts / call.ranks
            what += f", plus its part of {nics.name}"
        elif slot:
            speed += slot.bytes_per_second
            what += f", plus {slot.what} to a network that is not given"
        else:
            return
    reduces = link.reduces if operation.reduces else ""
    if reduces and call.algorithm in (RING, TREE):
        what, reduces = f"{what}; its switch does not reduce in a {call.algorithm}", ""
    times = max(call.factor, 1.0) if reduces else 1.0
    why = f"its switch can reduce: {reduces}" if times > 1 else ""
    yield Bound(speed * times, what, speed, "accelerator", link.source, why)


def _between_nodes(call: Call) -> Iterator[Bound]:
    operation, nics, factor = OPERATIONS[call.operation], call.fabric.nics, call.node_factor
    if factor is None or nics is None:
        return
    speed, why = nics.bytes_per_second, "a node sends once for all its ranks"
    if call.algorithm == RING and not operation.is_personalized:
        yield Bound(speed, nics.name, speed, NODE, nics.source)
        return
    needed = peak_fraction(operation, call.ranks, call.parts, 1.0, Peak("", speed, NODE))
    times = needed.ceiling if needed and nics.can_reduce else 1.0
    why += ", and its switches can reduce: SHARP" if times > 1 else ""
    yield Bound(speed / factor * times, nics.name, speed, NODE, nics.source, why)


def speed_of(link: Link, ranks: int) -> float:
    """The speed of an accelerator's links to the others of `ranks`, in bytes/s. Where each pair has
    a link of its own (xGMI), only those to the others count."""
    pairs = [each for each in load_links() if each.name == f"{link.name}-link"]
    return min([link.bytes_per_second, *((ranks - 1) * one.bytes_per_second for one in pairs)])
