"""What is printed and written of pairs of ranks."""

from __future__ import annotations

import csv
import re
from io import StringIO

import pytest
from synthetic_pairs import Speed, pairs_plan, pairs_run

from commbench.report.pairs_plots import pair_pictures
from commbench.report.pairs_table import describe_pairs, pairs_files, pairs_text
from commbench.report.run_table import run_text


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
    latency, bandwidth = describe_pairs(pairs_run(pairs_plan(world_size=8), speed))
    assert latency.startswith("Latency, 8 B: No rank, host or link has a high latency.")
    assert bandwidth.startswith(f"Bandwidth, 1 MiB: Slow: {name}: 0.05")
    assert " of their speed (" in bandwidth and "). Check " in bandwidth


def test_the_tables_have_the_slowest_pairs_and_the_medians_of_ranks() -> None:
    run = pairs_run(pairs_plan(world_size=12), slow_way)
    text = pairs_text(run)
    assert text in run_text(run)
    assert max(map(len, text.splitlines())) <= 100
    assert re.search(r"\n  5 \(node5\) +2 \(node2\) +0\.0", text)
    assert "stream" not in run_text(run).replace(text, "")
    lines = [line.split() for line in text.partition("Bandwidth")[2].splitlines()]
    assert [line[:3] for line in lines if line[2:3] == ["eth0"]] == [
        [str(rank), f"node{rank}", "eth0"] for rank in range(12)
    ]


def test_of_few_ranks_the_whole_matrix_is_printed() -> None:
    text = pairs_text(pairs_run(pairs_plan(world_size=4), slow_way)).partition("Bandwidth")[2]
    lines = [line.split() for line in text.splitlines()]
    at = lines.index(["from", "\\", "to", "0", "1", "2", "3", "median"])
    assert [line[:2] for line in lines[at + 2 : at + 6]] == [
        [str(rank), f"(node{rank})"] for rank in range(4)
    ]
    assert [len(line) for line in lines[at + 2 : at + 7]] == [6, 6, 6, 6, 5]
    assert max(map(len, text.splitlines()[at:])) <= 80


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        (2, "Two ranks have one link. There is no other to compare it with."),
        (3, "So few values do not show how much they scatter: nothing can be named."),
    ],
)
def test_it_says_what_few_ranks_cannot_tell(ranks: int, sentence: str) -> None:
    latency, *_ = describe_pairs(pairs_run(pairs_plan(world_size=ranks), slow_way))
    assert latency == f"Latency, 8 B: {sentence}"


def test_of_many_ranks_the_slowest_have_a_row() -> None:
    run = pairs_run(pairs_plan(world_size=20), slow_host)
    text = pairs_text(run).partition("Bandwidth")[2]
    assert "The 16 slowest of 20 ranks, by their medians:" in text
    assert sum(" eth0 " in line for line in text.splitlines()) == 16
    assert " node3 " in text


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
    latency, bandwidth = pairs_text(run).split("\n\n")
    assert f"; 1 pair, {ways}; lower" in " ".join(bandwidth.split())
    assert "speed over" not in bandwidth
    for text, number in ((latency, 1), (bandwidth, rows)):
        table = text.splitlines()[-number - 2 :]
        assert table[0].split() == ["from", "rank", "to", "rank", "value"]
    assert [*pairs_files(run)] == ["pairs.csv", "latency.csv", "bandwidth.csv"]
    curve = pairs_plan(world_size=6, pairs=pairs, sizes=(1024, 4096))
    assert pairs_text(pairs_run(curve, slow_way)) == ""


@pytest.mark.parametrize(("pairs", "pair"), [("halves", "0,2"), ("neighbours", "0,1")])
def test_halves_and_neighbours_are_a_matrix_of_these_pairs(pairs: str, pair: str) -> None:
    run = pairs_run(pairs_plan(pairs=(pairs,)), slow_way)
    bandwidth = " ".join(pairs_text(run).partition("Bandwidth")[2].split())
    assert "; 2 pairs, one direction; all pairs of a round at once;" in bandwidth
    lines = pairs_files(run)["pairs.csv"].splitlines()
    assert any(line.startswith(f"{pair},node{pair[0]},node{pair[2]},") for line in lines)
    assert "stream float32 out_of_place" not in run_text(run).partition("Bandwidth")[0]


def test_a_run_of_halves_has_no_matrix() -> None:
    run = pairs_run(pairs_plan(pairs=("halves",), latency_size=None), slow_way)
    assert (pairs_text(run), pairs_files(run), describe_pairs(run)) == ("", {}, [])
    assert pair_pictures([run]) == []
    assert "stream float32" in run_text(run)


def test_a_run_of_pairs_has_a_heat_map_of_each_quantity() -> None:
    run = pairs_run(pairs_plan(), slow_way)
    assert [picture.name for picture in pair_pictures([run])] == ["latency", "bandwidth"]
