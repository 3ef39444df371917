"""Makes a machine of runs and tables: chooses the model of each operation by the times that fits
were made without.

Models differ in how they grow with the ranks. So each model is fitted again without each number of
ranks, where there are at least three, and the mean absolute error of the times left out decides.
With fewer numbers the mean error of the fit decides, which says little: what the likelihood of the
data does not tell from the best model is its rival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from operator import attrgetter, itemgetter
from typing import NamedTuple

from commbench.analysis.environment import find_crowd
from commbench.answers.cost import fit, intervals
from commbench.answers.cost.cost_models import CostModel, models_of
from commbench.answers.cost.machine import CROWD, Candidate, FittedModel, Machine, Point
from commbench.answers.cost.observations import Observation, group_observations
from commbench.errors import UnavailableError, UsageError
from commbench.output.text import list_some
from commbench.readers.source import NO_HINTS, ImportHints
from commbench.results.schema import RunHeader
from commbench.stats import collect, np
from commbench.units import parse_size_range

ENOUGH_RANKS = 3
"""Numbers of ranks from which on they are left out."""
FEWEST_TIMES = 5
"""Times from which on ranges of sizes are left out."""
ERROR_DIGITS = 5
"""Decimals of a mean error: more depend on how many threads the linear algebra uses."""
SIZE_FOLDS = 4
LIKELY = 4.0
"""A model is a rival if the logarithm of its likelihood is at most so much below the highest one (a
factor of 55)."""
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

    Raises UnavailableError where there is nothing to fit, UsageError for runs of several machines,
    and for a run that is named twice.
    """
    for first, second in combinations(sources, 2):
        if first.observations and first.observations == second.observations:
            same = f"{first.name} and {second.name} are the same run: all times are equal"
            raise UsageError(same, "name each run once")
    headers = [source.header for source in sources if source.header]
    device = _one("devices", [list_some(header.devices, 3) for header in headers])
    backend = _one("backends", [header.plan.backend for header in headers])
    observations = [each for source in sources for each in source.observations]
    if not observations:
        why = f"{list_some([source.name for source in sources], 3)}: there is no time to fit"
        raise UnavailableError(why, "give runs with timed collectives of at least two ranks")
    observations = choose_observations(observations, chosen)
    groups = group_observations(mark_left_out(observations, leave_out))
    fitted: list[FittedModel] = []
    limits: list[tuple[str, str]] = []
    """Sentences, each with the model that it is about."""
    for number, ((operation, kind, variant), points) in enumerate(groups.items(), 1):
        what = f"{operation} {kind}{f' ({variant})' if variant else ''}"
        used = [point for point in points if not point.is_left_out]
        if used and len(groups) > 1:
            notify(f"[{number}/{len(groups)}] fitting {what}")
        if used:
            fitted.append(fit_points(operation, kind, points, variant))
        limits += [(limit, what) for limit in _limits(used)]
    said = [
        f"{'all models' if len(whats) == len(groups) > 1 else list_some(whats, 12)}: {limit}."
        for limit, whats in collect(limits).items()
    ]
    known = [{**header.environment, "hosts": list_some(header.hosts, 8)} for header in headers]
    facts = collect((n, str(own[n])) for own in known for n in _FACTS if own.get(n))
    if crowd := find_crowd(headers):
        facts[CROWD] = [crowd]
    return Machine(
        name, tuple(source.name for source in sources), device, backend,
        {fact: list_some([*dict.fromkeys(values)], 4) for fact, values in facts.items()},
        tuple(fitted), tuple(dict.fromkeys([*notes, *said])),
    )  # fmt: skip


def _limits(points: Sequence[Point]) -> Iterator[str]:
    """What so few measurements cannot say."""
    ranks, _, sizes = ({point[place] for point in points} for place in range(3))
    only = "measured with one {}, so nothing shows how the time grows with it. Measure {}"
    if not points:
        yield "all measurements are left out"
    if len(ranks) == 1:
        yield only.format("number of ranks", f"{ENOUGH_RANKS} numbers of ranks")
    if len(sizes) == 1 and sizes != {0}:
        yield only.format("size", f"{FEWEST_TIMES} sizes")


def _one(what: str, values: Sequence[str]) -> str:
    """The value that all have that have one. UsageError where there are two."""
    known = list(dict.fromkeys(filter(None, values)))
    if len(known) > 1:
        why = f"the runs have different {what}: {list_some(known, 3)}"
        raise UsageError(why, "fit the runs of each machine into a file of its own")
    return known[0] if known else ""


# Which times are fitted


class LeaveOut(NamedTuple):
    """Which measurements a model is fitted without, to see how well it predicts them."""

    name: str
    """One of LEFT_OUT."""
    low: int
    high: int

    def covers(self, point: Point) -> bool:
        """Whether the point is left out."""
        return bool(self.low <= getattr(point, LEFT_OUT[self.name]) <= self.high)


LEFT_OUT = {"ranks": "world_size", "sizes": "size_bytes"}
"""The fields of a point, by their names in --leave-out."""
_LEAVE_OUT_HINT = "write ranks=512, ranks=512-, sizes=1M-64M or sizes=-4K"


def parse_leave_out(text: str) -> list[LeaveOut]:
    """What `ranks=512`, `ranks=6-8`, `sizes=1M-,64K` leave out. Raises UsageError for anything
    else."""
    name, _, values = (part.strip() for part in text.partition("="))
    if name not in LEFT_OUT or not values:
        raise UsageError(f"--leave-out {text!r} says neither ranks nor sizes", _LEAVE_OUT_HINT)
    return [LeaveOut(name, *parse_size_range(value)) for value in values.split(",")]


def mark_left_out(
    observations: Sequence[Observation], leave_out: Sequence[LeaveOut]
) -> list[Observation]:
    """The observations, with those marked that are left out. UsageError where nothing is, or where
    nothing remains."""
    marked = []
    for each in observations:
        is_left_out = any(part.covers(each.point) for part in leave_out)
        marked.append(each._replace(point=each.point._replace(is_left_out=is_left_out)))
    for part in leave_out:
        if not any(part.covers(each.point) for each in marked):
            extent = f"{part.name} from {part.low} to {part.high}"
            raise UsageError(f"--leave-out: no measurement has {extent}", _LEAVE_OUT_HINT)
    if all(each.point.is_left_out for each in marked):
        raise UsageError("--leave-out leaves nothing to fit", "leave out fewer ranks or sizes")
    return marked


def choose_observations(
    observations: Sequence[Observation], chosen: ImportHints
) -> list[Observation]:
    """The observations of the operation, the element type and the number of ranks in `chosen`; None
    chooses all. Those without an element type are of every one. UsageError where nothing remains.
    """
    found = list(observations)
    for option, value, name in (
        ("--op", chosen.operation, "operation"),
        ("--dtype", chosen.dtype, "dtype"),
        ("--ranks", chosen.ranks, "point.world_size"),
    ):
        value_of = attrgetter(name)
        known = sorted({value_of(each) for each in found} - {""})
        if value is not None:
            found = [each for each in found if value_of(each) in ("", value)]
        if known and not found:
            names = list_some([str(each) for each in known], 10)
            raise UsageError(f"no measured time has {option} {value}", f"measured: {names}")
    return found


# Which model describes them


def fit_points(
    operation: str, kind: str, points: Sequence[Point], variant: str = ""
) -> FittedModel:
    """The best model of these points, with its rivals. Points that are left out are only kept."""
    used = [point for point in points if not point.is_left_out]
    spans_ranks = len({point.world_size for point in used}) > 1
    models = [model for model in models_of(operation) if model.spans_ranks == spans_ranks]
    if len({point.size_bytes for point in used}) == 1 and not spans_ranks:
        models = models[:1]  # of one call, all models are its time
    tried = sorted((_try(model, used) for model in models), key=itemgetter(0))
    least = max(evidence for *_, evidence in tried) - LIKELY
    kept = [each for n, (_, each, evidence) in enumerate(tried) if not n or evidence > least]
    return FittedModel(
        operation,
        kind,
        tuple(_test_sizes(each, used) for each in kept),
        scatter=fit.deviation(fit.curve_errors(kept[0].curve, used)),
        points=tuple(points),
        variant=variant,
    )


def _try(model: CostModel, points: Sequence[Point]) -> tuple[float, Candidate, float]:
    """The mean absolute error by which models are compared; a model that was fitted to all times,
    and to those of other numbers of ranks; and its evidence (intervals.Errors)."""
    curve = fit.fit_curve(model, points)
    evidence = intervals.errors_of(Candidate(curve, None), points).evidence
    found, variances, expected = [], [], []
    ranks = sorted({point.world_size for point in points})
    for n in ranks if len(ranks) >= ENOUGH_RANKS else ():
        rest, left_out = _fold(points, "world_size", {n})
        other = fit.fit_curve(model, rest)
        without = intervals.errors_of(Candidate(other, None), rest)
        missed = fit.curve_errors(other, left_out)
        found.append(float(np.abs(missed).mean()))
        variances.append(fit.deviation(missed) ** 2)
        expected.append(np.mean([without.variance(point[:3]) for point in left_out]))
    if not found:
        error = float(np.abs(fit.curve_errors(curve, points)).mean())
        return error, Candidate(curve, None), evidence
    error, scale = float(np.mean(found)), float(np.mean(variances) / np.mean(expected)) ** 0.5
    return error, Candidate(curve, round(error, ERROR_DIGITS), max(1.0, scale)), evidence


def _test_sizes(candidate: Candidate, points: Sequence[Point]) -> Candidate:
    """The candidate with the errors of the ranges of sizes that are left out of its fit: of those
    that lie between other sizes, and how much they grow beyond the sizes of a fit."""
    found, grown = [], []
    sizes = sorted({point.size_bytes for point in points})
    is_tested = len(points) >= FEWEST_TIMES and len(sizes) > 1
    for part in np.array_split(sizes, min(SIZE_FOLDS, len(sizes))) if is_tested else ():
        rest, left_out = _fold(points, "size_bytes", set(part.tolist()))
        curve, kept = fit.fit_curve(candidate.curve.model, rest), [p.size_bytes for p in rest]
        missed = fit.curve_errors(curve, left_out)
        beyond = np.array([fit.doublings_beyond(p.size_bytes, kept) for p in left_out])
        if beyond.all():
            grown.append(fit.deviation(missed / beyond))
        else:
            found.append(float(np.abs(missed).mean()))
    if found and candidate.cv_error is None:
        candidate = candidate._replace(cv_error=round(float(np.mean(found)), ERROR_DIGITS))
    growth = float(np.mean(np.square(grown))) ** 0.5 if grown else 0.0
    return candidate._replace(size_growth=growth)


def _fold(points: Sequence[Point], field: str, values: set[int]) -> tuple[list[Point], list[Point]]:
    """The points that a fit is made with, and those with these values that it is made without."""
    with_them = [point for point in points if getattr(point, field) not in values]
    return with_them, [point for point in points if getattr(point, field) in values]
