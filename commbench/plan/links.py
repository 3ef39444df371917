"""Links and their speeds, one way; accelerators and networks that have them; and the peak against
which a bandwidth is compared.

The figures are in links.csv, gpus.csv, published.csv and thresholds.csv (what others demand) of
`data/`, each with its source. Published figures are looked up by what connects the accelerators
(NVIDIA/aicr#1256).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from commbench.errors import UsageError, closest, name_error, wrong_value
from commbench.units import GB, parse_size
from commbench.validation import texts_of

NODE = "node"
T = TypeVar("T")
Loader: TypeAlias = Callable[[], tuple[T, ...]]
"""Gives every record of a table of `data/`."""
_UNITS = {
    "MB/s": GB / 1e3, "GB/s": GB, "TB/s": GB * 1e3,
    "MBps": GB / 1e3, "GBps": GB, "TBps": GB * 1e3,
    "Mbit/s": GB / 8e3, "Gbit/s": GB / 8, "Tbit/s": GB / 8 * 1e3,
    "Mbps": GB / 8e3, "Gbps": GB / 8, "Tbps": GB / 8 * 1e3,
}  # fmt: skip
"""Bytes/s of each unit that has one meaning only; in `Gb`, the small b could be a slip."""
_SPEED = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z/]*?)(/node)?", re.ASCII)


class Link(NamedTuple):
    """A kind of link. `bytes_per_second` is its speed one way, for each of what `per` names."""

    name: str
    bytes_per_second: float
    per: str = ""
    """`accelerator` (all its links), `link` (one of several), `slot`, `port` or `node`; empty where
    a person gave a speed: it is taken as the speed of each rank."""
    what: str = ""
    """A description: `NVLink 4: H100, H200, GH200`."""
    source: str = ""
    aliases: tuple[str, ...] = ()
    """Accelerators that have it; they can be named in its place."""
    reduces: str = ""
    """How its switches can reduce: `NVLS`, `SHARP`; empty where they cannot."""

    @property
    def is_per_node(self) -> bool:
        """Whether it is the speed of a whole node, shared by its ranks, to the other nodes."""
        return self.per == NODE

    @property
    def text(self) -> str:
        """As text: `nvlink4 (NVLink 4: H100, H200, GH200), 450 GB/s one way per accelerator`."""
        speed = f"{self.bytes_per_second / GB:g} GB/s one way per {self.per or 'rank'}"
        return f"{self.name} ({self.what}), {speed}" if self.what else speed


Peak: TypeAlias = Link
"""A speed with which bandwidths are compared, one way: that of a link, or one that was given."""


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


_COLUMNS = {
    "GBps": "bytes_per_second", "busbw_GBps": "busbw_bytes_per_s", "low": "low_bytes_per_s",
    "high": "high_bytes_per_s",
}  # fmt: skip
"""The fields of columns that are in GB/s."""
_READERS: dict[str, Callable[[str], Any]] = {
    "str": str, "int": int, "bool": bool, "float": lambda text: float(text) * GB,
    "Link": lambda text: find_link(text), "tuple[str, ...]": lambda text: tuple(text.split()),
    "frozenset[str]": lambda text: frozenset(text.split()),
    "tuple[tuple[int, float], ...]": lambda text: tuple(
        (parse_size(size), float(speed) * GB)
        for size, speed in (point.split(":") for point in text.split())
    ),
}  # fmt: skip
"""What makes the value of a field, by its annotation; a number with a point is in GB/s."""


@cache
def read_table(file: str, record: type[T]) -> tuple[T, ...]:
    """A record of each row of a CSV file of the folder `data`. An empty text is None where the
    annotation of its field has that."""
    from importlib import resources  # takes longer to import than all of this file

    text = (resources.files("commbench") / "data" / file).read_text(encoding="utf-8")
    kinds, found = texts_of(record), []
    for row in csv.DictReader(text.splitlines()):
        values: dict[str, Any] = {}
        for name, cell in row.items():
            kind, none, _ = kinds[field := _COLUMNS.get(name, name)].partition(" | None")
            values[field] = _READERS[kind](cell) if cell or not none else None
        found.append(record(**values))
    return tuple(found)


load_links: Loader[Link] = partial(read_table, "links.csv", Link)
load_published: Loader[Published] = partial(read_table, "published.csv", Published)
load_thresholds: Loader[Threshold] = partial(read_table, "thresholds.csv", Threshold)


def find_link(text: str) -> Link:
    """The link of that name or alias, in either case; UsageError with the closest name if none."""
    wanted = text.strip().lower().replace("_", "-")
    by_name = {name: link for link in load_links() for name in (link.name, *link.aliases)}
    if wanted in by_name:
        return by_name[wanted]
    raise name_error("link", text, [*by_name], lists="`commbench links`")


def parse_peak(text: str, kind: str = "peak", takes_links: bool = True) -> Peak:
    """The peak that `text` describes: `450GB/s`, `400Gbit/s`, `400Gbps`, `400GB/s/node`, or a link.

    A small b stands for bits. Raises UsageError for a number without a unit, or with an ambiguous
    one (`450Gb`, `450gbps`), which calls the text a `kind`. Without `takes_links`, a link's name is
    no bandwidth either.
    """
    wanted = text.strip()
    is_link = wanted.lower() in {link.name for link in load_links()}
    if takes_links and (is_link or not re.match(r"[-+]?\.?\d", wanted, re.ASCII)):
        return find_link(text)
    match = _SPEED.fullmatch(wanted)
    if not match:
        raise wrong_value(text, "is not a bandwidth", "write for example 450GB/s", kind)
    number, unit, node = match[1], match[2], match[3]
    if unit not in _UNITS:
        trouble = f"has an unclear unit {unit!r}" if unit else "has no unit"
        units = f"{number}GB/s (bytes), {number}Gbit/s (bits), or a name of `commbench links`"
        if unit in ("GiB/s", "GiBps"):
            units = f"{float(number) * (1 << 30) / GB:.5g}GB/s: 1 GiB/s is 1.0737 GB/s"
        elif not takes_links:
            units = f"{number}GB/s (bytes), or {number}Gbit/s (bits)"
        raise wrong_value(text, trouble, f"write {units}", kind)
    speed = float(number) * _UNITS[unit]
    if not speed:
        raise wrong_value(text, "is not above 0", "write for example 450GB/s", kind)
    name = f"{speed / GB:g} GB/s{' per node' if node else ''}"
    return Peak(name, speed, per=NODE if node else "")


def parse_bandwidth(text: str, what: str = "bandwidth") -> float:
    """Bytes/s of a bandwidth of an accelerator, with a unit that has one meaning; UsageError, which
    calls it `what`, for another text."""
    peak = parse_peak(text, what, takes_links=False)
    if peak.is_per_node:
        hint = f"busbw is of one accelerator: write {text.strip().removesuffix('/node')}"
        raise wrong_value(text, "is the speed of a node", hint, what)
    return peak.bytes_per_second


EFA = "efa"
"""The network of AWS; which one depends on the accelerator."""
LARGEST_NODE = 16
"""Accelerators of a node. A link that connects more of them connects a rack."""
_NICS = re.compile(r"(\d{1,3})\s*x\s*(.+)", re.ASCII | re.IGNORECASE)
_RATE = re.compile(r"(\d{1,5})\s*(?:G|Gb|gbe)", re.ASCII | re.IGNORECASE)
_WORD = re.compile(r"[a-z]+[0-9]*[a-z]*|[0-9]+[a-z]*")


class Gpu(NamedTuple):
    """A model of an accelerator."""

    name: str
    words: frozenset[str]
    """The words that the name of the device contains."""
    what: str
    link: Link
    """What connects it with the others of its node."""
    slot: Link | None
    """Its PCIe slot, where that is known."""
    connects: int | None
    """How many accelerators the link connects: 2 by a bridge, 72 in a rack. None: all of a node."""
    efa: str
    """The name of the network of AWS's machines that have it."""
    source: str

    def as_json(self) -> str:
        """Its name."""
        return self.name


class Nics(NamedTuple):
    """The network adapters of a node."""

    name: str
    bytes_per_second: float
    """Of all together, one way."""
    number: int | None = None
    link: str = ""
    """The name of the link in `data/links.csv`, where the adapters have one."""
    can_reduce: bool = True
    """Whether the network may reduce (SHARP); True where that is not known."""
    source: str = ""


class Fabric(NamedTuple):
    """What connects the ranks of a job. Nothing is known of what is None."""

    gpu: Gpu | None = None
    link: Link | None = None
    """Between the accelerators of a node."""
    nics: Nics | None = None
    """Of each node."""

    def count_parts(self, ranks: int, nodes: int) -> int:
        """How many parts of the job only the network connects: its nodes, or its racks where one
        NVLink connects the accelerators of a rack."""
        connects = self.gpu.connects if self.gpu else None
        return -(-ranks // connects) if connects and connects > LARGEST_NODE else nodes

    def bridged(self, ranks: int, nodes: int) -> bool:
        """Whether bridges connect only some accelerators of a node each."""
        connects = self.gpu.connects if self.gpu else None
        return bool(connects and connects < -(-ranks // nodes) and connects <= LARGEST_NODE)


load_gpus: Loader[Gpu] = partial(read_table, "gpus.csv", Gpu)


@lru_cache(maxsize=256)
def find_gpu(text: str) -> Gpu | None:
    """The accelerator of a name of `data/gpus.csv`, or of a device's name, such as `NVIDIA H100
    80GB HBM3`; None for one that the table does not have, and for the names of several."""
    found = find_gpus(text)
    return found[0] if len(found) == 1 else None


def find_gpus(text: str) -> tuple[Gpu, ...]:
    """The accelerators that a text names: of `h200-nvl` and `h200` only the longer name."""
    words = set(_WORD.findall(text.lower()))
    if "mig" in words:  # a part of an accelerator, of which nothing was published
        return ()
    same = [gpu for gpu in load_gpus() if gpu.name == text.strip().lower()]
    found = same or [gpu for gpu in load_gpus() if gpu.words <= words]
    return tuple(gpu for gpu in found if not any(gpu.words < other.words for other in found))


def choose_gpu(text: str, option: str, others: str) -> Gpu:
    """The accelerator of that name; UsageError for one that is not known, with the closest name and
    what else the option takes, and for several."""
    found = find_gpus(text)
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(gpu.name for gpu in found)
        raise UsageError(f"{option} names several accelerators: {names}", "ask about one at a time")
    close = closest(text, [gpu.name for gpu in load_gpus()], similarity=0.8)  # h900 is not h800
    guess = f"did you mean {close}? " if close else ""
    hint = f"{guess}`commbench expect --help` lists them; or give {others}"
    raise wrong_value(text, "is no known accelerator", hint, option)


def parse_nics(text: str, gpu: Gpu | None = None) -> Nics:
    """The adapters of a node: `8x400G` (Gbit/s), `8xib-ndr`, `400GB/s`, `efa`, or a link's name;
    UsageError for another text."""
    wanted = text.strip()
    if wanted.lower() == EFA:
        if gpu is None or not gpu.efa:
            why = f"no EFA is known for {gpu.what if gpu else 'this accelerator'}"
            raise UsageError(why, "give its rate, such as 4x100G, or a link of `commbench links`")
        wanted = gpu.efa
    several = _NICS.fullmatch(wanted)
    number, each = (int(several[1]), several[2].strip()) if several else (1, wanted)
    if not 1 <= number <= 256:
        raise wrong_value(text, "is not a number of adapters", "write for example 8x400G")
    if rate := _RATE.fullmatch(each):
        speed = parse_peak(f"{rate[1]}Gbit/s", "rate").bytes_per_second
        return Nics(f"{number} x {int(rate[1])} Gbit/s", number * speed, number)
    if each.isdecimal():
        raise wrong_value(text, "has no unit", f"write {text}G (Gbit/s), or a link: 8xib-ndr")
    try:
        link = parse_peak(each, "rate")
    except UsageError as error:
        error.value = text
        raise
    name = f"{number} x " * (number > 1) + link.name.removesuffix(" per node")
    return Nics(
        name, number * link.bytes_per_second, number if several or link.per != NODE else None,
        link.name if link.source else "", bool(link.reduces or not link.source), link.source,
    )  # fmt: skip


def make_fabric(gpu: Gpu | None, nics: Nics | None = None) -> Fabric:
    """The fabric of an accelerator as it is sold."""
    return Fabric(gpu, gpu.link if gpu else None, nics)


class Hardware(NamedTuple):
    """What a run is, or was, measured on."""

    fabric: Fabric
    nodes: int | None = None
    """None: as many as the run says."""


def parse_hardware(text: str, option: str, others: str) -> Hardware:
    """The hardware in a text `GPU[:NICS][:K nodes]`, such as `h100:8x400G:2 nodes`; `others` is
    what the option takes besides. UsageError for another text, or an unknown accelerator."""
    name, *fields = (field.strip() for field in text.split(":"))
    gpu = choose_gpu(name, option, others)
    nodes, nics = None, None
    for field in fields:
        number = field.removesuffix("s").removesuffix("node").strip()
        if field != number and number.isdecimal() and nodes is None and int(number[:9]) > 0:
            nodes = int(number[:9])
        elif field and nics is None:
            nics = parse_nics(field, gpu)
        else:
            hint = f"write {others}, or for example h100, h100:efa or h100:8x400G:2 nodes"
            raise wrong_value(text, "does not say what hardware it is", hint)
    return Hardware(make_fabric(gpu, nics), nodes)


def covers_version(published: str, version: str) -> bool:
    """Whether a figure for `published` versions of NCCL (`2.27.7`, `>=2.18`) counts for `version`;
    True where one of the two is not known. Only `>=` excludes versions."""
    least, given = ([int(n) for n in re.findall(r"\d{1,4}", v)[:3]] for v in (published, version))
    return not (published.startswith(">=") and least and given) or given >= least


def unique_gpu(names: Iterable[str]) -> Gpu | None:
    """The one accelerator that all these devices are; None where they differ, or one is unknown."""
    found = {find_gpu(name) for name in names}
    return found.pop() if len(found) == 1 else None
