"""A document as one HTML file, which needs no script and no network.

Jinja escapes every value in `page.html` with markupsafe. Two texts are not escaped, because
commbench makes them: the style, and drawings, which `make_svg` writes with an XML serializer.
The page's Content-Security-Policy forbids scripts, requests, and any other style. So what
matplotlib writes as styles in a drawing become attributes, and the colours of `page.css` classes.
No text of a file is in it: letters are paths. A drawing has its text for those who do not see it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from itertools import count
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from commbench.output.text import clean
from commbench.views import document as doc
from commbench.views.draw import NARROW, WIDTH, render
from commbench.views.pictures import GREY, INK, LIMIT, Picture

THEME = {
    INK: "ink", "#000000": "ink", GREY: "quiet", "#ffffff": "paper",
    "#8700f0": "purple", "#693c1e": "brown", "#4b4b5a": "slate", LIMIT: "bad",
}  # fmt: skip
"""The colours that are lighter or darker on a dark page, and their names in `page.css`."""
SCREENS = {WIDTH: "wide", NARROW: "narrow"}
"""The widths in which a picture is drawn, and their names in `page.css`, which shows one."""
_OPTION = re.compile(r"--[a-z][a-z-]*")
_FOREIGN = re.compile(r"{.*}")
_REFERENCE = re.compile(r"#([^)\"]+)[)\"]")
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
FIGURE_SPACE = "&#8199;"
_FOLDER = Path(__file__).parent


def write(document: doc.Document, _: bool = False) -> str:
    """The document as an HTML page."""
    numbers = count(1)
    said = " ".join(document.answer)

    def without_said(picture: Picture) -> Picture:
        return picture._replace(notes=[note for note in picture.notes if note not in said])

    names: dict[int, str] = {}  # the ids of blocks, by their identity
    style = (_FOLDER / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
    )
    environment.filters |= {
        "trusted": Markup, "data_address": _data_address, "aligned": _aligned, "options": _options,
    }  # fmt: skip
    for kind in get_args(doc.Block):
        environment.tests[kind.__name__.lower()] = lambda block, of=kind: isinstance(block, of)
    text = environment.get_template("page.html").render(
        document=document,
        style=style,
        style_hash=f"sha256-{digest}",
        anchor=lambda block: names.setdefault(id(block), f"part-{len(names) + 1}"),
        drawn=lambda block: [
            (picture.title, [make_svg(picture, f"picture-{next(numbers)}", w) for w in SCREENS])
            for picture in map(without_said, block.draw())
        ],
        bad=doc.BAD,
        unsure=doc.UNSURE,
    )
    return text + "\n"


def _shown(value: object) -> object:
    """Text without control characters, but for the line ends of commands."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "\n".join(map(clean, value.split("\n")))


def _options(text: str) -> Markup:
    """Text in which no line ends within the name of an option."""
    return Markup(_OPTION.sub(r'<span class="option">\g<0></span>', str(escape(clean(text)))))


def _aligned(cell: str) -> Markup:
    """A cell whose blanks at the end, which align decimal points, are as wide as a digit."""
    text = clean(cell)
    bare = text.rstrip(" ")
    return escape(bare) + Markup(FIGURE_SPACE * (len(text) - len(bare)))


def _data_address(content: bytes) -> str:
    """The content of a gzip file as the address of a link."""
    return "data:application/gzip;base64," + base64.b64encode(content).decode()


def make_svg(picture: Picture, prefix: str, width: float = WIDTH) -> str:
    """The picture as an `svg` element. Its ids begin with `prefix`, which no other picture has."""
    # Matplotlib writes texts into comments as they are, also characters that XML has not.
    content = render(picture, ".svg", width).decode("utf-8")
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
        "viewBox": svg.attrib["viewBox"], "role": "img", "class": SCREENS[width],
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
