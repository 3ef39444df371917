"""What NCCL selected under each setting, and the best selections as a file for its tuner plugin.

NCCL's selections are read from the log of one more run of each setting. That run is not timed,
because writing a line for every call costs time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from commbench.errors import RecordsError, UnavailableError
from commbench.results.files import new_file
from commbench.spec.operations import OPERATIONS
from commbench.sweep.nccl_tuning import (
    LOG_VARIABLES,
    NcclSelection,
    TunerRange,
    parse_log,
    tuner_lines,
)
from commbench.sweep.ranking import SweepPoint
from commbench.sweep.runner import Sweep, run_once
from commbench.sweep.settings import Setting

LOG_RUN_OPTIONS = ("--iters=1", "--warmup=0", "--no-check", "--order=ascending")
TUNER_FILE = "nccl-tuner.csv"

Selections = Mapping[Setting, Mapping[tuple[str, int], NcclSelection]]
"""For each setting NCCL's selections by its function and the bytes it logs."""


def log_selections(sweep: Sweep, folder: Path) -> None:
    """Run every setting that was measured once more, untimed, with NCCL logging what it selects."""
    for setting in sweep.settings:
        setting_folder = folder / setting.slug
        if _find_logs(setting_folder) or not setting_folder.exists():
            continue
        log = ("NCCL_DEBUG_FILE", str(setting_folder.absolute() / "nccl.%h.%p.log"))
        variables = (*LOG_VARIABLES.items(), log)
        run_once(sweep, setting, setting_folder / "choices", LOG_RUN_OPTIONS, variables)


def read_selections(settings: Sequence[Setting], folder: Path) -> Selections:
    """What NCCL selected under each setting; raises RecordsError where a log cannot be read."""
    found: dict[Setting, dict[tuple[str, int], NcclSelection]] = {}
    for setting in settings:
        known = found.setdefault(setting, {})
        for path in _find_logs(folder / setting.slug):
            try:
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError as error:
                raise RecordsError(
                    f"cannot read {path}: {error.strerror}", "run it again"
                ) from None
            known.update({(each.function, each.size_bytes): each for each in parse_log(lines)})
    return found


def _find_logs(setting_folder: Path) -> list[Path]:
    return sorted(setting_folder.glob("nccl.*.log"))


def find_selection(point: SweepPoint, selections: Selections) -> NcclSelection | None:
    """What NCCL selected for a case under its best setting; None where its log does not tell.

    NCCL logs the bytes of one block for an operation with blocks.
    """
    function = OPERATIONS[point.case.operation].nccl_function
    return selections.get(point.best, {}).get((function, point.case.block_bytes))


def make_tuner_ranges(
    points: Sequence[SweepPoint], selections: Selections
) -> tuple[TunerRange, ...]:
    """For each operation, ranges of sizes and what NCCL selected there under the best setting.

    A range extends up to the next measured size, so that the plugin's own default holds nowhere.
    """
    ranges: list[TunerRange] = []
    for point in sorted(points, key=lambda p: (p.case.operation, p.size_bytes)):
        operation, size = point.case.operation, point.size_bytes
        selection = find_selection(point, selections)
        if selection is None:
            continue
        wanted = (selection.algorithm.lower(), selection.protocol.lower(), selection.channels)
        last = ranges[-1] if ranges and ranges[-1].operation == operation else None
        if last and (last.algorithm, last.protocol, last.channels) == wanted:
            ranges[-1] = last._replace(high_bytes=size)
            continue
        if last:
            ranges[-1] = last._replace(high_bytes=size - 1)
        ranges.append(TunerRange(operation, size if last else 0, size, *wanted))
    return tuple(ranges)


def export_tuner(
    points: Sequence[SweepPoint], selections: Selections, folder: Path, nodes: int, ranks: int
) -> Path:
    """Write the best selections for NCCL's example tuner plugin.

    Raises UnavailableError where NCCL logged no selection: without the number of channels the
    plugin would use one channel.
    """
    ranges = make_tuner_ranges(points, selections)
    if not ranges:
        raise UnavailableError(
            "there is nothing to export: NCCL told of no choice",
            "a tuner configuration needs a sweep over NCCL, 2.24 or newer",
        )
    path = folder / TUNER_FILE
    try:
        with new_file(path) as file:
            file.write("".join(f"{line}\n" for line in tuner_lines(ranges, nodes, ranks)).encode())
    except OSError as error:
        raise RecordsError(f"cannot write {path}: {error.strerror}", "move it away") from None
    return path
