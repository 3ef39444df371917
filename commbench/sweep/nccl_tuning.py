"""Values of NCCL_ALGO, NCCL's log of its selections, and the file of its tuner plugin.

Sources: NCCL's documentation of NCCL_ALGO, its src/graph/tuning.cc and src/enqueue.cc (2.30), and
plugins/tuner/example.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from commbench.spec.operations import OPERATIONS

ALGORITHM = "NCCL_ALGO"
LOG_VARIABLES = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "TUNING"}
FUNCTIONS_SINCE = (2, 24)
"""The first version in which a value may name its function. From this version on, a function fails
where the value names no algorithm that it has."""
_SELECTION = re.compile(
    r"NCCL INFO (\w+)(?: \[[\w ]+\])?: (\d+) Bytes -> "
    r"Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}"
)


class NcclSelection(NamedTuple):
    """What NCCL selected for one function and size."""

    function: str
    """NCCL's name: `AllReduce`."""
    size_bytes: int
    """As NCCL logs it: elements of the call times their size; for all_gather one rank's part."""
    algorithm: str
    protocol: str
    channels: int


def has_algorithm(operation: str, algorithm: str) -> bool:
    """Whether NCCL has this algorithm for the operation."""
    return _normalized(algorithm) in OPERATIONS[operation].nccl_algorithms


def make_value(
    operations: Sequence[str], value: str, version: tuple[int, ...]
) -> tuple[str, tuple[str, ...]]:
    """The value of NCCL_ALGO to set for these operations, and the operations that it applies to.

    `TREE` becomes `allreduce:tree`: from 2.24 on a bare TREE makes every function without a tree
    algorithm fail. A value that already names or excludes functions stays as it is.
    """
    algorithms = [_normalized(part) for part in value.split(",")]
    known = {name for operation in OPERATIONS.values() for name in operation.nccl_algorithms}
    if set(value) & set(":;^") or not set(algorithms) <= known:
        return value, tuple(operations)
    fitting = {
        operation: [a for a in algorithms if a in OPERATIONS[operation].nccl_algorithms]
        for operation in operations
    }
    applies = tuple(operation for operation, found in fitting.items() if found)
    if version < FUNCTIONS_SINCE:
        return value, applies
    parts = [
        f"{OPERATIONS[operation].nccl_function.lower()}:{','.join(fitting[operation])}"
        for operation in applies
    ]
    return ";".join(dict.fromkeys(parts)), applies


def _normalized(algorithm: str) -> str:
    return algorithm.strip().lower().replace("_", "")


def parse_log(lines: Iterable[str]) -> tuple[NcclSelection, ...]:
    """NCCL's selections, each once, from the lines of its log with LOG_VARIABLES set."""
    found: dict[NcclSelection, None] = {}
    for line in lines:
        if match := _SELECTION.search(line):
            function, size, algorithm, protocol, low, high = match.groups()
            channels = int(high) - int(low) + 1
            found[NcclSelection(function, int(size), algorithm, protocol, channels)] = None
    return tuple(found)


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
        cells = (
            function, each.low_bytes, high, each.algorithm, each.protocol, each.channels, nodes,
            ranks, -1, -1,
        )  # fmt: skip
        lines.append(",".join(map(str, cells)))
    return lines
