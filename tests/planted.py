"""Machines whose times follow a cost model exactly, but for noise that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from random import Random
from typing import Any

from commbench.models.cost_models import find_model, kind_of, models_of
from commbench.models.machine import VERSION, FittedModel, Machine, Piece, Point

TREE = (10e-6, 5e-6, 1 / 200e9, 2e-9)
RING = (5e-6, 1e-6, 1 / 400e9)


def pieces(
    parameters: Sequence[float], spread: float = 0.01, ends: Sequence[float] = (), seed: int = 1
) -> tuple[Piece, ...]:
    """Pieces of the same parameters, whose replicates differ by `spread`."""
    chance = Random(seed)
    samples = tuple(tuple(p * exp(chance.gauss(0, spread)) for p in parameters) for _ in range(50))
    return tuple(Piece(end, tuple(parameters), samples) for end in (*ends, None))


def fitted(
    operation: str = "all_reduce",
    model: str = "double binary tree",
    parameters: Sequence[float] = TREE,
    ranks: Sequence[int] = (32, 64, 128),
    per_node: int = 8,
    sizes: Sequence[int] = tuple(1 << k for k in range(20, 35)),
    noise: float = 0.02,
    **more: Any,
) -> FittedModel:
    """The model of one operation, as fitted to points that it gives."""
    chance, found = Random(2), find_model(operation, model)
    points = tuple(
        Point(
            n, min(n, per_node), size,
            exp(chance.gauss(0, noise))
            * sum(p * t for p, t in zip(parameters, found.terms(n, per_node, size), strict=True)),
        )
        for n in ranks
        for size in sizes
    )  # fmt: skip
    values: dict[str, Any] = {
        "kind": kind_of(ranks[-1], per_node), "pieces": pieces(parameters), "scatter": noise,
        "cv_error": 0.03, "drift": 0.02, "rivals": (), "points": points,
    }  # fmt: skip
    return FittedModel(operation=operation, model=model, **values | more)


def inside(**more: Any) -> FittedModel:
    """An all_reduce within a host, by a ring."""
    values: dict[str, Any] = {
        "model": "ring", "parameters": RING, "ranks": (2, 4, 8),
        "sizes": tuple(1 << k for k in range(10, 31, 2)),
    }  # fmt: skip
    return fitted(**values | more)


def machine(*models: FittedModel) -> Machine:
    """A machine of these models, by default with an all_reduce within a host and across hosts."""
    return Machine(
        VERSION, "planted", ("somewhere",), "NVIDIA H100", "nccl", {},
        models or (fitted(), inside()),
    )  # fmt: skip


def random_machine(chance: Random) -> tuple[Machine, int]:
    """A machine of one operation with any of its models, pieces that do not meet, factors of sizes,
    and any number of ranks per host; and that number."""
    per_node = chance.choice((1, 2, 3, 4, 6, 8, 16))
    models = []
    operation = chance.choice(("all_reduce", "all_gather", "broadcast", "all_to_all", "gather"))
    for ranks in ((2, per_node), (2 * per_node, chance.choice((8, 9)) * per_node)):
        if ranks[1] < 2:
            continue
        known = [m for m in models_of(operation) if m.spans_ranks]
        model = chance.choice(known)
        ends = sorted(chance.sample([1 << k for k in range(10, 30)], chance.choice((0, 1, 2))))
        made = tuple(
            pieces([_value(p.unit, chance) for p in model.parameters], seed=chance.random())[
                0
            ]._replace(up_to_bytes=end)
            for end in (*ends, None)
        )
        rivals = ()
        steps = range(chance.randrange(4, 12), 30, 2) if chance.random() < 0.5 else ()
        factors = tuple((float(1 << k), exp(chance.gauss(0, 0.3))) for k in steps)
        models.append(
            fitted(
                operation, model.name, made[0].parameters, ranks, per_node, pieces=made,
                rivals=rivals, size_factors=factors,
            )
        )  # fmt: skip
    return machine(*models), per_node


def _value(unit: str, chance: Random) -> float:
    scale = {"s": 1e-5, "s/step": 1e-6, "s/B": 1e-11}.get(unit, 1e-9)
    return scale * 10 ** chance.uniform(-2, 2) * chance.choice((0, 1, 1, 1))
