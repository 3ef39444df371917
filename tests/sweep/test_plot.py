"""Pictures of sweeps: curves, and heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pictures import legend_texts, require_readable
from synthetic import in_memory, steady

from commbench.analysis.rows import make_rows
from commbench.sweep.plot import sweep_pictures
from commbench.sweep.ranking import make_points
from commbench.sweep.result import SweepResult
from commbench.sweep.runner import SettingResult, Sweep
from commbench.sweep.sentences import sentences_by_kind
from commbench.sweep.settings import make_settings
from commbench.views.pictures import Curves, HeatMap, Picture

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
    pictures = sweep_pictures(result)
    for picture in pictures:
        require_readable(picture)
        said = [" ".join(texts[:4]) for texts in sentences_by_kind(result).values()]
        assert picture.description in said
    return {picture.name: picture for picture in pictures}


def maps(picture: Picture) -> list[HeatMap]:
    return [panel for panel in picture.panels if isinstance(panel, HeatMap)]


def numbers(panel: HeatMap) -> list[str]:
    """The numbers in the cells of a heat map, row by row."""
    return [cell.text for _, cell in sorted(panel.cells.items())]


def test_a_few_settings_of_one_variable_are_curves_and_ratios_to_the_first() -> None:
    (picture,) = drawn(sweep({"NCCL_ALGO": ("RING", "TREE", "PAT", "-")})).values()
    times, ratios = (panel for panel in picture.panels if isinstance(panel, Curves))
    assert [len(panel.series) for panel in (times, ratios)] == [4, 3]
    for number, series in enumerate(ratios.series, start=1):
        values = [estimate.value for _, estimate in series.known]
        assert values == pytest.approx([1 + number / 10] * len(SIZES), rel=0.02)
    legend = [text.get_text() for text in legend_texts(require_readable(picture))]
    assert {"RING", "TREE", "PAT", "NCCL_ALGO unset"} < set(legend)


def test_two_variables_are_heat_maps_of_sizes_with_the_fastest_marked() -> None:
    found = drawn(sweep({"ALGO": ("RING", "TREE"), "PROTO": ("LL", "LL128", "Simple")}, missing=4))
    assert list(found) == [KIND, f"{KIND}-map"]
    panels = maps(found[f"{KIND}-map"])
    assert [panel.heading for panel in panels] == [
        "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB",
    ]  # fmt: skip
    for panel in panels:
        assert numbers(panel) == ["1.00", "1.10", "1.20", "1.30", "1.50"]
        assert [cell.is_bold for cell in panel.cells.values()].count(True) == 1
        assert panel.has_missing
    *_, rows, shown = found[f"{KIND}-map"].notes
    assert rows.startswith("Rows: ALGO. Columns: PROTO. Number: ")
    assert shown == "9 of 17 sizes are shown."


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
    (panel,) = maps(picture)
    assert len(numbers(panel)) == rows * len(sizes)
    assert len(panel.rows) == rows


def test_a_single_size_is_a_heat_map_of_one_panel_and_two_settings_of_it_are_none() -> None:
    one = drawn(sweep({"A": ("a", "b"), "B": ("1", "2")}, SIZES[:1]))
    assert [len(maps(picture)) for picture in one.values()] == [1]
    assert not drawn(sweep({"A": ("a", "b")}, SIZES[:1]))


def test_long_values_stay_within_the_picture() -> None:
    long = ("an-interface-with-a-long-name0", "an-interface-with-a-long-name1")
    assert drawn(sweep({"IFNAME": long, "THREADS": [str(k) * 12 for k in range(1, 9)]}, SIZES[::4]))
