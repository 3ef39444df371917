"""Predictions in the forms that other tools read.

autoparallel: the table `colls*.table` of the overlap simulator of AutoParallel (meta-pytorch,
autoparallel/tools/overlap_simulator/run.py, 2026-06). A row for each group and call; columns are
sizes of the call's *input* tensor in MiB; times in ms.

inductor: a trace for torch._inductor's profile-guided estimation (torch 2.13,
fx_passes/profile_guided_estimation.py; the setting aten_distributed_optimizations.
profile_guided_estimations_profile_path). One kernel for each group, call, dtype and size. Inductor
looks a collective up by its name, ranks, dtype and the elements of its output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from commbench.errors import UnavailableError, UsageError
from commbench.models.predict import Prediction
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS, Extent, Operation

MIB = 1 << 20
SIMULATED = {
    "all_reduce": ("all_reduce",),
    "all_gather_into_tensor": ("all_gather_into_tensor", "all_gather_into_tensor_out"),
    "reduce_scatter_tensor": ("reduce_scatter_tensor",),
}
"""torch's calls that AutoParallel's simulator looks up, each with the names of its rows."""
ESTIMATED = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")
"""torch's calls that Inductor looks up."""
KINETO_DTYPES = {"float32": "Float", "bfloat16": "BFloat16", "float16": "Half"}
"""Element types for which the trace has kernels, with their names in a trace. A prediction depends
on bytes only."""


def input_bytes(operation: Operation, size_bytes: int, world_size: int) -> int:
    """The bytes of a rank's input tensor in a call of size S."""
    return size_bytes // world_size if operation.send is Extent.BLOCK else size_bytes


def output_bytes(operation: Operation, size_bytes: int, world_size: int) -> int:
    """The bytes of a rank's output tensor in a call of size S."""
    return size_bytes // world_size if operation.receive is Extent.BLOCK else size_bytes


def sizes_by_input(operation: str, sizes: Sequence[int], world_size: int) -> tuple[int, ...]:
    """The sizes S of the calls whose input tensors have these sizes, for autoparallel's columns."""
    if odd := [size for size in sizes if size % MIB]:
        raise UsageError(
            f"the table of AutoParallel has whole MiB, and {odd[0]} bytes are not",
            "write for example --sizes 1M-2G",
        )
    factor = world_size if OPERATIONS[operation].send is Extent.BLOCK else 1
    return tuple(size * factor for size in sizes)


def autoparallel_table(predictions: Sequence[Prediction]) -> str:
    """The text of a file `colls*.table`; the sizes of each operation are those of sizes_by_input.

    The first column is the name of the group in the graph: here the position of the number of ranks
    in the request, from 0.
    """
    groups: dict[int, str] = {}
    lines: dict[tuple[int, str], dict[int, float]] = {}
    for each in predictions:
        operation = OPERATIONS[each.operation]
        _require(operation, tuple(SIMULATED), "AutoParallel's simulator")
        groups.setdefault(each.world_size, str(len(groups)))
        size = input_bytes(operation, each.size_bytes, each.world_size) // MIB
        for name in SIMULATED[operation.torch_call]:
            lines.setdefault((each.world_size, name), {})[size] = each.time_s
    sizes = sorted({size for times in lines.values() for size in times})
    heads = ["Group", "Group Size", "Collective", *(f"{size}MB (ms)" for size in sizes)]
    rows = [
        [groups[ranks], str(ranks), name, *(f"{1e3 * times[size]:.6g}" for size in sizes)]
        for (ranks, name), times in lines.items()
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    table = [heads, ["-" * wide for wide in widths], *rows]
    return "".join(
        "  ".join(cell.rjust(wide) for cell, wide in zip(row, widths, strict=True)) + "\n"
        for row in table
    )


def inductor_trace(predictions: Sequence[Prediction]) -> str:
    """A trace as of torch.profiler that has nothing but the predicted collectives."""
    ranks = list(dict.fromkeys(each.world_size for each in predictions))
    trace = {
        "schemaVersion": 1,
        "distributedInfo": {
            "backend": "nccl", "rank": 0, "world_size": max(ranks, default=1),
            "pg_count": len(ranks),
            "pg_config": [
                {"pg_name": str(at), "pg_desc": f"{n} ranks", "pg_size": n, "ranks": [*range(n)]}
                for at, n in enumerate(ranks)
            ],
        },
        "traceEvents": list(_kernels(predictions, ranks)),
    }  # fmt: skip
    return json.dumps(trace, allow_nan=False) + "\n"


def _kernels(predictions: Sequence[Prediction], groups: list[int]) -> Iterator[dict[str, Any]]:
    began = 0.0
    for each in predictions:
        operation = OPERATIONS[each.operation]
        _require(operation, ESTIMATED, "Inductor")
        for dtype, name in KINETO_DTYPES.items():
            element = DTYPES[dtype].size_bytes
            duration = 1e6 * each.time_s
            size, ranks = each.size_bytes, each.world_size
            yield {
                "ph": "X", "cat": "kernel", "name": f"predicted_{operation.name}", "pid": 0,
                "tid": 0, "ts": began, "dur": duration,
                "args": {
                    "Collective name": operation.torch_call, "dtype": name, "Group size": ranks,
                    "Process Group Name": str(groups.index(ranks)),
                    "In msg nelems": input_bytes(operation, size, ranks) // element,
                    "Out msg nelems": output_bytes(operation, size, ranks) // element,
                },
            }  # fmt: skip
            began += duration


def _require(operation: Operation, calls: Sequence[str], reader: str) -> None:
    if operation.torch_call not in calls:
        known = [o.name for o in OPERATIONS.values() if o.torch_call in calls]
        raise UnavailableError(
            f"{reader} reads no times of {operation.name}",
            f"it reads those of {', '.join(dict.fromkeys(known))}: name them with --op",
        )
