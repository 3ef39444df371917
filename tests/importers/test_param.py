"""PARAM's communication benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest
from importing import read, refused

from commbench.errors import RecordsError, UsageError
from commbench.importers.registry import import_file

FOREIGN = Path(__file__).parents[1] / "data" / "foreign"
PARAM = (FOREIGN / "param.txt").read_text()


def test_results_are_read() -> None:
    file = import_file(FOREIGN / "param.txt")
    assert [(r.operation, r.dtype, r.placement, r.size_bytes, r.count) for r in file.rows] == [
        ("all_reduce", "float32", "in_place", 1048576, 262144),
        ("all_reduce", "float32", "in_place", 2097152, 524288),
        ("all_reduce", "float32", "in_place", 4194304, 1048576),
        ("all_gather", "bfloat16", "out_of_place", 1048576, 65536),
    ]
    row = file.rows[0]
    assert (row.time_s, row.algbw, row.busbw) == (72.3e-6, 14.503e9, 25.380e9)
    assert (row.minimum_s, row.maximum_s, row.p95_s) == (65.1e-6, 94.0e-6, 86.8e-6)
    assert row.statistic == "mean over iterations, median over ranks"
    assert row.spread == "ranks, of each rank's mean"
    assert (file.ranks, file.backend, file.timing) == (8, "nccl", "isolated")
    assert file.notes == ("left out 1 (line 12): commbench has no operation for 'all_to_allv'",)


def test_without_waiting_it_is_pipelined() -> None:
    assert read(PARAM.replace("args.z: 1", "args.z: 0")).timing == "pipelined"
    assert any("--z 1" in note for note in read(PARAM.replace("args.z: 1", "")).notes)


def test_ranks_are_asked_for_where_they_are_not_printed() -> None:
    hints = PARAM.replace("groupSize 8", "").replace("'world_size': 8", "")
    assert "the number of ranks" in refused(UsageError, hints)
    assert len(read(hints, ranks=8).rows) == 4
    assert "are not those of" in refused(UsageError, hints, ranks=2)


def test_results_of_old_versions_do_not_tell_what_they_are_of() -> None:
    lines = [line for line in PARAM.splitlines(keepends=True) if "all_to_allv" not in line]
    old = "".join(line.replace("-all_reduce-float32", "") for line in lines[:9])
    assert "which operation it measured" in refused(UsageError, old)
    assert "element type" in refused(UsageError, old, operation="all_reduce")
    assert len(read(old, operation="all_reduce", dtype="float32").rows) == 3
    assert "are not those of" in refused(UsageError, old, operation="reduce", dtype="float32")


def test_what_is_no_plain_collective_is_left_out() -> None:
    more = "\tCOMMS-RES-QUANT-all_reduce-float32\t 8 2 1.0 2.0 3.0 4.0\n"
    pair = PARAM.replace("nElementsPerRank", "nElementsPerRank  nElementsPairPerRank", 1)
    assert any("quantised" in note for note in read(PARAM + more).notes)
    assert [row.operation for row in read(pair).rows] == ["all_gather"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("72.3 ", "7x.3 ", "line 6"),
        ("25.380", "", "line 6"),
        ("all_reduce-float32 ", "all_reduce-float23 ", "line 6"),
        ("AlgBW", "AlgoBW", "line 6"),
    ],
)
def test_a_damaged_line_is_refused_with_its_number(old: str, new: str, why: str) -> None:
    assert why in refused(RecordsError, PARAM.replace(old, new, 1))
