"""Made-up fleets: a run of each node, or only the matrix of log times, with a known truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from synthetic import noisy, plan, synthetic_run

from commbench.plan.case import Case
from commbench.plan.plan import Plan
from commbench.results.records import RankInfo

OPERATIONS = ("all_gather", "all_reduce", "broadcast", "reduce_scatter")
SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22)
KINDS = [operation for operation in OPERATIONS for _ in SIZES]
"""The kind of each of 20 cases."""
CASE_SIZES = [*SIZES] * len(OPERATIONS)


class Model(NamedTuple):
    """How the nodes of a sound fleet differ."""

    common: float = 0.0
    """The share of the variance that all cases of a node have in common."""
    tail: float = 0.0
    """Degrees of freedom of Student's t of what is a case's own; 0: normal."""
    common_tail: float = 0.0
    """The same of what cases have in common."""
    neighbours: float = 0.0
    """The correlation of neighbouring cases, in what is their own."""
    disturbed: float = 0.0
    """The share of cases that something slowed, by six standard deviations at most."""


MODELS = {
    "independent": Model(),
    "correlated": Model(0.5),
    "weakly correlated": Model(0.25),
    "heavy tails": Model(0.5, tail=4),
    "heavy tails of nodes": Model(0.5, tail=4, common_tail=4),
    "as recorded": Model(0.8, tail=4, common_tail=6),
    "neighbours": Model(0.5, tail=6, neighbours=0.7),
    "disturbed": Model(0.25, disturbed=0.02),
}


def _draw(chance: Any, tail: float, shape: tuple[int, ...]) -> Any:
    if not tail:
        return chance.standard_normal(shape)
    return chance.standard_t(tail, shape) / np.sqrt(tail / (tail - 2))


def matrix(model: Model, seed: int, nodes: int = 64, spread: float = 0.02) -> Any:
    """Log times, nodes x 20 cases, that differ between nodes by `spread`."""
    chance = np.random.default_rng(seed)
    cases = len(KINDS)
    own = _draw(chance, model.tail, (nodes, cases))
    for case in range(1, cases):
        kept = model.neighbours * own[:, case - 1]
        own[:, case] = kept + np.sqrt(1 - model.neighbours**2) * own[:, case]
    slowed = chance.random((nodes, cases)) < model.disturbed
    own = own + 6 * slowed * chance.random((nodes, cases))
    common = _draw(chance, model.common_tail, (nodes, 1))
    levels = chance.normal(-9, 2, cases)
    found: Any = levels + spread * (
        np.sqrt(model.common) * common + np.sqrt(1 - model.common) * own
    )
    return found


def node_ranks(host: str, ranks: int = 2) -> tuple[RankInfo, ...]:
    return tuple(RankInfo(r, host, 100 + r, "cpu", (r,), "quiet", r) for r in range(ranks))


def asked_plan(**more: Any) -> Plan:
    return plan(**{"operations": OPERATIONS, "sizes": SIZES} | more)


def synthetic_node(
    folder: Path,
    host: str,
    factor: Callable[[Case], float] = lambda _: 1.0,
    *,
    seed: int = 0,
    spread: float = 0.02,
    asked: Plan | None = None,
    **more: Any,
) -> Path:
    """The run of a node, whose times are 20 us and 1 ns a byte, times `factor`."""
    chance = np.random.default_rng(seed)
    own = chance.lognormal(0, spread, 1000)
    environment = {"boot_id": host, "host": host} | more.pop("environment", {})
    return synthetic_run(
        folder, "fleet",
        lambda case: noisy(
            (2e-5 + case.size_bytes * 1e-9) * factor(case) * own[case.index],
            seed=1000 * seed + case.index, noise=0.02, batches=3, each=10,
        ),
        asked=asked or asked_plan(), environment=environment, ranks=node_ranks(host), **more,
    )  # fmt: skip


def synthetic_fleet(
    folder: Path,
    nodes: int,
    slow: dict[int, Callable[[Case], float]] | None = None,
    first: int = 0,
    **more: Any,
) -> Sequence[Path]:
    """A folder with a run of each node, `node00` and so on; `slow` has the factors of some."""
    folder.mkdir(exist_ok=True)
    slow = slow or {}
    return [
        synthetic_node(
            folder / f"run{number:02}", f"node{number:02}",
            slow.get(number, lambda _: 1.0), seed=number + 1, **more,
        )
        for number in range(first, first + nodes)
    ]  # fmt: skip
