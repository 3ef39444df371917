"""Predictions for NCCL's example tuner plugin: the algorithm and protocol that are predicted to be
fastest, by ranges of sizes.

It needs models of several algorithms: a machine fitted to runs with different values of NCCL_ALGO
or NCCL_PROTO, whose variants are then named `NCCL ring simple` (models.observations).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import ceil, log2
from typing import NamedTuple

from commbench.analysis.nccl_tuner import TunerRange, tuner_lines
from commbench.errors import UnavailableError
from commbench.models.cost_models import kind_of
from commbench.models.machine import FittedModel, Machine
from commbench.models.observations import SELECTED
from commbench.models.predict import Request, predict
from commbench.spec.operations import OPERATIONS

_STEPS = 24
"""Halvings of the range of sizes in which the fastest choice changes."""


class Choice(NamedTuple):
    """An algorithm and a protocol of NCCL, with the model of their times."""

    algorithm: str
    protocol: str
    fitted: FittedModel

    def channels_at(self, size: int) -> int:
        """The channels that NCCL logged for the nearest size, with the most ranks."""
        known = [point for point in self.fitted.points if point.channels]
        nearest = min(
            known, key=lambda p: (abs(log2(max(p.size_bytes, 1) / max(size, 1))), -p.world_size)
        )
        return nearest.channels


def tuner_text(machine: Machine, request: Request) -> str:
    """The lines of a configuration file. UnavailableError where the machine has no models of
    different choices."""
    lines = [f"# predicted by commbench from the machine {machine.name!r}"]
    for ranks in request.world_sizes:
        ranges = [
            each
            for name in request.operations
            for each in _find_ranges(machine, name, ranks, request)
        ]
        lines += tuner_lines(ranges, ceil(ranks / (request.ranks_per_node or ranks)), ranks)
    return "".join(f"{line}\n" for line in lines)


def _find_ranges(machine: Machine, name: str, ranks: int, request: Request) -> list[TunerRange]:
    choices = find_choices(machine, name, ranks, request)

    def time_s(choice: Choice, size: int) -> float:
        alone = machine._replace(fitted=(choice.fitted,))
        return predict(alone, name, (ranks,), request.ranks_per_node, (size,))[0].time_s

    def best(size: int) -> Choice:
        return min(choices, key=lambda choice: time_s(choice, size))

    ordered = sorted(request.sizes)
    found = [(0, best(ordered[0]))]
    for before, size in pairwise(ordered):
        last, chosen = found[-1][1], best(size)
        if chosen is not last:
            found.append((_first_size(before, size, last, best), chosen))
    ends = [*(begin - 1 for begin, _ in found[1:]), ordered[-1]]
    return [
        TunerRange(
            name, begin, end, choice.algorithm, choice.protocol, choice.channels_at(max(end, 1))
        )
        for (begin, choice), end in zip(found, ends, strict=True)
    ]


def _first_size(low: int, high: int, last: Choice, best: Callable[[int], Choice]) -> int:
    """The first size between two at which another choice than `last` is best."""
    for _ in range(_STEPS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        low, high = (middle, high) if best(middle) is last else (low, middle)
    return high


def find_choices(machine: Machine, name: str, ranks: int, request: Request) -> list[Choice]:
    """NCCL's choices for an operation that the machine has models of; UnavailableError where there
    are not two."""
    kind = kind_of(ranks, request.ranks_per_node or ranks)
    words = {word.strip() for word in request.variant.split(",")} - {""}
    found = []
    for fitted in machine.fitted:
        own = set(fitted.variant.split(", "))
        selected = [word for word in own if word.startswith(f"{SELECTED} ")]
        if (fitted.operation, fitted.kind) != (name, kind) or not (selected and words <= own):
            continue
        _, algorithm, protocol = selected[0].split(" ")
        if any(point.channels for point in fitted.points):
            found.append(Choice(algorithm, protocol, fitted))
    if len({choice[:2] for choice in found}) < 2:
        function = OPERATIONS[name].nccl_function
        raise UnavailableError(
            f"{machine.name} has no times of {name} {kind} with different algorithms of NCCL",
            "fit it to runs with NCCL_ALGO=Ring, NCCL_ALGO=Tree and so on, in which NCCL logged "
            "what it selected"
            if function
            else f"NCCL builds {name} from its sends and receives: it has one algorithm",
        )
    return found
