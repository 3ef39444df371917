"""Intel MPI Benchmarks' tables of blocking collectives (IMB-MPI1).

Versions that are numbered by years time each operation by itself, and a barrier follows it unless
`-sync off`; older ones time the loop as a whole, and all do so for Barrier. The time taken here is
`t_max`, the mean over iterations of the slowest rank, from which IMB itself computes throughput.
Sizes are one rank's block for Allgather, Alltoall, Gather, Scatter, Reduce_scatter_block and,
since 2019, Reduce_scatter. Source: IMB's user guide, src_c/IMB_output.c and the kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from commbench.importers import cells
from commbench.importers.base import ImportedFile, each
from commbench.importers.collector import RowCollector
from commbench.importers.hints import ImportHints
from commbench.importers.mpi_common import DTYPE_NAMES, REDUCE_NAMES, RowCells, TableKind, add_row
from commbench.importers.names import BARRIER, IMB, IMB_BLOCKS_SINCE, MpiBenchmark
from commbench.importers.text_source import Line, SourceText
from commbench.spec.operations import OPERATIONS
from commbench.spec.timing_modes import ISOLATED, PIPELINED

NAME = "imb"

_STATISTICS = ("minimum_s", "maximum_s", "mean_s")
_STATISTIC = "mean over {}iterations, slowest rank"
_SPREAD = "minimum, maximum and mean over ranks, of each rank's mean"


def sniff(source: SourceText) -> bool:
    """Whether there is a header of IMB's table after a benchmark's name."""
    return is_imb(source)


def read(source: SourceText, asked: ImportHints) -> ImportedFile:
    """The file's rows."""
    collection = RowCollector(source, asked)
    usable = [table for table in tables_of(source, collection) if _is_usable(table, collection)]
    ranks = asked.settle_ranks(table.ranks for table in usable) if usable else 0
    for table in usable:
        _read_table(table, ranks, collection)
    timings = dict.fromkeys(table.timing for table in usable)
    if ISOLATED in timings and not all(row.dtype for row in collection.rows):
        collection.note("Barrier, unlike the others, is timed as a loop")
    if any("version" not in table.facts for table in usable):
        collection.note("the version is not printed: taken for one before 2017, which timed a loop")
    if len(timings) > 1:
        collection.note("runs that time each operation and runs that do not are mixed here")
    return collection.file(
        tool="imb",
        tool_version=", ".join(each(t.facts.get("version", "") for t in usable)),
        format=NAME,
        timing=ISOLATED if list(timings) == [ISOLATED] else PIPELINED,
        ranks=ranks,
        hosts=(),
        devices=(),
        backend="mpi",
    )


def _is_usable(table: ImbTable, collection: RowCollector) -> bool:
    for line, _ in table.rows or [(Line(table.line, ""), [])]:
        if table.reason:
            collection.leave_out(table.reason, line.number)
    return not table.reason


def _read_table(table: ImbTable, ranks: int, collection: RowCollector) -> None:
    source = collection.source
    kind = _kind(table, ranks, collection) if table.rows else None
    for line, row in table.rows:
        if table.ranks not in (None, ranks):
            collection.leave_out(f"measured on {table.ranks} ranks", line.number)
        elif source.is_cut(line):
            collection.leave_out("the file ends within the line", line.number)
        elif row[1:] and row[1].startswith(FAILURES):
            collection.leave_out(f"IMB gave up ({row[1].rstrip('.;')})", line.number)
        elif kind is None:
            collection.leave_out("commbench lacks its element type or reduce op", line.number)
        else:
            try:
                _add(collection, kind, line, table.named(row))
            except ValueError as error:
                raise source.damaged(line.number, error, len(collection.rows)) from None


def _kind(table: ImbTable, ranks: int, collection: RowCollector) -> TableKind | None:
    """What its rows share; None where commbench lacks the element type or the reduce op."""
    benchmark = table.benchmark or BARRIER
    operation = OPERATIONS[benchmark.operation]
    told = table.facts.get("reduce_dtype" if operation.reduces else "dtype")
    reduce_op = REDUCE_NAMES.get(table.facts.get("reduce_op", "MPI_SUM"), "")
    if not operation.has_data:
        return TableKind(benchmark, "", "", ranks)
    if (told is not None and told not in DTYPE_NAMES) or (operation.reduces and not reduce_op):
        return None
    dtype = DTYPE_NAMES[told] if told is not None else None
    return TableKind(benchmark, collection.asked.settle_dtype(dtype, table.line), reduce_op, ranks)


def _add(collection: RowCollector, kind: TableKind, line: Line, row: dict[str, str]) -> None:
    if cells.number(row.get("defects", "0")):
        collection.leave_out("its result was wrong (defects)", line.number)
        return
    add_row(
        collection,
        kind,
        RowCells(
            line=line.number,
            size=row.get("size", "0"),
            time=row["maximum_s"],
            statistic=_STATISTIC,
            iterations=row.get("iterations", ""),
            statistics={name: row[name] for name in _STATISTICS if name in row},
            spread=_SPREAD,
        ),
    )


_EACH_SINCE = 2017


_COLUMNS = (
    ("#bytes", "size"),
    ("#repetitions", "iterations"),
    (r"t_min\[usec\]", "minimum_s"),
    (r"t_max\[usec\]", "maximum_s"),
    (r"t_avg\[usec\]", "mean_s"),
    ("Mbytes/sec", "throughput"),
    ("defects", "defects"),
)


FAILURES = ("out-of-mem", "int-overflow", "time-out")


_FACTS = {
    "version": re.compile(r"#\s*Intel ?\(R\) MPI Benchmark(?:s| Suite) V?([\d.]{1,20})"),
    "sync": re.compile(r"#.*\s-sync\s+(off|on|0|1|disable|enable|no|yes)\b"),
    "dtype": re.compile(r"#\s*MPI_Datatype\s*:\s*(\w{1,40})"),
    "reduce_dtype": re.compile(r"#\s*MPI_Datatype for reductions\s*:\s*(\w{1,40})"),
    "reduce_op": re.compile(r"#\s*MPI_Op\s*:\s*(\w{1,40})"),
}


_BENCHMARK = re.compile(r"#\s*Benchmarking\s+(\S{1,60})")


_RANKS = re.compile(r"#\s*#processes\s*=\s*(\d{1,9})\b")


_HEADER = re.compile(r"\s*#(?:bytes|repetitions)\b")


@dataclass(frozen=True)
class ImbTable:
    """One benchmark's table at one number of processes."""

    name: str
    line: int
    facts: dict[str, str]
    """Told before it: `version`, `sync`, `dtype`, `reduce_dtype`, `reduce_op`."""
    ranks: int | None = None
    columns: tuple[str, ...] = ()
    rows: list[tuple[Line, list[str]]] = field(default_factory=list)

    @property
    def year(self) -> int:
        """Of its version; 0 for versions that had no years, or none told."""
        major = self.facts.get("version", "").partition(".")[0]
        return int(major) if len(major) == 4 and major.isascii() else 0

    @property
    def timing(self) -> str:
        """How its loop times."""
        separate = self.facts.get("sync", "on") in ("on", "1", "enable", "yes")
        return ISOLATED if separate and self.year >= _EACH_SINCE else PIPELINED

    def named(self, row: list[str]) -> dict[str, str]:
        """The cells of a row by column; ValueError where they do not fit."""
        has_size = bool(self.benchmark and OPERATIONS[self.benchmark.operation].has_data)
        if "maximum_s" not in self.columns or ("size" in self.columns) != has_size:
            raise ValueError("no header before it names its columns")
        if len(row) != len(self.columns):
            raise ValueError(f"it has {len(row)} cells, and the header {len(self.columns)} columns")
        return dict(zip(self.columns, row, strict=True))

    @property
    def reason(self) -> str:
        """Why it cannot be used; empty where it can."""
        if self.name not in IMB:
            return f"{self.name!r:.60} is no blocking collective that commbench has"
        if self.name in IMB_BLOCKS_SINCE and "version" not in self.facts:
            return f"the size of {self.name} depends on the version, which is not printed"
        return ""

    @property
    def benchmark(self) -> MpiBenchmark | None:
        """What its size means, for its version."""
        found = IMB.get(self.name)
        if found and self.name in IMB_BLOCKS_SINCE:
            return found._replace(of_block=self.year >= IMB_BLOCKS_SINCE[self.name])
        return found


def is_imb(source: SourceText) -> bool:
    """Whether a file has a header of IMB's table, and a benchmark's name."""
    texts = [line.text for line in source.lines]
    return any(map(_BENCHMARK.match, texts)) and any(map(_HEADER.match, texts))


def tables_of(source: SourceText, collection: RowCollector) -> list[ImbTable]:
    """All tables of a file, of whatever benchmark."""
    tables: list[ImbTable] = []
    facts: dict[str, str] = {}
    for line in source.lines:
        for name, pattern in _FACTS.items():
            if found := pattern.match(line.text):
                facts = ({} if name == "version" else facts) | {name: found[1]}
        if named := _BENCHMARK.match(line.text):
            tables.append(ImbTable(named[1], line.number, facts))
        elif tables:
            tables[-1] = _take(collection, tables, line)
        elif _HEADER.match(line.text):
            raise source.damaged(line.number, "a table without a benchmark's name before it", 0)
    return tables


def _take(collection: RowCollector, tables: list[ImbTable], line: Line) -> ImbTable:
    table = tables[-1]
    if (ranks := _RANKS.match(line.text)) and not table.columns:
        return replace(table, ranks=int(ranks[1]))
    if _HEADER.match(line.text) and table.name in IMB:
        try:
            if table.columns:
                raise ValueError("a table without a benchmark's name before it")
            return replace(table, columns=tuple(cells.columns(line.text, _COLUMNS)))
        except ValueError as error:
            raise collection.source.damaged(line.number, error, len(table.rows)) from None
    row = line.text.split()
    if _is_row(row, len(table.columns)):
        table.rows.append((line, row))
    else:
        collection.see_noise(line)
    return table


def _is_row(row: list[str], width: int) -> bool:
    """Whether a line is meant as a row, sound or not."""
    if not row or row[0].startswith("#"):
        return False
    if cells.is_whole(row[0]) and (len(row) < 2 or row[1].startswith(FAILURES)):
        return True
    numbers = sum(cells.is_number(cell) for cell in row)
    return numbers == len(row) or (len(row) == width and numbers * 2 > width)
