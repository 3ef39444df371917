from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from commbench.output.plot_style import FIXED, Picture
from commbench.views.drawings import drawing_style, make_svg

SVG_CHARACTERS = 60_000


def drawn(title: str = "Time", description: str = "It rises.", text: str = "label") -> str:
    figure = Figure(figsize=(6, 4))
    axes = figure.add_subplot()
    axes.fill_between([1, 2, 3], [1, 2, 3], [2, 3, 4], color="#0072B2", alpha=0.2)
    axes.plot([1, 2, 3], [1, 4, 9], label=text)
    axes.axvspan(1, 2, hatch="//", alpha=0.1)
    axes.pcolormesh([[0.1, 0.2], [0.3, 0.4]])
    axes.imshow([[0.1, 0.2], [0.3, 0.4]])
    axes.legend()
    return make_svg(Picture("plot", title, description, figure), "p1")


def test_a_drawing_begins_with_its_title_and_description() -> None:
    svg = ElementTree.fromstring(drawn("<T>", "a & b"))
    assert [(svg[i].tag, svg[i].text) for i in (0, 1)] == [("title", "<T>"), ("desc", "a & b")]
    assert svg.get("aria-labelledby") == "p1-title p1-desc"


def test_a_drawing_has_no_style_script_or_foreign_link_and_is_small() -> None:
    text = drawn()
    assert len(text) < SVG_CHARACTERS
    for element in ElementTree.fromstring(text).iter():
        assert element.tag not in ("style", "script", "metadata")
        assert "style" not in element.attrib
        assert element.get("href", "#").startswith(("#", "data:image/png;base64,"))


def test_every_reference_of_a_drawing_is_within_it() -> None:
    svg = ElementTree.fromstring(drawn())
    ids = {element.get("id") for element in svg.iter()}
    named = [
        value.partition("#")[2].rstrip(")")
        for element in svg.iter()
        for value in element.attrib.values()
        if value.startswith(("#p1", "url(#"))
    ]
    assert named
    assert set(named) <= ids


@pytest.mark.parametrize("text", ["--> <script>", "]]>", "\x00\x1b", "a -- b"])
def test_text_in_a_drawing_is_no_markup(text: str) -> None:
    assert "script" not in drawn(title="t", text=text)


def test_greys_follow_the_page_and_colours_stay() -> None:
    text = drawn()
    assert "stroke-ink" in text
    assert "fill-paper" in text
    assert "#000000" not in text
    assert "#ffffff" not in text
    assert "#0072b2" in text


def test_a_colour_that_is_too_dark_for_a_dark_page_is_lighter_there() -> None:
    figure = Figure()
    figure.add_subplot().plot([1, 2], color="#4b1e00")
    style = drawing_style(make_svg(Picture("plot", "t", "d", figure), "p1"))
    assert ".stroke-4b1e00 { stroke: #4b1e00; }" in style
    (lighter,) = re.findall(r"dark\) \{\s.*?stroke: (#\w+);", style, re.DOTALL)
    assert sum(bytes.fromhex(lighter[1:])) > sum(bytes.fromhex("4b1e00"))


def test_text_on_a_cell_of_a_heat_map_keeps_its_colour_on_a_dark_page() -> None:
    figure = Figure()
    axes = figure.add_subplot()
    axes.text(0.2, 0.2, "on a cell", color="#222222", gid=FIXED)
    kept = make_svg(Picture("map", "t", "d", figure), "p1")
    assert 'fill="#222222"' in kept
    assert "fill-222222" not in kept
