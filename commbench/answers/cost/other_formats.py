"""Predictions, or measured times (answers.show.exporters), in the forms that other tools read.

autoparallel: the table `colls*.table` of the overlap simulator of AutoParallel (meta-pytorch,
autoparallel/tools/overlap_simulator/run.py, 2026-06). A row for each group and call; columns are
sizes of the call's *input* tensor in MiB; times in ms.

inductor: a trace for torch._inductor's profile-guided estimation (torch 2.13,
fx_passes/profile_guided_estimation.py; the setting aten_distributed_optimizations.
profile_guided_estimations_profile_path). One kernel for each group, call, dtype and size. Inductor
looks a collective up by its name, ranks, dtype and the elements of its output.

nccl-tuner: the algorithm and protocol that are predicted to be fastest, by ranges of sizes, for
NCCL's example tuner plugin. It needs models of several algorithms: a machine fitted to runs with
different values of NCCL_ALGO or NCCL_PROTO, whose variants are then named `NCCL ring simple`
(cost.observations).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import ceil, log2
from typing import Any, NamedTuple, TypeAlias

from commbench.analysis.nccl_log import TunerRange, tuner_lines
from commbench.answers.cost import cost_models, observations
from commbench.answers.cost.predict import Projection, predict
from commbench.errors import UnavailableError, UsageError
from commbench.plan import dtypes, operations
from commbench.plan.operation import Extent, Operation

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


Time: TypeAlias = tuple[str, int, int, float]
"""Of a call: its operation, ranks, size in bytes, and seconds."""


def inputs_of(operation: str, ranks: int) -> int:
    """How many times the tensor that a rank gives is in the size of a call."""
    return ranks if operations.OPERATIONS[operation].send is Extent.BLOCK else 1


def _autoparallel(projection: Projection) -> str:
    """The text of a file `colls*.table`; the sizes of the request are those of input tensors."""
    request = projection.request
    if odd := [size for size in request.sizes if size % MIB]:
        why = f"the table of AutoParallel has whole MiB, and {odd[0]} bytes are not"
        raise UsageError(why, "write for example --sizes 1M-2G")
    wanted = sorted({*request.sizes})
    rows = {}
    for name in request.operations:
        _require(operations.OPERATIONS[name], tuple(SIMULATED), "AutoParallel's simulator")
        for n in request.world_sizes:
            sizes = tuple(size * inputs_of(name, n) for size in wanted)
            own = request._replace(operations=(name,), world_sizes=(n,), sizes=sizes)
            rows[name, n] = [each.time_s for each in predict(projection.machine, own)]
    return autoparallel_table(wanted, rows)


def autoparallel_table(
    sizes: Sequence[int], calls: Mapping[tuple[str, int], Sequence[float]]
) -> str:
    """The table for sizes of input tensors in bytes, and calls by operation and ranks, each with a
    time in seconds for each size.

    The first column is the name of the group in the graph: here the position of the number of ranks
    among all of them, from 0.
    """
    groups = sorted({ranks for _, ranks in calls})
    heads = ["Group", "Group Size", "Collective", *(f"{size // MIB}MB (ms)" for size in sizes)]
    rows = [
        [str(groups.index(n)), str(n), row, *(f"{1e3 * time_s:.6g}" for time_s in times)]
        for (name, n), times in calls.items()
        for row in SIMULATED[operations.OPERATIONS[name].torch_call]
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return "".join(
        "  ".join(cell.rjust(wide) for cell, wide in zip(row, widths, strict=True)) + "\n"
        for row in [heads, ["-" * wide for wide in widths], *rows]
    )


def _inductor(projection: Projection) -> str:
    for name in projection.request.operations:
        _require(operations.OPERATIONS[name], ESTIMATED, "Inductor")
    found = projection.predictions
    times = [(each.operation, each.world_size, each.size_bytes, each.time_s) for each in found]
    return inductor_trace(times, "predicted")


def inductor_trace(times: Sequence[Time], kind: str = "measured") -> str:
    """A trace as of torch.profiler that has nothing but these collectives. `kind` begins the names
    of its kernels."""
    groups = list(dict.fromkeys(ranks for _, ranks, *_ in times))
    trace = {
        "schemaVersion": 1,
        "distributedInfo": {
            "backend": "nccl", "rank": 0, "world_size": max(groups, default=1),
            "pg_count": len(groups),
            "pg_config": [
                {"pg_name": str(at), "pg_desc": f"{n} ranks", "pg_size": n, "ranks": [*range(n)]}
                for at, n in enumerate(groups)
            ],
        },
        "traceEvents": list(_kernels(times, kind, groups)),
    }  # fmt: skip
    return json.dumps(trace, allow_nan=False) + "\n"


def _kernels(times: Sequence[Time], kind: str, groups: list[int]) -> Iterator[dict[str, Any]]:
    began = 0.0
    for name, ranks, size, time_s in times:
        operation, duration = operations.OPERATIONS[name], 1e6 * time_s
        for dtype, printed in KINETO_DTYPES.items():
            element = dtypes.DTYPES[dtype].size_bytes
            sent, received = (
                (size // ranks if extent is Extent.BLOCK else size) // element
                for extent in (operation.send, operation.receive)
            )
            yield {
                "ph": "X", "cat": "kernel", "name": f"{kind}_{operation.name}", "pid": 0,
                "tid": 0, "ts": began, "dur": duration,
                "args": {
                    "Collective name": operation.torch_call, "dtype": printed,
                    "Group size": ranks,
                    "Process Group Name": str(groups.index(ranks)),
                    "In msg nelems": sent,
                    "Out msg nelems": received,
                },
            }  # fmt: skip
            began += duration


def _require(operation: Operation, calls: Sequence[str], reader: str) -> None:
    if operation.torch_call not in calls:
        known = [o.name for o in operations.OPERATIONS.values() if o.torch_call in calls]
        why = f"{reader} reads no times of {operation.name}"
        hint = f"it reads those of {', '.join(dict.fromkeys(known))}: name them with --op"
        raise UnavailableError(why, hint)


class Choice(NamedTuple):
    """An algorithm and a protocol of NCCL for an operation on a number of ranks."""

    algorithm: str
    protocol: str
    projection: Projection
    """Of this operation on these ranks, by the model of this choice."""

    def time_s(self, size: int) -> float:
        """The predicted time of a size."""
        asked = self.projection.request._replace(sizes=(size,))
        return predict(self.projection.machine, asked)[0].time_s

    def channels_at(self, size: int) -> int:
        """The channels that NCCL logged for the nearest size, with the most ranks."""
        return min(
            (abs(log2(max(p.size_bytes, 1) / max(size, 1))), -p.world_size, p.channels)
            for p in self.projection.machine.fitted[0].points if p.channels
        )[-1]  # fmt: skip


def _nccl_tuner(projection: Projection) -> str:
    """The lines of a configuration file. UnavailableError where the machine has no models of
    different choices."""
    lines = [f"# predicted by commbench from the machine {projection.machine.name!r}"]
    for choices in find_choices(projection):
        request = choices[0].projection.request
        ranks = request.world_sizes[0]
        nodes = ceil(ranks / (request.ranks_per_node or ranks))
        lines += tuner_lines(_find_ranges(choices), nodes, ranks)
    return "".join(f"{line}\n" for line in lines)


def _find_ranges(choices: Sequence[Choice]) -> list[TunerRange]:
    def best(size: int) -> Choice:
        return min(choices, key=lambda choice: choice.time_s(size))

    def is_another(size: int) -> bool:
        return best(size) is not found[-1][1]

    request = choices[0].projection.request
    ordered = sorted(request.sizes)
    found = [(0, best(ordered[0]))]
    for before, size in pairwise(ordered):
        if is_another(size):
            first = bisect_left(range(size), True, before + 1, key=is_another)
            found.append((first, best(size)))
    ends = [*(begin - 1 for begin, _ in found[1:]), ordered[-1]]
    return [
        TunerRange(request.operations[0], begin, end, *choice[:2], choice.channels_at(max(end, 1)))
        for (begin, choice), end in zip(found, ends, strict=True)
    ]


def find_choices(projection: Projection) -> Iterator[list[Choice]]:
    """NCCL's choices for each number of ranks and operation that the machine has models of;
    UnavailableError where there are not two."""
    machine, request = projection.machine, projection.request
    words = {word.strip() for word in request.variant.split(",")} - {""}
    for ranks, name in product(request.world_sizes, request.operations):
        kind = cost_models.kind_of(ranks, request.ranks_per_node or ranks)
        asked = request._replace(operations=(name,), world_sizes=(ranks,), variant="")
        found = []
        for fitted in machine.fitted:
            own = set(fitted.variant.split(", "))
            selected = [word for word in own if word.startswith(f"{observations.SELECTED} ")]
            is_of_call = (fitted.operation, fitted.kind) == (name, kind)
            if is_of_call and selected and words <= own and any(p.channels for p in fitted.points):
                _, algorithm, protocol = selected[0].split(" ")
                alone = Projection(replace(machine, fitted=(fitted,)), asked)
                found.append(Choice(algorithm, protocol, alone))
        if len({choice[:2] for choice in found}) < 2:
            raise UnavailableError(
                f"{machine.name} has no times of {name} {kind} with different algorithms of NCCL",
                "fit it to runs with NCCL_ALGO=Ring, NCCL_ALGO=Tree and so on, in which NCCL "
                "logged what it selected"
                if operations.OPERATIONS[name].nccl_function
                else f"NCCL builds {name} from its sends and receives: it has one algorithm",
            )
        yield found


NCCL_TUNER = "nccl-tuner"
FORMATS: Mapping[str, Callable[[Projection], str]] = {
    "autoparallel": _autoparallel, "inductor": _inductor, NCCL_TUNER: _nccl_tuner,
}  # fmt: skip
