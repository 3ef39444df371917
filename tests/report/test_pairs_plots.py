from __future__ import annotations

import pytest
from pictures import legend_texts, require_readable
from synthetic_matrix import Defect, planted_matrix

from commbench.analysis.rank_matrix import BANDWIDTH, LATENCY, Quantity, RankMatrix
from commbench.analysis.slow_parts import BOTH, HOST, LINK, OUT, RANK, find_slow
from commbench.report.pairs_plots import MOST_DRAWN, choose_ranks, find_racks, heat_maps
from commbench.views.pictures import HeatMap, Picture


def heat_map(picture: Picture) -> HeatMap:
    (panel,) = picture.panels
    assert isinstance(panel, HeatMap)
    return panel


def cell_texts(picture: Picture) -> list[str]:
    return [cell.text for cell in heat_map(picture).cells.values() if cell.text]


def scale_ends(picture: Picture) -> list[float]:
    """The upper end of each scale, of values across hosts first."""
    return [bar.most for bar in heat_map(picture).bars]


@pytest.mark.parametrize(
    ("ranks", "per_host", "quantity"),
    [
        (8, 4, LATENCY),
        *(
            pytest.param(*shape, marks=pytest.mark.full)
            for shape in ((2, 1, BANDWIDTH), (4, 1, LATENCY), (32, 8, LATENCY), (128, 8, BANDWIDTH))
        ),
    ],
)
def test_heat_maps_are_readable(ranks: int, per_host: int, quantity: Quantity) -> None:
    matrix = planted_matrix(ranks, per_host, Defect(HOST, BOTH, 1), quantity=quantity)
    (picture,) = heat_maps(matrix, find_slow(matrix).findings, ["a run, 4 MiB"])
    figure = require_readable(picture)
    scales = [axes for panel in figure.axes for axes in panel.child_axes]
    assert [axes.get_ylim() for axes in scales] == [(0, most) for most in scale_ends(picture)]
    assert scales


def test_a_row_is_what_a_rank_sends() -> None:
    values = {(0, 1): 1e9, (1, 0): 2e9, (0, 2): 3e9, (2, 0): 4e9, (1, 2): 5e9, (2, 1): 6e9}
    (picture,) = heat_maps(RankMatrix(BANDWIDTH, values, ("a", "b", "c")))
    places = {place: cell.text for place, cell in heat_map(picture).cells.items() if cell.text}
    cells = {pair: f"{value / 1e9:.2f}" for pair, value in values.items()}
    assert cells.items() <= places.items()
    assert {heat_map(picture).cells[n, n].shade for n in range(3)} == {None}
    medians = sorted(text for place, text in places.items() if place not in cells)
    assert medians == sorted(["2.00", "3.50", "5.00", "3.00", "3.50", "4.00"])


@pytest.mark.full
def test_cells_have_values_up_to_32_ranks() -> None:
    (small,) = heat_maps(planted_matrix(32, share=0.2))
    (large,) = heat_maps(planted_matrix(33, share=0.2))
    assert len(cell_texts(small)) > 100
    assert cell_texts(large) == []


def test_pairs_that_were_not_measured_have_no_value_and_a_legend() -> None:
    (picture,) = heat_maps(planted_matrix(5, share=0.5))
    assert len(cell_texts(picture)) < 20 + 10
    legend = legend_texts(require_readable(picture))
    assert [text.get_text() for text in legend] == ["not measured"]
    assert not require_readable(heat_maps(planted_matrix(5))[0]).legends


def test_pairs_within_hosts_have_a_scale_of_their_own_where_they_are_much_faster() -> None:
    (picture,) = heat_maps(planted_matrix(8, 4))
    across, within = scale_ends(picture)
    assert within == pytest.approx(10 * across, rel=0.2)
    assert len(scale_ends(heat_maps(planted_matrix(5))[0])) == 1


def test_what_is_slow_is_framed() -> None:
    def frames(kind: str, direction: str, at: int, to: int = -1) -> int:
        matrix = planted_matrix(5, 1, Defect(kind, direction, at, to))
        (picture,) = heat_maps(matrix, find_slow(matrix).findings)
        return len(heat_map(picture).frames)

    assert [frames(HOST, OUT, 2), frames(HOST, BOTH, 2)] == [1, 2]
    assert [frames(LINK, OUT, 2, 3), frames(LINK, BOTH, 2, 3)] == [1, 2]


def test_racks_are_known_from_the_names_of_hosts() -> None:
    assert find_racks(["r1n1", "r1n2", "r2n1", "r2n2.site"]) == [0, 0, 1, 1]
    for names in (["node1", "node2", "node3"], ["a1", "b1", "c1"], ["x", "x"]):
        assert find_racks(names) == [0] * len(names)
    matrix = planted_matrix(4)._replace(hosts=("r1n1", "r1n2", "r2n1", "r2n2"))
    (picture,) = heat_maps(matrix)
    assert heat_map(picture).lines == [(2, 1.8)]


def test_many_ranks_are_drawn_by_host_and_around_what_is_slow() -> None:
    slow = Defect(RANK, BOTH, 200)
    matrix = planted_matrix(MOST_DRAWN + 16, 8, slow, share=0.04)
    findings = find_slow(matrix).findings
    whole, part = heat_maps(matrix, findings)
    assert (whole.name, part.name) == ("bandwidth", "bandwidth-part")
    assert whole.description.startswith("34 rows and columns")
    assert part.description.startswith("32 rows and columns")
    require_readable(whole)
    shown = choose_ranks(matrix, findings)
    assert 200 in shown and len(shown) == 32 and shown == sorted(set(shown))
    assert "32 of 272 ranks: slow ones, and others" in part.notes
