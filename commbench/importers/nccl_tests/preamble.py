"""Parses what nccl-tests prints before its results: program, parameters, devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from commbench.importers.names import NCCL_TESTS
from commbench.spec.allocators import ALLOCATORS, DEFAULT_MEMORY
from commbench.spec.timing_modes import EAGER, GRAPH, ISOLATED, PIPELINED

BEGINS = ("# nccl-tests version", "# Collective test starting", "# nThread", "# Using devices")
"""A line that begins like this after a table belongs to the next one."""

_PROGRAM = re.compile(r"(?<![\w.])([a-z]{2,20}(?:_[a-z]{2,20})?)_(?:perf|test)(?:_mpi)?(?![\w.])")
_OTHERS = ("hypercube", "alltoallv")
_DEVICE = re.compile(
    r"#?\s*Rank\s+(?P<rank>\d{1,9})(?:\s+Group\s+(?P<group>\d{1,9}))?(?:\s+Pid\s+\d{1,20})?"
    r"\s+(?:on\s+(?P<host>\S+)|uses)\s+device\s+\d{1,9}\s+\[[^\]]{0,40}\]\s*(?P<name>.*)"
)
_LEGACY_DEVICE = re.compile(
    r"#?\s*Device\s+(?P<rank>\d{1,9})\s*->\s*\d{1,9}\s+\[[^\]]{0,40}\]\s*(?P<name>.*)"
)
_GRAPH_OPTION = re.compile(r"\s(?:-G|--cudagraph)[ =]?(\d{1,9})\b")
_REGISTER_OPTION = re.compile(r"\s(?:-R|--local_register)[ =]?(\d)\b")
_NRANKS = re.compile(r"NCCL INFO .*\bn[rR]anks (\d{1,9})\b")
_INTEGERS = {
    "threads": re.compile(r"# nThread (\d{1,9}) "),
    "gpus": re.compile(r"# nThread .*\bnGpus (\d{1,9})\b"),
    "iterations": re.compile(r"# nThread .*(?<!agg )(?<!warmup )iters: (\d{1,9})\b"),
    "warmup": re.compile(r"# nThread .*\bwarmup iters: (\d{1,9})\b"),
    "grouped": re.compile(r"# nThread .*\bagg iters: (\d{1,9})\b"),
    "smallest": re.compile(r"# nThread .*\bminBytes (\d{1,18})\b"),
    "largest": re.compile(r"# (?:nThread .*\bmaxBytes|Reducing maxBytes to) (\d{1,18})\b"),
    "factor": re.compile(r"# nThread .*\bstep: (\d{1,18})\(factor\)"),
    "step": re.compile(r"# nThread .*\bstep: (\d{1,18})\(bytes\)"),
    "graphs": re.compile(r"# nThread .*\bgraph: (\d{1,9})\b"),
}


class RankDevice(NamedTuple):
    """One rank's line in the list of devices."""

    rank: int
    group: int
    host: str
    name: str


@dataclass
class Preamble:
    """What the lines before a table say."""

    program: str | None = None
    """The program by its own words."""
    commands: set[str] = field(default_factory=set)
    """Programs in command lines before the table."""
    version: str = ""
    library: str = ""
    """NCCL's version number."""
    devices: list[RankDevice] = field(default_factory=list)
    communicators: set[int] = field(default_factory=set)
    """World sizes that NCCL itself logged."""
    integers: dict[str, int] = field(default_factory=dict)
    over_ranks: str = "mean over ranks"
    """How the times of ranks are combined; the text output does not say (option -a)."""
    blocking: str = ""
    """Its words on blocking, where it waits for every operation."""

    def read_line(self, line: str) -> None:
        """Take what one line says."""
        self.read_command(line)
        if not line.startswith("#"):
            self.communicators.update(int(n) for n in _NRANKS.findall(line))
        if line.startswith("# Using devices"):
            self.devices.clear()
        for name, pattern in _INTEGERS.items():
            if match := pattern.search(line):
                self.integers[name] = int(match[1])
        if match := re.match(r"# nccl-tests version (\S+)(?:.* nccl-library=(\d{1,9}))?", line):
            self.version, self.library = match[1], match[2] or ""
        if line.startswith("# Collective test starting:"):
            self.program = (find_programs(line) or [line.partition(":")[2].strip()])[0]
        if line.startswith("# Blocking Enabled"):
            self.blocking = line[2:].strip()
        if match := _DEVICE.match(line) or _LEGACY_DEVICE.match(line):
            found = {"group": "0", "host": "", **match.groupdict(default="")}
            rank, group = int(found["rank"]), int(found["group"] or 0)
            self.devices.append(RankDevice(rank, group, found["host"], found["name"].strip()))

    def read_command(self, line: str) -> None:
        """Take the programs of a line that is not nccl-tests' own, such as a command line, and the
        options -R, which nccl-tests does not print, and -G, which older versions do not."""
        if not line.startswith("#") and (found := find_programs(line)):
            self.commands.update(found)
            if match := _GRAPH_OPTION.search(line):
                self.integers.setdefault("graphs", int(match[1]))
            if match := _REGISTER_OPTION.search(line):
                self.integers.setdefault("registered", int(match[1]))

    @property
    def launch_mode(self) -> str:
        """`graph` with option -G; `eager` where the file does not say."""
        return GRAPH if self.integers.get("graphs") else EAGER

    @property
    def memory(self) -> str:
        """The kind of memory that option -R means; the default where no command line has it."""
        given = str(self.integers.get("registered", ""))
        known = (name for name, entry in ALLOCATORS.items() if given and entry.nccl_tests == given)
        return next(known, DEFAULT_MEMORY)

    def note_launch_mode(self, note: Callable[[str], None]) -> None:
        """Note where the launch mode comes from, unless the file says that it is the usual one."""
        if self.integers.get("graphs"):
            note("operations were launched by CUDA graphs (option -G)")
        elif "graphs" not in self.integers:
            note("it does not say whether CUDA graphs were used (option -G): assumed not")

    @property
    def known_operation(self) -> str | None:
        """commbench's operation, None where the lines name no program or several; LookupError for
        a program without one."""
        program = self.program
        if program is None and len(self.commands) == 1:
            program = next(iter(self.commands))
        if program is not None and program not in NCCL_TESTS:
            raise LookupError(f"commbench has no operation for {program!r:.40}")
        return NCCL_TESTS.get(program or "")

    @property
    def known_ranks(self) -> int | None:
        """Ranks of the communicator, with NCCL_TESTS_SPLIT of rank 0's; None if unknown."""
        if not self.devices:
            return next(iter(self.communicators)) if len(self.communicators) == 1 else None
        each = self.integers.get("threads", 1) * self.integers.get("gpus", 1)
        if sorted(d.rank for d in self.devices) != list(range(len(self.devices))) or not each:
            return None
        reporting = next(device.group for device in self.devices if device.rank == 0)
        ranks = sum(device.group == reporting for device in self.devices)
        return ranks if ranks % each == 0 else None

    def sizes(self) -> Iterator[int]:
        """The sizes in bytes that it announces, before they are rounded; none where it does not say
        from where to where, and in which steps."""
        known = self.integers
        size, factor, step = (known.get(name, 0) for name in ("smallest", "factor", "step"))
        while (factor > 1 or step) and 0 < size <= known.get("largest", 0):
            yield size
            size = size * factor if factor > 1 else size + step

    @property
    def timing(self) -> str:
        """The timing mode: pipelined, unless it says that it waits for every operation."""
        return ISOLATED if self.blocking else PIPELINED

    @property
    def statistic(self) -> str:
        """What the column `time` is."""
        iterations, grouped = self.integers.get("iterations"), self.integers.get("grouped", 1)
        number = "" if iterations is None else f"{iterations} "
        group = f" of {grouped} grouped operations" if grouped > 1 else ""
        return f"mean over {number}calls{group}, {self.over_ranks}"


def find_programs(text: str) -> list[str]:
    """The programs of nccl-tests in a line, without `_perf`: `all_reduce`, `alltoall`."""
    return [name for name in _PROGRAM.findall(text) if name in NCCL_TESTS or name in _OTHERS]


def parse_library_version(code: str) -> str:
    """NCCL's version from its number: `22805` is 2.28.5, `2708` is 2.7.8."""
    number = int(code)
    unit = 10_000 if number >= 10_000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"
