"""Lines of a configuration for NCCL's example tuner plugin (plugins/tuner/example of NCCL 2.30)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commbench.spec.operations import OPERATIONS


class TunerRange(NamedTuple):
    """A range of sizes in which one algorithm and protocol are best for one operation."""

    operation: str
    low_bytes: int
    high_bytes: int
    """Inclusive."""
    algorithm: str
    protocol: str
    channels: int


def tuner_lines(ranges: Sequence[TunerRange], nodes: int, ranks: int) -> list[str]:
    """Lines of a configuration for NCCL's example tuner plugin.

    `collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff`
    without a header row, which the plugin would take for an entry. The first matching line counts.
    Every line gives the measured number of channels, because the plugin's default is one. The last
    range of each collective has no upper end.
    """
    last = {each.operation: index for index, each in enumerate(ranges)}
    lines = []
    for index, each in enumerate(ranges):
        function = OPERATIONS[each.operation].nccl_function.lower()
        high = 2**63 - 1 if index == last[each.operation] else each.high_bytes
        choice = (each.algorithm, each.protocol, each.channels)
        cells = (function, each.low_bytes, high, *choice, nodes, ranks, -1, -1)
        lines.append(",".join(map(str, cells)))
    return lines
