"""Which algorithm a backend uses for an operation, and what its formula says about more ranks.

Sources: pytorch/gloo: allreduce.cc (ring), allgather.cc (ring), broadcast.cc (binomial tree),
reduce.cc (reduce_scatter in a ring, then gather), gather.cc, scatter.cc, alltoall.cc (messages
between all pairs), barrier.cc (dissemination); torch's ProcessGroupGloo.cpp (reduce_scatter is an
all_reduce of which a rank keeps its block). NCCL: src/graph/tuning.cc and enqueue.cc.
"""

from __future__ import annotations

from typing import NamedTuple

from commbench.models.cost_models import CostModel, find_model


class Algorithm(NamedTuple):
    """An algorithm of a backend."""

    name: str
    model: CostModel


_GLOO = {
    "all_reduce": "ring", "all_gather": "ring", "broadcast": "binomial tree",
    "reduce": "scatter + all_gather", "gather": "linear", "scatter": "linear",
    "all_to_all": "pairwise", "barrier": "dissemination",
}  # fmt: skip
_NCCL = {"RING": "ring", "TREE": "double binary tree", "PAT": "pipelined tree"}
"""NCCL's algorithms, as it logs them, with the models that describe them."""
_NCCL_OTHER = {"all_to_all": "pairwise"}


def find_algorithm(backend: str, operation: str, selected: str = "") -> Algorithm | None:
    """The algorithm that a backend uses for an operation; None where that is not known. `selected`
    is what NCCL logged, such as `RING`."""
    if backend == "gloo":
        if operation == "reduce_scatter":
            name = "ring all_reduce, of which a rank keeps its block"
            return Algorithm(name, find_model("all_reduce", "ring"))
        chosen = _GLOO.get(operation)
    elif backend == "nccl":
        chosen = _NCCL.get(selected.upper()) or _NCCL_OTHER.get(operation)
    else:
        chosen = None
    if chosen is None:
        return None
    try:
        return Algorithm(chosen, find_model(operation, chosen))
    except KeyError:
        return None


def growth(
    model: CostModel, latency_s: float, bandwidth_s: float, ranks: int, more: int
) -> tuple[float, float]:
    """How many times as long a call takes with `more` ranks, by the formula: for latency that is
    the same for any number of ranks, and for latency that is all in the steps."""
    pairs = zip(*(model.terms(n, n, 1.0) for n in (ranks, more)), strict=True)
    _, steps, bytes_ = (after / before if before else 1.0 for before, after in pairs)
    total = latency_s + bandwidth_s
    low, high = sorted((1.0, steps))
    return (
        (latency_s * low + bandwidth_s * bytes_) / total,
        (latency_s * high + bandwidth_s * bytes_) / total,
    )
