"""Other tools' names of operations, as commbench calls them: one table per tool.

An operation that a table lacks has no counterpart, and its results are left out.
"""

from __future__ import annotations

from typing import NamedTuple

from commbench.operations import IN_PLACE, OUT_OF_PLACE


class Benchmark(NamedTuple):
    """One benchmark of MPI: commbench's operation and what the printed size is."""

    operation: str
    of_block: bool = False
    """Whether the printed size is that of one rank's block."""
    placement: str = OUT_OF_PLACE


BROADCAST = Benchmark("broadcast", placement=IN_PLACE)
"""MPI's broadcast has one buffer."""
BARRIER = Benchmark("barrier", placement="")

NCCL_TESTS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send_recv",
}
"""By program, without `_perf`."""

OSU = {
    "Allreduce": Benchmark("all_reduce"),
    "Reduce": Benchmark("reduce"),
    "Reduce_scatter": Benchmark("reduce_scatter"),
    "Allgather": Benchmark("all_gather", of_block=True),
    "All-to-All Personalized Exchange": Benchmark("all_to_all", of_block=True),
    "Alltoall": Benchmark("all_to_all", of_block=True),
    "Gather": Benchmark("gather", of_block=True),
    "Scatter": Benchmark("scatter", of_block=True),
    "Broadcast": BROADCAST,
    "Bcast": BROADCAST,
    "Barrier": BARRIER,
}
"""By title, without `Latency Test`."""

IMB = {
    "Allreduce": Benchmark("all_reduce"),
    "Reduce": Benchmark("reduce"),
    "Reduce_scatter": Benchmark("reduce_scatter"),
    "Reduce_scatter_block": Benchmark("reduce_scatter", of_block=True),
    "Allgather": Benchmark("all_gather", of_block=True),
    "Alltoall": Benchmark("all_to_all", of_block=True),
    "Gather": Benchmark("gather", of_block=True),
    "Scatter": Benchmark("scatter", of_block=True),
    "Bcast": BROADCAST,
    "Barrier": BARRIER,
}
IMB_BLOCKS_SINCE = {"Reduce_scatter": 2019}
"""Versions since which the printed size is that of one rank's block."""

PARAM = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_base": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_base": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
