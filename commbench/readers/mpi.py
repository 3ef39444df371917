"""OSU Micro-Benchmarks and Intel MPI Benchmarks (IMB-MPI1): a table per benchmark, a row per size.

OSU: blocking collectives, osu_latency, osu_bw and osu_mbw_mr. Each operation is timed by itself,
with a barrier after it. The time is the mean over iterations, then over ranks. Of pairs of ranks
the time is half a round trip, or that of a message: a message over the bandwidth, for osu_mbw_mr
over the mean bandwidth of a pair. Source: OMB's c/mpi/collective, c/mpi/pt2pt and c/util, 5.3 to
7.5.

IMB: versions that are numbered by years time each operation by itself, with a barrier after it
unless `-sync off` is given. Older versions time the loop as a whole, and all do so for Barrier. The
time imported is `t_max`, the mean over iterations of the slowest rank, from which IMB computes its
throughput. Source: IMB's user guide, src_c/IMB_output.c and the kernels.

In both, sizes are one rank's block for some benchmarks, and other times are taken over ranks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from commbench.plan.dimensions import ISOLATED, PIPELINED
from commbench.plan.operation import IN_PLACE, OUT_OF_PLACE, Operation
from commbench.plan.operations import OPERATIONS
from commbench.plan.pairs import DEFAULT_PAIRS
from commbench.readers import base
from commbench.readers.base import ImportedFile, LeftOut, RowCollector
from commbench.readers.source import ImportHints, Line, SourceText

_DTYPES = {
    "MPI_CHAR": "int8", "MPI_SIGNED_CHAR": "int8", "MPI_INT8_T": "int8",
    "MPI_BYTE": "uint8", "MPI_UNSIGNED_CHAR": "uint8", "MPI_UINT8_T": "uint8",
    "MPI_SHORT": "int16", "MPI_INT": "int32", "MPI_INT32_T": "int32", "MPI_INT64_T": "int64",
    "MPI_FLOAT": "float32", "MPI_DOUBLE": "float64",
}  # fmt: skip
_REDUCE_OPS = {
    f"MPI_{name.upper()}": name for name in ("sum", "prod", "min", "max", "band", "bor", "bxor")
}
_FAILURES = ("out-of-mem", "int-overflow", "time-out")
_IMB_END = "# All processes entering MPI_Finalize"
_ISOLATED_SINCE = 2017
"""The version of IMB that began to time each operation by itself."""


class Benchmark(NamedTuple):
    """One MPI benchmark: commbench's operation and the meaning of the printed size."""

    operation: str
    is_block: bool = False
    """Whether the printed size is that of one rank's block."""
    is_block_since: int = 0
    """The version of IMB since which it is; 0 if it does not depend on that."""
    placement: str = OUT_OF_PLACE
    p2p_call: str = ""
    """For pairs of ranks, the kind of call."""
    window: int | None = None
    """Messages that are sent before the sender waits, where the file does not say."""


_COMMON = {
    "Allreduce": Benchmark("all_reduce"), "Reduce": Benchmark("reduce"),
    "Reduce_scatter": Benchmark("reduce_scatter"), "Barrier": Benchmark("barrier", placement=""),
    "Bcast": Benchmark("broadcast", placement=IN_PLACE),  # MPI's broadcast has one buffer
    "Allgather": Benchmark("all_gather", is_block=True),
    "Alltoall": Benchmark("all_to_all", is_block=True),
    "Gather": Benchmark("gather", is_block=True),
    "Scatter": Benchmark("scatter", is_block=True),
}  # fmt: skip
_STREAM = Benchmark("stream", p2p_call="isend", window=64)


@dataclass
class Table:
    """One benchmark's table in a file."""

    name: str
    """The tool's name of the benchmark."""
    line: int
    benchmark: Benchmark | None
    """What the name means; None where commbench has no such operation."""
    facts: dict[str, str]
    """What the file says of it, by the names in Format.facts and of the title's groups."""
    columns: tuple[str, ...] = ()
    rows: list[tuple[Line, list[str]]] = field(default_factory=list)

    @property
    def is_of_pairs(self) -> bool:
        """Whether it measured pairs of ranks."""
        return self.benchmark is not None and bool(self.benchmark.p2p_call)

    @property
    def ranks(self) -> int:
        """The ranks that it was measured on; 0 where it does not say."""
        if self.is_of_pairs:
            return 2 * int(self.facts.get("pairs", 1))
        return int(self.facts.get("ranks", 0))

    @property
    def year(self) -> int:
        """The year of IMB's version; 0 for versions without one, or where none is printed."""
        major = self.facts.get("version", "").partition(".")[0]
        return int(major) if len(major) == 4 and major.isascii() else 0

    @property
    def reduce_op(self) -> str:
        """MPI's name of the reduction."""
        return self.facts.get("reduce_op", "MPI_SUM")


class Format(NamedTuple):
    """How a tool writes its tables."""

    benchmarks: dict[str, Benchmark]
    """By title; a benchmark that is missing has no counterpart in commbench."""
    title: re.Pattern[str]
    """The line before each table; its group `name` is the benchmark's."""
    facts: dict[str, re.Pattern[str]]
    """Lines before a table that say something of it; the first group is what."""
    lasting: tuple[str, ...]
    """Those that hold for all tables that follow, until a line with the version; others hold for
    one table."""
    header: re.Pattern[str]
    """What precedes the columns in their line."""
    columns: tuple[tuple[str, str], ...]
    """Regular expressions of column headings with names: `time` is the tool's main time, names that
    end in `_s` are of other times. Times are in microseconds, a bandwidth in 10^6 bytes/s."""
    statistic: str
    """What the main time is."""
    unprinted_dtypes: dict[bool, str] = {}  # noqa: RUF012 - never changed
    """What versions that print no element type send, by whether the operation reduces."""


_OSU_DTYPE = re.compile(r"#?\s*Datatype:\s*(\w{1,40})\.?\s*$")
OSU = Format(
    benchmarks=_COMMON | {
        "All-to-All Personalized Exchange": _COMMON["Alltoall"], "Broadcast": _COMMON["Bcast"],
        "Latency": Benchmark("ping_pong", p2p_call="send"), "Bandwidth": _STREAM,
        "Multiple Bandwidth / Message Rate": _STREAM,
    },
    title=re.compile(
        r"#?\s*(?:OSU|OMB-Py) (?:(?P<library>MPI|NCCL)(?P<device>-\w{1,20}(?: MANAGED)?)? )?"
        r"(?P<name>[^#]{1,60}?) ?(?:Latency )?Test(?: v(?P<version>[\w.]{1,20}))?\s*$"
    ),
    facts={
        "dtype": _OSU_DTYPE,
        "reduce_dtype": _OSU_DTYPE,
        "pairs": re.compile(r"#?\s*\[ ?pairs: (\d{1,6}) ?\] \[ ?window size: \d{1,6} ?\]"),
        "window": re.compile(r"#?\s*\[ ?pairs: \d{1,6} ?\] \[ ?window size: (\d{1,6}) ?\]"),
    },
    lasting=(),
    header=re.compile(r"#?\s*(?=Size\s|Avg Latency)"),
    columns=(
        ("Size", "size"), (r"Avg Latency ?\(us\)", "time"), (r"Latency ?\(us\)", "time"),
        (r"Bandwidth ?\(MB/s\)", "bandwidth"), ("MB/s", "bandwidth"), ("Messages/s", "rate"),
        (r"Min Latency ?\(us\)", "minimum_s"), (r"Max Latency ?\(us\)", "maximum_s"),
        ("Iterations", "iterations"), (r"P50 Tail Lat\(us\)", "p50_s"),
        (r"P95 Tail Lat\(us\)", "p95_s"), (r"P99 Tail Lat\(us\)", "p99_s"),
        (r"P\d{1,2} Tail Lat\(us\)", "percentile"), ("Validation", "validation"),
    ),
    statistic="mean over {}iterations, mean over ranks",
    unprinted_dtypes={True: "float32", False: "int8"},
)  # fmt: skip
IMB = Format(
    benchmarks=_COMMON | {
        "Reduce_scatter": Benchmark("reduce_scatter", is_block_since=2019),
        "Reduce_scatter_block": Benchmark("reduce_scatter", is_block=True),
    },
    title=re.compile(r"#\s*Benchmarking\s+(?P<name>\S{1,60})"),
    facts={
        "version": re.compile(r"#\s*Intel ?\(R\) MPI Benchmark(?:s| Suite) V?([\d.]{1,20})"),
        "sync": re.compile(r"#.*\s-sync\s+(off|on|0|1|disable|enable|no|yes)\b"),
        "dtype": re.compile(r"#\s*MPI_Datatype\s*:\s*(\w{1,40})"),
        "reduce_dtype": re.compile(r"#\s*MPI_Datatype for reductions\s*:\s*(\w{1,40})"),
        "reduce_op": re.compile(r"#\s*MPI_Op\s*:\s*(\w{1,40})"),
        "ranks": re.compile(r"#\s*#processes\s*=\s*(\d{1,9})\b"),
    },
    lasting=("version", "sync", "dtype", "reduce_dtype", "reduce_op"),
    header=re.compile(r"\s*(?=#(?:bytes|repetitions)\b)"),
    columns=(
        ("#bytes", "size"), ("#repetitions", "iterations"), (r"t_min\[usec\]", "minimum_s"),
        (r"t_max\[usec\]", "time"), (r"t_avg\[usec\]", "mean_s"),
        ("Mbytes/sec", "throughput"), ("defects", "defects"),
    ),
    statistic="mean over {}iterations, slowest rank",
)  # fmt: skip


def read_osu(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The rows of a file of OSU."""
    collector = RowCollector(source, hints)
    tables = _read_tables(OSU, collector)
    devices = base.unique(table.facts.get("device", "").lstrip("-").lower() for table in tables)
    is_one = len({table.facts.get("device") for table in tables}) == 1
    return collector.make_file(
        tool="osu",
        tool_version=", ".join(base.unique(table.facts.get("version", "") for table in tables)),
        timing=ISOLATED,
        devices=devices if is_one else (),
        device="" if devices else None,
        backend=", ".join(base.unique(t.facts.get("library", "MPI").lower() for t in tables)),
    )


def read_imb(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The rows of a file of IMB."""
    collector = RowCollector(source, hints)
    tables = _read_tables(IMB, collector)
    timings = {_find_imb_timing(table) for table in tables}
    if ISOLATED in timings and not all(row.case.dtype for row in collector.rows):
        collector.note("Barrier is timed as a loop, unlike the others")
    if any("version" not in table.facts for table in tables):
        collector.note(
            "the version is not printed: assumed to be one before 2017, which timed a loop"
        )
    if not any(line.text.startswith(_IMB_END) for line in source.lines):
        collector.note("the file was cut off, or is not complete", is_fault=True)
    if len(timings) > 1:
        collector.note("the file mixes runs that time each operation and runs that time a loop")
    return collector.make_file(
        tool="imb",
        tool_version=", ".join(base.unique(table.facts.get("version", "") for table in tables)),
        timing=ISOLATED if timings == {ISOLATED} else PIPELINED,
        backend="mpi",
    )


def _find_imb_timing(table: Table) -> str:
    is_isolated = table.facts.get("sync", "on") in ("on", "1", "enable", "yes")
    return ISOLATED if is_isolated and table.year >= _ISOLATED_SINCE else PIPELINED


def _read_tables(layout: Format, collector: RowCollector) -> list[Table]:
    """Add the rows of a file; the tables that can be used."""
    reasons = [(table, _why_unusable(table)) for table in _find_tables(layout, collector)]
    usable = [table for table, reason in reasons if not reason]
    if len({table.is_of_pairs for table in usable}) > 1:
        usable = [table for table in usable if not table.is_of_pairs]
    for table, reason in reasons:
        if table not in usable:
            of_pairs = f"{table.name!r:.60} is of pairs of ranks: import it from a file of its own"
            lines = [line.number for line, _ in table.rows] or [table.line]
            collector.leave_out(reason or of_pairs, *lines)
    if usable:
        collector.choose_ranks(table.ranks for table in usable)
    for table in usable:
        if table.ranks not in (0, collector.ranks):
            lines = [line.number for line, _ in table.rows]
            collector.leave_out(f"measured on {table.ranks} ranks", *lines)
        elif table.rows:
            _read_rows(layout, table, collector)
    return usable


def _find_tables(layout: Format, collector: RowCollector) -> list[Table]:
    """All tables of a file, of any benchmark, element type and number of ranks."""
    tables: list[Table] = []
    facts: dict[str, str] = {}
    for line in collector.source.lines:
        matches = {name: pattern.match(line.text) for name, pattern in layout.facts.items()}
        found = {name: match[1] for name, match in matches.items() if match}
        if title := layout.title.match(line.text):
            lasting = {name: facts[name] for name in layout.lasting if name in facts}
            facts = lasting | {name: text for name, text in title.groupdict().items() if text}
            name = facts.pop("name")
            tables.append(Table(name, line.number, layout.benchmarks.get(name), facts))
        elif found:
            facts = ({} if "version" in found else facts) | found
            if not tables or found.keys() <= {*layout.lasting}:
                continue
            if not tables[-1].rows:
                tables[-1].facts = facts
            elif "dtype" in found:  # the next of several types in one run
                again = replace(tables[-1], line=line.number, facts=facts, columns=(), rows=[])
                tables.append(again)
        else:
            _read_line(layout, collector, tables, line)
    return tables


def _read_line(layout: Format, collector: RowCollector, tables: list[Table], line: Line) -> None:
    """Add a line, a header or a row, to the last table."""
    table, row = tables[-1] if tables else None, line.text.split()
    header = layout.header.match(line.text)
    sound = sum(len(table.rows) for table in tables)
    if (header and table and table.rows and table.benchmark) or (
        not table and (header or (row[1:] and all(map(base.is_number, row))))
    ):
        raise collector.source.damaged(line.number, "a table without a title before it", sound)
    if table and table.benchmark and header:
        try:
            table.columns = tuple(base.parse_columns(line.text[header.end() :], layout.columns))
        except ValueError as error:
            raise collector.source.damaged(line.number, error, sound) from None
    elif table and row and not row[0].startswith("#") and _is_row(row, len(table.columns)):
        table.rows.append((line, row))
    elif table:
        collector.note_lost_row(line)


def _is_row(row: list[str], width: int) -> bool:
    """Whether words below a header of so many columns are meant as a row, damaged or not: other
    lines seldom begin with two numbers."""
    if base.is_whole(row[0]) and row[1:] and row[1].startswith(_FAILURES):
        return True
    is_usual = row[0][0].isdigit() or sum(map(base.is_number, row)) * 2 > width
    return all(map(base.is_number, row[:2])) or (len(row) == width and is_usual)


def _why_unusable(table: Table) -> str:
    if table.benchmark is None:
        return f"{table.name!r:.60} is not a blocking collective of commbench"
    if table.benchmark.is_block_since and "version" not in table.facts:
        return f"the size of {table.name} depends on the version, which is not printed"
    operation = OPERATIONS[table.benchmark.operation]
    dtype = table.facts.get("reduce_dtype" if operation.reduces else "dtype", "MPI_CHAR")
    if operation.has_data and dtype not in _DTYPES:
        return f"commbench has no element type {dtype!r:.40}"
    if operation.reduces and table.reduce_op not in _REDUCE_OPS:
        return f"commbench has no reduce op {table.reduce_op!r:.40}"
    return ""


def _find_dtype(layout: Format, table: Table, operation: Operation, collector: RowCollector) -> str:
    if not operation.has_data:
        return ""
    printed = table.facts.get("reduce_dtype" if operation.reduces else "dtype")
    given = _DTYPES.get(printed or "")
    if printed is None and collector.hints.dtype is None and layout.unprinted_dtypes:
        given = layout.unprinted_dtypes[operation.reduces]
        collector.note(f"no element type is printed: versions that print none send {given}")
    return collector.hints.choose_dtype(collector.source.path, given, table.line)


def _read_rows(layout: Format, table: Table, collector: RowCollector) -> None:
    benchmark = table.benchmark
    assert benchmark
    operation = OPERATIONS[benchmark.operation]
    dtype = _find_dtype(layout, table, operation, collector)
    time_column = "bandwidth" if operation.has_window else "time"
    has_header = time_column in table.columns and ("size" in table.columns) == operation.has_data
    is_block = table.year >= benchmark.is_block_since > 0 or benchmark.is_block
    pairs = int(table.facts.get("pairs", 1))
    statistic = layout.statistic.partition(", ")[0] if table.is_of_pairs else layout.statistic

    def add(line: Line, row: list[str]) -> None:
        if row[1:] and row[1].startswith(_FAILURES):
            raise LeftOut(f"IMB gave up ({row[1].rstrip('.;')})", is_fault=True)
        if not has_header:
            raise ValueError("no header before it names its columns")
        named = base.name_cells(table.columns, row)
        if named.get("validation", "Pass") != "Pass":
            raise LeftOut("its results were wrong (validation)", is_fault=True)
        if base.parse_number(named.get("defects", "0")):
            raise LeftOut("its results were wrong (defects)", is_fault=True)
        size = base.parse_size(named["size"]) if operation.has_data else 0
        rate = base.parse_number(named.get("bandwidth", "0"))
        named["time"] = f"{pairs * size / rate:.9f}" if rate else named[time_column]
        iterations = base.parse_whole(named.get("iterations", "0"))
        collector.add(
            line.number, operation.name, dtype, size * (collector.ranks if is_block else 1),
            named, statistic.format(f"{iterations} " if iterations else ""),
            iterations=iterations,
            placement=benchmark.placement,
            reduce_op=_REDUCE_OPS[table.reduce_op] if operation.reduces else "",
            timing="" if operation.has_data or layout is OSU else PIPELINED,
            p2p_call=benchmark.p2p_call,
            pairs=DEFAULT_PAIRS[0] if benchmark.p2p_call else "",
            window=int(table.facts.get("window") or benchmark.window or 0) or None,
            wrong=0 if named.keys() & {"validation", "defects"} else None,
        )  # fmt: skip

    collector.read_rows(table.rows, add)
