"""OSU Micro-Benchmarks' blocking collectives, osu_latency, osu_bw and osu_mbw_mr.

Each operation is timed by itself, with a barrier after it. The time is the mean over iterations,
then over ranks; minimum and maximum are over ranks. Sizes are one rank's block for allgather,
alltoall, gather and scatter. Of pairs of ranks the time is half a round trip, or that of a message:
a message over the bandwidth, for osu_mbw_mr over the mean bandwidth of a pair. Source: OMB's
c/mpi/collective, c/mpi/pt2pt and c/util, 5.3 to 7.5.
"""

from __future__ import annotations

import re
from dataclasses import replace

from commbench.importers import cells, mpi_tables
from commbench.importers.base import ImportedFile, RowCollector, unique
from commbench.importers.hints import ImportHints
from commbench.importers.names import OSU
from commbench.importers.text_source import Line, SourceText
from commbench.spec.operations import OPERATIONS
from commbench.spec.timing_modes import ISOLATED

NAME = "osu"

_OLD_DTYPES = {True: "float32", False: "int8"}
"""MPI_FLOAT and MPI_CHAR by whether it reduces: versions that print no element type send these."""
_TITLE = re.compile(
    r"#?\s*(?:OSU|OMB-Py) (?:(?P<library>MPI|NCCL)(?P<device>-\w{1,20}(?: MANAGED)?)? )?"
    r"(?P<name>[^#]{1,60}?) ?(?:Latency )?Test(?: v(?P<version>[\w.]{1,20}))?\s*$"
)
_PAIRS = re.compile(r"#?\s*\[ ?pairs: (\d{1,6}) ?\] \[ ?window size: (\d{1,6}) ?\]")
_DATATYPE = re.compile(r"#?\s*Datatype:\s*(\w{1,40})\.?\s*$")


def _is_row(row: list[str], width: int) -> bool:
    """Whether a line is meant as a row; other lines are seldom all numbers."""
    return all(map(cells.is_number, row[:2])) or (len(row) == width and row[0][0].isdigit())


_COLUMNS = (
    ("Size", "size"), (r"Avg Latency ?\(us\)", "time"), (r"Latency ?\(us\)", "time"),
    (r"Bandwidth ?\(MB/s\)", "bandwidth"), ("MB/s", "bandwidth"), ("Messages/s", "rate"),
    (r"Min Latency ?\(us\)", "minimum_s"), (r"Max Latency ?\(us\)", "maximum_s"),
    ("Iterations", "iterations"), (r"P50 Tail Lat\(us\)", "p50_s"),
    (r"P95 Tail Lat\(us\)", "p95_s"), (r"P99 Tail Lat\(us\)", "p99_s"),
    (r"P\d{1,2} Tail Lat\(us\)", "percentile"), ("Validation", "validation"),
)  # fmt: skip
_FORMAT = mpi_tables.Format(
    columns=_COLUMNS,
    header=re.compile(r"#?\s*(?=Size\s|Avg Latency)"),
    title="title",
    time_column="time",
    statistic="mean over {}iterations, mean over ranks",
    spread="minimum and maximum over ranks, percentiles over iterations",
    is_row=_is_row,
)


_OF_PAIRS = _FORMAT._replace(statistic="mean over {}iterations")
_RATES = _OF_PAIRS._replace(time_column="bandwidth")


def recognises(source: SourceText) -> bool:
    """Whether a file has the title of an OSU benchmark."""
    return any(_TITLE.match(line.text) for line in source.lines)


def read(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The file's rows."""
    collector = RowCollector(source, hints)
    tables = mpi_tables.select_usable(_find_tables(source, collector), collector, _why_unusable)
    of_pairs = [_ranks_of_pairs(table) for table in tables if _is_of_pairs(table)]
    if len(of_pairs) < len(tables):
        tables = mpi_tables.select_usable(tables, collector, _why_not_collective)
        of_pairs = []
    ranks = hints.choose_ranks(source.path, of_pairs or [None]) if tables else 0
    for table in tables:
        _read_table(table, ranks, collector)
    return collector.make_file(
        tool="osu",
        tool_version=", ".join(unique(table.facts["version"] for table in tables)),
        format=NAME,
        timing=ISOLATED,
        ranks=ranks,
        devices=unique(table.facts["device"].lstrip("-").lower() for table in tables),
        backend=", ".join(unique((table.facts["library"] or "MPI").lower() for table in tables)),
    )


def _why_unusable(table: mpi_tables.Table) -> str:
    if table.benchmark is None:
        return f"{table.name + ' Test'!r:.60} is not a blocking collective of commbench"
    if table.facts.get("datatype", "MPI_CHAR") not in mpi_tables.DTYPE_NAMES:
        return f"commbench has no element type {table.facts['datatype']!r:.40}"
    return ""


def _is_of_pairs(table: mpi_tables.Table) -> bool:
    return bool(table.benchmark and table.benchmark.p2p_call)


def _ranks_of_pairs(table: mpi_tables.Table) -> int:
    return 2 * int(table.facts.get("pairs", 1))


def _why_not_collective(table: mpi_tables.Table) -> str:
    if _is_of_pairs(table):
        return (
            f"{table.name + ' Test'!r:.60} is of pairs of ranks: import it from a file of its own"
        )
    return ""


def _read_pairs(table: mpi_tables.Table, ranks: int, collector: RowCollector) -> None:
    """The rows of a benchmark of pairs; a bandwidth, in 10^6 bytes per second, as a time."""
    benchmark, pairs = OSU[table.name], int(table.facts.get("pairs", 1))
    has_rates = OPERATIONS[benchmark.operation].has_window
    layout = _RATES if has_rates else _OF_PAIRS
    window = int(table.facts.get("window") or benchmark.window or 0) or None
    kind = mpi_tables.TableKind(
        layout, benchmark, _find_dtype(table, collector), "", ranks, window=window
    )

    def add(line: Line, row: list[str]) -> None:
        named = mpi_tables.name_cells(layout, table, row)
        rate = cells.parse_number(named["bandwidth"]) if has_rates else None
        if rate:
            named["bandwidth"] = f"{pairs * cells.parse_size(named['size']) / rate:.9f}"
        mpi_tables.add_row(collector, kind, line.number, named)

    collector.read_rows(table.rows, add)


def _read_table(table: mpi_tables.Table, ranks: int, collector: RowCollector) -> None:
    if _is_of_pairs(table):
        _read_pairs(table, ranks, collector)
        return
    dtype = _find_dtype(table, collector)
    kind = mpi_tables.TableKind(_FORMAT, OSU[table.name], dtype, reduce_op="sum", ranks=ranks)

    def add(line: Line, row: list[str]) -> None:
        named = mpi_tables.name_cells(_FORMAT, table, row)
        if named.get("validation", "Pass") != "Pass":
            collector.leave_out("its results were wrong (Validation)", line.number, is_fault=True)
        else:
            mpi_tables.add_row(collector, kind, line.number, named)

    collector.read_rows(table.rows, add)


def _find_dtype(table: mpi_tables.Table, collector: RowCollector) -> str:
    if "datatype" in table.facts:
        return mpi_tables.DTYPE_NAMES[table.facts["datatype"]]
    if collector.hints.dtype is not None:
        return collector.hints.dtype
    operation = OPERATIONS[OSU[table.name].operation]
    dtype = _OLD_DTYPES[operation.reduces] if operation.has_data else ""
    if dtype:
        collector.note(f"no element type is printed: versions that print none send {dtype}")
    return dtype


def _find_tables(source: SourceText, collector: RowCollector) -> list[mpi_tables.Table]:
    """All tables of a file, of any benchmark and element type."""
    tables: list[mpi_tables.Table] = []
    for line in source.lines:
        if title := _TITLE.match(line.text):
            facts = title.groupdict(default="")
            name = facts["name"]
            tables.append(mpi_tables.Table(name, line.number, OSU.get(name), facts))
        elif tables and (datatype := _DATATYPE.match(line.text)):
            table = tables[-1]
            if table.rows:  # the next of several types in one run
                table = replace(table, line=line.number, columns=(), rows=[])
                tables.append(table)
            table.facts = table.facts | {"datatype": datatype[1]}
        elif tables and (found := _PAIRS.match(line.text)):
            tables[-1].facts |= {"pairs": found[1], "window": found[2]}
        elif tables:
            mpi_tables.read_line(_FORMAT, collector, tables, line)
        elif len(row := line.text.split()) > 1 and all(map(cells.is_number, row)):
            raise source.damaged(line.number, "a row without a title before it", 0)
    return tables
