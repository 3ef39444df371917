"""Cost models of gloo over links of known speed: fitted to few ranks, they predict more."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from hosts import limited_hosts
from test_links import finish, start_on

import commbench
from commbench.units import MICRO

pytestmark = pytest.mark.full

FITTED, PREDICTED = (2, 3, 4, 6), 8
OPERATION = "all_reduce"
SIZES = "8K-256K"
RATE, BURST = "50mbit", "5k"
ITERS = "8"
LONGEST_S = 600.0


def measure(ranks: int, where: Path) -> commbench.Run:
    """A run of so many hosts, one rank on each."""
    where.mkdir()
    with limited_hosts(ranks, RATE, BURST, longest_wait="2s") as cluster:
        processes = start_on(cluster, where, "--op", OPERATION, "--sizes", SIZES, "--iters", ITERS)
        ended = finish(processes, where, LONGEST_S)
    assert [host.code for host in ended] == [0] * ranks, ended
    return commbench.load(ended[0].folder)


def test_models_of_2_3_4_and_6_ranks_predict_8(tmp_path: Path) -> None:
    runs = {n: measure(n, tmp_path / str(n)) for n in (*FITTED, PREDICTED)}
    machine = commbench.fit_model(*(runs[n] for n in FITTED), output=tmp_path / "machine.json")
    measured = {row.size_bytes: row.time_us * MICRO for row in runs[PREDICTED].frame().itertuples()}
    found = commbench.predict(
        machine, op=OPERATION, ranks=PREDICTED, ranks_per_node=1, sizes=tuple(measured)
    ).predictions
    errors = [abs(measured[each.size_bytes] / each.time_s - 1) for each in found]
    inside = [each.low_s <= measured[each.size_bytes] <= each.high_s for each in found]
    assert machine.fitted[0].model == "ring"
    assert median(errors) <= 0.1, errors
    assert sum(inside) / len(inside) >= 0.9, inside
