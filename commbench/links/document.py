"""What a document of links says: their speeds, what was published for them, and the sources."""

from __future__ import annotations

from operator import attrgetter

from commbench.links.speeds import Links, Reached
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
    "Measured by others, calls back to back. If the switch reduces (NVLS, SHARP), fewer bytes "
    "cross the links than busbw counts, so more than 100 % is possible.",
)


def document(found: Links) -> Document:
    """Tables of links and of published bandwidths; the source of each row is a number."""
    cited = [link.source for link in found.links]
    sources = [*dict.fromkeys([*cited, *(one.published.source for one in found.published)])]
    links = (
        Column("link", attrgetter("name"), TEXT),
        Column("GB/s", attrgetter("bytes_per_second"), _SPEED),
        Column("per", attrgetter("per"), TEXT),
        Column("what it is", attrgetter("what"), TEXT),
        Column("also", lambda link: ", ".join(link.aliases) * (len(found.links) == 1), TEXT),
        Column("", lambda link: sources.index(link.source) + 1, NUMBER),
    )
    published = (
        Column("machine", attrgetter("published.machine"), TEXT, 10),
        Column("operation", _operation, TEXT, 5, is_wrapped=True),
        Column("size", lambda one: one.published.size.replace(" ", "").removesuffix("iB"), NUMBER),
        Column("busbw\nGB/s", attrgetter("published.busbw_bytes_per_s"), _BUSBW),
        Column("part\nof", attrgetter("fraction"), Unit(format_share)),
        Column("link", attrgetter("published.link"), TEXT),
        Column("", lambda one: sources.index(one.published.source) + 1, NUMBER),
    )
    blocks: list[Block] = [
        Table("", links, found.links),
        Items(_ABOUT_LINKS if len(found.links) > 1 else ()),
        Table("", published, found.published),
        Items(_ABOUT_PUBLISHED if found.published else ()),
        sources_section(sources),
    ]
    title = found.links[0].name if len(found.links) == 1 else "Links"
    return Document(title, (), [_answer(found)], blocks)


def _operation(reached: Reached) -> str:
    return f"{reached.published.operation} {reached.published.how}".strip()


def _answer(found: Links) -> str:
    if len(found.links) == 1:
        (link,) = found.links
        return f"{link.what}: {link.bytes_per_second / GB:g} GB/s one way per {link.per}."
    if found.links:
        return f"{format_count(len(found.links), 'link')}, with specified speeds in one direction."
    return f"{format_count(len(found.published), 'bus bandwidth')} that others published."


VIEW = View(document, schema=1)
