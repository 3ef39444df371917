"""A picture as SVG within a page: small, readable in light and dark, with its text
for those who do not see it.

Matplotlib's SVG is parsed and written anew with the elements and attributes that are known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from commbench.output.plot_style import FIXED, Picture, render
from commbench.output.table import clean

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
_COLOUR = re.compile("#[0-9a-f]{6}")
_GREYS = ((0x48, "ink"), (0x98, "quiet"), (0xF0, "rule"), (0x100, "paper"))
"""The colours of the page, each for the greys below a level."""
DARK_PAPER = "#14181d"
"""The ground of `page.css` in the dark."""
LEAST_CONTRAST = 3.0
"""WCAG 2.2, 1.4.11: of graphics that are needed to understand the content, to what is beside."""


def make_svg(picture: Picture, prefix: str) -> str:
    """The picture as an `svg` element. Its ids begin with `prefix`, which no other picture has."""
    picture.figure.patch.set_visible(False)  # the page shows through
    for axes in picture.figure.axes:
        axes.patch.set_visible(False)
    content = render(picture.figure, ".svg").decode("utf-8")
    # Matplotlib writes texts into comments as they are, also characters that XML has not.
    drawn = ElementTree.fromstring(_NOT_XML.sub(" ", content))
    names: dict[str, str] = {
        name: f"{prefix}-{number}" for number, name in enumerate(sorted(_references(drawn)))
    }
    svg = Element("svg", {"role": "img", "viewBox": drawn.attrib["viewBox"]})
    svg.set("aria-labelledby", f"{prefix}-title {prefix}-desc")
    for name, text in (("title", picture.title), ("desc", picture.description)):
        # Matplotlib needs `$` escaped.
        plain = clean(text).replace(r"\$", "$")
        ElementTree.SubElement(svg, name, id=f"{prefix}-{name}").text = plain
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


def _copy(element: Element, names: dict[str, str], is_fixed: bool = False) -> Element | None:
    """The element with what is known of it; None for one that draws nothing. `is_fixed`: its
    colours are the same on a dark page."""
    is_fixed = is_fixed or element.get("id", "").startswith(FIXED)
    tag = str(element.tag).rpartition("}")[2]
    if tag not in _ELEMENTS:
        return None
    copy = Element(tag)
    for name, value in _properties(element):
        if name in _ATTRIBUTES:
            _set(copy, name, _REFERENCE.sub(lambda m: f"url(#{names[m[1]]})", value), is_fixed)
    if (own := element.get("id")) in names:
        copy.set("id", names[own])
    link = element.get(_LINK, "")
    if link.startswith("#"):
        copy.set("href", f"#{names[link[1:]]}")
    elif link.startswith("data:image/png;base64,"):
        copy.set("href", link)
    copies = (_copy(child, names, is_fixed) for child in element)
    copy.extend(found for found in copies if found is not None)
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


def _set(copy: Element, name: str, value: str, is_fixed: bool) -> None:
    """Set an attribute; a colour that must follow light and dark as a class."""
    if name in ("fill", "stroke") and _COLOUR.fullmatch(value) and not is_fixed:
        red, green, blue = _channels(value)
        kind = ""
        if red == green == blue:
            kind = next(page for level, page in _GREYS if red < level)
        elif _contrast(value, DARK_PAPER) < LEAST_CONTRAST:
            kind = value[1:]
        if kind:
            copy.set("class", f"{copy.get('class', '')} {name}-{kind}".strip())
            return
    if name in ("d", "x", "y"):
        value = " ".join(_NUMBER.sub(lambda m: f"{float(m[0]):.2f}", value).split())
    copy.set(name, value)


def drawing_style(text: str) -> str:
    """The rules for classes of colours in the drawings of a page: as drawn, and lighter in the
    dark."""
    classes = sorted(set(re.findall(r"\b(fill|stroke)-([0-9a-f]{6})\b", text)))
    if not classes:
        return ""
    plain = [f".{name}-{colour} {{ {name}: #{colour}; }}" for name, colour in classes]
    dark = [f".{name}-{colour} {{ {name}: {_lighter(colour)}; }}" for name, colour in classes]
    query = "@media screen and (prefers-color-scheme: dark)"
    return "\n".join([*plain, f"{query} {{", *dark, "}", ""])


def _lighter(colour: str) -> str:
    """The colour with as much white as it needs to be seen in the dark."""
    channels = _channels(f"#{colour}")
    for part in range(21):
        mixed = (round(channel + (255 - channel) * part / 20) for channel in channels)
        found = "#" + "".join(f"{channel:02x}" for channel in mixed)
        if _contrast(found, DARK_PAPER) >= LEAST_CONTRAST:
            return found
    return "#ffffff"


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _contrast(colour: str, other: str) -> float:
    """The contrast ratio of two colours. Source: WCAG 2.2, "contrast ratio"."""
    first, second = sorted((_luminance(colour), _luminance(other)))
    return (second + 0.05) / (first + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance, from 0 for black to 1 for white. Source: WCAG 2.2."""
    linear = []
    for channel in _channels(colour):
        part = channel / 255
        linear.append(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
    red, green, blue = linear
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
