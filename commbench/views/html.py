"""A document as one HTML file, which needs no script and no network.

Jinja escapes every value in `page.html` with markupsafe. Two texts are not escaped, because
commbench makes them: the style, and drawings, which `svg.py` writes with an XML serializer.
The page's Content-Security-Policy forbids scripts, requests, and any other style.
"""

from __future__ import annotations

import base64
import hashlib
from functools import partial
from itertools import count
from pathlib import Path
from typing import get_args

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from commbench.output.table import clean
from commbench.views import document as blocks
from commbench.views.svg import make_svg

FIGURE_SPACE = "&#8199;"
_FOLDER = Path(__file__).parent


def html_text(document: blocks.Document) -> str:
    """The document as an HTML page."""
    numbers = count(1)
    style = (_FOLDER / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
    )
    environment.filters |= {"trusted": Markup, "data_address": _data_address, "aligned": _aligned}
    kinds = get_args(blocks.Block)
    environment.tests |= {kind.__name__.lower(): partial(_is_of, kind) for kind in kinds}
    page = environment.get_template("page.html")
    text = page.render(
        document=document,
        style=style,
        style_hash=f"sha256-{digest}",
        anchor=_Anchors(),
        drawn=lambda block: [
            (picture.title, make_svg(picture, f"picture-{next(numbers)}"))
            for picture in block.draw()
        ],
        bad=blocks.BAD,
    )
    return text + "\n"


def _is_of(kind: type, block: object) -> bool:
    return isinstance(block, kind)


def _shown(value: object) -> object:
    """Text without control characters, but for the line ends of commands."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "\n".join(map(clean, value.split("\n")))


def _aligned(cell: str) -> Markup:
    """A cell whose blanks at the end, which align decimal points, are as wide as a digit."""
    text = clean(cell)
    bare = text.rstrip(" ")
    return escape(bare) + Markup(FIGURE_SPACE * (len(text) - len(bare)))


def _data_address(content: bytes) -> str:
    """The content of a gzip file as the address of a link."""
    return "data:application/gzip;base64," + base64.b64encode(content).decode()


class _Anchors:
    """Gives each block an id; a block is known by its identity."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def __call__(self, block: blocks.Block) -> str:
        return self._names.setdefault(id(block), f"part-{len(self._names) + 1}")
