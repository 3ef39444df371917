"""Colours that differ for every reader, and text that stays within its line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import combinations, pairwise
from math import log10
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray

import commbench
from commbench.plan.operations import COLLECTIVES
from commbench.stats import Estimate
from commbench.views import pictures
from commbench.views.html import THEME, make_svg
from commbench.views.pictures import Bar, BarRow, Bars, Cell, Curves, HeatMap, Look, Mark

Array = NDArray[np.float64]
# Machado, Oliveira and Fernandes, IEEE TVCG 15 (2009), severity 1.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
     [0.0193339, 0.1191920, 0.9503041]]
)  # fmt: skip


def lab(colour: str, sight: Array) -> Array:
    """CIE L*a*b* of a colour as these eyes see it."""
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(sight @ linear, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_all_colours_differ_for_all_eyes(sight: str) -> None:
    seen = [lab(colour, SIGHT[sight]) for colour in pictures.COLOURS]
    apart = min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))
    assert apart > 15
    assert all(colour[0] < 75 for colour in seen)  # L* 100 is white paper


def test_looks_are_enough_for_operations_and_runs() -> None:
    assert len(set(pictures.COLOURS)) == len(set(pictures.MARKERS)) == len(COLLECTIVES)
    for colour, number in ((None, 30), ("#0072B2", 20)):
        assert len({pictures.nth_look(n, colour) for n in range(number)}) == number


def test_text_that_the_font_lacks_is_written_as_codes() -> None:
    assert pictures.plain("été 测") == "été \\u6d4b"
    assert pictures.plain("$x$") == r"\$x\$"
    assert pictures.plain("a\nb\x1b") == "a b "


@pytest.mark.parametrize("text", ["a b " * 200, "W" * 300, "", "W" * 40 + " i" * 200])
def test_wrapped_lines_fit_their_width(text: str) -> None:
    lines = pictures.wrap(text, 9, 4.0)
    assert pictures.widest(lines, 9) <= 4.0
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("write", "labels"),
    [
        (pictures.time_label, {
            2e-7: "200 ns", 1e-6: "1 us", 2e-5: "20 us", 1e-3: "1 ms", 0.0015: "1.5 ms",
            0.3: "300 ms", 1.0: "1 s", 500.0: "500 s", 100_000.0: "100000 s",
        }),
        (pictures.number_label, {0.0: "0", 1e-4: "0.0001", 0.3: "0.3", 1.5: "1.5", 450.0: "450"}),
    ],
)  # fmt: skip
def test_a_label_is_a_plain_number(write: Callable[[float], str], labels: dict[float, str]) -> None:
    assert {value: write(value) for value in labels} == labels


@pytest.mark.parametrize(
    "limits",
    [
        (0.9, 1.1),
        (0.5, 1.7),
        (1e-4, 2e-4),
        (1e-5, 0.3),
        (1e-9, 1e4),
        (0.97, 60),
        (3, 3.1),
        (2, 8.5),
    ],
)
def test_ticks_are_few_round_and_within_the_limits(limits: tuple[float, float]) -> None:
    low, high = limits
    for found in (pictures.log_ticks(low, high), pictures.linear_ticks(low, high)):
        assert 2 <= len(found) <= 7
        assert low * 0.999999 <= found[0] < found[-1] <= high * 1.000001
        for tick in found:
            assert len(f"{tick:.5e}".partition("e")[0].replace(".", "").rstrip("0")) <= 3


@pytest.mark.parametrize("width", [1.0, 2.2, 7.0])
@pytest.mark.parametrize(
    "sizes",
    [
        tuple(1 << k for k in range(34)), tuple(range(1 << 20, 17 << 20, 1 << 20)), (8, 16),
        (1000, 1024, 1048572, 1048576), tuple(range(10_000, 10_100)), (1 << 20,),
    ],
)  # fmt: skip
def test_labels_of_sizes_leave_each_other_room(sizes: tuple[int, ...], width: float) -> None:
    inches = width / log10(sizes[-1] * 1.12 / sizes[0])
    places = [log10(size) * inches for size in sizes]
    widths = [pictures.widest([pictures.size_label(size)]) for size in sizes]
    chosen = pictures.every_nth(places, widths)
    assert chosen[0] == 0 and (chosen[-1] == len(sizes) - 1 or len(chosen) == 1)
    for a, b in pairwise(chosen):
        assert places[b] - places[a] > (widths[a] + widths[b]) / 2


@pytest.mark.parametrize(("width", "chosen"), [(2.4, [0, 10, 20]), (2.6, [0, 5, 10, 15, 20])])
def test_no_label_is_missing_from_a_series(width: float, chosen: list[int]) -> None:
    places = [n * width / 20 for n in range(21)]
    assert pictures.every_nth(places, [0.4] * 15 + [0.5] * 6) == chosen


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
    Bars("", [BarRow("a", [Bar(Estimate(1.0, 0.5, 2.0), ("here", BLUE), 1.0)])]),
)  # fmt: skip


def drawn(panel: pictures.Panel, title: str = "Time", description: str = "It rises.") -> str:
    return make_svg(pictures.Picture("plot", title, description, [panel]), "p1")


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
    assert {"#212121", "#fefefe"} <= {*re.findall(r'fill="(#\w+)"', drawn(PANELS[1]))}
