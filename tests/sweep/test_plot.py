"""Pictures of sweeps: curves, and heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from pictures import curves, panels_of, require_readable
from synthetic import in_memory, steady

from commbench.analysis.rows import make_rows
from commbench.output.plot_style import Picture
from commbench.sweep.plot import sweep_figures
from commbench.sweep.ranking import make_points
from commbench.sweep.result import SweepResult
from commbench.sweep.runner import SettingResult, Sweep
from commbench.sweep.sentences import sentences_by_kind
from commbench.sweep.settings import make_settings

SIZES = tuple(1 << k for k in range(10, 27))
KIND = "sweep-all-reduce-float32-sum-in-place"


def sweep(
    variables: Mapping[str, Sequence[str]], sizes: Sequence[int] = SIZES, missing: int = -1
) -> SweepResult:
    """A sweep in which setting n takes 1 + n / 10 times as long as the first; the setting `missing`
    has no time."""
    settings = make_settings(variables, {})
    results = []
    for number, setting in enumerate(settings):
        run = in_memory(
            setting.name, [steady((1 + number / 10) * (1e-4 + s * 1e-9)) for s in sizes], sizes
        )
        rows = () if number == missing else make_rows(run)
        results.append(SettingResult(setting, run if rows else None, rows, 3, ""))
    number = len(settings)
    return SweepResult(
        path=Path("results/swept"),
        sweep=Sweep(settings, ((),) * number, ((),) * number, 3, 1, "swept"),
        settings=tuple(results),
        points=make_points(results, 0.05),
        selections=None,
    )


def drawn(result: SweepResult) -> dict[str, Picture]:
    pictures = sweep_figures(result)
    for picture in pictures:
        require_readable(picture.figure)
        said = [" ".join(texts[:4]) for texts in sentences_by_kind(result).values()]
        assert picture.description in said
    return {picture.name: picture for picture in pictures}


def numbers(panel: Axes) -> list[str]:
    """The numbers in the cells of a heat map, row by row."""
    return [text.get_text() for text in panel.texts if text.get_gid() != "heading"]


def test_a_few_settings_of_one_variable_are_curves_and_ratios_to_the_first() -> None:
    (picture,) = drawn(sweep({"NCCL_ALGO": ("RING", "TREE", "PAT", "-")})).values()
    times, ratios = panels_of(picture.figure)
    assert [len(curves(panel)) for panel in (times, ratios)] == [4, 3]
    for number, line in enumerate(curves(ratios), start=1):
        assert list(line.get_ydata()) == pytest.approx([1 + number / 10] * len(SIZES), rel=0.02)
    legend = [text.get_text() for each in picture.figure.legends for text in each.get_texts()]
    assert {"RING", "TREE", "PAT", "NCCL_ALGO unset"} < set(legend)


def test_two_variables_are_heat_maps_of_sizes_with_the_fastest_marked() -> None:
    found = drawn(sweep({"ALGO": ("RING", "TREE"), "PROTO": ("LL", "LL128", "Simple")}, missing=4))
    assert list(found) == [KIND, f"{KIND}-map"]
    panels = panels_of(found[f"{KIND}-map"].figure)
    assert len(panels) == 9
    headings = [t.get_text() for p in panels for t in p.texts if t.get_gid() == "heading"]
    assert headings == [
        "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB",
    ]  # fmt: skip
    for panel in panels:
        assert numbers(panel) == ["1.00", "1.10", "1.20", "1.30", "1.50"]
        assert [text.get_weight() for text in panel.texts[:5]].count("bold") == 1
        assert sum(patch.get_gid() == "empty" for patch in panel.patches) == 1
    texts = " ".join(text.get_text() for text in found[f"{KIND}-map"].figure.texts)
    assert "Rows: ALGO. Columns: PROTO." in texts
    assert "9 of 17 sizes are shown." in texts


@pytest.mark.parametrize(
    ("variables", "rows"),
    [
        ({"NCCL_MIN_NCHANNELS": [str(1 << k) for k in range(10)]}, 10),
        ({"A_VERY_LONG_VARIABLE": list("1234"), "B": list("xy"), "C": list("pqrst")}, 24),
    ],
)
def test_many_settings_are_one_heat_map_with_a_column_for_each_size(
    variables: Mapping[str, Sequence[str]], rows: int
) -> None:
    sizes = SIZES[::2]
    (picture,) = drawn(sweep(variables, sizes)).values()
    (panel,) = panels_of(picture.figure)
    assert len(numbers(panel)) == rows * len(sizes)
    assert len(panel.get_yticklabels()) == rows


def test_a_single_size_is_a_heat_map_of_one_panel_and_two_settings_of_it_are_none() -> None:
    one = drawn(sweep({"A": ("a", "b"), "B": ("1", "2")}, SIZES[:1]))
    assert [len(panels_of(picture.figure)) for picture in one.values()] == [1]
    assert not drawn(sweep({"A": ("a", "b")}, SIZES[:1]))


def test_long_values_stay_within_the_picture() -> None:
    long = ("an-interface-with-a-long-name0", "an-interface-with-a-long-name1")
    assert drawn(sweep({"IFNAME": long, "THREADS": [str(k) * 12 for k in range(1, 9)]}, SIZES[::4]))
