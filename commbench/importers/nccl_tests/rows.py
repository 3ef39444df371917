"""Rows of nccl-tests, from the cells of its text table or of its JSON, checked against each other.

Sources: nccl-tests' src/common.cu and src/util.cu; size and count follow from the operation as
its doc/PERFORMANCE.md says.
"""

from __future__ import annotations

from typing import NamedTuple

from commbench.errors import UsageError
from commbench.importers import cells
from commbench.importers.bandwidth_check import BandwidthCheck
from commbench.importers.base import ImportedRow
from commbench.importers.collector import RowCollector
from commbench.importers.nccl_tests.names import dtype_of, reduce_op_of
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS, Operation

SPREAD = "iterations, the slowest rank of each, by CUDA events"


class RowKey(NamedTuple):
    """The cells that begin a row."""

    size: str
    elements: str
    dtype: str
    reduce_op: str
    """Empty where it was printed as nothing, or there is no column."""
    root: str


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
    """What all rows of a table share."""

    operation: str
    ranks: int
    statistic: str
    iterations: int | None
    asked: bool
    """Whether operation or ranks are what was asked for, and the file does not tell them."""
    exponent: int = cells.MICROSECONDS


class RowBuilder:
    """Adds the rows of one file to its collection. ValueError: a cell cannot be what it is."""

    def __init__(self, collection: RowCollector) -> None:
        self.collection = collection
        self._agreement = BandwidthCheck()
        self._asked = ""

    def add(self, run: TableRun, line: int, key: RowKey, timed: list[PlacementCells]) -> None:
        """Add the row of each placement, or note why not."""
        operation = OPERATIONS[run.operation]
        if run.asked:
            self._asked = f"{run.operation} on {run.ranks} ranks"
        try:
            dtype = dtype_of(key.dtype)
            reduce_op = reduce_op_of(key.reduce_op) if operation.reduces and key.reduce_op else ""
        except LookupError as reason:
            self.collection.leave_out(str(reason), line)
            return
        size, count = cells.size(key.size), cells.whole(key.elements)
        blocks = run.ranks if operation.blocks else 1
        if operation.reduces and reduce_op == "":
            self._contradict(run, line, f"it names no reduce op, and {operation.name} reduces")
        if size != count * blocks * DTYPES[dtype].size_bytes:
            each = f" for each of {run.ranks} ranks" if operation.blocks else ""
            self._contradict(run, line, f"{count} {dtype}{each} are not {size} bytes")
        if not size:
            self.collection.leave_out("nothing was moved (size 0)", line)
        elif self.collection.wanted(line, operation.name, dtype):
            common = ImportedRow(
                operation=operation.name,
                dtype=dtype,
                reduce_op=reduce_op,
                root=_root(operation, key.root, run.ranks),
                placement="",
                size_bytes=size,
                count=count,
                time_s=0.0,
                statistic=run.statistic,
                line=line,
                iterations=run.iterations,
            )
            for one in timed:
                self._add(run, common, one)

    def _contradict(self, run: TableRun, line: int, why: str) -> None:
        if run.asked:
            raise UsageError(
                f"{self.collection.source.path}, line {line}, is not of {self._asked}: {why}",
                "check --op and --ranks",
            )
        raise ValueError(why)

    def _add(self, run: TableRun, common: ImportedRow, timed: PlacementCells) -> None:
        time_s = cells.seconds(timed.time, run.exponent)
        if time_s is None:
            reason = f"its time is {timed.time!r:.20} ({timed.placement})"
            self.collection.leave_out(reason, common.line)
            return
        statistics = {name: cells.seconds(cell) for name, cell in timed.statistics.items()}
        samples = [cells.seconds(cell) for cell in timed.samples]
        row = common._replace(
            placement=timed.placement,
            time_s=time_s,
            samples_s=tuple(s for s in samples if s) if None not in samples else (),
            algbw=cells.bandwidth(timed.algbw),
            busbw=cells.bandwidth(timed.busbw),
            wrong=timed.wrong,
        ).with_statistics(statistics, SPREAD)
        self.collection.rows.append(row)
        self._agreement.see(row, run.ranks, run.exponent, timed.time, timed.busbw)

    def note(self) -> None:
        """Note what the numbers of all rows mean, and whether they agree with each other."""
        if any(row.spread for row in self.collection.rows):
            self.collection.note(
                "minimum, maximum and percentiles are times of the device, time that of the host"
            )
        if disagreement := self._agreement.verdict(self.collection.source.path, self._asked):
            self.collection.note(disagreement)


def _root(operation: Operation, cell: str, ranks: int) -> int | None:
    if not operation.rooted or cell in ("", "-1"):
        return None
    if cells.whole(cell) >= ranks:
        raise ValueError(f"root {cell} is not a rank of {ranks}")
    return int(cell)


def wrong_elements(cell: str, is_count: bool) -> int | None:
    """The wrong elements of a cell.

    In older versions the column is `error`, the largest deviation: only a 0 in it is a count.
    """
    value = cells.number(cell)
    if value is None or (value and not is_count):
        return None
    return int(value)
