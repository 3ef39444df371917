"""Pairs and unequal blocks on links of known speed and delay."""

from __future__ import annotations

from pathlib import Path

import pytest
from distance import distant_hosts
from hosts import hosts
from iperf import goodput_gbps
from test_links import gbps, run_on

pytestmark = pytest.mark.full


def test_pairs_reach_what_iperf3_reaches_in_each_direction(tmp_path: Path) -> None:
    with hosts(2) as cluster:
        for host in cluster:
            host.limit("1gbit", "256k")
        before = goodput_gbps(cluster[0], cluster[1])
        rows = run_on(
            cluster, tmp_path, "--op", "ping_pong,exchange,stream", "--window", "4",
            "--sizes", "32M", "--iters", "5",
        )  # fmt: skip
        after = goodput_gbps(cluster[0], cluster[1])
    for row in rows:
        assert gbps(row) == pytest.approx(max(before, after), rel=0.03), row["operation"]


def test_the_link_of_the_rank_that_sends_most_is_what_unequal_blocks_wait_for(
    tmp_path: Path,
) -> None:
    with hosts(4) as cluster:
        for host in cluster:
            host.limit("1gbit", "256k")
        before = goodput_gbps(cluster[0], cluster[1])
        rows = run_on(
            cluster, tmp_path, "--op", "all_to_all_v", "--imbalance", "uniform,w4",
            "--sizes", "48M", "--iters", "5",
        )  # fmt: skip
        after = goodput_gbps(cluster[0], cluster[1])
    uniform, ragged = rows
    # Rank 3 sends 4/10 of everything: 1.6 times the mean.
    assert float(ragged["time_us"]) / float(uniform["time_us"]) == pytest.approx(1.6, rel=0.05)
    assert ragged["worst_rank"] == "3"
    for row in rows:
        assert float(row["wire_GBps"]) * 8 == pytest.approx(max(before, after), rel=0.03)


def half_round_trip_us(one_way_ms: float, tmp_path: Path) -> float:
    where = tmp_path / f"{one_way_ms}"
    where.mkdir()
    with distant_hosts(one_way_ms) as pair:
        (row,) = run_on(pair, where, "--op", "ping_pong", "--sizes", "8", "--iters", "60")
    return float(row["time_us"])


def test_half_a_round_trip_takes_as_long_as_one_way(tmp_path: Path) -> None:
    near, far = (half_round_trip_us(ms, tmp_path) for ms in (0, 5))
    assert far - near == pytest.approx(5000, rel=0.1)
