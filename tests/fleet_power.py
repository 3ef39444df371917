"""How often sound fleets have a node named, and how often a slow node is: `commbench fleet` beside
two other rules, on the same made-up fleets. `python tests/fleet_power.py` prints the tables of
docs/fleet.md."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from synthetic_fleet import CASE_SIZES, KINDS, MODELS, OPERATIONS, Model, matrix

from commbench.answers.fleet.slow_nodes import find_slow_nodes, make_parts

PARTS = make_parts(KINDS, CASE_SIZES)
HALVES = {
    "sizes": [size >= sorted(CASE_SIZES)[10] for size in CASE_SIZES],
    "operations": [kind in OPERATIONS[:2] for kind in KINDS],
}
"""Half of the cases, more or less: large sizes (12 of 20), or two of four operations."""
ALL = [True] * len(KINDS)


def named(times: Any, false_alarms: float = 0.01) -> list[bool]:
    """Which nodes `commbench fleet` would drain, by their times alone."""
    scores = find_slow_nodes(times, np.full(times.shape, np.nan), PARTS, false_alarms)
    return [chance <= false_alarms for chance in scores.chances]


def superbench(times: Any, alpha: float = 0.95) -> list[bool]:
    """SuperBench's rule (arXiv 2402.06194) for one value per node and case. The similarity of two
    values is the smaller over the larger one. The criterion is the node that is most similar to all
    others; slower nodes of less similarity than alpha are defects, and the rest is judged again
    until no more are found. A node is named that is a defect in any case."""
    seconds = np.exp(times)
    found = np.zeros(len(times), bool)
    for column in seconds.T:
        left = np.arange(len(column))
        while len(left) > 1:
            own = column[left]
            similar = np.minimum(own[:, None], own) / np.maximum(own[:, None], own)
            centre = own[similar.sum(axis=1).argmax()]
            bad = (own > centre) & (centre / own < alpha)
            if not bad.any():
                break
            found[left[bad]] = True
            left = left[~bad]
    return [*map(bool, found)]


def threshold(times: Any, least: float = 0.05) -> list[bool]:
    """A plain threshold: a node is named whose mean over all cases is 5 % beyond the median."""
    slower = np.exp((times - np.median(times, axis=0)).mean(axis=1)) - 1
    return [*map(bool, slower > least)]


RULES = {"fleet": named, "SuperBench": superbench, "5 % of the mean": threshold}


def slowed(times: Any, part: list[bool], by: float) -> Any:
    """The same fleet, whose first node takes longer in some cases."""
    found = times.copy()
    found[0, part] += np.log1p(by)
    return found


def false_alarms(model: Model, fleets: int, rule: Any = named, nodes: int = 64) -> float:
    """The share of sound fleets that have a node named."""
    return sum(any(rule(matrix(model, seed, nodes))) for seed in range(fleets)) / fleets


def power(
    model: Model, fleets: int, part: list[bool], by: float, rule: Any = named, nodes: int = 64
) -> float:
    """The share of fleets whose slow node is named."""
    made = (slowed(matrix(model, seed, nodes), part, by) for seed in range(fleets))
    return sum(rule(times)[0] for times in made) / fleets


def main(fleets: int) -> None:
    for name, model in MODELS.items():
        numbers = {name: fleets if rule is named else fleets // 5 for name, rule in RULES.items()}
        cells = [
            f"{100 * false_alarms(model, numbers[name], rule):.1f}" for name, rule in RULES.items()
        ]
        cells += [f"{100 * power(model, fleets // 5, part, 0.05):.0f}" for part in HALVES.values()]
        print(" | ".join([name, *cells]), flush=True)
    for nodes in (4, 6, 8, 16, 64):
        cells = [
            f"{100 * power(MODELS['correlated'], 100, HALVES['sizes'], by, nodes=nodes):.0f}"
            for by in (0.03, 0.04, 0.05, 0.07, 0.1, 0.2, 0.5)
        ]
        print(" | ".join([str(nodes), *cells]), flush=True)
    for name, rule in RULES.items():
        cells = [
            f"{100 * power(MODELS['correlated'], 100, HALVES['sizes'], by, rule):.0f}"
            for by in (0.03, 0.04, 0.05, 0.07, 0.1, 0.2, 0.5)
        ]
        print(" | ".join([name, *cells]), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1000)
