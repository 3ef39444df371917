"""A picture as SVG within a page: readable in light and dark, with its text for those who do not
see it.

The page allows no style but its own, so what matplotlib writes as styles become attributes, and
the colours of `page.css` classes. No text of a file is in it: letters are paths.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from commbench.output.table import clean
from commbench.views.draw import render
from commbench.views.pictures import GREY, INK, LIMIT, Picture

THEME = {
    INK: "ink", "#000000": "ink", GREY: "quiet", "#ffffff": "paper",
    "#8700f0": "purple", "#693c1e": "brown", "#4b4b5a": "slate", LIMIT: "bad",
}  # fmt: skip
"""The colours that are lighter or darker on a dark page, and their names in `page.css`."""
_FOREIGN = re.compile(r"{.*}")
_REFERENCE = re.compile(r"#([^)\"]+)[)\"]")
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def make_svg(picture: Picture, prefix: str) -> str:
    """The picture as an `svg` element. Its ids begin with `prefix`, which no other picture has."""
    # Matplotlib writes texts into comments as they are, also characters that XML has not.
    content = render(picture, ".svg").decode("utf-8")
    svg = ElementTree.fromstring(_NOT_XML.sub(" ", content))
    named = set(_REFERENCE.findall(content))
    for element in svg.iter():
        element.text = element.tail = None
        for child in [*element]:
            if child.tag.endswith(("}metadata", "}style")):
                element.remove(child)
        element.tag = _FOREIGN.sub("", element.tag)
        found = {_FOREIGN.sub("", name): value for name, value in element.attrib.items()}
        styles = [part.split(":", 1) for part in found.pop("style", "").split(";") if part.strip()]
        element.attrib.clear()
        if found.get("id") not in named:
            found.pop("id", None)
        for name, value in [*found.items(), *styles]:
            _set(element, name.strip(), value.strip(), prefix)
    texts = (("title", picture.title), ("desc", picture.description))
    for place, (name, text) in enumerate(texts):
        element = ElementTree.Element(name, id=f"{prefix}-{name}")
        element.text = clean(text)
        svg.insert(place, element)
    svg.attrib = {
        "viewBox": svg.attrib["viewBox"], "role": "img",
        "aria-labelledby": f"{prefix}-title {prefix}-desc",
    }  # fmt: skip
    return ElementTree.tostring(svg, encoding="unicode")


def _set(element: ElementTree.Element, name: str, value: str, prefix: str) -> None:
    """Set an attribute: an id or a reference with the prefix, a colour of THEME as a class."""
    if name == "id":
        value = f"{prefix}-{value}"
    elif value.startswith(("#", "url(#")) and (name == "href" or value.startswith("url")):
        value = value.replace("#", f"#{prefix}-")
    elif name in ("fill", "stroke") and value in THEME:
        name, value = "class", f"{element.get('class', '')} {name}-{THEME[value]}".strip()
    elif name in ("d", "x", "y"):
        value = " ".join(_NUMBER.sub(lambda m: f"{float(m[0]):.2f}", value).split())
    element.set(name, value)
