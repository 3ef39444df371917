"""The table of cost models: how the time of a collective grows with ranks and bytes.

    T = fixed + steps x alpha + wire x beta

The steps and the bytes on the wire are known from the algorithm; fixed, alpha and beta are fitted
and never negative (cost.fit). No term falls as ranks are added. n is the number of ranks, N the
number of leaves of a tree: hosts where the group spans several, else ranks. S is the size in bytes
of commbench (plan.operation). Time of reducing a byte is in beta: one collective cannot tell the
two apart.

Sources:
    Thakur      Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in
                MPICH, IJHPCA 19(1), 2005
    Chan        Chan, Heimlich, Purkayastha, van de Geijn: Collective communication: theory,
                practice, and experience, 2007
    Sanders     Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction
                and scan, Parallel Computing 35, 2009
    Bruck       Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all
                communications, IEEE TPDS 8(11), 1997
    Hockney     Hockney: The communication challenge for MPP, Parallel Computing 20, 1994

The algorithms of backends: pytorch/gloo: allreduce.cc (ring), allgather.cc (ring), broadcast.cc
(binomial tree), reduce.cc (reduce_scatter in a ring, then gather), gather.cc, scatter.cc,
alltoall.cc (messages between all pairs), barrier.cc (dissemination); torch's ProcessGroupGloo.cpp
(reduce_scatter is an all_reduce of which a rank keeps its block). NCCL: src/graph/tuning.cc and
enqueue.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, log2
from typing import Any, NamedTuple, TypeAlias

WITHIN, ACROSS = "within a host", "across hosts"
"""Kinds of group: all its ranks on one host, or not."""
GROUP_KINDS = (WITHIN, ACROSS)


class Parameter(NamedTuple):
    """A parameter of every model."""

    name: str
    unit: str
    """The unit of time per unit of its term."""
    meaning: str


FIXED = Parameter("fixed", "s", "per call")
"""What every call takes, and all steps whose number does not grow with the ranks."""
ALPHA = Parameter("alpha", "s/step", "per step of the algorithm")
BETA = Parameter("beta", "s/B", "per byte")
PARAMETERS = (FIXED, ALPHA, BETA)


class Term(NamedTuple):
    """What a parameter is multiplied by."""

    text: str
    of: Callable[[int, int, float], float]
    """Of n ranks, at most k of them on a host, and S bytes."""


def _rounds(n: int) -> int:
    """ceil(log2 n): rounds in which data from one rank can reach all."""
    return (n - 1).bit_length()


def _depth(n: int, k: int) -> float:
    """log2 N: the depth of a tree; not rounded, so that the time grows with every rank."""
    hosts = ceil(n / k)
    return log2(hosts if hosts > 1 else n)


NONE = Term("", lambda *_: 0.0)
OTHERS = Term("(n-1)", lambda n, *_: n - 1)
TWICE_OTHERS = Term("2(n-1)", lambda n, *_: 2 * (n - 1))
ROUNDS = Term("ceil(log2 n)", lambda n, *_: _rounds(n))
TWICE_ROUNDS = Term("2 ceil(log2 n)", lambda n, *_: 2 * _rounds(n))
DEPTH = Term("log2 N", lambda n, k, _: _depth(n, k))
TWICE_DEPTH = Term("2 log2 N", lambda n, k, _: 2 * _depth(n, k))
TREE_AND_RING = Term("(ceil(log2 n) + n-1)", lambda n, *_: _rounds(n) + n - 1)
ALL = Term("S", lambda _n, _k, s: s)
BLOCKS = Term("(n-1)/n S", lambda n, _, s: (n - 1) / n * s)
TWICE_BLOCKS = Term("2(n-1)/n S", lambda n, _, s: 2 * (n - 1) / n * s)
ALL_EACH_ROUND = Term("ceil(log2 n) S", lambda n, _, s: _rounds(n) * s)
ALL_TWICE_EACH_ROUND = Term("2 ceil(log2 n) S", lambda n, _, s: 2 * _rounds(n) * s)
HALF_EACH_ROUND = Term("ceil(log2 n) S/2", lambda n, _, s: _rounds(n) * s / 2)
BLOCKS_OF_HOSTS = Term("(n-k)/n S", lambda n, k, s: max(0, n - k) / n * s)


Terms: TypeAlias = tuple[float, float, float]
"""One number for each of PARAMETERS."""


class CostModel(NamedTuple):
    """How one algorithm's time grows."""

    name: str
    operations: tuple[str, ...]
    """Names of plan.operations; empty: every operation."""
    steps: Term
    wire: Term
    """In bytes."""
    source: str
    spans_ranks: bool = True
    """Whether it may be used for numbers of ranks that were not measured."""

    def __reduce__(self) -> Any:
        return find_model, (next(iter(self.operations), ""), self.name)

    @property
    def formula(self) -> str:
        """The time as a sum of parameters times terms."""
        pairs = ((self.steps, ALPHA), (self.wire, BETA))
        grown = [f"{term.text} {parameter.name}" for term, parameter in pairs if term.text]
        return " + ".join((f"T = {FIXED.name}", *grown))

    def as_json(self) -> str:
        """Its name."""
        return self.name

    def terms(self, world_size: int, ranks_per_node: int, size_bytes: float) -> Terms:
        """What each of PARAMETERS is multiplied by, for a group of so many ranks, at most
        `ranks_per_node` of them on a host."""
        at = world_size, ranks_per_node, size_bytes
        return 1.0, float(self.steps.of(*at)), float(self.wire.of(*at))


_REDUCE = ("all_reduce",)
_GATHERING = ("all_gather", "reduce_scatter")
_ROOTED = ("broadcast", "reduce")
_SPLIT = ("gather", "scatter")
_EXCHANGE = ("all_to_all",)


COST_MODELS = (
    CostModel("alpha-beta", (), NONE, ALL, "Hockney", spans_ranks=False),
    CostModel("same for all ranks", (), NONE, ALL, "NVLS, SHARP; links of each pair"),
    CostModel("ring", _REDUCE, TWICE_OTHERS, TWICE_BLOCKS, "Thakur, 4.5"),
    CostModel("recursive doubling", _REDUCE, ROUNDS, ALL_EACH_ROUND, "Thakur, 4.5"),
    CostModel("Rabenseifner", _REDUCE, TWICE_ROUNDS, TWICE_BLOCKS, "Thakur, 4.5"),
    CostModel("reduce + broadcast", _REDUCE, TWICE_ROUNDS, ALL_TWICE_EACH_ROUND, "Thakur, 4.5"),
    CostModel("double binary tree", _REDUCE, TWICE_DEPTH, TWICE_BLOCKS, "Sanders, pipelined"),
    CostModel("ring", _GATHERING, OTHERS, BLOCKS, "Thakur, 4.1 and 4.3"),
    CostModel("recursive doubling", ("all_gather",), ROUNDS, BLOCKS, "Thakur, 4.1; NCCL's PAT"),
    CostModel("recursive halving", ("reduce_scatter",), ROUNDS, BLOCKS, "Thakur, 4.3; NCCL's PAT"),
    CostModel("pipelined tree", _GATHERING, DEPTH, BLOCKS, "Sanders"),
    CostModel("binomial tree", _ROOTED, ROUNDS, ALL_EACH_ROUND, "Thakur, 4.2 and 4.4"),
    CostModel("scatter + all_gather", _ROOTED, TREE_AND_RING, TWICE_BLOCKS, "Chan"),
    CostModel("chain", _ROOTED, OTHERS, ALL, "Chan, with many segments"),
    CostModel("double binary tree", _ROOTED, DEPTH, ALL, "Sanders, pipelined"),
    CostModel("binomial tree", _SPLIT, ROUNDS, BLOCKS, "Chan"),
    CostModel("linear", _SPLIT, OTHERS, BLOCKS, "Chan: the root talks to each rank"),
    CostModel("pairwise", _EXCHANGE, OTHERS, BLOCKS, "Thakur, 4.2"),
    CostModel("pairwise between hosts", _EXCHANGE, OTHERS, BLOCKS_OF_HOSTS, "Thakur, 4.2"),
    CostModel("Bruck", _EXCHANGE, ROUNDS, HALF_EACH_ROUND, "Bruck"),
    CostModel("dissemination", ("barrier",), ROUNDS, NONE, "Hensgen, Finkel, Manber 1988"),
    CostModel("linear", ("barrier",), OTHERS, NONE, "each rank reports to one"),
)


def models_of(operation: str) -> tuple[CostModel, ...]:
    """The models of an operation, the simplest first."""
    return tuple(m for m in COST_MODELS if not m.operations or operation in m.operations)


def find_model(operation: str, name: str) -> CostModel:
    """The model of that name for an operation. Raises KeyError where there is none."""
    if found := next((model for model in models_of(operation) if model.name == name), None):
        return found
    raise KeyError(f"{operation} has no cost model {name!r}")


def kind_of(world_size: int, ranks_per_node: int) -> str:
    """WITHIN where all ranks are on one host, else ACROSS."""
    return WITHIN if world_size <= ranks_per_node else ACROSS


ALGORITHMS: Mapping[str, Mapping[str, str]] = {
    "gloo": {
        "all_reduce": "ring", "all_gather": "ring", "broadcast": "binomial tree",
        "reduce": "scatter + all_gather", "gather": "linear", "scatter": "linear",
        "all_to_all": "pairwise", "barrier": "dissemination",
    },
    "nccl": {
        "RING": "ring", "TREE": "double binary tree", "PAT": "pipelined tree",
        "all_to_all": "pairwise",
    },
}  # fmt: skip
"""Of backends, the model that describes what they use for an operation, or for what NCCL logged."""


def find_algorithm(backend: str, operation: str, selected: str = "") -> CostModel | None:
    """The model of the algorithm that a backend uses for an operation; None where that is not
    known. `selected` is what NCCL logged, such as `RING`."""
    if (backend, operation) == ("gloo", "reduce_scatter"):
        ring = find_model("all_reduce", "ring")
        return ring._replace(name="ring all_reduce, of which a rank keeps its block")
    known = ALGORITHMS.get(backend, {})
    name = known.get(selected.upper()) or known.get(operation)
    return next((model for model in models_of(operation) if model.name == name), None)


def growth(
    model: CostModel, latency_s: float, bandwidth_s: float, ranks: int, more: int
) -> tuple[float, float]:
    """How many times as long a call takes with `more` ranks, by the formula: for latency that is
    the same for any number of ranks, and for latency that is all in the steps."""
    pairs = zip(*(model.terms(n, n, 1.0) for n in (ranks, more)), strict=True)
    _, steps, wire = (after / before if before else 1.0 for before, after in pairs)
    low, high = (
        (latency_s * of_latency + bandwidth_s * wire) / (latency_s + bandwidth_s)
        for of_latency in sorted((1.0, steps))
    )
    return low, high
