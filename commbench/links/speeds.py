"""Links with their speeds, and published bandwidths with the part of the link's speed they need."""

from __future__ import annotations

from typing import NamedTuple

from commbench.analysis.peak import peak_fraction
from commbench.spec.links import Link, Published, find_link, load_links, load_published, make_peak
from commbench.spec.operations import OPERATIONS


class Reached(NamedTuple):
    """A published bus bandwidth."""

    published: Published
    fraction: float | None
    """Of the speed of its link; None for an operation without bandwidth."""


class Links(NamedTuple):
    """What `commbench links` answers."""

    links: tuple[Link, ...]
    """Those that were asked for."""
    published: tuple[Reached, ...]


def find_links(name: str | None = None, published: bool = False) -> Links:
    """All links, or the one of that name or alias with the bandwidths that were published for it;
    `published`: these bandwidths only, of all links without a name."""
    if name is None and not published:
        return Links(load_links(), ())
    link = None if name is None else find_link(name)
    figures = [one for one in load_published() if link is None or one.link == link.name]
    shown = (link,) if link and not published else ()
    return Links(shown, tuple(Reached(one, _fraction(one)) for one in figures))


def _fraction(figure: Published) -> float | None:
    operation = OPERATIONS[figure.operation]
    if operation.busbw_factor is None:
        return None
    algbw = figure.busbw_bytes_per_s / operation.busbw_factor(figure.ranks)
    peak = make_peak(find_link(figure.link))
    needed = peak_fraction(operation, figure.ranks, figure.nodes, algbw, peak)
    return needed.fraction if needed else None
