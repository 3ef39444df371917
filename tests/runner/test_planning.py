"""In how many launches a run is measured."""

from __future__ import annotations

import pytest

from commbench.runner.planning import plan_run
from commbench.runner.run_options import parse_options


@pytest.mark.parametrize(
    ("asked", "launches"),
    [
        ({}, 3), ({"budget": 1.0, "precision": 0.02}, 3), ({"iters": 20}, 1),
        ({"op": "ping_pong", "pairs": "quick"}, 1), ({"op": "ping_pong", "pairs": "all"}, 3),
        ({"launches": 1}, 1), ({"launches": 6, "iters": 20}, 6),
        ({"op": "ping_pong", "launches": 2, "pairs": "quick"}, 2),
    ],
)  # fmt: skip
def test_a_run_that_chooses_its_iterations_has_three_launches(
    asked: dict[str, object], launches: int
) -> None:
    usual = {"backend": "gloo", "device": "cpu", "nproc_per_node": 4}
    assert plan_run(parse_options(usual | asked)).plan.launches == launches
