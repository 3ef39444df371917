"""Tables of links and of published bandwidths, each figure with its source."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.analysis.peak import peak_fraction
from commbench.output.table import table
from commbench.spec.links import Link, Published, find_link, load_links, load_published, make_peak
from commbench.spec.operations import OPERATIONS
from commbench.units import GB, format_share


def links_text() -> str:
    """Every link: name, speed one way, what it is, and the sources."""
    sources: dict[str, int] = {}
    rows = [
        (
            link.name,
            f"{link.bytes_per_second / GB:g}",
            link.per,
            link.what,
            str(sources.setdefault(link.source, len(sources) + 1)),
        )
        for link in load_links()
    ]
    headings = ("link", "GB/s", "per", "what it is", "source")
    return "\n".join(
        (
            *table(headings, rows, left="link,per,what it is"),
            "",
            "Specified speeds in one direction. No program reaches them completely. Vendors",
            "often print the sum of both directions, which is twice as much. If a node has",
            "several ports, give their sum: --peak 400GB/s/node. Names of accelerators mean",
            "their links: --peak h100. `commbench links --published` prints what others",
            "measured.",
            "",
            *_list_sources(sources),
        )
    )


def link_text(link: Link) -> str:
    """All about one link, and the bandwidths that were published for it."""
    lines = [
        link.name,
        f"  what it is   {link.what}",
        f"  one way      {link.bytes_per_second / GB:g} GB/s per {link.per}",
        f"  source       {link.source}",
    ]
    if link.aliases:
        lines.insert(2, f"  or           {', '.join(link.aliases)}")
    found = [figure for figure in load_published() if figure.link == link.name]
    return "\n".join([*lines, "", published_text(found)] if found else lines)


def published_text(figures: Sequence[Published]) -> str:
    """Published bus bandwidths, with the fraction of the link's speed that each needs."""
    sources: dict[str, int] = {}
    rows = [
        (
            figure.machine,
            f"{figure.operation} {figure.how}".strip(),
            figure.size.replace(" ", "").removesuffix("iB"),
            f"{figure.busbw_bytes_per_s / GB:.4g}",
            f"{_percent(figure)} {figure.link}".strip(),
            str(sources.setdefault(figure.source, len(sources) + 1)),
        )
        for figure in figures
    ]
    headings = ("machine", "operation", "size", "busbw\nGB/s", "part of link", "")
    return "\n".join(
        (
            *table(headings, rows, left="machine,operation,part of link"),
            "",
            "Measured by others, calls back to back. If the switch reduces (NVLS, SHARP),",
            "fewer bytes cross the links than busbw counts, so more than 100 % is possible.",
            "The last column is the number of the source:",
            "",
            *_list_sources(sources),
        )
    )


def _percent(figure: Published) -> str:
    operation = OPERATIONS[figure.operation]
    if operation.busbw_factor is None:
        return ""
    algbw = figure.busbw_bytes_per_s / operation.busbw_factor(figure.ranks)
    peak = make_peak(find_link(figure.link))
    needed = peak_fraction(operation, figure.ranks, figure.nodes, algbw, peak)
    return f"{format_share(needed.fraction)}" if needed else ""


def _list_sources(numbers: dict[str, int]) -> list[str]:
    return [f"  {number}  {source}" for source, number in numbers.items()]
