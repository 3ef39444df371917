"""What is printed and written of pairs of ranks."""

from __future__ import annotations

import csv
import re
from io import StringIO

import pytest
from synthetic_pairs import Speed, pairs_plan, pairs_run

from commbench.report.pairs_plots import pair_pictures
from commbench.report.pairs_sentences import describe_unknown
from commbench.report.pairs_table import diagnose_pairs, pairs_answer, pairs_blocks, pairs_files
from commbench.report.run_document import ShownRun, document
from commbench.results.schema import Run
from commbench.views.document import Section, Table


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
    latency, bandwidth = pairs_answer(diagnose_pairs(run))
    assert latency == "Latency, 8 B: no slow rank, host or link is seen."
    found = re.fullmatch(rf"Bandwidth, 1 MiB: {re.escape(name)} has (.*) of the speed of its peers."
                         , bandwidth)  # fmt: skip
    assert found and float(found[1]) == pytest.approx(0.5, abs=0.1)
    slow = table_of(run, "Bandwidth", "Slow")
    assert [row[0] for row in slow.texts()[1]] == [name]


def table_of(run: Run, quantity: str, title: str) -> Table:
    """A table of the section of a quantity."""
    blocks = [*pairs_blocks(run, diagnose_pairs(run))]
    (section,) = [b for b in blocks if isinstance(b, Section) and b.title.startswith(quantity)]
    tables = [each for each in section.blocks if isinstance(each, Table)]
    return next(each for each in tables if each.title.startswith(title))


def test_the_tables_have_the_slowest_pairs_and_the_medians_of_ranks() -> None:
    run = pairs_run(pairs_plan(world_size=12), slow_way)
    slowest = table_of(run, "Bandwidth", "Slowest pairs")
    assert slowest.rows[0].pair == (5, 2)
    medians = table_of(run, "Bandwidth", "Medians").texts()[1]
    assert [row[:3] for row in medians] == [(str(r), f"node{r}", "eth0") for r in range(12)]
    assert not any(isinstance(b, Table) and b.rows for b in document(ShownRun(run)).blocks)


def test_of_few_ranks_the_whole_matrix_is_printed() -> None:
    run = pairs_run(pairs_plan(world_size=4), slow_way)
    headings, rows, _ = table_of(run, "Bandwidth", "From each rank").texts()
    assert headings == ["from \\ to", "0", "1", "2", "3"]
    assert [[cell.strip() == "" for cell in row[1:]] for row in rows] == [
        [column == row for column in range(4)] for row in range(4)
    ]
    large = pairs_run(pairs_plan(world_size=9), slow_way)
    assert not table_of(large, "Bandwidth", "From each rank").rows


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        (2, "Two ranks have one link. There is no other to compare it with."),
        (3, "So few values do not show how much they scatter: nothing can be named."),
    ],
)
def test_it_says_what_few_ranks_cannot_tell(ranks: int, sentence: str) -> None:
    (_, diagnosis), *_ = found = diagnose_pairs(pairs_run(pairs_plan(world_size=ranks), slow_way))
    assert [*describe_unknown(found[0][0].matrix, diagnosis)] == [sentence]
    assert not any(text.startswith("Latency") for text in pairs_answer(found))


def test_of_many_ranks_the_slowest_are_shown_in_a_terminal() -> None:
    run = pairs_run(pairs_plan(world_size=20), slow_host)
    medians = table_of(run, "Bandwidth", "Medians")
    assert (len(medians.rows), len(medians.brief or ())) == (20, 16)
    assert 3 in {row.rank for row in medians.brief or ()}


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
    assert f"; 1 pair, {ways}; lower" in bandwidth.blocks[0].text
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
    assert "; 2 pairs, one direction; all pairs of a round at once;" in bandwidth.blocks[0].text
    lines = pairs_files(run)["pairs.csv"].splitlines()
    assert any(line.startswith(f"{pair},node{pair[0]},node{pair[2]},") for line in lines)


def test_a_run_of_halves_has_no_matrix() -> None:
    run = pairs_run(pairs_plan(pairs=("halves",), latency_size=None), slow_way)
    assert (diagnose_pairs(run), pairs_files(run)) == ([], {})
    assert pair_pictures([run]) == []
    (table,) = [b for b in document(ShownRun(run)).blocks if isinstance(b, Table) and b.rows]
    assert {row.measurement.case.operation for row in table.rows} == {"ping_pong", "stream"}


def test_a_run_of_pairs_has_a_heat_map_of_each_quantity() -> None:
    run = pairs_run(pairs_plan(), slow_way)
    assert [picture.name for picture in pair_pictures([run])] == ["latency", "bandwidth"]
