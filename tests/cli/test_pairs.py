"""`commbench pairs`: every pair of ranks, in one run."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from commands import Commbench, Ended, run_program_as
from scripted import SLOW_MESSAGE_US, program_text

from commbench.api.measuring import pairs_options
from commbench.errors import UsageError
from commbench.plan.pairs import count_rounds

SMALL = ("--sizes", "8K", "--iters", "4", "--no-plots")


def pairs_file(ended: Ended) -> dict[tuple[int, int], dict[str, str]]:
    """The lines of pairs.csv by row and column."""
    with (ended.folder / "pairs.csv").open() as file:
        return {(int(line["row"]), int(line["column"])): line for line in csv.DictReader(file)}


def test_all_pairs_are_measured_in_both_directions_and_written(commbench: Commbench) -> None:
    ended = commbench("pairs", "--nproc-per-node", "3", "--output", "run", *SMALL)
    assert ended.code == 0, ended.err
    found = pairs_file(ended)
    assert found.keys() == {(i, j) for i in range(3) for j in range(3) if i != j}
    for (row, column), line in found.items():
        assert float(line["bandwidth_GBps"]) > 0
        assert line["latency_us"] == found[column, row]["latency_us"]
        assert (line["latency_bytes"], line["bandwidth_bytes"]) == ("8", "8192")
    cases = ended.cases()
    assert len(cases) == 3 * count_rounds(3)
    assert all((line["status"], line["wrong"]) == ("ok", 0) for line in cases)
    with (ended.folder / "bandwidth.csv").open() as file:
        square = list(csv.reader(file))
    assert square[0] == ["GB/s", "0", "1", "2"]
    assert square[1][:2] == ["0", ""] and square[1][2] == found[0, 1]["bandwidth_GBps"]
    assert "Latency between ranks, 8 B, us" in ended.out
    assert "Bandwidth between ranks, 8 KiB, GB/s" in ended.out
    shown = commbench("show", "run")
    assert shown.out == ended.out


@pytest.mark.parametrize("option", [[], pytest.param(["--quick"], marks=pytest.mark.full)])
def test_a_slow_way_between_two_ranks_is_the_slowest_of_the_matrix(
    tmp_path: Path, option: list[str]
) -> None:
    ended = run_program_as(
        tmp_path, program_text("slow_way"), "pairs", "--backend", "scripted", "--output", "run",
        "--nproc-per-node", "4", *SMALL, *option,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    speed = {pair: float(line["bandwidth_GBps"]) for pair, line in pairs_file(ended).items()}
    assert speed[3, 1] < 8192 / (SLOW_MESSAGE_US * 1e-6) * 1e-9
    assert min(speed, key=speed.__getitem__) == (3, 1)


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({}, {"op": ("ping_pong", "stream"), "pairs": ("all",), "iters": 25, "label": "pairs"}),
        ({"is_quick": True}, {"pairs": ("quick",), "iters": 10, "latency_size": 8}),
        ({"is_quick": True, "iters": 7}, {"pairs": ("quick",), "iters": 7}),
        ({"budget": 0.1, "output": "x"}, {"iters": None, "budget": 0.1, "label": None}),
        ({"pairs": "0-1+2-3", "p2p_call": "isend"}, {"pairs": ("0-1+2-3",), "p2p_call": "isend"}),
    ],
)
def test_the_options_are_those_of_a_run_with_other_defaults(
    given: dict[str, Any], changed: dict[str, Any]
) -> None:
    options = pairs_options(**given)
    assert {name: getattr(options, name) for name in changed} == changed


def test_an_option_of_other_operations_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown argument 'reduce_op'"):
        pairs_options(reduce_op="sum")


@pytest.mark.full
def test_a_quick_search_of_many_ranks_measures_some_of_the_pairs(commbench: Commbench) -> None:
    ended = commbench(
        "pairs", "--quick", "--nproc-per-node", "20", "--output", "run", "--no-plots",
        "--sizes", "8K", "--latency-size", "16",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    found = pairs_file(ended)
    assert {(rank, (rank + 10) % 20) for rank in range(20)} <= found.keys()
    assert len(found) < 20 * 19
    assert {line["latency_bytes"] for line in found.values()} == {"16"}
    assert "The quick search measured some of the pairs" in ended.out
    resumed = commbench("pairs", "--resume", "run", "--no-plots")
    assert (resumed.code, resumed.out) == (0, ended.out)
