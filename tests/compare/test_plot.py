"""Pictures of comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictures import bands, curves, look, panels_of, require_readable
from synthetic import Samples, in_memory, noisy

from commbench.compare.comparison import Comparison, compare
from commbench.compare.plot import comparison_figures, draw_one
from commbench.compare.sentences import pooled_sentences
from commbench.errors import UsageError

SIZES = tuple(1 << k for k in range(10, 25, 2))
KIND = "all_reduce float32 sum in_place"


def samples(seed: int, factor: float = 1.0) -> list[Samples]:
    return [
        noisy(factor * (1e-4 + size * 1e-9), seed + number, batches=3, each=6)
        for number, size in enumerate(SIZES)
    ]


def comparisons(*named: tuple[str, float]) -> list[Comparison]:
    """Runs with these names and factors, each compared with one called `before`."""
    before = in_memory("before", samples(1), SIZES)
    return [
        compare(before, in_memory(name, samples(100 * k, factor), SIZES))
        for k, (name, factor) in enumerate(named, start=2)
    ]


@pytest.mark.parametrize("limit", [1.0, 1.25, 60.0])
def test_the_limit_of_a_check_is_a_line_of_the_ratios_and_always_in_sight(limit: float) -> None:
    (picture,) = comparison_figures(comparisons(("after", 1.1)), limit).values()
    times, ratios = panels_of(picture.figure)
    drawn = [line for line in ratios.lines if line.get_gid() == "limit"]
    legend = [text.get_text() for each in picture.figure.legends for text in each.get_texts()]
    if limit == 1.0:
        assert not drawn
        assert not any("limit" in text for text in legend)
        return
    (line,) = drawn
    assert {*line.get_ydata()} == {limit}
    low, high = ratios.get_ylim()
    assert low < limit < high
    assert f"limit: {limit:g} times as long" in legend
    assert not [line for line in times.lines if line.get_gid() == "limit"]


@pytest.mark.parametrize(
    "named",
    [
        [("after", 1.0)],
        [("after", 39.0)],
        [("ring", 1.2), ("tree", 0.5), ("a-run-with-a-name-too-long-for-any-legend" * 2, 3)],
        [(f"run {k}", 1 + k / 5) for k in range(6)],
        [("测试一", 1.1), ("测试二", 1.2), ("$x_2$", 0.9), ("_hidden", 0.8)],
    ],
    ids=["the same", "39 times slower", "three", "six", "names that no font has"],
)  # fmt: skip
def test_every_run_is_named_and_nothing_covers_anything_else(
    named: list[tuple[str, float]],
) -> None:
    (picture,) = comparison_figures(comparisons(*named)).values()
    require_readable(picture.figure)
    times, ratios = panels_of(picture.figure)
    assert [len(curves(panel)) for panel in (times, ratios)] == [len(named) + 1, len(named)]
    assert bands(times) == (0 if len(named) > 3 else len(named) + 1)
    legend = [text.get_text() for each in picture.figure.legends for text in each.get_texts()]
    assert legend[0] == "before"
    assert len({*legend}) == len(legend) == len(named) + 2 + (len(named) == 1)
    assert "no difference: within 5 %" in legend
    assert [look(line) for line in curves(times)][1:] == [look(line) for line in curves(ratios)]


def test_the_band_of_no_difference_is_that_of_the_tolerance() -> None:
    (found,) = comparisons(("after", 1.02))
    (picture,) = comparison_figures([found]).values()
    ratios = panels_of(picture.figure)[1]
    band = next(patch for patch in ratios.patches if patch.get_gid() == "no-difference")
    box = band.get_window_extent().transformed(ratios.transData.inverted())
    assert (box.y0, box.y1) == pytest.approx((1 / 1.05, 1.05))
    low, high = ratios.get_ylim()
    assert low < 1 / 1.05 < 1.05 < high
    assert "1" in [label.get_text() for label in ratios.get_yticklabels()]


def test_the_pooled_ratio_is_drawn_and_is_the_description() -> None:
    (found,) = comparisons(("after", 2.0))
    picture = comparison_figures([found])[KIND]
    assert picture.description == " ".join(pooled_sentences(found))
    ratios = panels_of(picture.figure)[1]
    drawn = [line.get_ydata()[0] for line in ratios.get_lines() if line.get_gid() == "pooled"]
    (pooled,) = found.pooled
    assert drawn == [*pooled.ratio]


def test_a_file_has_the_format_of_its_ending(tmp_path: Path) -> None:
    found = comparisons(("after", 2.0))
    draw_one(found, tmp_path / "one.svg")
    assert (tmp_path / "one.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(UsageError, match="no ending") as refused:
        draw_one(found, tmp_path / "one.jpg")
    assert refused.value.hint == "end the name with .png, .svg or .pdf"
