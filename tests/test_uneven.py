"""Unequal blocks on real gloo ranks: right results for every split, and how they are reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Commbench

EVERY_KIND = "uniform,zipf:1.2,zipf:5:3,hot:4,hot:0:1,w0,w1,w2,w3,w4,w5,w6:1,w7"
GLOO_CANNOT = "gloo has all_gather_v with equal blocks only"


@pytest.mark.parametrize(
    ("ranks", "sizes", "kinds", "dtype"),
    [
        (3, "12,70001", "zipf:5:3,w4", "float32"),
        pytest.param(1, "1,8,65537", EVERY_KIND, "float64,bfloat16,uint8", marks=pytest.mark.full),
        pytest.param(2, "1,8,65537", EVERY_KIND, "float64,bfloat16,uint8", marks=pytest.mark.full),
        pytest.param(4, "1,8,65537", EVERY_KIND, "float64,bfloat16,uint8", marks=pytest.mark.full),
        pytest.param(5, "1,40,65537", EVERY_KIND, "float64,int8", marks=pytest.mark.full),
    ],
)
def test_every_split_is_right_or_refused_by_the_backend(
    commbench: Commbench, ranks: int, sizes: str, kinds: str, dtype: str
) -> None:
    ended = commbench(
        "run", "--op", "uneven", "--imbalance", kinds, "--sizes", sizes, "--dtype", dtype,
        "--nproc-per-node", str(ranks), "--iters", "1", "--warmup", "0", "--no-plots",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    right = set()
    for line in ended.cases():
        case = line["case"]
        if case["operation"] == "all_gather_v" and line["reason"] == GLOO_CANNOT:
            continue  # gloo gathers equal blocks only
        if "gloo does not support" in line["reason"] or line["status"] == "skipped":
            continue
        assert (line["status"], line["wrong"]) == ("ok", 0), line
        right.add((case["operation"], case["imbalance"]))
    for operation in ("all_to_all_v", "reduce_scatter_v"):
        assert {kind for name, kind in right if name == operation} == set(kinds.split(","))


def test_a_matrix_of_a_file_is_measured_and_its_load_is_in_every_row(
    commbench: Commbench, tmp_path: Path
) -> None:
    # Rank 1 gets 3 + 3 of 12 parts from the others, and keeps 2: 8 of 12 instead of 4.
    (tmp_path / "moe.csv").write_text("1,3,0\n1,2,1\n1,3,0\n")
    ended = commbench(
        "run", "--op", "all_to_all_v", "--imbalance", "file:moe.csv", "--sizes", "4800",
        "--nproc-per-node", "3", "--iters", "5", "--no-plots",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    (row,) = ended.rows()
    assert row["imbalance"].startswith("file:moe.csv#")
    assert (row["count"], row["worst_rank"]) == ("400", "1")
    assert (float(row["sent_max_over_mean"]), float(row["received_max_over_mean"])) == (1, 2)
    seconds = float(row["time_us"]) * 1e-6
    assert float(row["logical_GBps"]) == pytest.approx(9600 / seconds / 1e9, rel=1e-5)
    assert float(row["wire_GBps"]) == pytest.approx(7200 / seconds / 1e9, rel=1e-5)
    assert row["busbw_GBps"] == row["wire_GBps"]
    line = "The busiest rank receives 2.00 times the mean; 1.50 S crosses its link."
    assert line in ended.out
    shown = commbench("explain", str(ended.folder))
    assert "7,200 bytes 1.5 x S, of rank 1" in " ".join(shown.out.split())


@pytest.mark.full
@pytest.mark.parametrize(
    "groups", [("--mesh", "dp=2,tp=2"), ("--groups", "0-2;3-4"), ("--groups", "0,2;1,3,4")]
)
def test_groups_of_any_shape_have_pairs_and_unequal_blocks(
    commbench: Commbench, groups: tuple[str, str]
) -> None:
    ended = commbench(
        "run", *groups, "--op", "p2p,all_to_all_v,reduce_scatter_v", "--imbalance", "zipf:1,w5",
        "--p2p-call", "all", "--sizes", "40,10001", "--iters", "1", "--warmup", "0", "--no-plots",
        *(() if groups[0] == "--mesh" else ("--nproc-per-node", "5")),
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert {(row["status"], row["wrong"]) for row in ended.rows()} == {("ok", "0")}
