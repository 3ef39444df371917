"""Rows of nccl-tests from cells of its text or JSON, with size, count and bandwidth checked.

Sources: nccl-tests' src/common.cu, src/util.cu and doc/PERFORMANCE.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from commbench.errors import UsageError
from commbench.importers import cells
from commbench.importers.bandwidth_check import BandwidthCheck
from commbench.importers.base import ImportedRow, RowCollector, join_numbers
from commbench.importers.nccl_tests.preamble import Preamble
from commbench.spec.dtypes import DTYPES, find_dtype
from commbench.spec.operations import OPERATIONS
from commbench.spec.reduce_ops import REDUCE_OPS

CPU_TIME = "its times are those of launching on the CPU (option -C), not those of the operation"
SPREAD = "iterations, the slowest rank of each, by CUDA events"


_MOST_SIZES = 1000
"""Announced sizes that are looked for."""


class PlacementCells(NamedTuple):
    """The cells of one placement."""

    placement: str
    time: str
    algbw: str
    busbw: str
    wrong: int | None
    statistics: dict[str, str] = {}  # noqa: RUF012 - never changed
    """Cells by field of ImportedRow: `minimum_s`, `p99_s`; microseconds."""
    samples: tuple[str, ...] = ()


class TableRun(NamedTuple):
    """What all rows of a table share; the unit of time is 10 to the power of `exponent` seconds."""

    operation: str
    ranks: int
    statistic: str
    launch_mode: str
    memory: str
    iterations: int | None
    is_hinted: bool
    """Whether the operation or the ranks come from hints, because the file does not say them."""
    exponent: int
    line: int
    sizes: tuple[int, ...]
    """Those that its preamble announces; see Preamble.sizes."""


def make_run(
    collector: RowCollector, preamble: Preamble, ranks: int, line: int,
    exponent: int = cells.MICROSECONDS,
) -> TableRun:  # fmt: skip
    """The run of the table at `line`; LookupError for an operation that commbench lacks."""
    given = preamble.known_operation
    return TableRun(
        operation=collector.hints.choose_operation(collector.source.path, given, line),
        ranks=ranks,
        statistic=preamble.statistic,
        launch_mode=preamble.launch_mode,
        memory=preamble.memory,
        iterations=preamble.integers.get("iterations"),
        is_hinted=None in (given, preamble.known_ranks),
        exponent=exponent,
        line=line,
        sizes=tuple(islice(preamble.sizes(), _MOST_SIZES)),
    )


class RowBuilder:
    """Adds the rows of one file to its collector; raises ValueError where a cell is invalid."""

    def __init__(self, collector: RowCollector) -> None:
        self.collector = collector
        self._check = BandwidthCheck()
        self._hinted = ""
        self._printed: dict[tuple[TableRun, str], list[int]] = {}
        """The sizes of each table, by the cells of type, reduce op and root."""

    def add(
        self, run: TableRun, line: int, key: Mapping[str, str], timed: Iterable[PlacementCells]
    ) -> None:
        """Add the row of each placement, or note why not; `key` are the cells that begin the row:
        `size`, `count`, `type`, and where there are such columns `redop` and `root`."""
        operation = OPERATIONS[run.operation]
        if run.is_hinted:
            self._hinted = f"{run.operation} on {run.ranks} ranks"
        kind = " ".join(cell for name, cell in key.items() if name not in ("size", "count"))
        self._printed.setdefault((run, kind), []).append(cells.parse_size(key["size"]))
        root, reduce_op = key.get("root", ""), key.get("redop", "") if operation.reduces else ""
        try:
            dtype = translate_dtype(key["type"])
            if reduce_op not in ("", "none", *REDUCE_OPS):
                raise LookupError(f"commbench has no reduce op {reduce_op!r:.40}")
        except LookupError as reason:
            self.collector.leave_out(str(reason), line)
            return
        size, count = cells.parse_size(key["size"]), cells.parse_whole(key["count"])
        blocks = run.ranks if operation.blocks else 1
        if operation.reduces and reduce_op in ("", "none"):
            self._refuse(run, line, f"it has no reduce op, but {operation.name} reduces")
        if size != count * blocks * DTYPES[dtype].size_bytes:
            each = f" for each of {run.ranks} ranks" if operation.blocks else ""
            self._refuse(run, line, f"{count} {dtype}{each} are not {size} bytes")
        if not size:
            self.collector.leave_out("nothing was moved (size 0)", line)
        elif self.collector.is_requested(line, operation.name, dtype):
            common = ImportedRow(
                operation=operation.name,
                dtype=dtype,
                reduce_op=reduce_op,
                root=_parse_root(root, run.ranks) if operation.rooted else None,
                placement="",
                size_bytes=size,
                count=count,
                time_s=0.0,
                statistic=run.statistic,
                launch_mode=run.launch_mode,
                memory=run.memory,
                line=line,
                iterations=run.iterations,
            )
            for one in timed:
                self._add(run, common, one)

    def _refuse(self, run: TableRun, line: int, why: str) -> None:
        if run.is_hinted:
            raise UsageError(
                f"{self.collector.source.path}, line {line}, is not of {self._hinted}: {why}",
                "check --op and --ranks",
            )
        raise ValueError(why)

    def _add(self, run: TableRun, common: ImportedRow, timed: PlacementCells) -> None:
        time_s = cells.parse_seconds(timed.time, run.exponent)
        if time_s is None:
            reason = f"its time is {timed.time!r:.20} ({timed.placement})"
            self.collector.leave_out(reason, common.line, is_fault=True)
            return
        samples = [cells.parse_seconds(cell) for cell in timed.samples]
        row = common._replace(
            placement=timed.placement,
            time_s=time_s,
            samples_s=tuple(s for s in samples if s) if None not in samples else (),
            algbw=cells.parse_number(timed.algbw, cells.GIGABYTES),
            busbw=cells.parse_number(timed.busbw, cells.GIGABYTES),
            wrong=timed.wrong,
        ).with_statistics(timed.statistics, SPREAD)
        self.collector.rows.append(row)
        self._check.add(row, run.ranks, run.exponent, timed.time, timed.algbw, timed.busbw)

    def add_notes(self) -> None:
        """Note what the numbers of all rows mean, and whether they are consistent."""
        if any(row.spread for row in self.collector.rows):
            self.collector.note(
                "minimum, maximum and percentiles were measured on the device, the time on the host"
            )
        self._check.add_note(self.collector, self._hinted)
        for (run, kind), printed in self._printed.items():
            if lacking := _find_lacking(run, sorted(printed)):
                rows = join_numbers("size", lacking)
                why = f"the table at line {run.line} lacks rows that it announces: {kind}, {rows}"
                self.collector.note(why, is_fault=True)


def _find_lacking(run: TableRun, printed: list[int]) -> list[int]:
    """The sizes that a table announces and lacks. nccl-tests rounds sizes down, so that every block
    is a multiple of at most 16 bytes; `printed` are those of its rows, sorted."""
    granule = 16 * (run.ranks if OPERATIONS[run.operation].blocks else 1)
    return [
        size
        for size in run.sizes
        if not (at := bisect_right(printed, size)) or printed[at - 1] <= size - granule
    ]


def _parse_root(cell: str, ranks: int) -> int | None:
    if cell in ("", "-1"):
        return None
    if cells.parse_whole(cell) >= ranks:
        raise ValueError(f"root {cell} is not a rank of {ranks}")
    return int(cell)


def parse_wrong(cell: str, is_count: bool) -> int | None:
    """The number of wrong elements in a cell; None where it holds none. Older versions have the
    largest deviation in a column `error`, of which only 0 is a count."""
    value = cells.parse_number(cell)
    return None if value is None or (value and not is_count) else int(value)


def translate_dtype(name: str) -> str:
    """commbench's name for an element type; LookupError where commbench has no such type."""
    try:
        return find_dtype(name).name
    except UsageError:
        raise LookupError(f"commbench has no element type {name!r:.40}") from None
