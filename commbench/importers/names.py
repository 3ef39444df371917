"""Other tools' names of operations with commbench's names, one table per tool.

An operation that a table lacks has no counterpart in commbench, and its results are left out.
"""

from __future__ import annotations

from typing import NamedTuple

from commbench.spec.operations import IN_PLACE, OUT_OF_PLACE


class MpiBenchmark(NamedTuple):
    """One MPI benchmark: commbench's operation and the meaning of the printed size."""

    operation: str
    of_block: bool = False
    """Whether the printed size is that of one rank's block."""
    placement: str = OUT_OF_PLACE
    p2p_call: str = ""
    """For pairs of ranks, the kind of call."""
    window: int | None = None
    """Messages that are sent before the sender waits, where the file does not say."""


BROADCAST = MpiBenchmark("broadcast", placement=IN_PLACE)
"""MPI's broadcast has one buffer."""
BARRIER = MpiBenchmark("barrier", placement="")

_SAME = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter")
NCCL_TESTS = {**{name: name for name in _SAME}, "alltoall": "all_to_all", "sendrecv": "send_recv"}
"""By program, without `_perf`."""

_MPI = {
    "Allreduce": MpiBenchmark("all_reduce"), "Reduce": MpiBenchmark("reduce"),
    "Reduce_scatter": MpiBenchmark("reduce_scatter"), "Bcast": BROADCAST, "Barrier": BARRIER,
    "Allgather": MpiBenchmark("all_gather", of_block=True),
    "Alltoall": MpiBenchmark("all_to_all", of_block=True),
    "Gather": MpiBenchmark("gather", of_block=True),
    "Scatter": MpiBenchmark("scatter", of_block=True),
}  # fmt: skip
_STREAM = MpiBenchmark("stream", p2p_call="isend", window=64)
OSU = _MPI | {
    "All-to-All Personalized Exchange": _MPI["Alltoall"], "Broadcast": BROADCAST,
    "Latency": MpiBenchmark("ping_pong", p2p_call="send"), "Bandwidth": _STREAM,
    "Multiple Bandwidth / Message Rate": _STREAM,
}  # fmt: skip
"""By title, without `Latency Test`."""

IMB = _MPI | {"Reduce_scatter_block": MpiBenchmark("reduce_scatter", of_block=True)}
IMB_BLOCKS_SINCE = {"Reduce_scatter": 2019}
"""Versions since which the printed size is that of one rank's block."""

PARAM = {
    **{name: name for name in (*_SAME, "all_to_all")}, "all_to_all_single": "all_to_all",
    "all_gather_base": "all_gather", "reduce_scatter_base": "reduce_scatter",
}  # fmt: skip
