"""What is printed and written of pairs of ranks."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from io import StringIO

import pytest
from pictures import legend_texts, require_readable
from synthetic_pairs import Defect, Speed, pairs_plan, pairs_run, planted_matrix

from commbench.answers.pairs import document as pairs_document
from commbench.answers.pairs.document import diagnose_pairs, pairs_answer, pairs_blocks, pairs_files
from commbench.answers.pairs.matrix import BANDWIDTH, LATENCY, Quantity, RankMatrix
from commbench.answers.pairs.plots import MOST_DRAWN, draw_pairs, pair_pictures
from commbench.answers.pairs.slow_parts import ALL, BOTH, HOST, LINK, OUT, RANK, find_slow
from commbench.answers.show.run_document import ShownRun, document
from commbench.results.schema import Run
from commbench.views.document import Section, Table
from commbench.views.pictures import HeatMap, Picture


def slow(is_slow: Callable[[int, int], object]) -> Speed:
    return lambda first, second: 0.5 if is_slow(first, second) else 1.0


slow_host = slow(lambda first, second: 3 in (first, second))
slow_way = slow(lambda first, second: (first, second) == (5, 2))


@pytest.mark.parametrize(
    ("speed", "name"),
    [
        (slow_host, "host node3"),
        (slow(lambda first, _: first == 3), "host node3 when it sends"),
        (slow(lambda first, second: {first, second} == {2, 5}),
         "the link between rank 2 (node2) and rank 5 (node5)"),
        (slow_way, "the link from rank 5 (node5) to rank 2 (node2), in this direction only"),
    ],
)  # fmt: skip
def test_the_slow_part_is_named_and_nothing_else(speed: Speed, name: str) -> None:
    run = pairs_run(pairs_plan(world_size=8), speed)
    (answer,) = pairs_answer(diagnose_pairs(run))
    found = re.match(rf"(?i){re.escape(name)} is (.*) times as slow .*h at 1 MiB\);", answer)
    assert found and float(found[1]) == pytest.approx(2, abs=0.4)
    assert [row[0] for row in table_of(run, "Bandwidth", "Slow").texts()[1]] == [name]


def table_of(run: Run, quantity: str, title: str) -> Table:
    """A table of the section of a quantity."""
    blocks = pairs_blocks(run, diagnose_pairs(run))
    (section,) = [b for b in blocks if isinstance(b, Section) and b.title.startswith(quantity)]
    tables = (each for each in section.blocks if isinstance(each, Table))
    return next(each for each in tables if each.title.startswith(title))


@pytest.mark.parametrize(
    ("ranks", "said", "number"),
    [(2, "no other", 0), (3, "by bandwidth at 1 MiB.", 1), (4, "all 6 pairs", 2)],
)
def test_it_says_once_what_few_ranks_cannot_tell(ranks: int, said: str, number: int) -> None:
    found = diagnose_pairs(pairs_run(pairs_plan(world_size=ranks), slow_way))
    (answer,) = pairs_answer(found)
    assert said in answer
    notes = [text for each in found for text in pairs_document.describe_unknown(*each, 0)]
    assert len(notes) == number


def test_of_two_ranks_the_latency_and_the_bandwidth_are_said() -> None:
    run = pairs_run(pairs_plan(world_size=2), slow_way)
    assert re.fullmatch(
        r"Two ranks have one link, and no other to compare it with: latency [\d.]+ us at 8 B, "
        r"bandwidth [\d.]+ and [\d.]+ GB/s at 1 MiB\.", *pairs_answer(diagnose_pairs(run))
    )  # fmt: skip
    assert not re.search("pairs of a round", " ".join(pair_pictures([run])[0].notes))


def test_links_of_values_that_scatter_are_not_judged() -> None:
    (found, diagnosis), _ = diagnose_pairs(pairs_run(pairs_plan(world_size=4), slow_way))
    noisy = diagnosis._replace(link_limit=0.01)
    answer, _ = pairs_answer([(found, noisy)], "4 ranks share 2 cores")
    (note,) = pairs_document.describe_unknown(found, noisy, 100)
    assert (
        "too noisy; 4 ranks share 2 cores." in answer
        and "100 times" in note
        and "--iters 400" in note
    )


@pytest.mark.parametrize(("device", "named"), [("cpu", "network card"), ("cuda", "its GPU")])
def test_what_to_check_of_a_rank_depends_on_its_device(device: str, named: str) -> None:
    matrix = planted_matrix(3, 1, Defect(RANK, BOTH, 1))
    (finding,) = find_slow(matrix).findings
    rank = finding._replace(kind=RANK, scope=ALL)
    assert named in pairs_document.what_to_check(matrix, device, rank)


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
    assert [line["row"] + line["column"] for line in lines] == ["01", "02", "10", "12", "20", "21"]
    assert lines[1]["column_host"] == "node2"
    assert float(lines[0]["latency_us"]) == pytest.approx(50, rel=0.2)
    assert float(lines[0]["bandwidth_GBps"]) == pytest.approx(0.105, rel=0.2)
    square = list(csv.reader(StringIO(files["bandwidth.csv"])))
    assert square[0] == ["GB/s", "0", "1", "2"]
    assert square[3] == ["2", lines[4]["bandwidth_GBps"], lines[5]["bandwidth_GBps"], ""]


@pytest.mark.parametrize(
    ("pairs", "ranks", "measured", "said"),
    [
        (("5-2+0-1", "2-5+1-0"), 6, {(5, 2), (2, 5), (0, 1), (1, 0)}, "2 pairs, each direction"),
        (("halves",), 4, {(0, 2), (1, 3)}, "2 pairs, one direction, all pairs of a round at once"),
        (("neighbours",), 4, {(0, 1), (2, 3)}, "2 pairs, one direction, all pairs of a round"),
    ],
)
def test_some_pairs_are_a_matrix_of_these_pairs(
    pairs: tuple[str, ...], ranks: int, measured: set[tuple[int, int]], said: str
) -> None:
    run = pairs_run(pairs_plan(world_size=ranks, pairs=pairs), slow_way)
    _, bandwidth, *_ = pairs_blocks(run, diagnose_pairs(run))
    assert bandwidth.blocks[0].text.startswith(said)
    lines = list(csv.DictReader(StringIO(pairs_files(run)["pairs.csv"])))
    found = {(int(a["row"]), int(a["column"])): a["bandwidth_GBps"] for a in lines}
    assert {pair for pair, text in found.items() if text} == measured
    if ranks == 6:
        assert min(found, key=lambda pair: float(found[pair])) == (5, 2)


@pytest.mark.parametrize(
    ("pairs", "ways", "rows"),
    [(("5-2",), "one direction", 1), (("5-2", "2-5"), "each direction alone", 2)],
)
def test_one_pair_has_a_table_of_its_own(pairs: tuple[str, ...], ways: str, rows: int) -> None:
    run = pairs_run(pairs_plan(world_size=6, pairs=pairs), slow_way)
    _, bandwidth = pairs_blocks(run, diagnose_pairs(run))
    assert bandwidth.blocks[0].text.startswith(f"1 pair, {ways} (")
    for quantity, unit, number in (("Latency", "us", 1), ("Bandwidth", "GB/s", rows)):
        headings, lines, _ = table_of(run, quantity, "Slowest").texts()
        assert (headings, len(lines)) == (["from rank", "to rank", f"value {unit}"], number)
    assert [*pairs_files(run)] == ["pairs.csv", "latency.csv", "bandwidth.csv"]
    curve = pairs_plan(world_size=6, pairs=pairs, sizes=(1024, 4096))
    assert diagnose_pairs(pairs_run(curve, slow_way)) == []


def test_a_run_of_halves_has_no_matrix() -> None:
    run = pairs_run(pairs_plan(pairs=("halves",), latency_size=None), slow_way)
    assert (diagnose_pairs(run), pairs_files(run)) == ([], {})
    assert pair_pictures([run]) == []
    (table,) = [b for b in document(ShownRun(run)).blocks if isinstance(b, Table) and b.rows]
    assert {row.measurement.case.operation for row in table.rows} == {"ping_pong", "stream"}


def drawn(matrix: RankMatrix) -> tuple[Picture, HeatMap]:
    """The picture of a matrix, and its only panel."""
    picture = draw_pairs([(matrix, find_slow(matrix).findings)])
    (panel,) = picture.panels
    assert isinstance(panel, HeatMap)
    return picture, panel


def cell_texts(panel: HeatMap) -> dict[tuple[int, int], str]:
    return {place: cell.text for place, cell in panel.cells.items() if cell.text}


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
    defect = Defect(HOST, BOTH, 1)
    picture, panel = drawn(planted_matrix(ranks, per_host, defect, quantity=quantity))
    _, *scales = require_readable(picture).axes
    assert [axes.get_ylim() for axes in scales] == [(0, bar.most) for bar in panel.bars] != []


def test_a_row_is_what_a_rank_sends() -> None:
    values = {(0, 1): 1e9, (1, 0): 2e9, (0, 2): 3e9, (2, 0): 4e9, (1, 2): 5e9, (2, 1): 6e9}
    _, panel = drawn(RankMatrix(BANDWIDTH, values, ("a", "b", "c")))
    assert {panel.cells[n, n].shade for n in range(3)} == {None}
    assert cell_texts(panel) == {pair: f"{value / 1e9:.2f}" for pair, value in values.items()}


def test_pairs_that_were_not_measured_have_a_legend_and_hosts_a_scale_of_their_own() -> None:
    part, panel = drawn(planted_matrix(5, share=0.5))
    assert len(cell_texts(panel)) < 20
    legend = legend_texts(require_readable(part))
    assert [text.get_text() for text in legend] == ["not measured"]
    whole, panel = drawn(planted_matrix(5))
    assert not require_readable(whole).legends and len(panel.bars) == 1
    _, panel = drawn(planted_matrix(8, 4))
    across, within = (bar.most for bar in panel.bars)
    assert within == pytest.approx(10 * across, rel=0.2)


def test_what_is_slow_is_framed() -> None:
    for kind, to in ((HOST, -1), (LINK, 3)):
        for direction, frames in ((OUT, 1), (BOTH, 2)):
            _, panel = drawn(planted_matrix(5, 1, Defect(kind, direction, 2, to)))
            assert len(panel.frames) == frames


def test_many_ranks_are_drawn_by_host() -> None:
    defect = Defect(RANK, BOTH, 200)
    whole, _ = drawn(planted_matrix(MOST_DRAWN + 16, 8, defect, share=0.04))
    assert ", 34 rows and columns" in whole.description
    require_readable(whole)
