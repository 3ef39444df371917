"""NCCL under a sweep: values of NCCL_ALGO, what NCCL selected, and the file of its tuner plugin.

NCCL's selections are those that the first run of each setting recorded. Sources: NCCL's
documentation of NCCL_ALGO, its src/graph/tuning.cc and src/enqueue.cc (2.30), and
plugins/tuner/example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from commbench.analysis.nccl_log import NcclSelection, one_selection
from commbench.analysis.nccl_tuner import TunerRange, tuner_lines
from commbench.errors import UnavailableError
from commbench.results.files import write_new
from commbench.spec.operations import OPERATIONS
from commbench.sweep.ranking import SweepPoint, steps_as_made
from commbench.sweep.runner import SettingResult
from commbench.sweep.settings import Setting

TUNER = "nccl-tuner"
"""What --export takes."""
TUNER_FILE = f"{TUNER}.csv"
ALGORITHM = "NCCL_ALGO"
FUNCTIONS_SINCE = (2, 24)
"""The first version in which a value may name its function. From this version on, a function fails
where the value names no algorithm that it has."""

Selections = Mapping[Setting, dict[str, Any]]
"""For each setting the environment of its first run, which has NCCL's selections."""


def make_value(
    operations: Sequence[str], value: str, version: tuple[int, ...]
) -> tuple[str, tuple[str, ...]]:
    """The value of NCCL_ALGO to set for these operations, and the operations that it applies to.

    `TREE` becomes `allreduce:tree`: from 2.24 on a bare TREE makes every function without a tree
    algorithm fail. A value that already names or excludes functions stays as it is.
    """
    algorithms = [part.strip().lower().replace("_", "") for part in value.split(",")]
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
    functions = [OPERATIONS[operation].nccl_function.lower() for operation in applies]
    parts = (f"{name}:{','.join(fitting[o])}" for name, o in zip(functions, applies, strict=True))
    return ";".join(dict.fromkeys(parts)), applies


def read_selections(results: Sequence[SettingResult]) -> Selections:
    """What NCCL selected under each setting, as the first of its runs recorded it."""
    return {each.setting: each.run.header.environment for each in results if each.run}


def find_selection(
    point: SweepPoint, selections: Selections, setting: Setting | None = None
) -> NcclSelection | None:
    """What NCCL selected for a case under a setting, by default its best one; None if its log does
    not tell, or tells several."""
    chosen = point.best.setting if setting is None else setting
    return one_selection(selections.get(chosen, {}), point.case)


def make_tuner_ranges(
    points: Sequence[SweepPoint], selections: Selections
) -> tuple[TunerRange, ...]:
    """NCCL's selections under the best setting, by operation and range of sizes. A range extends to
    the next measured size, so that the plugin's own default holds nowhere. Of a replay the setting
    that is best for its first step counts for all calls."""
    steps = steps_as_made(points)
    setting = steps[0].best.setting if steps else None
    ranges: list[TunerRange] = []
    for point in sorted(points, key=lambda p: (p.case.operation, p.size_bytes)):
        operation, size = point.case.operation, point.size_bytes
        selection = find_selection(point, selections, setting)
        is_plain = point.case.call_form.is_reference
        if selection is None or not selection.is_of_table or not is_plain:
            continue
        wanted = (selection.algorithm.lower(), selection.protocol.lower(), selection.channels)
        last = ranges[-1] if ranges and ranges[-1].operation == operation else None
        is_same = last and (last.algorithm, last.protocol, last.channels) == wanted
        if last and (is_same or last.high_bytes == size):  # of several of one size, the first
            ranges[-1] = last._replace(high_bytes=size)
            continue
        if last:
            ranges[-1] = last._replace(high_bytes=size - 1)
        ranges.append(TunerRange(operation, size if last else 0, size, *wanted))
    return tuple(ranges)


def export_tuner(points: Sequence[SweepPoint], selections: Selections, folder: Path) -> Path:
    """Write the best selections for NCCL's example tuner plugin; UnavailableError where NCCL logged
    none, for without a number of channels the plugin would use one channel."""
    compared = [point for point in points if point.is_compared]
    ranges = make_tuner_ranges(compared, selections)
    if not ranges:
        raise UnavailableError(
            "there is nothing to export: NCCL logged no selection",
            "NCCL 2.24 or newer logs its selections where NCCL_DEBUG is not set otherwise",
        )
    path, header = folder / TUNER_FILE, compared[0].best.row.header
    lines = tuner_lines(ranges, header.num_nodes, header.plan.world_size)
    write_new(path, [f"{line}\n" for line in lines])
    return path
