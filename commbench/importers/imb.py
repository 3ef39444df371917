"""Intel MPI Benchmarks' tables of blocking collectives (IMB-MPI1).

Versions that are numbered by years time each operation by itself, with a barrier after it unless
`-sync off` is given. Older versions time the loop as a whole, and all do so for Barrier. The time
imported is `t_max`, the mean over iterations of the slowest rank, from which IMB computes its
throughput.
Sizes are one rank's block for Allgather, Alltoall, Gather, Scatter, Reduce_scatter_block and,
since 2019, Reduce_scatter. Source: IMB's user guide, src_c/IMB_output.c and the kernels.
"""

from __future__ import annotations

import re

from commbench.importers import cells, mpi_tables
from commbench.importers.base import ImportedFile, RowCollector, unique
from commbench.importers.hints import ImportHints
from commbench.importers.names import BARRIER, IMB, IMB_BLOCKS_SINCE
from commbench.importers.text_source import Line, SourceText
from commbench.spec.operations import OPERATIONS
from commbench.spec.timing_modes import ISOLATED, PIPELINED

NAME = "imb"

_ISOLATED_SINCE = 2017
_LAST = "# All processes entering MPI_Finalize"
_FAILURES = ("out-of-mem", "int-overflow", "time-out")
_FACTS = {
    "version": re.compile(r"#\s*Intel ?\(R\) MPI Benchmark(?:s| Suite) V?([\d.]{1,20})"),
    "sync": re.compile(r"#.*\s-sync\s+(off|on|0|1|disable|enable|no|yes)\b"),
    "dtype": re.compile(r"#\s*MPI_Datatype\s*:\s*(\w{1,40})"),
    "reduce_dtype": re.compile(r"#\s*MPI_Datatype for reductions\s*:\s*(\w{1,40})"),
    "reduce_op": re.compile(r"#\s*MPI_Op\s*:\s*(\w{1,40})"),
}
_BENCHMARK = re.compile(r"#\s*Benchmarking\s+(\S{1,60})")
_RANKS = re.compile(r"#\s*#processes\s*=\s*(\d{1,9})\b")


def _is_row(row: list[str], width: int) -> bool:
    if cells.is_whole(row[0]) and (len(row) < 2 or row[1].startswith(_FAILURES)):
        return True
    numbers = sum(cells.is_number(cell) for cell in row)
    return numbers == len(row) or (len(row) == width and numbers * 2 > width)


_COLUMNS = (
    ("#bytes", "size"), ("#repetitions", "iterations"), (r"t_min\[usec\]", "minimum_s"),
    (r"t_max\[usec\]", "maximum_s"), (r"t_avg\[usec\]", "mean_s"),
    ("Mbytes/sec", "throughput"), ("defects", "defects"),
)  # fmt: skip
_FORMAT = mpi_tables.Format(
    columns=_COLUMNS,
    header=re.compile(r"\s*(?=#(?:bytes|repetitions)\b)"),
    title="benchmark's name",
    time_column="maximum_s",
    statistic="mean over {}iterations, slowest rank",
    spread="minimum, maximum and mean over ranks, of each rank's mean",
    is_row=_is_row,
)


def recognises(source: SourceText) -> bool:
    """Whether a file has a benchmark's name and a header of IMB's table."""
    texts = [line.text for line in source.lines]
    return any(map(_BENCHMARK.match, texts)) and any(map(_FORMAT.header.match, texts))


def read(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The file's rows."""
    collector = RowCollector(source, hints)
    tables = mpi_tables.select_usable(_find_tables(source, collector), collector, _why_unusable)
    ranks = hints.choose_ranks(source.path, (table.ranks for table in tables)) if tables else 0
    for table in tables:
        _read_table(table, ranks, collector)
    timings = set(map(_find_timing, tables))
    if ISOLATED in timings and not all(row.dtype for row in collector.rows):
        collector.note("Barrier is timed as a loop, unlike the others")
    if any("version" not in table.facts for table in tables):
        collector.note(
            "the version is not printed: assumed to be one before 2017, which timed a loop"
        )
    if not any(line.text.startswith(_LAST) for line in source.lines):
        collector.note("the file was cut off, or is not complete", is_fault=True)
    if len(timings) > 1:
        collector.note("the file mixes runs that time each operation and runs that time a loop")
    return collector.make_file(
        tool="imb",
        tool_version=", ".join(unique(t.facts.get("version", "") for t in tables)),
        format=NAME,
        timing=ISOLATED if timings == {ISOLATED} else PIPELINED,
        ranks=ranks,
        backend="mpi",
    )


def _find_year(facts: dict[str, str]) -> int:
    """The year of the version; 0 for versions without one, or where none is printed."""
    major = facts.get("version", "").partition(".")[0]
    return int(major) if len(major) == 4 and major.isascii() else 0


def _find_timing(table: mpi_tables.Table) -> str:
    is_isolated = table.facts.get("sync", "on") in ("on", "1", "enable", "yes")
    is_new = _find_year(table.facts) >= _ISOLATED_SINCE
    return ISOLATED if is_isolated and is_new else PIPELINED


def _why_unusable(table: mpi_tables.Table) -> str:
    if table.benchmark is None:
        return f"{table.name!r:.60} is not a blocking collective of commbench"
    if table.name in IMB_BLOCKS_SINCE and "version" not in table.facts:
        return f"the size of {table.name} depends on the version, which is not printed"
    return ""


def _read_table(table: mpi_tables.Table, ranks: int, collector: RowCollector) -> None:
    if table.ranks not in (None, ranks):
        for line, _ in table.rows:
            collector.leave_out(f"measured on {table.ranks} ranks", line.number)
        return
    kind = _make_kind(table, ranks, collector) if table.rows else None

    def add(line: Line, row: list[str]) -> None:
        if row[1:] and row[1].startswith(_FAILURES):
            why = f"IMB gave up ({row[1].rstrip('.;')})"
            collector.leave_out(why, line.number, is_fault=True)
        elif kind is None:
            collector.leave_out(
                "commbench does not have its element type or reduce op", line.number
            )
        else:
            named = mpi_tables.name_cells(_FORMAT, table, row)
            if cells.parse_number(named.get("defects", "0")):
                collector.leave_out("its results were wrong (defects)", line.number, is_fault=True)
            else:
                mpi_tables.add_row(collector, kind, line.number, named)

    collector.read_rows(table.rows, add)


def _make_kind(
    table: mpi_tables.Table, ranks: int, collector: RowCollector
) -> mpi_tables.TableKind | None:
    """What its rows share; None where commbench lacks the element type or the reduce op."""
    benchmark = table.benchmark or BARRIER
    operation = OPERATIONS[benchmark.operation]
    dtype = reduce_op = ""
    if operation.has_data:
        printed = table.facts.get("reduce_dtype" if operation.reduces else "dtype")
        reduce_op = mpi_tables.REDUCE_NAMES.get(table.facts.get("reduce_op", "MPI_SUM"), "")
        if printed not in (None, *mpi_tables.DTYPE_NAMES) or (operation.reduces and not reduce_op):
            return None
        given = mpi_tables.DTYPE_NAMES[printed] if printed is not None else None
        dtype = collector.hints.choose_dtype(collector.source.path, given, table.line)
    return mpi_tables.TableKind(_FORMAT, benchmark, dtype, reduce_op, ranks)


def _find_tables(source: SourceText, collector: RowCollector) -> list[mpi_tables.Table]:
    """All tables of a file, of any benchmark and number of ranks."""
    tables: list[mpi_tables.Table] = []
    facts: dict[str, str] = {}
    for line in source.lines:
        for name, pattern in _FACTS.items():
            if found := pattern.match(line.text):
                facts = ({} if name == "version" else facts) | {name: found[1]}
        if named := _BENCHMARK.match(line.text):
            name = named[1]
            benchmark = IMB.get(name)
            if benchmark and name in IMB_BLOCKS_SINCE:
                of_block = _find_year(facts) >= IMB_BLOCKS_SINCE[name]
                benchmark = benchmark._replace(of_block=of_block)
            tables.append(mpi_tables.Table(name, line.number, benchmark, facts))
        elif tables and not tables[-1].columns and (ranks := _RANKS.match(line.text)):
            tables[-1].ranks = int(ranks[1])
        elif tables:
            mpi_tables.read_line(_FORMAT, collector, tables, line)
        elif _FORMAT.header.match(line.text):
            raise source.damaged(line.number, "a table without a benchmark's name before it", 0)
    return tables
