"""What connects accelerators: within a node, and between nodes.

Bandwidths depend on the fabric and not on the number of accelerators alone (NVIDIA/aicr#1256), so
published figures are looked up by it. `data/gpus.csv` has the accelerators with their links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple

from commbench.errors import UsageError, closest
from commbench.plan.links import NODE, Link, find_link, parse_peak, read_table
from commbench.units import GB

EFA = "efa"
"""The network of AWS; which one depends on the accelerator."""
LARGEST_NODE = 16
"""Accelerators of a node. A link that connects more of them connects a rack."""
_NICS = re.compile(r"(\d{1,3})\s*x\s*(.+)", re.ASCII | re.IGNORECASE)
_RATE = re.compile(r"(\d{1,5})\s*(?:G|Gb|gbe)", re.ASCII | re.IGNORECASE)
_PART = "mig"
"""In the name of a part of an accelerator, of which nothing was published."""
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


@cache
def load_gpus() -> tuple[Gpu, ...]:
    """Every accelerator in `data/gpus.csv`; a name with more words comes before one with fewer."""
    return read_table(
        "gpus.csv", Gpu, words=lambda text: frozenset(text.split()), link=find_link,
        slot=lambda text: find_link(text) if text else None,
        connects=lambda text: int(text) if text else None,
    )  # fmt: skip


@lru_cache(maxsize=256)
def find_gpu(text: str) -> Gpu | None:
    """The accelerator of a name of `data/gpus.csv`, or of a device's name, such as `NVIDIA H100
    80GB HBM3`; None for one that the table does not have, and for the names of several."""
    found = find_gpus(text)
    return found[0] if len(found) == 1 else None


def find_gpus(text: str) -> tuple[Gpu, ...]:
    """The accelerators that a text names: of `h200-nvl` and `h200` only the longer name."""
    words = set(_WORD.findall(text.lower()))
    if _PART in words:
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
    close = closest(text, [gpu.name for gpu in load_gpus()])
    guess = f"did you mean {close}? " if close else ""
    hint = f"{guess}`commbench expect --help` lists them; or give {others}"
    raise UsageError(f"{option} {text!r} is no known accelerator", hint)


def parse_nics(text: str, gpu: Gpu | None = None) -> Nics:
    """The adapters of a node: `8x400G` (Gbit/s), `8xib-ndr`, `400GB/s`, `efa`, or a link's name.

    Raises UsageError for a text that is none of these.
    """
    wanted = text.strip()
    if wanted.lower() == EFA:
        if gpu is None or not gpu.efa:
            raise UsageError(
                f"no EFA is known for {gpu.what if gpu else 'this accelerator'}",
                "give its rate, such as 4x100G, or a link of `commbench links`",
            )
        wanted = gpu.efa
    several = _NICS.fullmatch(wanted)
    number, each = (int(several[1]), several[2].strip()) if several else (1, wanted)
    if not 1 <= number <= 256:
        raise UsageError(f"{text!r} is not a number of adapters", "write for example 8x400G")
    if rate := _RATE.fullmatch(each):
        speed = int(rate[1]) * GB / 8
        if not speed:
            raise UsageError(f"{text!r} is not above 0", "write for example 8x400G")
        return Nics(f"{number} x {int(rate[1])} Gbit/s", number * speed, number)
    peak = parse_peak(each, "rate")
    link = find_link(peak.name) if peak.source else None
    name = link.name if link else peak.name.removesuffix(" per node")
    if number > 1:
        name = f"{number} x {name}"
    return Nics(
        name,
        number * peak.bytes_per_second,
        number if several or peak.per != NODE else None,
        link.name if link else "",
        bool(link.reduces) if link else True,
        peak.source,
    )


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
    what the option takes besides.

    Raises UsageError for a text that is not such, or for an accelerator that is not known.
    """
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
            raise UsageError(f"{text!r} does not say what hardware it is", hint)
    return Hardware(make_fabric(gpu, nics), nodes)


def covers_version(published: str, version: str) -> bool:
    """Whether a figure for `published` versions of NCCL (`2.27.7`, `>=2.18`) counts for `version`;
    True where one of the two is not known. Only `>=` excludes versions."""
    least, given = (_version_numbers(text) for text in (published.removeprefix(">="), version))
    return not (published.startswith(">=") and least and given) or given >= least


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,4}", version)[:3])


def unique_gpu(names: Iterable[str]) -> Gpu | None:
    """The one accelerator that all these devices are; None where they differ, or one is unknown."""
    found = {find_gpu(name) for name in names}
    return found.pop() if len(found) == 1 else None
