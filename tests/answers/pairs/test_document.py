"""What is printed and written of pairs of ranks."""

from __future__ import annotations

import csv
import re
from io import StringIO

import pytest
from pictures import legend_texts, require_readable
from synthetic_matrix import Defect, planted_matrix
from synthetic_pairs import Speed, pairs_plan, pairs_run

from commbench.answers.pairs.document import (
    describe_unknown,
    diagnose_pairs,
    pairs_answer,
    pairs_blocks,
    pairs_files,
    what_to_check,
)
from commbench.answers.pairs.matrix import BANDWIDTH, LATENCY, Quantity, RankMatrix
from commbench.answers.pairs.plots import (
    MOST_DRAWN,
    heat_maps,
    pair_pictures,
)
from commbench.answers.pairs.slow_parts import ALL, BOTH, HOST, LINK, OUT, RANK, find_slow
from commbench.answers.show.run_document import ShownRun, document
from commbench.results.schema import Run
from commbench.views.document import Section, Table
from commbench.views.pictures import HeatMap, Picture


def slow_host(first: int, second: int) -> float:
    return 0.5 if 3 in (first, second) else 1.0


def slow_sender(first: int, _second: int) -> float:
    return 0.5 if first == 3 else 1.0


def slow_link(first: int, second: int) -> float:
    return 0.5 if {first, second} == {2, 5} else 1.0


def slow_way(first: int, second: int) -> float:
    return 0.5 if (first, second) == (5, 2) else 1.0


@pytest.mark.parametrize(
    ("speed", "name"),
    [
        (slow_host, "host node3"),
        (slow_sender, "host node3 when it sends"),
        (slow_link, "the link between rank 2 (node2) and rank 5 (node5)"),
        (slow_way, "the link from rank 5 (node5) to rank 2 (node2), in this direction only"),
    ],
)
def test_the_slow_part_is_named_and_nothing_else(speed: Speed, name: str) -> None:
    run = pairs_run(pairs_plan(world_size=8), speed)
    (answer,) = pairs_answer(diagnose_pairs(run))
    found = re.match(rf"(?i){re.escape(name)} is (.*) times as slow .*h at 1 MiB\);", answer)
    assert found and float(found[1]) == pytest.approx(2, abs=0.4)
    slow = table_of(run, "Bandwidth", "Slow")
    assert [row[0] for row in slow.texts()[1]] == [name]


def table_of(run: Run, quantity: str, title: str) -> Table:
    """A table of the section of a quantity."""
    blocks = [*pairs_blocks(run, diagnose_pairs(run))]
    (section,) = [b for b in blocks if isinstance(b, Section) and b.title.startswith(quantity)]
    tables = [each for each in section.blocks if isinstance(each, Table)]
    return next(each for each in tables if each.title.startswith(title))


@pytest.mark.parametrize(
    ("ranks", "said", "number"),
    [(2, "no other", 0), (3, "by bandwidth at 1 MiB.", 1), (4, "all 6 pairs", 2)],
)
def test_it_says_once_what_few_ranks_cannot_tell(ranks: int, said: str, number: int) -> None:
    found = diagnose_pairs(pairs_run(pairs_plan(world_size=ranks), slow_way))
    (answer,) = pairs_answer(found)
    assert said in answer
    assert len([text for f, d in found for text in describe_unknown(f, d, 0)]) == number


def test_links_of_values_that_scatter_are_not_judged() -> None:
    (found, diagnosis), _ = diagnose_pairs(pairs_run(pairs_plan(world_size=4), slow_way))
    noisy = diagnosis._replace(link_limit=0.01)
    answer, _ = pairs_answer([(found, noisy)])
    (note,) = describe_unknown(found, noisy, 100)
    assert "too noisy" in answer and "100 times" in note and "--iters 400" in note


@pytest.mark.parametrize(("device", "named"), [("cpu", "network card"), ("cuda", "its GPU")])
def test_what_to_check_of_a_rank_depends_on_its_device(device: str, named: str) -> None:
    matrix = planted_matrix(3, 1, Defect(RANK, BOTH, 1))
    (finding,) = find_slow(matrix).findings
    assert named in what_to_check(matrix, device, finding._replace(kind=RANK, scope=ALL))


def test_of_many_ranks_the_slowest_are_shown_in_a_terminal() -> None:
    run = pairs_run(pairs_plan(world_size=20), slow_host)
    medians = table_of(run, "Bandwidth", "Medians")
    assert (len(medians.rows), len(medians.brief or ())) == (20, 16)
    assert 3 in [row[0] for row in medians.brief or ()]


def test_the_files_have_every_pair_and_every_way() -> None:
    run = pairs_run(pairs_plan(world_size=3), slow_way)
    files = pairs_files(run)
    assert list(files) == ["pairs.csv", "latency.csv", "bandwidth.csv"]
    lines = list(csv.DictReader(StringIO(files["pairs.csv"])))
    assert [(line["row"], line["column"]) for line in lines] == [
        ("0", "1"), ("0", "2"), ("1", "0"), ("1", "2"), ("2", "0"), ("2", "1"),
    ]  # fmt: skip
    assert lines[1]["column_host"] == "node2"
    assert float(lines[0]["latency_us"]) == pytest.approx(50, rel=0.2)
    assert float(lines[0]["bandwidth_GBps"]) == pytest.approx(0.105, rel=0.2)
    square = list(csv.reader(StringIO(files["bandwidth.csv"])))
    assert square[0] == ["GB/s", "0", "1", "2"]
    assert square[3] == ["2", lines[4]["bandwidth_GBps"], lines[5]["bandwidth_GBps"], ""]


def test_a_list_of_pairs_is_a_matrix_of_these_pairs() -> None:
    run = pairs_run(pairs_plan(world_size=6, pairs=("5-2+0-1", "2-5+1-0")), slow_way)
    lines = list(csv.DictReader(StringIO(pairs_files(run)["pairs.csv"])))
    found = {(int(line["row"]), int(line["column"])): line["bandwidth_GBps"] for line in lines}
    assert found.keys() == {(5, 2), (2, 5), (0, 1), (1, 0)}
    assert min(found, key=lambda pair: float(found[pair])) == (5, 2)


@pytest.mark.parametrize(
    ("pairs", "ways", "rows"),
    [(("5-2",), "one direction", 1), (("5-2", "2-5"), "each direction alone", 2)],
)
def test_one_pair_has_a_table_of_its_own(pairs: tuple[str, ...], ways: str, rows: int) -> None:
    run = pairs_run(pairs_plan(world_size=6, pairs=pairs), slow_way)
    _, bandwidth = pairs_blocks(run, diagnose_pairs(run))
    assert bandwidth.blocks[0].text.startswith(f"1 pair, {ways} (")
    for quantity, number in (("Latency", 1), ("Bandwidth", rows)):
        headings, lines, _ = table_of(run, quantity, "Slowest").texts()
        assert (headings, len(lines)) == (["from rank", "to rank", "value"], number)
    assert [*pairs_files(run)] == ["pairs.csv", "latency.csv", "bandwidth.csv"]
    curve = pairs_plan(world_size=6, pairs=pairs, sizes=(1024, 4096))
    assert diagnose_pairs(pairs_run(curve, slow_way)) == []


@pytest.mark.parametrize(("pairs", "pair"), [("halves", "0,2"), ("neighbours", "0,1")])
def test_halves_and_neighbours_are_a_matrix_of_these_pairs(pairs: str, pair: str) -> None:
    run = pairs_run(pairs_plan(pairs=(pairs,)), slow_way)
    _, bandwidth, *_ = pairs_blocks(run, diagnose_pairs(run))
    assert bandwidth.blocks[0].text.startswith(
        "2 pairs, one direction, all pairs of a round at once"
    )
    lines = pairs_files(run)["pairs.csv"].splitlines()
    assert any(line.startswith(f"{pair},node{pair[0]},node{pair[2]},") for line in lines)


def test_a_run_of_halves_has_no_matrix() -> None:
    run = pairs_run(pairs_plan(pairs=("halves",), latency_size=None), slow_way)
    assert (diagnose_pairs(run), pairs_files(run)) == ([], {})
    assert pair_pictures([run]) == []
    (table,) = [b for b in document(ShownRun(run)).blocks if isinstance(b, Table) and b.rows]
    assert {row.measurement.case.operation for row in table.rows} == {"ping_pong", "stream"}


def pictures_of(matrix: RankMatrix) -> list[Picture]:
    return [*heat_maps([(matrix, find_slow(matrix).findings)])]


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
    (picture,) = pictures_of(matrix)
    figure = require_readable(picture)
    _, *scales = figure.axes
    assert [axes.get_ylim() for axes in scales] == [(0, most) for most in scale_ends(picture)]
    assert scales


def test_a_row_is_what_a_rank_sends() -> None:
    values = {(0, 1): 1e9, (1, 0): 2e9, (0, 2): 3e9, (2, 0): 4e9, (1, 2): 5e9, (2, 1): 6e9}
    (picture,) = pictures_of(RankMatrix(BANDWIDTH, values, ("a", "b", "c")))
    places = {place: cell.text for place, cell in heat_map(picture).cells.items() if cell.text}
    cells = {pair: f"{value / 1e9:.2f}" for pair, value in values.items()}
    assert {heat_map(picture).cells[n, n].shade for n in range(3)} == {None}
    assert cells == places


def test_pairs_that_were_not_measured_have_no_value_and_a_legend() -> None:
    (picture,) = pictures_of(planted_matrix(5, share=0.5))
    assert len(cell_texts(picture)) < 20
    legend = legend_texts(require_readable(picture))
    assert [text.get_text() for text in legend] == ["not measured"]
    assert not require_readable(pictures_of(planted_matrix(5))[0]).legends


def test_pairs_within_hosts_have_a_scale_of_their_own_where_they_are_much_faster() -> None:
    (picture,) = pictures_of(planted_matrix(8, 4))
    across, within = scale_ends(picture)
    assert within == pytest.approx(10 * across, rel=0.2)
    assert len(scale_ends(pictures_of(planted_matrix(5))[0])) == 1


def test_what_is_slow_is_framed() -> None:
    def frames(kind: str, direction: str, at: int, to: int = -1) -> int:
        matrix = planted_matrix(5, 1, Defect(kind, direction, at, to))
        (picture,) = pictures_of(matrix)
        return len(heat_map(picture).frames)

    assert [frames(HOST, OUT, 2), frames(HOST, BOTH, 2)] == [1, 2]
    assert [frames(LINK, OUT, 2, 3), frames(LINK, BOTH, 2, 3)] == [1, 2]


def test_many_ranks_are_drawn_by_host() -> None:
    matrix = planted_matrix(MOST_DRAWN + 16, 8, Defect(RANK, BOTH, 200), share=0.04)
    (whole,) = pictures_of(matrix)
    assert ", 34 rows and columns" in whole.description
    require_readable(whole)
