"""Intel MPI Benchmarks' tables of blocking collectives (IMB-MPI1).

Versions that are numbered by years time each operation by itself, and a barrier follows it unless
`-sync off`; older ones time the loop as a whole, and all do so for Barrier. The time taken here is
`t_max`, the mean over iterations of the slowest rank, from which IMB itself computes throughput.
Sizes are one rank's block for Allgather, Alltoall, Gather, Scatter, Reduce_scatter_block and,
since 2019, Reduce_scatter. Source: IMB's user guide, src_c/IMB_output.c and the kernels.
"""

from __future__ import annotations

from commbench.operations import OPERATIONS
from commbench.plan import ISOLATED
from commbench.records.importers import cells
from commbench.records.importers.asked import Asked
from commbench.records.importers.collect import Collection
from commbench.records.importers.foreign import PIPELINED, ForeignFile, each
from commbench.records.importers.imb_table import FAILURES, Table, is_imb, tables_of
from commbench.records.importers.mpi import (
    DTYPE_NAMES,
    REDUCE_NAMES,
    Cells,
    Kind,
    add_row,
)
from commbench.records.importers.names import BARRIER
from commbench.records.importers.source import Line, Source

NAME = "imb"

_STATISTICS = ("minimum_s", "maximum_s", "mean_s")
_STATISTIC = "mean over {}iterations, slowest rank"
_SPREAD = "minimum, maximum and mean over ranks, of each rank's mean"


def sniff(source: Source) -> bool:
    """Whether there is a header of IMB's table after a benchmark's name."""
    return is_imb(source)


def read(source: Source, asked: Asked) -> ForeignFile:
    """The file's rows."""
    collection = Collection(source, asked)
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


def _is_usable(table: Table, collection: Collection) -> bool:
    for line, _ in table.rows or [(Line(table.line, ""), [])]:
        if table.reason:
            collection.leave_out(table.reason, line.number)
    return not table.reason


def _read_table(table: Table, ranks: int, collection: Collection) -> None:
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


def _kind(table: Table, ranks: int, collection: Collection) -> Kind | None:
    """What its rows share; None where commbench lacks the element type or the reduce op."""
    benchmark = table.benchmark or BARRIER
    operation = OPERATIONS[benchmark.operation]
    told = table.facts.get("reduce_dtype" if operation.reduces else "dtype")
    reduce_op = REDUCE_NAMES.get(table.facts.get("reduce_op", "MPI_SUM"), "")
    if not operation.has_data:
        return Kind(benchmark, "", "", ranks)
    if (told is not None and told not in DTYPE_NAMES) or (operation.reduces and not reduce_op):
        return None
    dtype = DTYPE_NAMES[told] if told is not None else None
    return Kind(benchmark, collection.asked.settle_dtype(dtype, table.line), reduce_op, ranks)


def _add(collection: Collection, kind: Kind, line: Line, row: dict[str, str]) -> None:
    if cells.number(row.get("defects", "0")):
        collection.leave_out("its result was wrong (defects)", line.number)
        return
    add_row(
        collection,
        kind,
        Cells(
            line=line.number,
            size=row.get("size", "0"),
            time=row["maximum_s"],
            statistic=_STATISTIC,
            iterations=row.get("iterations", ""),
            statistics={name: row[name] for name in _STATISTICS if name in row},
            spread=_SPREAD,
        ),
    )
