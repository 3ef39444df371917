"""The tables of Intel MPI Benchmarks as printed, and what version and options mean for them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from commbench.operations import OPERATIONS
from commbench.plan import ISOLATED
from commbench.records.importers import cells
from commbench.records.importers.collect import Collection
from commbench.records.importers.foreign import PIPELINED
from commbench.records.importers.names import IMB, IMB_BLOCKS_SINCE, Benchmark
from commbench.records.importers.source import Line, Source

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
class Table:
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
    def benchmark(self) -> Benchmark | None:
        """What its size means, for its version."""
        found = IMB.get(self.name)
        if found and self.name in IMB_BLOCKS_SINCE:
            return found._replace(of_block=self.year >= IMB_BLOCKS_SINCE[self.name])
        return found


def is_imb(source: Source) -> bool:
    """Whether a file has a header of IMB's table, and a benchmark's name."""
    texts = [line.text for line in source.lines]
    return any(map(_BENCHMARK.match, texts)) and any(map(_HEADER.match, texts))


def tables_of(source: Source, collection: Collection) -> list[Table]:
    """All tables of a file, of whatever benchmark."""
    tables: list[Table] = []
    facts: dict[str, str] = {}
    for line in source.lines:
        for name, pattern in _FACTS.items():
            if found := pattern.match(line.text):
                facts = ({} if name == "version" else facts) | {name: found[1]}
        if named := _BENCHMARK.match(line.text):
            tables.append(Table(named[1], line.number, facts))
        elif tables:
            tables[-1] = _take(collection, tables, line)
        elif _HEADER.match(line.text):
            raise source.damaged(line.number, "a table without a benchmark's name before it", 0)
    return tables


def _take(collection: Collection, tables: list[Table], line: Line) -> Table:
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
