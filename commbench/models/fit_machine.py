"""Makes a machine of runs and tables of published figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from commbench.errors import UnavailableError, UsageError
from commbench.importers.hints import NO_HINTS, ImportHints
from commbench.models.cost_models import ACROSS
from commbench.models.leave_out import ENOUGH_RANKS, FEWEST_TIMES, fit_points
from commbench.models.machine import FittedModel, Machine, Point
from commbench.models.observations import (
    LeaveOut,
    Observation,
    choose_observations,
    group_observations,
    mark_left_out,
)
from commbench.output.paragraphs import list_some
from commbench.results.schema import RunHeader
from commbench.units import format_bytes, format_count

_FACTS = ("commbench", "torch", "cuda", "hip", "nccl", "hosts")


class Source(NamedTuple):
    """A run or a table, and its times."""

    name: str
    observations: Sequence[Observation]
    header: RunHeader | None = None
    """None where the file does not describe the environment."""


def fit_machine(
    sources: Sequence[Source],
    name: str,
    leave_out: Sequence[LeaveOut],
    notes: Sequence[str],
    notify: Callable[[str], None],
    chosen: ImportHints = NO_HINTS,
) -> Machine:
    """Fit every operation of the sources, or what is chosen. `notify` gets a line for each, before
    it is fitted.

    Raises UnavailableError where there is nothing to fit, UsageError for runs of several machines.
    """
    headers = [source.header for source in sources if source.header]
    device = _one("devices", [list_some(header.devices, 3) for header in headers])
    backend = _one("backends", [header.plan.backend for header in headers])
    observations = [each for source in sources for each in source.observations]
    if not observations:
        raise UnavailableError(
            f"{list_some([source.name for source in sources], 3)}: there is no time to fit",
            "give runs with timed collectives of at least two ranks",
        )
    observations = choose_observations(observations, chosen)
    groups = group_observations(mark_left_out(observations, leave_out))
    fitted: list[FittedModel] = []
    said = list(notes)
    limits: dict[str, list[str]] = {}
    """Of each sentence, the models that it is about."""
    for number, ((operation, kind, variant), points) in enumerate(groups.items(), 1):
        what = f"{operation} {kind}{f' ({variant})' if variant else ''}"
        used = [point for point in points if not point.is_left_out]
        if not used:
            said.append(f"{what}: all its measurements are left out.")
            continue
        if len(groups) > 1:
            notify(f"[{number}/{len(groups)}] fitting {what}")
        fitted.append(fit_points(operation, kind, points, variant))
        for limit in _limits(kind, used):
            limits.setdefault(limit, []).append(what)
    said += [f"{list_some(whats, 12)}: {limit}" for limit, whats in limits.items()]
    return Machine(
        name, tuple(source.name for source in sources), device, backend,
        _facts(headers), tuple(fitted), tuple(dict.fromkeys(said)),
    )  # fmt: skip


def _limits(kind: str, points: Sequence[Point]) -> Iterator[str]:
    """What so few measurements cannot say."""
    ranks = sorted({point.world_size for point in points})
    sizes = sorted({point.size_bytes for point in points})
    per_node = sorted({point.ranks_per_node for point in points})
    if len(ranks) == 1:
        yield (
            f"measured with {format_count(ranks[0], 'rank')} only. Nothing says how the time grows "
            f"with ranks: measure {ENOUGH_RANKS} numbers of ranks."
        )
    if len(sizes) == 1 and sizes[0]:
        yield (
            f"measured with {format_bytes(sizes[0])} only. Nothing says how the time grows with "
            f"the size: measure {FEWEST_TIMES} sizes."
        )
    if kind == ACROSS and len(per_node) > 1:
        yield (
            f"one model for {list_some([str(n) for n in per_node], 4)} ranks per host; ranks of "
            "one host share its links, so more of them may be slower."
        )


def _one(what: str, values: Sequence[str]) -> str:
    """The value that all have that have one. UsageError where there are two."""
    known = list(dict.fromkeys(filter(None, values)))
    if len(known) > 1:
        raise UsageError(
            f"the runs have different {what}: {list_some(known, 3)}",
            "fit the runs of each machine into a file of its own",
        )
    return known[0] if known else ""


def _facts(headers: Sequence[RunHeader]) -> dict[str, str]:
    """Versions and hosts, of all runs."""
    found: dict[str, list[str]] = {}
    for header in headers:
        known = {**header.environment, "hosts": list_some(header.hosts, 8)}
        for name in _FACTS:
            if known.get(name):
                found.setdefault(name, []).append(str(known[name]))
    return {name: list_some(list(dict.fromkeys(values)), 4) for name, values in found.items()}
