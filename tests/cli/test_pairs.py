"""`commbench pairs`: every pair of ranks, in one run."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import Commbench, Ended, run_program_as
from scripted import SLOW_MESSAGE_US, program_text

from commbench.spec.pairs import count_rounds

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


@pytest.mark.parametrize("option", [[], ["--quick"]])
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
