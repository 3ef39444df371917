"""Is a bus bandwidth plausible? What others measured on such a fabric, and what its links allow.

Figures of others count if they are of the same fabric (plan.links), and of the same number of
ranks, or of the nearest ones; an all_reduce of two nodes is compared with one of two nodes, where
that was published. A figure without a curve counts from a quarter of its size on, for
bandwidth still grows with the size; one without a size counts from 512 MiB.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis.environment import RING, algorithm_of, fabric_of
from commbench.analysis.figures import interpolate
from commbench.analysis.rows import ResultRow
from commbench.answers.expect.bound import Bound, Call, find_bound, make_call
from commbench.plan import links, operations
from commbench.stats import collect
from commbench.units import GB, parse_size
from commbench.views.formats import Result, fields_of

BELOW, ABOVE = 0.20, 0.10
"""How far below the lowest and above the highest figure of others a bandwidth is plausible. Alaya
NeW: more than 20 % below means that something is off. NVIDIA/aicr: a tolerance of 10 %."""
_UNSIZED = 2 << 30
"""The size of a figure that was published without one, as the peak of a curve. NVIDIA/nccl-tests
#212: 256 MiB are too small to reach it."""
_ROUNDING = 1e-3
"""By so much more than the bound, a figure of a few digits is not impossible."""
_SAME_RATE = 0.02
"""Networks whose rates differ by less are alike."""

PLAUSIBLE, LOW, HIGH, IMPOSSIBLE, UNKNOWN = "plausible", "low", "high", "impossible", "unknown"
"""What a bandwidth can be. `high`: more than others measured, but possible. `unknown`: possible,
and nothing comparable was published."""


class Figure(NamedTuple):
    """A published figure, at the size that is asked about."""

    published: links.Published
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
    def known(self) -> tuple[tuple[float, links.Published], ...]:
        """The bandwidths of others at this size, the lowest first, with their figures."""
        found = [(at_size, one) for one, at_size in self.figures if at_size is not None]
        return tuple(sorted(found, key=lambda each: each[0]))

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
    """PLAUSIBLE, LOW, HIGH, IMPOSSIBLE or UNKNOWN."""
    mistakes: tuple[Mistake, ...] = ()
    """Mistakes that explain it, each with the plausible bandwidth without it."""

    @property
    def source(self) -> str:
        """The source of the figure that decides: of the bound for what is impossible or unknown,
        else of the nearest figure of others."""
        found = self.expectation
        figures = found.known or [(0.0, figure.published) for figure in found.figures]
        if self.verdict in (IMPOSSIBLE, UNKNOWN) or not figures:
            return found.bound.source if found.bound else ""
        return min(figures, key=lambda each: abs(each[0] - self.busbw_bytes_per_s))[1].source

    def as_json(self) -> dict[str, Any]:
        """The fields and the source."""
        return fields_of(self, "source", without=("expectation",))


class Demand(NamedTuple):
    """A bandwidth that somebody demands, judged on the smallest machine that it is for."""

    threshold: links.Threshold
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


MISTAKES: dict[str, Callable[[Call], float]] = {
    "Is it in Gbit/s?": lambda _: 1 / 8,
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
}
"""Mistakes as questions about the given bandwidth, each with what the bandwidth without it is over
the given one; 1 where it cannot have happened. One is asked only where that is plausible."""


@lru_cache(maxsize=1024)
def find_expectation(call: Call, below: float = BELOW) -> Expectation:
    """What to expect of a call; `below` is a fraction of the figures of others."""
    bound, figures = find_bound(call), tuple(find_figures(call))
    known = [at_size for _, at_size in figures if at_size is not None]
    tops = known or [figure.published.busbw_bytes_per_s for figure in figures]
    are_alike = all(_needs_as_much(figure.published, call) for figure in figures)
    high = max(tops) * (1 + ABOVE) if tops and (are_alike or call.parts > 2) else None
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
    low, high = found.low_bytes_per_s, found.high_bytes_per_s
    if found.bound and busbw > found.bound.busbw_bytes_per_s * (1 + _ROUNDING):
        return IMPOSSIBLE
    if high is not None and busbw > high:
        return HIGH
    if low is not None and busbw < low:
        return LOW
    is_above = high is None and found.known and busbw > found.known[-1][0]
    return UNKNOWN if low is None or is_above else PLAUSIBLE


def find_demands(call: Call) -> tuple[Demand, ...]:
    """What others demand of machines with this accelerator, within a node or between nodes."""
    gpu = call.fabric.gpu
    asked = (gpu.name if gpu else "", call.operation, call.nodes > 1)
    return tuple(
        Demand(one, judge_threshold(one)) for one in links.load_thresholds()
        if (one.gpu, one.operation, one.nodes > 1) == asked
    )  # fmt: skip


def judge_threshold(threshold: links.Threshold) -> Judgement:
    """Whether what somebody demands is plausible on the smallest machine that it is for."""
    nics = links.parse_nics(threshold.nic) if threshold.nic else None
    fabric = links.make_fabric(links.find_gpu(threshold.gpu), nics)
    call = Call(fabric, threshold.operation, threshold.ranks, threshold.nodes)
    return judge(find_expectation(call), threshold.low_bytes_per_s)


def judge_row(row: ResultRow, fabric: links.Fabric | None = None) -> Judgement | None:
    """Whether a row's bus bandwidth is plausible; None where nothing is known.

    `fabric` is by default that of the run. A row that is not plain is only called impossible, for
    others measured no such ones.
    """
    case, header = row.case, row.header
    fabric = fabric or fabric_of(header)
    nccl = str(header.environment.get("nccl") or "") or None
    call = fabric and make_call(case, fabric, header.num_nodes, algorithm_of(row), nccl)
    if call is None or row.busbw is None:
        return None
    found = find_expectation(call)
    if found.bound is None and found.low_bytes_per_s is None:
        return None
    if not case.is_plain:
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
    if impossible := [each for each in judged if each[1].verdict == IMPOSSIBLE]:
        return max(impossible, key=lambda each: each[1].busbw_bytes_per_s)
    plain = [each for each in judged if fabric.gpu and each[0].case.is_plain]
    known = [each for each in plain if each[1].verdict != UNKNOWN]
    return max(known or plain, key=lambda each: each[0].case.size_bytes, default=None)


def find_figures(call: Call) -> Iterator[Figure]:
    """What others published of the same operation on the same fabric, on as many ranks or nodes, or
    on the nearest numbers of them."""
    found = [one for one in links.load_published() if _is_alike(one, call)]
    several, nics = call.parts > 1, call.fabric.nics
    found = [one for one in found if _needs_as_much(one, call)] or found
    if several and nics and nics.link:
        found = [one for one in found if one.link == nics.link] or found
    number = attrgetter("nodes" if several else "ranks")
    for own in collect((several and one.link, one) for one in found).values():
        near = nearest(map(number, own), call.parts if several else call.ranks)
        for one in own:
            if number(one) in near:
                yield Figure(one, _at_size(one, call.size_bytes))


def nearest(counts: Iterable[int], wanted: int) -> list[int]:
    """The wanted number where it is among these; else the next below and above."""
    ordered = sorted({*counts})
    if wanted in ordered:
        return [wanted]
    above = bisect(ordered, wanted)
    return ordered[max(0, above - 1) : above + 1]


def _needs_as_much(figure: links.Published, call: Call) -> bool:
    """Whether a figure needs as much of the network as the call. On two nodes the trees of NCCL's
    all_reduce need less than on more (NVIDIA/nccl-tests#196), so that figures of more nodes are no
    upper limit there, nor those of two nodes a lower one of more."""
    is_ring = call.algorithm == RING or call.operation != operations.DEFAULT_OPERATION
    return is_ring or call.parts == 1 or (figure.nodes == 2) == (call.parts == 2)


def _is_alike(figure: links.Published, call: Call) -> bool:
    """Whether a figure is of the same operation, links, algorithm and versions."""
    gpu, fabric = links.find_gpu(figure.gpu), call.fabric
    if not (gpu and fabric.gpu) or figure.operation != call.operation:
        return False
    nics = fabric.nics.bytes_per_second if fabric.nics else 0.0
    is_bridged = links.make_fabric(gpu).bridged(figure.ranks, figure.nodes)
    is_same_network = call.parts == 1 or (
        # Otherwise other accelerators of the node would use the network, too.
        figure.ranks * call.parts == call.ranks * figure.nodes
        and (not nics or abs(links.find_link(figure.link).bytes_per_second / nics - 1) < _SAME_RATE)
    )
    return (
        gpu.link is fabric.link
        and gpu.connects == fabric.gpu.connects
        and is_bridged == fabric.bridged(call.ranks, call.nodes)
        and call.algorithm in (None, figure.how.lower())
        and links.covers_version(figure.nccl, call.nccl or "")
        and (figure.nodes > 1) == (call.parts > 1)
        and is_same_network
    )


def _at_size(figure: links.Published, size: int | None) -> float | None:
    """The bandwidth of a figure at a size; between two sizes of a curve by their logarithms."""
    own = parse_size(figure.size) if figure.size else _UNSIZED
    if size is None or (figure.curve and size >= own):
        return figure.busbw_bytes_per_s
    if figure.curve:
        return interpolate(figure.curve, size)
    return figure.busbw_bytes_per_s if size * 4 >= own else None
