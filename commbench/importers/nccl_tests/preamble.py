"""What nccl-tests prints before a table: program, parameters, devices."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from commbench.importers.nccl_tests.names import programs_in
from commbench.spec.timing_modes import ISOLATED, PIPELINED

BEGINS = ("# nccl-tests version", "# Collective test starting", "# nThread", "# Using devices")
"""A line that begins like this after a table belongs to the next one."""

_DEVICE = re.compile(
    r"#?\s*Rank\s+(?P<rank>\d{1,9})(?:\s+Group\s+(?P<group>\d{1,9}))?(?:\s+Pid\s+\d{1,20})?"
    r"\s+(?:on\s+(?P<host>\S+)|uses)\s+device\s+\d{1,9}\s+\[[^\]]{0,40}\]\s*(?P<name>.*)"
)
_LEGACY_DEVICE = re.compile(
    r"#?\s*Device\s+(?P<rank>\d{1,9})\s*->\s*\d{1,9}\s+\[[^\]]{0,40}\]\s*(?P<name>.*)"
)
_NRANKS = re.compile(r"NCCL INFO .*\bn[rR]anks (\d{1,9})\b")
_INTEGERS = {
    "threads": re.compile(r"# nThread (\d{1,9}) "),
    "gpus": re.compile(r"# nThread .*\bnGpus (\d{1,9})\b"),
    "iterations": re.compile(r"# nThread .*(?<!agg )(?<!warmup )iters: (\d{1,9})\b"),
    "grouped": re.compile(r"# nThread .*\bagg iters: (\d{1,9})\b"),
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
    """What the lines before a table have told so far."""

    program: str | None = None
    """As the program says itself."""
    commands: set[str] = field(default_factory=set)
    """Programs of command lines before it."""
    version: str = ""
    library: str = ""
    """NCCL's version number."""
    devices: list[RankDevice] = field(default_factory=list)
    communicators: set[int] = field(default_factory=set)
    """World sizes that NCCL itself logged."""
    integers: dict[str, int] = field(default_factory=dict)
    blocking: str = ""
    """What it says about blocking, where it waits for every operation."""

    def take(self, line: str) -> None:
        """Learn from one line."""
        if not line.startswith("#"):
            self.commands.update(programs_in(line))
            self.communicators.update(int(n) for n in _NRANKS.findall(line))
        if line.startswith("# Using devices"):
            self.devices.clear()
        for name, pattern in _INTEGERS.items():
            if match := pattern.search(line):
                self.integers[name] = int(match[1])
        if match := re.match(r"# nccl-tests version (\S+)(?:.* nccl-library=(\d{1,9}))?", line):
            self.version, self.library = match[1], match[2] or ""
        if line.startswith("# Collective test starting:"):
            self.program = (programs_in(line) or [line.partition(":")[2].strip()])[0]
        if line.startswith("# Blocking Enabled"):
            self.blocking = line[2:].strip()
        self._take_device(line)

    def _take_device(self, line: str) -> None:
        if match := _DEVICE.match(line) or _LEGACY_DEVICE.match(line):
            found = match.groupdict()
            self.devices.append(
                RankDevice(
                    int(found["rank"]),
                    int(found.get("group") or 0),
                    found.get("host") or "",
                    found["name"].strip(),
                )
            )

    @property
    def told_program(self) -> str | None:
        """The program, where it is beyond doubt."""
        if self.program is not None:
            return self.program
        return next(iter(self.commands)) if len(self.commands) == 1 else None

    @property
    def told_ranks(self) -> int | None:
        """How many ranks the measured communicator has; None where the lines do not tell."""
        if not self.devices:
            return next(iter(self.communicators)) if len(self.communicators) == 1 else None
        each = self.integers.get("threads", 1) * self.integers.get("gpus", 1)
        return ranks_of([(device.rank, device.group) for device in self.devices], each)

    @property
    def timing(self) -> str:
        """The loop launches all iterations and then waits, unless it says otherwise."""
        return ISOLATED if self.blocking else PIPELINED

    @property
    def statistic(self) -> str:
        """What the column `time` holds."""
        return statistic(self.integers.get("iterations"), self.integers.get("grouped", 1))


def statistic(iterations: int | None, grouped: int, over_ranks: str = "mean over ranks") -> str:
    """What nccl-tests' time is; the text output does not tell how ranks are combined (-a)."""
    number = "" if iterations is None else f"{iterations} "
    group = f" of {grouped} grouped operations" if grouped > 1 else ""
    return f"mean over {number}iterations{group}, {over_ranks}"


def ranks_of(listed: list[tuple[int, int]], each: int) -> int | None:
    """The ranks of the group that reports, the one of rank 0; None where the list has gaps.

    `listed` holds rank and group of every device; a process has `each` of them. With
    NCCL_TESTS_SPLIT there are several groups.
    """
    if sorted(rank for rank, _ in listed) != list(range(len(listed))) or not each:
        return None
    reporting = next(group for rank, group in listed if rank == 0)
    ranks = sum(group == reporting for _, group in listed)
    return ranks if ranks % each == 0 else None
