"""Colours that differ for every reader, and text that stays within its line."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from commbench.spec.operations import COLLECTIVES
from commbench.views import lettering, pictures

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


def test_there_is_a_colour_and_a_marker_for_each_operation() -> None:
    assert len(set(pictures.COLOURS)) == len(set(pictures.MARKERS)) == len(COLLECTIVES)


@pytest.mark.parametrize("colour", [None, "#0072B2"])
def test_no_two_of_the_first_styles_are_alike(colour: str | None) -> None:
    number = 30 if colour is None else 20
    assert len({pictures.nth_look(n, colour) for n in range(number)}) == number


def test_text_that_the_font_lacks_is_written_as_codes() -> None:
    assert lettering.plain("été 测") == "été \\u6d4b"
    assert lettering.plain("$x$") == r"\$x\$"
    assert lettering.plain("a\nb\x1b") == "a b "


@pytest.mark.parametrize("text", ["a b " * 200, "W" * 300, "", "W" * 40 + " i" * 200])
def test_wrapped_lines_fit_their_width(text: str) -> None:
    lines = lettering.wrap(text, 9, 4.0)
    assert max(lettering.text_width(line, 9) for line in lines) <= 4.0
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
