"""Groups on links of known speed: how much groups that call at once slow each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosts import hosts
from test_links import run_on

pytestmark = pytest.mark.full
RATE, BURST = "1gbit", "256k"
SIZE, ITERS = "32M", "12"


def measured(where: Path, ranks_per_host: int, groups: str, *, slow: str = "") -> dict[str, str]:
    """The row of two groups that call together, on four hosts of 1 Gbit/s; that of host 0 sends at
    the speed `slow`, if any."""
    with hosts(4) as cluster:
        for host in cluster:
            host.limit(RATE, BURST)
        if slow:
            cluster[0].limit(slow, "128k")
        rows = run_on(
            cluster, where, "--groups", groups, "--concurrency", "both", "--sizes", SIZE,
            "--iters", ITERS, "--nproc-per-node", str(ranks_per_host),
            # Ranks of one core that run in real time would keep it from one another.
            *(["--cpu-mode", "plain"] if ranks_per_host > 1 else []),
        )  # fmt: skip
    assert {row["wrong"] for row in rows} == {"0"}
    (together,) = [row for row in rows if row["concurrency"] == "together"]
    assert together["groups"] == "2"
    return together


def test_groups_that_share_no_link_do_not_slow_each_other(tmp_path: Path) -> None:
    row = measured(tmp_path, 1, "0,1;2,3")
    assert float(row["interference"]) == pytest.approx(1.00, abs=0.03)


def test_groups_that_share_the_link_of_a_host_take_twice_as_long(tmp_path: Path) -> None:
    # Ranks 0 and 1 are on host 0; the other two of the groups are on hosts 1 and 2.
    row = measured(tmp_path, 2, "0,2;1,4")
    assert float(row["interference"]) == pytest.approx(2.00, abs=0.1)


def test_the_worst_group_is_the_one_on_the_link_that_was_halved(tmp_path: Path) -> None:
    row = measured(tmp_path, 1, "0,1;2,3", slow="500mbit")
    assert row["worst_group"] == "0,1"
