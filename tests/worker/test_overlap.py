"""Communications and computations at once, with real gloo ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Ended, run_commbench

OPERATIONS = ("all_reduce", "send_recv")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Three ranks, of which two groups of two overlap."""
    return run_commbench(
        tmp_path_factory.mktemp("overlap"), "run", "--nproc-per-node", "3", "--groups", "0,1;1,2",
        "--concurrency", "together", "--op", ",".join(OPERATIONS), "--sizes", "4K", "--iters", "6",
        "--overlap", "matmul:8x8x8:20", "--no-plots", forks_ranks=True,
    )  # fmt: skip


def test_every_operation_is_right_while_its_rank_computes(measured: Ended) -> None:
    assert measured.code == 0, measured.err
    rows = measured.rows()
    assert {row["operation"] for row in rows} == set(OPERATIONS)
    for row in rows:
        assert row["wrong"] == ("" if row["part"] == "computation" else "0"), row
        assert row["work"] == "20 x matmul 8x8x8 float32"


def test_rows_of_both_say_when_each_ended_where_gloo_tells(measured: Ended) -> None:
    both = [row for row in measured.rows() if row["part"] == "both"]
    assert len(both) == len(OPERATIONS)
    for row in both:
        assert float(row["computation_at_once_us"]) > 0
        assert bool(row["communication_at_once_us"]) == (row["operation"] != "send_recv"), row
        assert bool(row["communication_slowdown"]) == bool(row["communication_at_once_us"])


def test_ranks_move_freely_unless_a_cpu_mode_is_given(measured: Ended, tmp_path: Path) -> None:
    assert {row["cpu_mode"] for row in measured.rows()} == {"plain"}
    planned = run_commbench(
        tmp_path, "run", "--overlap", "matmul", "--cpu-mode", "batch", "--dry-run"
    )
    assert "batch" in planned.out
    assert "for buffers and a computation" in planned.out
