"""Pictures within a page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

import commbench
from commbench.stats.estimate import Estimate
from commbench.views import pictures
from commbench.views.pictures import Bar, BarRow, Bars, Cell, Curves, HeatMap, Look, Mark, Picture
from commbench.views.svg import THEME, make_svg

SVG_CHARACTERS = 60_000
DARK_PAPER = "#14181d"
BLUE = Look("#0072B2", fill=1.0)
PANELS = (
    Curves(
        "Time of a call",
        [
            pictures.Series(f"run {n}", pictures.nth_look(n), [
                (x, Estimate(x * n, x * n * 0.9, x * n * 1.2)) for x in (1024, 4096)
            ])
            for n in range(1, 11)
        ],
        marks=[Mark(Look(pictures.LIMIT, dashes=(5, 2)), 2000.0, name="limit")],
    ),
    HeatMap("", {0.5: "a"}, {0.5: "b", 1.5: "c"}, {(0, 0): Cell(0.1, "1"), (0, 1): Cell(0.9, "2")},
            (1, 3)),
    Bars("", [BarRow("a", [Bar(Estimate(1.0, 0.5, 2.0), "1 s", ("here", BLUE), 1.0)])]),
)  # fmt: skip


def drawn(panel: pictures.Panel, title: str = "Time", description: str = "It rises.") -> str:
    return make_svg(Picture("plot", title, description, [panel], has_bands=True), "p1")


def luminance(colour: str) -> float:
    """Relative luminance, from 0 for black to 1 for white. Source: WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(colour: str, other: str) -> float:
    first, second = sorted((luminance(colour), luminance(other)))
    return (second + 0.05) / (first + 0.05)


@pytest.mark.parametrize("panel", PANELS)
def test_a_drawing_is_small_and_has_no_style_script_or_foreign_link(panel: pictures.Panel) -> None:
    text = drawn(panel)
    assert len(text) < SVG_CHARACTERS
    svg = ElementTree.fromstring(text)
    ids = Counter(element.get("id") for element in svg.iter() if element.get("id"))
    assert all(name.startswith("p1-") and number == 1 for name, number in ids.items())
    named = []
    for element in svg.iter():
        assert element.tag not in ("style", "script", "metadata")
        assert "style" not in element.attrib
        for name, value in element.attrib.items():
            if name == "href" and not value.startswith("data:image/png;base64,"):
                named.append(value.removeprefix("#"))
            named += re.findall(r"url\(#(.*?)\)", value)
    assert named
    assert set(named) <= set(ids)


def test_a_drawing_begins_with_its_title_and_description() -> None:
    svg = ElementTree.fromstring(drawn(PANELS[0], "<T>", "a & b"))
    assert [(svg[i].tag, svg[i].text) for i in (0, 1)] == [("title", "<T>"), ("desc", "a & b")]
    assert svg.get("aria-labelledby") == "p1-title p1-desc"


@pytest.mark.parametrize("text", ["--> <script>", "]]>", "\x00\x1b", "a -- b", "$x", "测"])
def test_text_in_a_drawing_is_no_markup(text: str) -> None:
    panel = Curves(text, [pictures.Series(text, Look("#0072B2"), [(1, Estimate(1.0))])])
    assert "script" not in drawn(panel)


@pytest.mark.parametrize("panel", PANELS[::2])
def test_every_line_can_be_seen_on_a_dark_page(panel: pictures.Panel) -> None:
    text = drawn(panel)
    colours = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{6})"', text))
    assert colours
    assert not colours & set(THEME)
    # WCAG 2.2, 1.4.11: of graphics that are needed to understand the content.
    assert all(contrast(colour, DARK_PAPER) >= 3 for colour in colours)


def test_a_page_has_the_classes_of_all_colours_of_drawings() -> None:
    rules = (Path(commbench.__file__).parent / "views" / "page.css").read_text(encoding="utf-8")
    light, dark = rules.split("@media screen and (prefers-color-scheme: dark)")[:2]
    for name in set(THEME.values()):
        assert f".fill-{name} {{ fill: var(--{name}); }}" in rules
        assert f".stroke-{name} {{ stroke: var(--{name}); }}" in rules
        assert f"--{name}: " in light
        (shown,) = re.findall(rf"--{name}: (#\w+);", dark.partition("}")[0])
        assert name == "paper" or contrast(shown, DARK_PAPER) >= 3
    assert {"purple", "brown", "slate"} <= {
        THEME.get(colour.lower(), "") for colour in pictures.COLOURS
    }


def test_text_on_a_cell_of_a_heat_map_keeps_its_colour_on_a_dark_page() -> None:
    text = drawn(PANELS[1])
    assert 'fill="#212121"' in text
    assert 'fill="#fefefe"' in text
