"""commbench under a real srun, on a Slurm of two nodes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Ended
from slurm import Slurm, slurm

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm(2) as running:
        yield running


@pytest.mark.parametrize(
    ("tasks", "nodes_of_ranks"),
    [(4, ["host0", "host0", "host1", "host1"]), (3, ["host0", "host0", "host1"])],
)
def test_the_tasks_of_srun_are_the_ranks(
    cluster: Slurm, tmp_path: Path, tasks: int, nodes_of_ranks: list[str]
) -> None:
    out = cluster.run(
        "srun", "-N2", f"-n{tasks}", sys.executable, "-m", "commbench", "run",
        "--sizes", "1K,64K", "--iters", "5", "--no-plots", "--output", "run",
        cwd=tmp_path,
    )  # fmt: skip
    ended = Ended(0, out, "", tmp_path / "run")
    header, *_, end = ended.journal()
    assert (header["launcher"], header["num_nodes"]) == ("srun", 2)
    assert [rank["host"] for rank in header["ranks"]] == nodes_of_ranks
    assert [row["status"] for row in ended.rows()] == ["ok", "ok"]
    assert end["status"] == "complete"
    assert out.count(f"{tasks} gloo ranks on host0, host1") == 1
