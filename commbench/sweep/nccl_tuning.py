"""What NCCL makes of NCCL_ALGO and NCCL_PROTO: which functions a value applies to, what it says it
chose, and the winners as a configuration for its tuner plugin.

Facts: NCCL's documentation of NCCL_ALGO, its src/graph/tuning.cc and src/enqueue.cc (2.30), and
plugins/tuner/example.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from commbench.spec.operations import OPERATIONS

ALGORITHM = "NCCL_ALGO"
LOG_VARIABLES = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "TUNING"}
FUNCTIONS_SINCE = (2, 24)
"""The version from which a value may name its function, and from which one that fits no algorithm
of a function makes that function fail."""
_CHOICE = re.compile(
    r"NCCL INFO (\w+)(?: \[[\w ]+\])?: (\d+) Bytes -> "
    r"Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}"
)


class NcclSelection(NamedTuple):
    """What NCCL chose for one function and size."""

    function: str
    """NCCL's name: `AllReduce`."""
    size_bytes: int
    """As NCCL prints it: elements of the call times their size; all_gather's is one rank's part."""
    algorithm: str
    protocol: str
    channels: int


def eligible(operation: str, algorithm: str) -> bool:
    """Whether NCCL has this algorithm for the operation."""
    return _plain(algorithm) in OPERATIONS[operation].nccl_algorithms


def value_for(
    operations: Sequence[str], value: str, version: tuple[int, ...]
) -> tuple[str, tuple[str, ...]]:
    """The value of NCCL_ALGO to set for these operations, and the operations it applies to.

    `TREE` becomes `allreduce:tree`, since from 2.24 on a bare TREE makes every function without a
    tree fail. A value that names functions or excludes some stays as it is.
    """
    algorithms = [_plain(part) for part in value.split(",")]
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


def _plain(algorithm: str) -> str:
    return algorithm.strip().lower().replace("_", "")


def read_choices(log: Iterable[str]) -> tuple[NcclSelection, ...]:
    """What NCCL says it chose, from the lines of its log with LOG_VARIABLES set; each once."""
    found: dict[NcclSelection, None] = {}
    for line in log:
        if match := _CHOICE.search(line):
            function, size, algorithm, protocol, low, high = match.groups()
            found[
                NcclSelection(function, int(size), algorithm, protocol, int(high) - int(low) + 1)
            ] = None
    return tuple(found)


class TunerRange(NamedTuple):
    """A range of sizes in which one algorithm and protocol won, for one operation."""

    operation: str
    low_bytes: int
    high_bytes: int
    """Inclusive."""
    algorithm: str
    protocol: str
    channels: int


def tuner_lines(wins: Sequence[TunerRange], nodes: int, ranks: int) -> list[str]:
    """Lines of a configuration for NCCL's example tuner plugin.

    `collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff`,
    no header row (it would be taken for an entry), the first match wins. The plugin's own default
    for channels is one: every line says the number that was measured, and the last range of each
    collective has no upper end.
    """
    last: Mapping[str, int] = {
        win.operation: max(w.high_bytes for w in wins if w.operation == win.operation)
        for win in wins
    }
    lines = []
    for win in wins:
        high = 2**63 - 1 if win.high_bytes == last[win.operation] else win.high_bytes
        lines.append(
            ",".join(
                (
                    OPERATIONS[win.operation].nccl_function.lower(),
                    str(win.low_bytes), str(high), win.algorithm, win.protocol,
                    str(win.channels), str(nodes), str(ranks), "-1", "-1",
                )
            )
        )  # fmt: skip
    return lines
