"""A figure of matplotlib as SVG within a page: small, readable in light and dark, with its text
for those who do not see it.

Matplotlib's SVG is parsed and written anew with the elements and attributes that are known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from commbench.output.plot_style import quiet_about_glyphs
from commbench.output.table import clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ELEMENTS = {"g", "path", "defs", "clipPath", "use", "rect", "image", "pattern"}
_ATTRIBUTES = {
    "d", "x", "y", "width", "height", "transform", "viewBox", "patternUnits", "patternTransform",
    "preserveAspectRatio", "clip-path", "fill", "fill-opacity", "fill-rule", "stroke",
    "stroke-opacity", "stroke-width", "stroke-dasharray", "stroke-dashoffset", "stroke-linecap",
    "stroke-linejoin", "stroke-miterlimit", "opacity",
}  # fmt: skip
_LINK = "{http://www.w3.org/1999/xlink}href"
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_GREY = re.compile(r"#([0-9a-f]{2})\1\1")
DARK, LIGHT = 0x60, 0xF0
"""Greys below DARK get the colour of text, those from LIGHT on the colour of the page."""


def make_svg(figure: Figure, title: str, description: str, prefix: str) -> str:
    """The figure as an `svg` element. Its ids begin with `prefix`, which no other figure has."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    content = BytesIO()
    with rc_context({"svg.hashsalt": prefix}), quiet_about_glyphs():
        FigureCanvasSVG(figure).print_svg(content, metadata={"Date": None})
    # Matplotlib writes texts into comments as they are, also characters that XML has not.
    drawn = ElementTree.fromstring(_NOT_XML.sub(" ", content.getvalue().decode("utf-8")))
    names: dict[str, str] = {
        name: f"{prefix}-{number}" for number, name in enumerate(sorted(_references(drawn)))
    }
    svg = Element("svg", {"role": "img", "viewBox": drawn.attrib["viewBox"]})
    svg.set("aria-labelledby", f"{prefix}-title {prefix}-desc")
    for name, text in (("title", title), ("desc", description)):
        ElementTree.SubElement(svg, name, id=f"{prefix}-{name}").text = clean(text)
    svg.extend(found for child in drawn if (found := _copy(child, names)) is not None)
    return ElementTree.tostring(svg, encoding="unicode")


def _references(drawn: Element) -> set[str]:
    """The ids that other elements name."""
    found = set()
    for element in drawn.iter():
        for value in element.attrib.values():
            found.update(_REFERENCE.findall(value))
        if (link := element.get(_LINK, "")).startswith("#"):
            found.add(link[1:])
    return found


def _copy(element: Element, names: dict[str, str]) -> Element | None:
    """The element with what is known of it; None for one that draws nothing."""
    tag = str(element.tag).rpartition("}")[2]
    if tag not in _ELEMENTS:
        return None
    copy = Element(tag)
    for name, value in _properties(element):
        if name in _ATTRIBUTES:
            _set(copy, name, _REFERENCE.sub(lambda m: f"url(#{names[m[1]]})", value))
    if (own := element.get("id")) in names:
        copy.set("id", names[own])
    link = element.get(_LINK, "")
    if link.startswith("#"):
        copy.set("href", f"#{names[link[1:]]}")
    elif link.startswith("data:image/png;base64,"):
        copy.set("href", link)
    copy.extend(found for child in element if (found := _copy(child, names)) is not None)
    is_empty_group = tag in ("g", "defs") and not len(copy)
    return None if is_empty_group else copy


def _properties(element: Element) -> Iterator[tuple[str, str]]:
    """The attributes of an element, with those of its style as attributes of their own: the page
    allows no style but its own."""
    for name, value in element.attrib.items():
        if name != "style":
            yield name, value
    for part in element.get("style", "").split(";"):
        name, _, value = part.partition(":")
        if value:
            yield name.strip(), value.strip()


def _set(copy: Element, name: str, value: str) -> None:
    """Set an attribute, with a colour of text or page as one that follows light and dark."""
    if name in ("fill", "stroke") and (grey := _GREY.fullmatch(value)):
        level = int(grey[1], 16)
        if level >= LIGHT:
            kind = "paper-fill" if name == "fill" else "paper-line"
            copy.set("class", f"{copy.get('class', '')} {kind}".strip())
            return
        if level < DARK:
            value = "currentColor"
    if name == "d" or name in ("x", "y"):
        value = " ".join(_NUMBER.sub(lambda m: f"{float(m[0]):.2f}", value).split())
    copy.set(name, value)
