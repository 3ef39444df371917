"""Pictures of comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictures import legend_texts, require_readable
from synthetic import Samples, in_memory, noisy

from commbench.compare.comparison import Comparison, compare
from commbench.compare.plot import comparison_pictures
from commbench.compare.sentences import pooled_sentences
from commbench.errors import UsageError
from commbench.views.draw import write_pictures
from commbench.views.draw_curves import find_limits
from commbench.views.pictures import Curves, Picture
from commbench.views.ticks import log_ticks

SIZES = tuple(1 << k for k in range(10, 25, 2))


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


def panels(picture: Picture) -> list[Curves]:
    return [panel for panel in picture.panels if isinstance(panel, Curves)]


@pytest.mark.parametrize("limit", [1.0, 1.25, 60.0])
def test_the_limit_of_a_check_is_a_line_of_the_ratios_and_always_in_sight(limit: float) -> None:
    (picture,) = comparison_pictures(comparisons(("after", 1.1)), limit)
    times, ratios = panels(picture)
    legend = [text.get_text() for text in legend_texts(require_readable(picture))]
    marks = [mark for mark in ratios.marks if mark.name.startswith("limit")]
    assert [mark.low for mark in marks] == ([limit] if limit > 1 else [])
    assert (f"limit: {limit:g} times as long" in legend) == (limit > 1)
    low, high = find_limits([ratios], ratios.scale, True)
    assert low < limit < high
    assert not times.marks


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
    (picture,) = comparison_pictures(comparisons(*named))
    legend = [text.get_text() for text in legend_texts(require_readable(picture))]
    times, ratios = panels(picture)
    assert len(times.series) == len(named) + 1
    assert times.may_have_bands == (len(named) <= 3)
    assert legend[0] == "before"
    assert len({*legend}) == len(legend) == len(named) + 2 + 2 * (len(named) == 1)
    assert "no difference: within 5 %" in legend
    runs = [each for each in ratios.series if each.has_band]
    assert [each.look for each in times.series[1:]] == [each.look for each in runs]


def test_the_band_of_no_difference_is_that_of_the_tolerance() -> None:
    (picture,) = comparison_pictures(comparisons(("after", 1.02)))
    _, ratios = panels(picture)
    (mark,) = [mark for mark in ratios.marks if mark.high]
    assert (mark.low, mark.high) == pytest.approx((1 / 1.05, 1.05))
    low, high = find_limits([ratios], ratios.scale, True)
    assert low < 1 / 1.05 < 1.05 < high
    assert "1" in [ratios.scale.text(tick) for tick in log_ticks(low, high)]


def test_the_pooled_ratio_is_drawn_and_is_the_description() -> None:
    (found,) = comparisons(("after", 2.0))
    (picture,) = comparison_pictures([found])
    assert picture.description == " ".join(pooled_sentences(found))
    drawn = [each.known[0][1].value for each in panels(picture)[1].series if not each.has_band]
    (pooled,) = found.pooled
    assert drawn == [*pooled.ratio]


def test_a_file_has_the_format_of_its_ending_and_holds_one_picture(tmp_path: Path) -> None:
    found = comparison_pictures(comparisons(("after", 2.0)))
    assert write_pictures(found, tmp_path / "one.svg") == [tmp_path / "one.svg"]
    assert (tmp_path / "one.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(UsageError, match="no ending") as refused:
        write_pictures(found, tmp_path / "one.jpg")
    assert refused.value.hint == "end the name with .png, .svg or .pdf"
    with pytest.raises(UsageError, match="can hold one picture, and here are 2"):
        write_pictures(found * 2, tmp_path / "two.svg")
