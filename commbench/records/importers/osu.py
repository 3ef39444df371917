"""OSU Micro-Benchmarks' blocking collectives.

Each operation is timed by itself, and a barrier follows it; the time is the mean over iterations,
then over ranks; minimum and maximum are over ranks. Sizes are one rank's block for allgather,
alltoall, gather and scatter. Source: OMB's c/mpi/collective and c/util, 5.3 to 7.5.
"""

from __future__ import annotations

from commbench.operations import OPERATIONS
from commbench.plan import ISOLATED
from commbench.records.importers.asked import Asked
from commbench.records.importers.collect import Collection
from commbench.records.importers.foreign import ForeignFile, each
from commbench.records.importers.mpi import DTYPE_NAMES, Cells, Kind, add_row
from commbench.records.importers.names import OSU
from commbench.records.importers.osu_table import Table, is_osu, tables_of
from commbench.records.importers.source import Line, Source

NAME = "osu"

_OLD_DTYPES = {True: "float32", False: "int8"}
"""By whether the operation reduces: MPI_FLOAT and MPI_CHAR, until the type could be chosen and
was printed."""
_STATISTICS = ("minimum_s", "maximum_s", "p50_s", "p95_s", "p99_s")
_STATISTIC = "mean over {}iterations, mean over ranks"
_SPREAD = "minimum and maximum over ranks, percentiles over iterations"


def sniff(source: Source) -> bool:
    """Whether there is a title of an OSU benchmark."""
    return is_osu(source)


def read(source: Source, asked: Asked) -> ForeignFile:
    """The file's rows."""
    collection = Collection(source, asked)
    usable = [table for table in tables_of(source, collection) if _is_usable(table, collection)]
    ranks = asked.settle_ranks([None]) if usable else 0
    for table in usable:
        _read_table(table, ranks, collection)
    return collection.file(
        tool="osu",
        tool_version=", ".join(each(table.version for table in usable)),
        format=NAME,
        timing=ISOLATED,
        ranks=ranks,
        hosts=(),
        devices=each(table.device for table in usable),
        backend=", ".join(each((table.library or "MPI").lower() for table in usable)),
    )


def _is_usable(table: Table, collection: Collection) -> bool:
    for line, _ in table.rows or [(Line(table.line, ""), [])]:
        if table.reason:
            collection.leave_out(table.reason, line.number)
    return not table.reason


def _read_table(table: Table, ranks: int, collection: Collection) -> None:
    source = collection.source
    kind = Kind(OSU[table.name], _dtype(table, collection), "sum", ranks)
    for line, row in table.rows:
        if source.is_cut(line):
            collection.leave_out("the file ends within the line", line.number)
            continue
        try:
            _add(collection, kind, line, table.named(row))
        except ValueError as error:
            raise source.damaged(line.number, error, len(collection.rows)) from None


def _dtype(table: Table, collection: Collection) -> str:
    if table.datatype is not None:
        return DTYPE_NAMES[table.datatype]
    if collection.asked.dtype is not None:
        return collection.asked.dtype
    operation = OPERATIONS[OSU[table.name].operation]
    dtype = _OLD_DTYPES[operation.reduces] if operation.has_data else ""
    if dtype:
        collection.note(f"no element type is printed: versions that do so send {dtype} here")
    return dtype


def _add(collection: Collection, kind: Kind, line: Line, row: dict[str, str]) -> None:
    if row.get("validation", "Pass") != "Pass":
        collection.leave_out("its result was wrong (Validation)", line.number)
        return
    add_row(
        collection,
        kind,
        Cells(
            line=line.number,
            size=row.get("size", "0"),
            time=row["time"],
            statistic=_STATISTIC,
            iterations=row.get("iterations", ""),
            statistics={name: row[name] for name in _STATISTICS if name in row},
            spread=_SPREAD,
        ),
    )
