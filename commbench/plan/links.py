"""Links and their speeds, one way, and the peak against which a bandwidth is compared.

The figures are in `data/links.csv` and `data/published.csv`, each with its source, and what others
demand is in `data/thresholds.csv`. They are read from there on first use.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

from commbench.errors import UsageError, closest
from commbench.units import GB, parse_size

NODE = "node"
T = TypeVar("T")
_UNITS = {
    "MB/s": GB / 1e3, "GB/s": GB, "TB/s": GB * 1e3,
    "MBps": GB / 1e3, "GBps": GB, "TBps": GB * 1e3,
    "Mbit/s": GB / 8e3, "Gbit/s": GB / 8, "Tbit/s": GB / 8 * 1e3,
    "Mbps": GB / 8e3, "Gbps": GB / 8, "Tbps": GB / 8 * 1e3,
}  # fmt: skip
"""Bytes/s of each unit that has one meaning only; in `Gb`, the small b could be a slip."""
_SPEED = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z/]*?)(/node)?", re.ASCII)
_NUMBER = re.compile(r"[-+]?\.?\d", re.ASCII)


class Link(NamedTuple):
    """A kind of link. `bytes_per_second` is its speed one way, for each of what `per` names."""

    name: str
    aliases: tuple[str, ...]
    """Accelerators that have it; they can be named in its place."""
    what: str
    """A description: `NVLink 4: H100, H200, GH200`."""
    bytes_per_second: float
    per: str
    """`accelerator` (all its links), `link` (one of several), `slot`, `port` or `node`."""
    reduces: str
    """How its switches can reduce: `NVLS`, `SHARP`; empty where they cannot."""
    source: str


class Published(NamedTuple):
    """A published bus bandwidth."""

    machine: str
    operation: str
    ranks: int
    nodes: int
    how: str
    """How it was measured."""
    size: str
    """The message size, as published; empty where it was not given."""
    busbw_bytes_per_s: float
    """At the largest size of a curve."""
    gpu: str
    """The name of the accelerator in `data/gpus.csv`."""
    link: str
    """The name of the link with which it is compared."""
    nccl: str
    """The version of NCCL, such as `2.27.7` or `>=2.18`; empty where it is not known."""
    curve: tuple[tuple[int, float], ...]
    """Sizes and bus bandwidths in bytes/s, ascending; empty where one figure was published."""
    source: str


class Threshold(NamedTuple):
    """The bus bandwidth that somebody demands of healthy machines."""

    who: str
    gpu: str
    """The name of the accelerator in `data/gpus.csv`."""
    operation: str
    ranks: int
    nodes: int
    """The fewest ranks and nodes for which it is demanded."""
    nic: str
    """The network of a node, a name of `data/links.csv`; empty where it is not known."""
    low_bytes_per_s: float
    high_bytes_per_s: float | None
    source: str


class Peak(NamedTuple):
    """A speed with which bandwidths are compared, one way."""

    name: str
    bytes_per_second: float
    per: str = ""
    """As in Link; empty where a person gave a speed: it is taken as the speed of each rank."""
    what: str = ""
    source: str = ""

    @property
    def is_per_node(self) -> bool:
        """Whether it is the speed of a whole node, shared by its ranks, to the other nodes."""
        return self.per == NODE

    @property
    def text(self) -> str:
        """As text: `nvlink4 (NVLink 4: H100, H200, GH200), 450 GB/s one way per accelerator`."""
        speed = f"{self.bytes_per_second / GB:g} GB/s one way per {self.per or 'rank'}"
        return f"{self.name} ({self.what}), {speed}" if self.what else speed


def _speed(text: str) -> float:
    return float(text) * GB


def _curve(text: str) -> tuple[tuple[int, float], ...]:
    points = (point.split(":") for point in text.split())
    return tuple((parse_size(size), _speed(value)) for size, value in points)


@cache
def load_links() -> tuple[Link, ...]:
    """Every link in `data/links.csv`."""
    return read_table(
        "links.csv", Link, aliases=lambda text: tuple(text.split()), bytes_per_second=_speed
    )


@cache
def load_published() -> tuple[Published, ...]:
    """Every figure in `data/published.csv`."""
    return read_table(
        "published.csv", Published, ranks=int, nodes=int, busbw_bytes_per_s=_speed, curve=_curve
    )


@cache
def load_thresholds() -> tuple[Threshold, ...]:
    """Every demand in `data/thresholds.csv`."""
    return read_table(
        "thresholds.csv", Threshold, ranks=int, nodes=int, low_bytes_per_s=_speed,
        high_bytes_per_s=lambda text: _speed(text) if text else None,
    )  # fmt: skip


_COLUMNS = {
    "GBps": "bytes_per_second", "busbw_GBps": "busbw_bytes_per_s", "low": "low_bytes_per_s",
    "high": "high_bytes_per_s",
}  # fmt: skip
"""The fields of columns that are in GB/s."""


def read_table(file: str, record: type[T], **read: Callable[[str], Any]) -> tuple[T, ...]:
    """A record of each row of a CSV file of the folder `data`; `read` makes the values of the
    fields that are no text."""
    from importlib import resources  # takes longer to import than all of this file

    text = (resources.files("commbench") / "data" / file).read_text(encoding="utf-8")
    found = []
    for row in csv.DictReader(text.splitlines()):
        values = {_COLUMNS.get(name, name): value for name, value in row.items()}
        found.append(record(**{name: read.get(name, str)(v) for name, v in values.items()}))
    return tuple(found)


def find_link(text: str) -> Link:
    """The link of that name or alias, in either case; UsageError with the closest name if none."""
    wanted = text.strip().lower().replace("_", "-")
    by_name = {name: link for link in load_links() for name in (link.name, *link.aliases)}
    if wanted in by_name:
        return by_name[wanted]
    close = closest(wanted, by_name)
    guess = f"did you mean {close}? " if close else ""
    raise UsageError(f"unknown link {text!r}", f"{guess}`commbench links` lists them")


def parse_peak(text: str, kind: str = "peak", takes_links: bool = True) -> Peak:
    """The peak that `text` describes: `450GB/s`, `400Gbit/s`, `400Gbps`, `400GB/s/node`, or a link.

    A small b stands for bits. Raises UsageError for a number without a unit, or with an ambiguous
    one (`450Gb`, `450gbps`), which calls the text a `kind`. Without `takes_links`, a link's name is
    no bandwidth either.
    """
    wanted = text.strip()
    is_number = _NUMBER.match(wanted) and wanted.lower() not in {x.name for x in load_links()}
    if takes_links and not is_number:
        return make_peak(find_link(text))
    match = _SPEED.fullmatch(wanted)
    if not match:
        raise UsageError(f"{kind} {text!r} is not a bandwidth", "write for example 450GB/s")
    number, unit, node = match[1], match[2], match[3]
    if unit not in _UNITS:
        trouble = f"has an unclear unit {unit!r}" if unit else "has no unit"
        units = f"{number}GB/s (bytes), {number}Gbit/s (bits), or a name of `commbench links`"
        if unit in ("GiB/s", "GiBps"):
            units = f"{float(number) * (1 << 30) / GB:.5g}GB/s: 1 GiB/s is 1.0737 GB/s"
        elif not takes_links:
            units = f"{number}GB/s (bytes), or {number}Gbit/s (bits)"
        raise UsageError(f"{kind} {text!r} {trouble}", f"write {units}")
    speed = float(number) * _UNITS[unit]
    if not speed:
        raise UsageError(f"{kind} {text!r} is not above 0", "write for example 450GB/s")
    name = f"{speed / GB:g} GB/s{' per node' if node else ''}"
    return Peak(name, speed, per=NODE if node else "")


def make_peak(link: Link) -> Peak:
    """The speed of a link as a peak."""
    return Peak(link.name, link.bytes_per_second, link.per, link.what, link.source)
