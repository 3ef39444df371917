"""The table of cost models: how the time of a collective grows with ranks and bytes.

The time is a sum of terms, each times a parameter that is not negative:

    T = parameter_1 x term_1 + parameter_2 x term_2 + ...

The terms are known from the algorithm; the parameters are fitted (models.fit). n is the number of
ranks, N the number of leaves of a tree: hosts where the group spans several, else ranks. S is the
size in bytes of commbench (spec.operation), w the bytes on the wire of a rank: S times the factor
of the bus bandwidth. Time of reducing a byte is in beta: one collective cannot tell the two apart.

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
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2, sqrt
from typing import NamedTuple

WITHIN, ACROSS = "within a host", "across hosts"
"""Kinds of group: all its ranks on one host, or not."""
GROUP_KINDS = (WITHIN, ACROSS)


class Shape(NamedTuple):
    """What a term is computed from."""

    ranks: int
    ranks_per_node: int
    """The most ranks of the group on one host."""
    size_bytes: float

    @property
    def leaves(self) -> int:
        """N: hosts where the group spans several, else ranks."""
        hosts = ceil(self.ranks / self.ranks_per_node)
        return hosts if hosts > 1 else self.ranks

    @property
    def rounds(self) -> int:
        """ceil(log2 n): rounds in which data from one rank can reach all."""
        return (self.ranks - 1).bit_length()

    @property
    def depth(self) -> float:
        """log2 N: the depth of a tree; not rounded, so that the time grows with every rank."""
        return log2(self.leaves)

    @property
    def share(self) -> float:
        """(n-1)/n: the part of S that the blocks of all other ranks are."""
        return (self.ranks - 1) / self.ranks


class Parameter(NamedTuple):
    """A parameter of a model."""

    name: str
    unit: str
    """Of the parameter: the unit of time per unit of its term."""


FIXED = Parameter("fixed", "s")
"""What every call takes, and all steps whose number does not grow with the ranks."""
ALPHA = Parameter("alpha", "s/step")
BETA = Parameter("beta", "s/B")
ROOT = Parameter("gamma", "s/sqrt(B)")
"""The time for filling a pipeline: segments of the best size are as large as the root of S."""
LATENCY_UNITS = (FIXED.unit, ALPHA.unit)
"""The units of parameters whose terms do not depend on the size."""


class CostModel(NamedTuple):
    """How one algorithm's time grows."""

    name: str
    operations: tuple[str, ...]
    """Names of spec.operations; empty: every operation."""
    parameters: tuple[Parameter, ...]
    shape_terms: Callable[[Shape], tuple[float, ...]]
    """One term for each parameter."""
    formula: str
    source: str
    spans_ranks: bool = True
    """Whether it may be used for numbers of ranks that were not measured."""

    def terms(self, world_size: int, ranks_per_node: int, size_bytes: float) -> tuple[float, ...]:
        """The terms for a group of so many ranks, at most `ranks_per_node` of them on a host."""
        return self.shape_terms(Shape(world_size, ranks_per_node, size_bytes))


def _all_reduce_wire(s: Shape) -> float:
    return 2 * s.share * s.size_bytes


def _block_wire(s: Shape) -> float:
    return s.share * s.size_bytes


def _tree(wire: Callable[[Shape], float], passes: int) -> Callable[[Shape], tuple[float, ...]]:
    """The terms of a pipelined tree through which the data pass so many times: up, down or both."""

    def terms(s: Shape) -> tuple[float, ...]:
        return 1.0, passes * s.depth, wire(s), sqrt(wire(s) * s.depth)

    return terms


_MERGED = (FIXED, ALPHA, BETA)
_PIPELINED = (FIXED, ALPHA, BETA, ROOT)
_GATHERING = ("all_gather", "reduce_scatter")

_TABLE = (
    CostModel(
        "alpha-beta",
        (),
        (FIXED, BETA),
        lambda s: (1.0, float(s.size_bytes)),
        "T = fixed + S beta",
        "Hockney 1994; for one number of ranks",
        spans_ranks=False,
    ),
    CostModel(
        "alpha-beta, pipelined",
        (),
        (FIXED, BETA, ROOT),
        lambda s: (1.0, float(s.size_bytes), sqrt(s.size_bytes)),
        "T = fixed + S beta + sqrt(S) gamma",
        "a pipeline with segments of the best size; for one number of ranks",
        spans_ranks=False,
    ),
    CostModel(
        "same for all ranks",
        (),
        (FIXED, BETA),
        lambda s: (1.0, float(s.size_bytes)),
        "T = fixed + S beta",
        "reduction in the switch (NVLS, SHARP); links that each pair has alone",
    ),
    CostModel(
        "ring", ("all_reduce",), _MERGED,
        lambda s: (1.0, 2.0 * (s.ranks - 1), _all_reduce_wire(s)),
        "T = fixed + 2(n-1) alpha + 2(n-1)/n S beta", "Thakur 2005, 4.5",
    ),
    CostModel(
        "recursive doubling", ("all_reduce",), _MERGED,
        lambda s: (1.0, float(s.rounds), float(s.rounds * s.size_bytes)),
        "T = fixed + ceil(log2 n) (alpha + S beta)", "Thakur 2005, 4.5",
    ),
    CostModel(
        "Rabenseifner", ("all_reduce",), _MERGED,
        lambda s: (
            1.0,
            2.0 * (s.ranks.bit_length() - 1) + 2.0 * _is_uneven(s),
            _all_reduce_wire(s) + 2.0 * _is_uneven(s) * s.size_bytes,
        ),
        "T = fixed + 2 floor(log2 n) alpha + 2(n-1)/n S beta; n not 2^k: + 2 alpha + 2 S beta",
        "Thakur 2005, 4.5",
    ),
    CostModel(
        "reduce + broadcast", ("all_reduce",), _MERGED,
        lambda s: (1.0, 2.0 * s.rounds, 2.0 * s.rounds * s.size_bytes),
        "T = fixed + 2 ceil(log2 n) (alpha + S beta)", "Thakur 2005, 4.5: two binomial trees",
    ),
    CostModel(
        "double binary tree", ("all_reduce",), _PIPELINED, _tree(_all_reduce_wire, 2),
        "T = fixed + 2 log2 N alpha + w beta + sqrt(w log2 N) gamma, w = 2(n-1)/n S",
        "Sanders 2009, pipelined with segments of the best size",
    ),
    CostModel(
        "ring", _GATHERING, _MERGED,
        lambda s: (1.0, float(s.ranks - 1), _block_wire(s)),
        "T = fixed + (n-1) alpha + (n-1)/n S beta", "Thakur 2005, 4.1 and 4.3",
    ),
    CostModel(
        "recursive doubling", ("all_gather",), _MERGED,
        lambda s: (1.0, float(s.rounds), _block_wire(s)),
        "T = fixed + ceil(log2 n) alpha + (n-1)/n S beta",
        "Thakur 2005, 4.1; Bruck 1997 and NCCL's PAT have the same time",
    ),
    CostModel(
        "recursive halving", ("reduce_scatter",), _MERGED,
        lambda s: (1.0, float(s.rounds), _block_wire(s)),
        "T = fixed + ceil(log2 n) alpha + (n-1)/n S beta",
        "Thakur 2005, 4.3; NCCL's PAT has the same time",
    ),
    CostModel(
        "pipelined tree", _GATHERING, _PIPELINED, _tree(_block_wire, 1),
        "T = fixed + log2 N alpha + w beta + sqrt(w log2 N) gamma, w = (n-1)/n S",
        "Sanders 2009, pipelined with segments of the best size",
    ),
    CostModel(
        "binomial tree", ("broadcast", "reduce"), _MERGED,
        lambda s: (1.0, float(s.rounds), float(s.rounds * s.size_bytes)),
        "T = fixed + ceil(log2 n) (alpha + S beta)", "Thakur 2005, 4.2 and 4.4",
    ),
    CostModel(
        "scatter + all_gather", ("broadcast", "reduce"), _MERGED,
        lambda s: (1.0, float(s.rounds + s.ranks - 1), _all_reduce_wire(s)),
        "T = fixed + (ceil(log2 n) + n-1) alpha + 2(n-1)/n S beta",
        "Chan 2007: van de Geijn; reduce: reduce_scatter + gather",
    ),
    CostModel(
        "chain", ("broadcast", "reduce"), _PIPELINED,
        lambda s: (
            1.0,
            float(s.ranks - 1),
            float(s.size_bytes),
            sqrt(max(0, s.ranks - 2) * s.size_bytes),
        ),
        "T = fixed + (n-1) alpha + S beta + sqrt((n-2) S) gamma",
        "Chan 2007: (n-2+k)(alpha + S/k beta) with k = sqrt((n-2) S beta / alpha) segments",
    ),
    CostModel(
        "double binary tree", ("broadcast", "reduce"), _PIPELINED,
        _tree(lambda s: float(s.size_bytes), 1),
        "T = fixed + log2 N alpha + S beta + sqrt(S log2 N) gamma",
        "Sanders 2009, pipelined with segments of the best size",
    ),
    CostModel(
        "binomial tree", ("gather", "scatter"), _MERGED,
        lambda s: (1.0, float(s.rounds), _block_wire(s)),
        "T = fixed + ceil(log2 n) alpha + (n-1)/n S beta", "Chan 2007",
    ),
    CostModel(
        "linear", ("gather", "scatter"), _MERGED,
        lambda s: (1.0, float(s.ranks - 1), _block_wire(s)),
        "T = fixed + (n-1) alpha + (n-1)/n S beta", "Chan 2007: the root talks to each rank",
    ),
    CostModel(
        "pairwise", ("all_to_all",), _MERGED,
        lambda s: (1.0, float(s.ranks - 1), _block_wire(s)),
        "T = fixed + (n-1) alpha + (n-1)/n S beta", "Thakur 2005, 4.2",
    ),
    CostModel(
        "pairwise between hosts", ("all_to_all",), _MERGED,
        lambda s: (
            1.0,
            float(s.ranks - 1),
            max(0, s.ranks - s.ranks_per_node) / s.ranks * s.size_bytes,
        ),
        "T = fixed + (n-1) alpha + (n-k)/n S beta, k ranks on a host",
        "pairwise, where only bytes for other hosts count",
    ),
    CostModel(
        "Bruck", ("all_to_all",), _MERGED,
        lambda s: (1.0, float(s.rounds), s.rounds * s.size_bytes / 2),
        "T = fixed + ceil(log2 n) (alpha + S/2 beta)", "Bruck 1997",
    ),
    CostModel(
        "dissemination", ("barrier",), (FIXED, ALPHA),
        lambda s: (1.0, float(s.rounds)),
        "T = fixed + ceil(log2 n) alpha", "Hensgen, Finkel, Manber 1988",
    ),
    CostModel(
        "linear", ("barrier",), (FIXED, ALPHA),
        lambda s: (1.0, float(s.ranks - 1)),
        "T = fixed + (n-1) alpha", "each rank reports to one, or passes the message on",
    ),
)  # fmt: skip


def _is_uneven(s: Shape) -> bool:
    return s.ranks & (s.ranks - 1) != 0


COST_MODELS = _TABLE


def models_of(operation: str) -> tuple[CostModel, ...]:
    """The models of an operation, the simplest first."""
    return tuple(m for m in COST_MODELS if not m.operations or operation in m.operations)


def find_model(operation: str, name: str) -> CostModel:
    """The model of that name for an operation. Raises KeyError where there is none."""
    for model in models_of(operation):
        if model.name == name:
            return model
    raise KeyError(f"{operation} has no cost model {name!r}")


def kind_of(world_size: int, ranks_per_node: int) -> str:
    """WITHIN where all ranks are on one host, else ACROSS."""
    return WITHIN if world_size <= ranks_per_node else ACROSS
