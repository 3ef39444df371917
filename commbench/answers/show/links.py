"""Links with their speeds, and published bandwidths with the part of the link's speed they need;
and what a document of them says."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, methodcaller
from typing import NamedTuple

from commbench.analysis.figures import peak_fraction
from commbench.analysis.row_names import format_range
from commbench.answers.expect.curves import Curve, load_curves
from commbench.plan.fabrics import find_gpu
from commbench.plan.links import Link, Published, find_link, load_links, load_published, make_peak
from commbench.plan.operations import OPERATIONS
from commbench.units import GB, format_count, format_share
from commbench.views.cells import NUMBER, TEXT, Column, Unit
from commbench.views.document import Block, Document, Items, Table, sources_section
from commbench.views.formats import View

_SPEED = Unit(lambda value: f"{value / GB:g}")
_BUSBW = Unit(lambda value: f"{value / GB:.4g}")
_ABOUT_LINKS = (
    "No program reaches a specified speed completely. Vendors often print the sum of both "
    "directions, which is twice as much.",
    "If a node has several ports, give their sum: --peak 400GB/s/node. Names of accelerators mean "
    "their links: --peak h100.",
    "`commbench links --published` prints what others measured.",
)
_ABOUT_PUBLISHED = (
    "Calls were made back to back. More than 100 % is possible where the switch reduces (NVLS, "
    "SHARP): fewer bytes cross the link than busbw counts.",
)


class Reached(NamedTuple):
    """A published bus bandwidth."""

    published: Published
    fraction: float | None
    """Of the speed of its link; None for an operation without bandwidth."""


class Curves(NamedTuple):
    """The published curves of one system."""

    system: str
    curves: tuple[Curve, ...]

    def listed(self, field: str) -> str:
        """The values of a field of its curves: `2, 4, 8`."""
        return ", ".join(map(str, sorted({getattr(curve, field) for curve in self.curves})))

    @property
    def sizes(self) -> str:
        """The range of its sizes: `512B-512M`."""
        smallest = min(curve.points[0][0] for curve in self.curves)
        return format_range(smallest, max(curve.points[-1][0] for curve in self.curves))

    def as_json(self) -> dict[str, str]:
        """The fields of its curves, and the sizes."""
        fields = ("operation", "ranks", "nccl", "dtype", "source")
        return {"system": self.system, **{f: self.listed(f) for f in fields}, "sizes": self.sizes}


class Links(NamedTuple):
    """What `commbench links` answers."""

    links: tuple[Link, ...]
    """Those that were asked for."""
    published: tuple[Reached, ...]
    curves: tuple[Curves, ...] = ()
    """Only where what others published was asked for."""


def find_links(name: str | None = None, published: bool = False) -> Links:
    """All links, or the one of that name or alias with the bandwidths that were published for it;
    `published`: these bandwidths only, of all links without a name."""
    if name is None and not published:
        return Links(load_links(), ())
    link = None if name is None else find_link(name)
    figures = [one for one in load_published() if link is None or one.link == link.name]
    shown = (link,) if link and not published else ()
    curves = _curves(link) if published else ()
    return Links(shown, tuple(Reached(one, _fraction(one)) for one in figures), curves)


def _curves(link: Link | None) -> tuple[Curves, ...]:
    """The published curves, of all systems or of those with this link."""
    found: dict[str, list[Curve]] = {}
    for curve in load_curves():
        gpu = find_gpu(curve.system)
        if link is None or (gpu and gpu.link == link):
            found.setdefault(curve.system, []).append(curve)
    return tuple(Curves(system, tuple(curves)) for system, curves in found.items())


def _fraction(figure: Published) -> float | None:
    operation = OPERATIONS[figure.operation]
    if operation.busbw_factor is None:
        return None
    algbw = figure.busbw_bytes_per_s / operation.busbw_factor(figure.ranks)
    peak = make_peak(find_link(figure.link))
    needed = peak_fraction(operation, figure.ranks, figure.nodes, algbw, peak)
    return needed.fraction if needed else None


def document(found: Links) -> Document:
    """Tables of links and of published bandwidths; the source of each row is a number."""
    cited = [link.source for link in found.links] + [each.curves[0].source for each in found.curves]
    sources = [*dict.fromkeys([*cited, *(one.published.source for one in found.published)])]
    links = (
        Column("link", attrgetter("name"), TEXT),
        Column("GB/s", attrgetter("bytes_per_second"), _SPEED),
        Column("per", attrgetter("per"), TEXT),
        Column("what it is", attrgetter("what"), TEXT),
        Column("source", lambda link: sources.index(link.source) + 1, NUMBER),
    )
    published = (
        Column("machine", attrgetter("published.machine"), TEXT, 10),
        Column("operation", _operation, TEXT),
        Column("size", lambda one: one.published.size.replace(" ", "").removesuffix("iB"), NUMBER),
        Column("busbw\nGB/s", attrgetter("published.busbw_bytes_per_s"), _BUSBW),
        Column("of the\nlink", attrgetter("fraction"), Unit(format_share)),
        Column("NCCL", attrgetter("published.nccl"), TEXT, 6),
        Column("source", lambda one: sources.index(one.published.source) + 1, NUMBER),
    )
    curves = (
        Column("system", attrgetter("system"), TEXT, 10),
        Column("GPUs", methodcaller("listed", "ranks"), TEXT),
        Column("sizes", attrgetter("sizes"), TEXT),
        Column("NCCL", methodcaller("listed", "nccl"), TEXT),
        Column("source", lambda one: sources.index(one.curves[0].source) + 1, NUMBER),
    )
    blocks: list[Block] = [
        Table("", links, found.links),
        Items(_ABOUT_LINKS if len(found.links) > 1 else ()),
        Table("", published, found.published, attrgetter("published.link"), "link"),
        Items(_ABOUT_PUBLISHED if found.published else ()),
        Table(_curves_title(found.curves), curves, found.curves),
        sources_section(sources),
    ]
    title = found.links[0].name if len(found.links) == 1 else "Links"
    return Document(title, (), [_answer(found)], blocks)


def _curves_title(curves: Sequence[Curves]) -> str:
    names = ", ".join(dict.fromkeys(c.operation for each in curves for c in each.curves))
    return f"Curves of {names}: `commbench expect RUN` compares with them"


def _operation(reached: Reached) -> str:
    return f"{reached.published.operation} {reached.published.how}".strip()


def _answer(found: Links) -> str:
    if len(found.links) == 1:
        (link,) = found.links
        return f"{link.what}: {link.bytes_per_second / GB:g} GB/s one way per {link.per}."
    if found.links:
        return f"The specified speeds of {format_count(len(found.links), 'link')}, one way."
    return f"{format_count(len(found.published), 'bus bandwidth')} that others published."


VIEW = View(document, schema=1)
