"""What nccl-tests' text and JSON have in common: what is said before the results, and their rows,
with size, count and bandwidth checked.

Sources: nccl-tests' src/common.cu, src/util.cu and doc/PERFORMANCE.md.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from commbench.errors import UsageError
from commbench.plan.backends import ALLOCATORS, DEFAULT_MEMORY
from commbench.plan.dimensions import EAGER, GRAPH, ISOLATED, PIPELINED, ROTATING
from commbench.plan.dtypes import DTYPES, REDUCE_OPS
from commbench.plan.operation import Operation
from commbench.plan.operations import OPERATIONS
from commbench.readers import base
from commbench.readers.base import ImportedFile, LeftOut, RowCollector
from commbench.readers.source import NCCL_TESTS

BEGINS = ("# nccl-tests version", "# Collective test starting", "# nThread", "# Using devices")
"""A line that begins like this after a table belongs to the next one."""
CPU_TIME = "its times are those of launching on the CPU (option -C), not those of the operation"

_MOST_SIZES = 1000
"""Announced sizes that are looked for."""
_PROGRAM = re.compile(r"(?<![\w.])([a-z]{2,20}(?:_[a-z]{2,20})?)_(?:perf|test)(?:_mpi)?(?![\w.])")
_OTHERS = ("hypercube", "alltoallv")
_VERSION = re.compile(r"# nccl-tests version (\S+)(?:.* nccl-library=(\d{1,9}))?")
_DEVICE = re.compile(
    r"#?\s*(?:Rank|Device)\s+(?P<rank>\d{1,9})(?:\s+Group\s+(?P<group>\d{1,9}))?"
    r"(?:\s+Pid\s+\d{1,20})?\s+(?:(?:on\s+(?P<host>\S+)|uses)\s+device|->)\s+\d{1,9}"
    r"\s+\[[^\]]{0,40}\]\s*(?P<name>.*)"
)
_OPTION = re.compile(r"((?:agg |warmup )?[A-Za-z]+):? (\d{1,15}(?:\((?:factor|bytes)\))?)(?=\s|$)")
"""An option and its number in the line `# nThread 1 ... step: 2(factor) warmup iters: 5 ...`."""
_REDUCED = re.compile(r"# Reducing (maxBytes) to (\d{1,15})\b")
_COMMAND_OPTIONS = {
    "graph": re.compile(r"\s(?:-G|--cudagraph)[ =]?(\d{1,9})\b"),
    "registered": re.compile(r"\s(?:-R|--local_register)[ =]?(\d)\b"),
}
"""Options of a command line; older versions do not print -G, none prints -R."""


class RankDevice(NamedTuple):
    """One rank's line in the list of devices."""

    rank: int
    group: int
    host: str
    name: str


class PlacementCells(NamedTuple):
    """The cells of one placement of a row."""

    placement: str
    row: Mapping[str, str]
    """By the columns of RowCollector.add; beside them `wrong`, a count, or `deviation`, of which
    only 0 is one."""
    samples: Sequence[str] = ()


@dataclass
class NcclTestsTable:
    """A table: what is said before it, and the sizes of its rows."""

    program: str | None = None
    """The program by its own words."""
    commands: set[str] = field(default_factory=set)
    """Programs in command lines before the table."""
    version: str = ""
    library: str = ""
    """NCCL's version number."""
    devices: list[RankDevice] = field(default_factory=list)
    options: dict[str, int] = field(default_factory=dict)
    """Numbers by the names of nccl-tests' line `# nThread`, and of _COMMAND_OPTIONS. The unit of a
    step is part of its name: `step(factor)`."""
    over_ranks: str = "mean over ranks"
    """How the times of the ranks are combined."""
    blocking: str = ""
    """What it says of option -z; empty where that is not used."""
    line: int = 1
    """That of its first row."""
    exponent: int = base.MICROSECONDS
    """The unit of its times is ten to this power of a second."""
    printed: dict[str, list[int]] = field(default_factory=dict)
    """The sizes of the rows that were added, by the cells of type, reduce op and root."""

    def read_line(self, line: str) -> None:
        """Take what a line before a table says."""
        self.read_command(line)
        if line.startswith("# Using devices"):
            self.devices.clear()
        for name, text in (_OPTION if line.startswith("# nThread") else _REDUCED).findall(line):
            number, bracket, unit = text.partition("(")
            self.options[name + bracket + unit] = int(number)
        if match := _VERSION.match(line):
            self.version, self.library = match[1], match[2] or ""
        if line.startswith("# Collective test starting:"):
            self.program = (find_programs(line) or [line.partition(":")[2].strip()])[0]
        if line.startswith("# Blocking Enabled"):
            self.blocking = line[2:].strip()
        if match := _DEVICE.match(line):
            rank, group = int(match["rank"]), int(match["group"] or 0)
            name = match["name"].strip()
            self.devices.append(RankDevice(rank, group, match["host"] or "", name))

    def read_command(self, line: str) -> None:
        """Take the programs and options of a line that is not nccl-tests' own, such as a command
        line."""
        if not line.startswith("#") and (programs := find_programs(line)):
            self.commands.update(programs)
            for name, pattern in _COMMAND_OPTIONS.items():
                if match := pattern.search(line):
                    self.options.setdefault(name, int(match[1]))

    @property
    def memory(self) -> str:
        """The kind of memory that option -R means; the default where no command line has it."""
        given = str(self.options.get("registered", ""))
        known = (name for name, entry in ALLOCATORS.items() if given and entry.nccl_tests == given)
        return next(known, DEFAULT_MEMORY)

    @property
    def known_operation(self) -> str | None:
        """commbench's operation, None where the lines name no program or several; raises LeftOut
        for a program without one."""
        program = self.program
        if program is None and len(self.commands) == 1:
            (program,) = self.commands
        if program is not None and program not in NCCL_TESTS:
            raise LeftOut(f"commbench has no operation for {program!r:.40}")
        return NCCL_TESTS.get(program or "")

    @property
    def known_ranks(self) -> int | None:
        """Ranks of the communicator, with NCCL_TESTS_SPLIT of rank 0's; None if unknown."""
        each = self.options.get("nThread", 1) * self.options.get("nGpus", 1)
        is_whole = sorted(d.rank for d in self.devices) == list(range(len(self.devices)))
        if not (self.devices and is_whole and each):
            return None
        reporting = next(device.group for device in self.devices if device.rank == 0)
        ranks = sum(device.group == reporting for device in self.devices)
        return ranks if ranks % each == 0 else None

    def sizes(self) -> Iterator[int]:
        """The sizes in bytes that it announces, before they are rounded; none where it does not say
        from where to where, and in which steps."""
        names = "minBytes", "maxBytes", "step(factor)", "step(bytes)"
        size, largest, factor, step = (self.options.get(name, 0) for name in names)
        while (factor > 1 or step) and 0 < size <= largest:
            yield size
            size = size * factor if factor > 1 else size + step

    @property
    def timing(self) -> str:
        """The timing mode: pipelined, unless it says that it waits for every operation."""
        return ISOLATED if self.blocking else PIPELINED

    @property
    def statistic(self) -> str:
        """What the column `time` is."""
        iterations, grouped = self.options.get("iters"), self.options.get("agg iters", 1)
        number = "" if iterations is None else f"{iterations} "
        group = f" of {grouped} grouped operations" if grouped > 1 else ""
        return f"mean over {number}calls{group}, {self.over_ranks}"

    def hinted(self, collector: RowCollector) -> str:
        """Its operation and ranks, where the file does not say one of them; else empty."""
        is_hinted = None in (self.known_operation, self.known_ranks)
        return f"{self.operation(collector).name} on {collector.ranks} ranks" if is_hinted else ""

    def operation(self, collector: RowCollector) -> Operation:
        """Its operation, by its own words or a hint; UsageError without both."""
        path, given = collector.source.path, self.known_operation
        return OPERATIONS[collector.hints.choose_operation(path, given, self.line)]

    def add(
        self, collector: RowCollector, line: int, key: Mapping[str, str],
        timed: Iterable[PlacementCells],
    ) -> None:  # fmt: skip
        """Add the row of each placement; LeftOut where commbench has no such row, ValueError where
        a cell is invalid. `key` are the cells that begin the row: `size`, `count`, `type`, and
        where there are such columns `redop` and `root`."""
        operation, ranks = self.operation(collector), collector.ranks
        kind = " ".join(cell for name, cell in key.items() if name not in ("size", "count"))
        size, reduce_op = base.parse_size(key["size"]), key.get("redop", "")
        self.printed.setdefault(kind, []).append(size)
        dtype = base.require_dtype(key["type"])
        if operation.reduces and reduce_op not in ("", "none", *REDUCE_OPS):
            raise LeftOut(f"commbench has no reduce op {reduce_op!r:.40}")
        count, blocks = base.parse_whole(key["count"]), ranks if operation.blocks else 1
        if operation.reduces and reduce_op in ("", "none"):
            self._refuse(collector, line, f"it has no reduce op, but {operation.name} reduces")
        if size != count * blocks * DTYPES[dtype].size_bytes:
            each = f" for each of {ranks} ranks" if operation.blocks else ""
            self._refuse(collector, line, f"{count} {dtype}{each} are not {size} bytes")
        for placement, row, samples in timed:
            collector.add(
                line, operation.name, dtype, size, row, self.statistic,
                exponent=self.exponent, of_iterations=True, samples=samples,
                iterations=self.options.get("iters", 0),
                placement=placement,
                reduce_op=reduce_op if operation.reduces else "",
                root=_parse_root(key.get("root", ""), ranks) if operation.rooted else None,
                launch_mode=GRAPH if self.options.get("graph") else EAGER,
                memory=self.memory,
                wrong=_parse_wrong(row),
            )  # fmt: skip

    def _refuse(self, collector: RowCollector, line: int, why: str) -> None:
        if hinted := self.hinted(collector):
            what = f"{collector.source.path}, line {line}, is not of {hinted}: {why}"
            raise UsageError(what, "check --op and --ranks")
        raise ValueError(why)

    def note_lacking(self, collector: RowCollector) -> None:
        """Note the sizes that it announces and lacks. nccl-tests rounds sizes down, so that every
        block is a multiple of at most 16 bytes."""
        blocks = collector.ranks if self.operation(collector).blocks else 1
        for kind, unsorted in self.printed.items():
            printed = sorted(unsorted)
            lacking = [
                size
                for size in islice(self.sizes(), _MOST_SIZES)
                if not (at := bisect_right(printed, size)) or printed[at - 1] <= size - 16 * blocks
            ]
            if lacking:
                sizes = base.join_numbers("size", lacking)
                why = f"lacks rows that it announces: {kind}, {sizes}"
                collector.note(f"the table at line {self.line} {why}", is_fault=True)


def note_launch_mode(table: NcclTestsTable, collector: RowCollector) -> None:
    """Note where the launch mode comes from, unless the file says that it is the usual one."""
    if table.options.get("graph"):
        collector.note("operations were launched by CUDA graphs (option -G)")
    elif "graph" not in table.options:
        collector.note("it does not say whether CUDA graphs were used (option -G): assumed not")


def make_file(
    collector: RowCollector, tables: Sequence[NcclTestsTable], **facts: Any
) -> ImportedFile:
    """The file of these tables, with what the numbers of all rows mean, and whether they are
    consistent."""
    if any(row.reported.minimum_s is not None for row in collector.rows):
        collector.note(
            "minimum, maximum and percentiles were measured on the device, the time on the host"
        )
    used = [table for table in tables if table.printed]
    hinted = [table.hinted(collector) for table in used]
    collector.note_bandwidths(next(filter(None, hinted[::-1]), ""))
    for table in used:
        table.note_lacking(collector)
    devices = [device for table in tables for device in table.devices]
    return collector.make_file(
        tool="nccl-tests",
        timing=tables[0].timing,
        hosts=base.unique(device.host for device in devices),
        devices=base.unique(device.name for device in devices),
        backend="nccl",
        buffers=ROTATING,
        **facts,
    )


def _parse_root(cell: str, ranks: int) -> int | None:
    if cell in ("", "-1"):
        return None
    if base.parse_whole(cell) >= ranks:
        raise ValueError(f"root {cell} is not a rank of {ranks}")
    return int(cell)


def _parse_wrong(row: Mapping[str, str]) -> int | None:
    """The number of wrong elements in a row; None where it has none."""
    value = base.parse_number(row.get("wrong") or row.get("deviation") or "nan")
    return None if value is None or (value and "wrong" not in row) else int(value)


def find_programs(text: str) -> list[str]:
    """The programs of nccl-tests in a line, without `_perf`: `all_reduce`, `alltoall`."""
    return [name for name in _PROGRAM.findall(text) if name in NCCL_TESTS or name in _OTHERS]


def parse_library_version(code: str) -> str:
    """NCCL's version from its number: `22805` is 2.28.5, `2708` is 2.7.8."""
    number = int(code)
    unit = 10_000 if number >= 10_000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"
