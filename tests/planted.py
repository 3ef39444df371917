"""Machines whose times follow a cost model exactly, but for noise that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from random import Random
from typing import Any

from commbench.answers.cost.cost_models import find_model, kind_of, models_of
from commbench.answers.cost.fit import SHORTEST_S
from commbench.answers.cost.machine import Candidate, Curve, FittedModel, Machine, Point
from commbench.answers.cost.predict import Prediction, Request
from commbench.answers.cost.predict import predict as predict_request

TREE = (10e-6, 5e-6, 1 / 200e9)
RING = (5e-6, 1e-6, 1 / 400e9)


def predict(
    machine: Machine, operation: str, ranks: Sequence[int], per_node: int | None,
    sizes: Sequence[int], variant: str = "",
) -> list[Prediction]:  # fmt: skip
    """The predictions of one operation."""
    asked = Request((operation,), tuple(ranks), per_node, tuple(sizes), variant)
    return predict_request(machine, asked)


def candidate(
    operation: str = "all_reduce", model: str = "double binary tree",
    parameters: Sequence[float] = TREE, size_factors: Sequence[tuple[float, float]] = (),
    **more: Any,
) -> Candidate:  # fmt: skip
    """A model with these parameters."""
    curve = Curve(find_model(operation, model), tuple(parameters), tuple(size_factors))
    return Candidate(curve, **{"cv_error": 0.03} | more)


def fitted(
    operation: str = "all_reduce", model: str = "double binary tree",
    parameters: Sequence[float] = TREE, ranks: Sequence[int] = (32, 64, 128), per_node: int = 8,
    sizes: Sequence[int] = tuple(1 << k for k in range(20, 35)), noise: float = 0.02,
    rivals: Sequence[Candidate] = (), scatter: float | None = None, variant: str = "", **more: Any,
) -> FittedModel:  # fmt: skip
    """The model of one operation, as fitted to points that it gives."""
    chance, found = Random(2), candidate(operation, model, parameters, **more)
    points = tuple(
        Point(
            n, min(n, per_node), size,
            exp(chance.gauss(0, noise)) * max(found.curve.time(n, per_node, size), SHORTEST_S),
        )
        for n in ranks
        for size in sizes
    )  # fmt: skip
    kind = kind_of(ranks[-1], per_node)
    around = noise if scatter is None else scatter
    return FittedModel(operation, kind, (found, *rivals), around, points, variant)


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
        "planted", ("somewhere",), "NVIDIA H100", "nccl", {}, models or (fitted(), inside())
    )


def random_machine(chance: Random) -> tuple[Machine, int]:
    """A machine of one operation with any of its models, factors of sizes, and any number of ranks
    per host; and that number."""
    per_node = chance.choice((1, 2, 3, 4, 6, 8, 16))
    models = []
    operation = chance.choice(("all_reduce", "all_gather", "broadcast", "all_to_all", "gather"))
    for ranks in ((2, per_node), (2 * per_node, chance.choice((8, 9)) * per_node)):
        if ranks[1] < 2:
            continue
        model = chance.choice([m for m in models_of(operation) if m.spans_ranks])
        parameters = [
            scale * 10 ** chance.uniform(-2, 2) * chance.choice((0, 1, 1, 1))
            for scale in (1e-5, 1e-6, 1e-11)
        ]
        steps = range(chance.randrange(4, 12), 30, 2) if chance.random() < 0.5 else ()
        factors = tuple((float(1 << k), exp(chance.gauss(0, 0.3))) for k in steps)
        sizes = [1 << k for k in steps] or [1 << k for k in range(20, 35)]
        models.append(
            fitted(operation, model.name, parameters, ranks, per_node, sizes, size_factors=factors)
        )
    return machine(*models), per_node
