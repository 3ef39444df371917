"""When a compressed form pays, on links of known speed.

Ranks run in real time: they share the cores of one machine, and their own work is a large part of
the time.
"""

from __future__ import annotations

import re
from math import exp, log
from pathlib import Path
from statistics import median

import pytest
from hosts import limited_hosts
from test_links import end_on

from commbench.analysis.rows import make_rows
from commbench.answers.show.numerics import GBIT, NumericsRow, find_numerics
from commbench.results.journal_reader import read_run

pytestmark = pytest.mark.full
ON_OWN_CORES, ON_SHARED_CORES = 2, 4
"""Hosts on two cores. Where ranks share one, they wait for each other's work, and no single run
says then whether a form pays."""
RATES = (2, 3, 4)
"""Gbit/s, around the speed below which int8 pays on two cores."""


def int8_on_links(where: Path, rate: str, hosts: int) -> tuple[NumericsRow, str]:
    """The numbers of int8 on hosts whose links have that rate, and what was printed."""
    where.mkdir()
    with limited_hosts(hosts, rate) as cluster:
        ended = end_on(
            cluster, where, "--sizes", "16M", "--via", "int8", "--iters", "12", "--launches", "1"
        )
    (row,) = (r for r in find_numerics(make_rows(read_run(ended.folder))).rows if r.codec)
    return row, " ".join(ended.out.split())


def test_int8_pays_on_a_slow_link_and_not_without_a_limit(tmp_path: Path) -> None:
    slow, told = int8_on_links(tmp_path / "slow", "500mbit", ON_OWN_CORES)
    assert slow.time_ratio and slow.time_ratio.ends[1] < 1
    found = (
        r"int8 of all_reduce \(RMS error 0\.01?\d*\) at 16 MiB takes .*: it pays here from 16 MiB"
    )
    assert re.search(found, told)
    fast, _ = int8_on_links(tmp_path / "fast", "", ON_OWN_CORES)
    assert fast.time_ratio and fast.time_ratio.ends[0] > 1


def test_the_speed_below_which_it_pays_is_predicted(tmp_path: Path) -> None:
    rows = [
        int8_on_links(tmp_path / f"{rate}", f"{rate}gbit", ON_SHARED_CORES)[0] for rate in RATES
    ]
    logs = [(log(rate), log(row.time_ratio.value)) for rate, row in zip(RATES, rows, strict=True)
            if row.time_ratio]  # fmt: skip
    # The line through the three ratios crosses 1 where both take the same time.
    mean_x, mean_y = (sum(column) / len(RATES) for column in zip(*logs, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in logs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread
    measured = exp(mean_x - mean_y / slope)
    predicted = median(row.pays_below.value / GBIT for row in rows if row.pays_below)
    assert predicted == pytest.approx(measured, rel=0.2)
