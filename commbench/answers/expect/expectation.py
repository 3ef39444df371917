"""Is a bus bandwidth plausible? What others measured on such a fabric, and what its links allow.

Figures of others count if they are of the same fabric (plan.fabrics), and of the same number of
ranks, or of the nearest ones; an all_reduce of two nodes is compared with one of two nodes, where
that was published. A figure without a curve counts from a quarter of its size on, for
bandwidth still grows with the size; one without a size counts from 512 MiB.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import exp, log
from typing import Any, NamedTuple

from commbench.analysis.figures import peak_fraction
from commbench.plan.fabrics import Fabric, covers_version, find_gpu, make_fabric
from commbench.plan.links import NODE, Link, Peak, Published, find_link, load_links, load_published
from commbench.plan.operations import DEFAULT_OPERATION, OPERATIONS
from commbench.units import GB, parse_size
from commbench.views.as_json import fields_of

BELOW, ABOVE = 0.20, 0.10
"""How far below the lowest and above the highest figure of others a bandwidth is plausible. Alaya
NeW: more than 20 % below means that something is off. NVIDIA/aicr: a tolerance of 10 %."""
_UNSIZED = 2 << 30
"""The size of a figure that was published without one, as the peak of a curve. NVIDIA/nccl-tests
#212: 256 MiB are too small to reach it."""
_ROUNDING = 1e-3
"""By so much more than the bound, a figure of a few digits is not impossible."""

PLAUSIBLE, LOW, HIGH, IMPOSSIBLE, UNKNOWN = "plausible", "low", "high", "impossible", "unknown"
VERDICTS = (PLAUSIBLE, LOW, HIGH, IMPOSSIBLE, UNKNOWN)
"""What a bandwidth can be. `high`: more than others measured, but possible. `unknown`: possible,
and nothing comparable was published."""
RING, TREE, NVLS, NVLS_TREE = "ring", "tree", "nvls", "nvlstree"
ALGORITHMS = (RING, TREE, NVLS, NVLS_TREE)
"""Algorithms of NCCL that can be asked about."""


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
        """The rate of a node's network over the bus bandwidth, where data crosses it only once, as
        in hierarchical algorithms: (k-1)/k x n/(n-1) for all_reduce. None on one node."""
        operation = OPERATIONS[self.operation]
        if self.parts < 2 or not self.factor or operation.is_paired or operation.block_counts:
            return None
        node = Peak("", 1.0, NODE)
        found = peak_fraction(operation, self.ranks, self.parts, 1 / self.factor, node)
        return found.rate_bytes_per_s if found else None

    def as_json(self) -> dict[str, Any]:
        """The fields, and how much a node sends."""
        return fields_of(self, "node_factor")


class Bound(NamedTuple):
    """The largest bus bandwidth that a link allows."""

    busbw_bytes_per_s: float
    link: str
    """The link: `NVLink 4: H100, H200, GH200`."""
    speed_bytes_per_s: float
    """Its speed one way."""
    per: str
    why_more: str
    """Why the bus bandwidth may exceed the speed; empty where it may not."""
    source: str

    @property
    def times(self) -> float:
        """The bus bandwidth over the speed."""
        return self.busbw_bytes_per_s / self.speed_bytes_per_s


class Figure(NamedTuple):
    """A published figure, at the size that is asked about."""

    published: Published
    busbw_bytes_per_s: float | None
    """None where it says nothing about so small a size."""


class Expectation(NamedTuple):
    """What to expect of a call; bandwidths in bytes/s."""

    call: Call
    bound: Bound | None
    """None where no link is known."""
    figures: tuple[Figure, ...]
    low_bytes_per_s: float | None
    """Plausible from; None where no figure says that: of this size, or of as few nodes."""
    high_bytes_per_s: float | None
    """Plausible up to; None where no figure says that."""

    @property
    def known(self) -> tuple[Figure, ...]:
        """The figures that say something about this size, the lowest first."""
        found = [figure for figure in self.figures if figure.busbw_bytes_per_s is not None]
        return tuple(sorted(found, key=lambda figure: figure.busbw_bytes_per_s or 0.0))

    @property
    def measured(self) -> tuple[float, float] | None:
        """The lowest and the highest figure of others at this size."""
        found = [figure.busbw_bytes_per_s or 0.0 for figure in self.known]
        return (found[0], found[-1]) if found else None

    @property
    def plausible(self) -> tuple[float, float] | None:
        """Both ends of what is plausible; None where one is not known."""
        low, high = self.low_bytes_per_s, self.high_bytes_per_s
        return None if low is None or high is None else (low, high)

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the figures come from, and the bound."""
        found = [figure.published.source for figure in self.figures]
        found += [self.bound.source] if self.bound else []
        return tuple(dict.fromkeys(filter(None, found)))


class Mistake(NamedTuple):
    """A mistake that explains a bandwidth."""

    what: str
    """One of MISTAKES."""
    busbw_bytes_per_s: float
    """What the bandwidth is without it."""


class Judgement(NamedTuple):
    """Whether a bus bandwidth is plausible."""

    expectation: Expectation
    busbw_bytes_per_s: float
    verdict: str
    """One of VERDICTS."""
    mistakes: tuple[Mistake, ...] = ()
    """Mistakes that explain it, each with the plausible bandwidth without it."""

    @property
    def source(self) -> str:
        """The source of the figure that decides: of the bound for what is impossible or unknown,
        else of the nearest figure of others."""
        found = self.expectation
        figures = found.known or found.figures
        if self.verdict in (IMPOSSIBLE, UNKNOWN) or not figures:
            return found.bound.source if found.bound else ""
        distances = (
            abs((each.busbw_bytes_per_s or 0) - self.busbw_bytes_per_s) for each in figures
        )
        return min(zip(distances, figures, strict=True))[1].published.source

    def as_json(self) -> dict[str, Any]:
        """The fields and the source."""
        return fields_of(self, "source", without=("expectation",))


MISTAKES: dict[str, Callable[[Call], float]] = {
    "Is it in Gbit/s?": lambda _: 1 / 8,
    "Was it divided by 8, although it was in GB/s already?": lambda _: 8,
    "Is it the algorithm bandwidth (--algbw)?": lambda call: call.factor,
    "Was algbw multiplied by the factor of busbw twice?": lambda call: 1 / call.factor,
    "Is it the sum of both directions?": lambda _: 1 / 2,
    "Is it the sum of all accelerators of a node?": lambda call: call.nodes / call.ranks,
    "Is it the sum of all ranks?": lambda call: 1 / call.ranks if call.nodes > 1 else 1,
    "Is it the rate of a node's network?": lambda call: 1 / (call.node_factor or 1),
    "Is it what one accelerator sends through the network?": lambda call: (
        call.ranks / call.parts / call.node_factor if call.node_factor else 1
    ),
    "Is it in GiB/s (2^30 bytes per second)?": lambda _: (1 << 30) / GB,
    "Was it converted from GiB/s, although it was in GB/s already?": lambda _: GB / (1 << 30),
}
"""Mistakes as questions about the given bandwidth, each with what the bandwidth without it is over
the given one; 1 where it cannot have happened. One is asked only where that is plausible."""


@lru_cache(maxsize=1024)
def find_expectation(call: Call, below: float = BELOW, above: float = ABOVE) -> Expectation:
    """What to expect of a call; `below` and `above` are fractions of the figures of others."""
    bound = find_bound(call)
    figures = tuple(find_figures(call))
    known = [figure.busbw_bytes_per_s for figure in figures if figure.busbw_bytes_per_s is not None]
    tops = known or [figure.published.busbw_bytes_per_s for figure in figures]
    are_alike = all(_needs_as_much(figure.published, call) for figure in figures)
    high = max(tops) * (1 + above) if tops and (are_alike or call.parts > 2) else None
    if high is not None and bound:
        high = min(high, max(bound.busbw_bytes_per_s, max(tops)))
    low = min(known) * (1 - below) if known and (are_alike or call.parts == 2) else None
    return Expectation(call, bound, figures, low, high)


def judge(found: Expectation, busbw: float) -> Judgement:
    """Whether a bus bandwidth in bytes/s is plausible, and which mistakes explain it if not."""
    verdict = _verdict(found, busbw)
    if verdict in (PLAUSIBLE, UNKNOWN):
        return Judgement(found, busbw, verdict)
    corrected = [Mistake(what, busbw * times(found.call)) for what, times in MISTAKES.items()]
    named = [one for one in corrected if _verdict(found, one.busbw_bytes_per_s) == PLAUSIBLE]
    return Judgement(found, busbw, verdict, tuple(named))


def _verdict(found: Expectation, busbw: float) -> str:
    if found.bound and busbw > found.bound.busbw_bytes_per_s * (1 + _ROUNDING):
        return IMPOSSIBLE
    low, high = found.low_bytes_per_s, found.high_bytes_per_s
    if high is not None and busbw > high:
        return HIGH
    if low is None:
        return UNKNOWN
    if busbw < low:
        return LOW
    top = found.measured[1] if found.measured else 0.0
    return UNKNOWN if high is None and busbw > top else PLAUSIBLE


def find_bound(call: Call) -> Bound | None:
    """The lowest of the bounds of the links, by analysis.figures; None where none is known.

    A ring sends all that crosses a link of a rank through the network of each node too, so that
    there its bus bandwidth is at most the rate of a node.
    """
    if call.ranks < 2 or not call.factor:
        return None
    bounds = [*_bounds_within(call), *_bounds_between(call)]
    return min(bounds, key=lambda bound: bound.busbw_bytes_per_s, default=None)


def _bounds_within(call: Call) -> Iterable[Bound]:
    """What passes the links of an accelerator: those to its node, and to the network."""
    fabric, parts = call.fabric, call.parts
    if fabric.bridged(call.ranks, call.nodes):
        yield from _bounds_of_bridges(call)
        return
    link = fabric.link
    if link is None or call.ranks <= parts:
        return
    speed, what = speed_of(link, -(-call.ranks // parts)), link.what
    slot = fabric.gpu.slot if fabric.gpu else None
    if parts > 1 and link is not slot:
        if fabric.nics:
            speed += fabric.nics.bytes_per_second * parts / call.ranks
            what += f", plus its part of {fabric.nics.name}"
        elif slot:
            speed += slot.bytes_per_second
            what += f", plus {slot.what} to a network that is not given"
        else:
            return
    reduces = OPERATIONS[call.operation].reduces and call.algorithm not in (RING, TREE)
    times = max(call.factor, 1.0) if reduces and link.reduces else 1.0
    why = f"its switch can reduce: {link.reduces}" if times > 1 else ""
    yield Bound(speed * times, what, speed, "accelerator", why, link.source)


def _bounds_of_bridges(call: Call) -> Iterable[Bound]:
    """Bridges connect a few accelerators each; what passes between those uses their slots."""
    gpu = call.fabric.gpu
    if gpu is None or gpu.connects is None or gpu.slot is None or call.nodes > 1:
        return
    speed, groups = gpu.slot.bytes_per_second, -(-call.ranks // gpu.connects)
    node = Peak("", speed * gpu.connects, NODE)
    found = peak_fraction(OPERATIONS[call.operation], call.ranks, groups, 1 / call.factor, node)
    if found and not OPERATIONS[call.operation].is_paired:
        why = f"bridges connect {gpu.connects}, which send once for all"
        busbw = max(1 / found.fraction, speed)
        yield Bound(busbw, gpu.slot.what, speed, "accelerator", why, gpu.slot.source)


def _bounds_between(call: Call) -> Iterable[Bound]:
    operation, nics, parts = OPERATIONS[call.operation], call.fabric.nics, call.parts
    if call.node_factor is None or nics is None:
        return
    speed, source = nics.bytes_per_second, nics.source
    if call.algorithm == RING and not operation.is_personalized:
        yield Bound(speed, nics.name, speed, NODE, "", source)
        return
    needed = peak_fraction(operation, call.ranks, parts, 1.0, Peak("", speed, NODE))
    assert needed is not None
    times = needed.ceiling if nics.can_reduce and needed.ceiling > 1 else 1.0
    why = "a node sends once for all its ranks"
    why += ", and its switches can reduce: SHARP" if times > 1 else ""
    yield Bound(speed / call.node_factor * times, nics.name, speed, NODE, why, source)


def speed_of(link: Link, ranks: int) -> float:
    """The speed of an accelerator's links to the others of `ranks`, in bytes/s. Where each pair has
    a link of its own (xGMI), only those to the others count."""
    one = next((each for each in load_links() if each.name == f"{link.name}-link"), None)
    if one is None:
        return link.bytes_per_second
    return min(link.bytes_per_second, (ranks - 1) * one.bytes_per_second)


def find_figures(call: Call) -> Iterable[Figure]:
    """What others published of the same operation on the same fabric, on as many ranks or nodes, or
    on the nearest numbers of them."""
    found = [one for one in load_published() if _is_alike(one, call)]
    several, nics = call.parts > 1, call.fabric.nics
    found = [one for one in found if _needs_as_much(one, call)] or found
    if several and nics and nics.link:
        found = [one for one in found if one.link == nics.link] or found
    for network in dict.fromkeys(one.link if several else "" for one in found):
        own = [one for one in found if not several or one.link == network]
        counts = [one.nodes if several else one.ranks for one in own]
        near = _nearest(counts, call.parts if several else call.ranks)
        for one, count in zip(own, counts, strict=True):
            if count in near:
                yield Figure(one, _at_size(one, call.size_bytes))


def _needs_as_much(figure: Published, call: Call) -> bool:
    """Whether a figure needs as much of the network as the call. On two nodes the trees of NCCL's
    all_reduce need less than on more (NVIDIA/nccl-tests#196), so that figures of more nodes are no
    upper limit there, nor those of two nodes a lower one of more."""
    is_ring = call.algorithm == RING or call.operation != DEFAULT_OPERATION
    return is_ring or call.parts == 1 or (figure.nodes == 2) == (call.parts == 2)


def _is_alike(figure: Published, call: Call) -> bool:
    """Whether a figure is of the same operation, links, algorithm and versions."""
    gpu, fabric = find_gpu(figure.gpu), call.fabric
    if not (gpu and fabric.gpu) or figure.operation != call.operation:
        return False
    bridged = make_fabric(gpu).bridged(figure.ranks, figure.nodes)
    if gpu.link is not fabric.link or gpu.connects != fabric.gpu.connects:
        return False
    if bridged != fabric.bridged(call.ranks, call.nodes):
        return False
    if call.algorithm and figure.how.lower() != call.algorithm:
        return False
    if not covers_version(figure.nccl, call.nccl or "") or (figure.nodes > 1) != (call.parts > 1):
        return False
    if call.parts == 1:
        return True
    if figure.ranks * call.parts != call.ranks * figure.nodes:
        return False  # other accelerators of the node would use the network, too
    if not fabric.nics:
        return True
    rate = find_link(figure.link).bytes_per_second
    return abs(rate / fabric.nics.bytes_per_second - 1) < 0.02


def _nearest(counts: Sequence[int], wanted: int) -> set[int]:
    """The wanted number where there is a figure of it; else the next below and above."""
    if wanted in counts:
        return {wanted}
    below = [count for count in counts if count < wanted]
    above = [count for count in counts if count > wanted]
    return {*([max(below)] if below else []), *([min(above)] if above else [])}


def _at_size(figure: Published, size: int | None) -> float | None:
    """The bandwidth of a figure at a size; between two sizes of a curve by their logarithms."""
    if size is None:
        return figure.busbw_bytes_per_s
    if not figure.curve:
        own = parse_size(figure.size) if figure.size else _UNSIZED
        return figure.busbw_bytes_per_s if size * 4 >= own else None
    index = bisect_right([one for one, _ in figure.curve], size)
    if index in (0, len(figure.curve)):
        return figure.curve[-1][1] if index else None
    (small, low), (large, high) = figure.curve[index - 1 : index + 1]
    part = log(size / small) / log(large / small)
    return exp(log(low) * (1 - part) + log(high) * part)
