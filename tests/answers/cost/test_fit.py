"""The terms of cost models are those of the literature; fits find the model and the parameters that
made the times, their intervals hold as often as they say, and they predict published times that
they were made without; a machine file is read as it was written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import exp, log2
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np
import planted
import pytest
from published_curves import curve, without

from commbench.analysis.statistics import launch_half_width
from commbench.answers.cost.cost_models import (
    ACROSS,
    COST_MODELS,
    PARAMETERS,
    WITHIN,
    find_model,
    kind_of,
    models_of,
)
from commbench.answers.cost.fit import fit_sizes
from commbench.answers.cost.fit_document import VIEW, fit_warning, fit_warnings, ratio
from commbench.answers.cost.intervals import parameter_intervals
from commbench.answers.cost.machine import (
    FittedModel,
    Point,
    factor_at,
    read_machine,
    write_machine,
)
from commbench.answers.cost.selection import fit_points
from commbench.errors import RecordsError, UnavailableError
from commbench.plan.operations import OPERATIONS
from commbench.stats import Estimate

MIB = 1 << 20
RING = (20e-6, 4e-6, 0.5e-9)
TRUTHS = {
    "ring": RING,
    "double binary tree": (30e-6, 8e-6, 0.4e-9),
    "Rabenseifner": (10e-6, 6e-6, 0.5e-9),
    "recursive doubling": (10e-6, 6e-6, 0.5e-9),
}
"""Parameters of models of all_reduce."""
RANKS = (2, 3, 4, 6, 8, 12, 16)
SIZES = tuple(1 << (10 + 2 * step) for step in range(10))


def times(
    name: str, parameters: tuple[float, ...] = RING, ranks: Sequence[int] = RANKS
) -> list[Point]:
    """Exact times of a model, one rank on a host."""
    model = find_model("all_reduce", name)
    return [
        Point(n, 1, size, float(np.dot(model.terms(n, 1, size), parameters)))
        for n in ranks
        for size in SIZES
    ]


def noisy(points: list[Point], seed: int, noise: float = 0.03, shared: float = 0.0) -> list[Point]:
    """The points with an error of each, and one that all times of a number of ranks share."""
    chance = np.random.default_rng(seed)
    factors = {n: chance.lognormal(0, shared) for n in sorted({p.world_size for p in points})}
    return [
        p._replace(time_s=p.time_s * factors[p.world_size] * chance.lognormal(0, noise))
        for p in points
    ]


def fit(points: list[Point], kind: str = ACROSS) -> FittedModel:
    return fit_points("all_reduce", kind, points)


def errors(fitted: FittedModel, low: int = 0, high: int = 1 << 60) -> list[float]:
    """Relative errors of the points left out, from `low` to `high` bytes."""
    return [
        abs(ratio(fitted, point) - 1)
        for point in fitted.points
        if point.is_left_out and low <= point.size_bytes <= high
    ]


def used_widths(fitted: FittedModel, points: Sequence[Point]) -> Iterator[float]:
    """The part of its side of the interval that each measured time is away from the prediction:
    above 1 where it is outside."""
    machine = planted.machine(fitted)
    for point in points:
        (found,) = planted.predict(machine, "all_reduce", point[:1], point[1], point[2:3])
        end = found.high_s if point.time_s > found.time_s else found.low_s
        yield float(np.log(point.time_s / found.time_s) / np.log(end / found.time_s))


@pytest.mark.parametrize("name", ["ring", "Rabenseifner"])
def test_the_model_and_the_parameters_that_made_the_times_are_found(name: str) -> None:
    truth = TRUTHS[name]
    fitted = fit(noisy(times(name, truth), seed=1))
    assert (fitted.model, fitted.rivals) == (name, ())
    for true, (low, high) in zip(truth, parameter_intervals(fitted), strict=True):
        assert low <= true <= high < 2.5 * true
    assert fitted.scatter == pytest.approx(0.03, rel=0.35)
    for point in times(name, truth, ranks=(64,)):
        assert fitted.best.curve.time(*point[:3]) == pytest.approx(point.time_s, rel=0.06)


def test_times_that_are_left_out_do_not_change_the_fit() -> None:
    kept, slow = times("ring", ranks=RANKS[:-1]), times("ring", ranks=RANKS[-1:])
    left_out = [p._replace(time_s=10 * p.time_s, is_left_out=True) for p in slow]
    assert fit([*kept, *left_out])._replace(points=()) == fit(kept)._replace(points=())


SETTINGS = [((2, 4), 0.0), ((2, 4), 0.05), ((2, 4, 8), 0.0), ((2, 3, 4, 6, 8), 0.0),
            ((2, 3, 4, 6, 8), 0.05)]  # fmt: skip
"""Numbers of ranks, and the error that all times of one of them share."""


@pytest.mark.parametrize(
    ("tables", "missing", "widest"),
    [(8, 0.10, 2.0), pytest.param(60, 0.07, 1.5, marks=pytest.mark.full)],
)
@pytest.mark.parametrize(("ranks", "shared"), SETTINGS)
def test_intervals_hold_as_often_as_they_say_and_are_hardly_wider(
    ranks: tuple[int, ...], shared: float, tables: int, missing: float, widest: float
) -> None:
    """At 2 and 8 times the ranks, 95 % of new times are inside, and 95 % would not be inside of
    intervals that were narrower by the factor `widest`."""
    used: dict[int, list[float]] = {2: [], 8: []}
    for seed in range(tables):
        fitted = fit(noisy(times("ring", ranks=ranks), seed, 0.05, shared))
        for more, found in used.items():
            new = noisy(times("ring", ranks=(more * ranks[-1],)), 1000 + seed, 0.05, shared)
            found += used_widths(fitted, new)
    for more, found in used.items():
        inside = float(np.mean(np.array(found) <= 1))
        assert 0.95 - missing <= inside, (more, inside)
        assert np.quantile(found, 0.95) > 1 / widest, (more, np.quantile(found, 0.95))


def test_errors_that_go_with_the_ranks_are_said_and_widen_predictions_for_others() -> None:
    chance = Random(1)
    points = [
        Point(n, n, 1 << k, time_s * exp(chance.gauss(0, 0.03)))
        for n, time_s in ((2, 1e-4), (3, 4e-4)) for k in range(10, 22)
    ]  # fmt: skip
    found = planted.machine(fit_points("all_reduce", WITHIN, points))
    (warning,) = fit_warnings(found.fitted[0], found)
    assert "times as long with 2 ranks and" in warning
    assert "times as long with 3 ranks as this model says" in warning
    three, four = (planted.predict(found, "all_reduce", (n,), n, (1 << 20,))[0] for n in (3, 4))
    assert four.high_s / four.time_s > 1.5 * three.high_s / three.time_s


@pytest.mark.parametrize(("shared", "own"), [(0.04, 0.0), (0.0, 0.04)])
def test_intervals_of_one_run_cover_what_its_launches_share(shared: float, own: float) -> None:
    """Of 60 runs of 3 launches, 90 % of the intervals or more contain the latency."""
    chance, holds = Random(3), []
    for _ in range(60):
        common, found = [chance.gauss(0, shared) for _ in range(3)], {}
        for size in (1 << k for k in range(12, 24)):
            logs = [each + chance.gauss(0, own) + chance.gauss(0, 0.01) for each in common]
            factor = exp(launch_half_width(logs, 0.04))
            time_s = (1e-4 + size * 1e-9) * exp(sorted(logs)[1])
            found[size] = Estimate(time_s, time_s / factor, time_s * factor)
        low, high = fit_sizes(found)[0].fixed_s.ends
        holds.append(low <= 1e-4 <= high)
    assert sum(holds) >= 0.9 * len(holds)


def test_two_numbers_of_ranks_do_not_tell_a_ring_from_a_tree() -> None:
    holds = []
    for seed in range(6):
        fitted = fit(noisy(times("ring", ranks=(2, 4)), seed, 0.05))
        names = {each.curve.model.name for each in fitted.candidates}
        assert {"ring", "Rabenseifner", "double binary tree"} <= names
        low, high = parameter_intervals(fitted)[1]
        holds.append(low <= RING[1] <= high)
        text = VIEW.write(planted.machine(fitted))
        (alpha,) = (line.split() for line in text.splitlines() if line.split()[:1] == ["alpha"])
        assert "models that fit as well" in text
        assert alpha[2] == "…"  # a range, without a value before it
    assert sum(holds) >= 5


@pytest.mark.parametrize(
    ("name", "part"), [("h100_nvlstree", 0.09), ("summit_ring", 0.05), ("summit_tree", 0.03)]
)
def test_published_times_of_left_out_ranks_are_predicted(name: str, part: float) -> None:
    """Each number of ranks is left out in turn; the errors are the medians of all sizes."""
    points = curve(name)
    missed: list[float] = []
    for n in sorted({p.world_size for p in points}):
        missed += errors(fit([p._replace(is_left_out=p.world_size == n) for p in points]))
    assert median(missed) <= part


@pytest.mark.parametrize(("name", "part"), [("h100_nvlstree", 0.035), ("b200", 0.08)])
def test_a_left_out_quarter_of_the_published_times_is_predicted(name: str, part: float) -> None:
    by_kind: dict[str, list[Point]] = {}
    for point in curve(name):
        by_kind.setdefault(kind_of(*point[:2]), []).append(point)
    missed: list[float] = []
    for seed in range(4):
        chance = np.random.default_rng(seed)
        for kind, points in by_kind.items():
            marked = [p._replace(is_left_out=bool(chance.random() < 0.25)) for p in points]
            missed += errors(fit(marked, kind))
    assert median(missed) <= part


def test_outliers_do_not_count() -> None:
    wrong = [
        point._replace(time_s=point.time_s * (8 if index % 10 == 3 else 1))
        for index, point in enumerate(noisy(times("ring", ranks=(2, 4, 8)), seed=3, noise=0.01))
    ]
    fitted = fit(wrong)
    assert fitted.model == "ring"
    assert fitted.best.curve.parameters == pytest.approx(RING, rel=0.05)


def test_sizes_that_all_ranks_find_slower_have_factors() -> None:
    exact = times("ring", ranks=(2, 4, 8, 16, 64))
    wave = dict(zip(SIZES, (1.0, 1.2, 0.9, 1.15, 1.0, 0.85, 1.1, 0.95, 1.2, 1.0), strict=True))
    waving = [p._replace(time_s=p.time_s * wave[p.size_bytes]) for p in noisy(exact, 6, 0.01)]
    fitted = fit(without(waving, above_ranks=16))
    factors = dict(fitted.best.curve.size_factors)
    assert factors[SIZES[1]] / factors[SIZES[2]] == pytest.approx(1.2 / 0.9, rel=0.1)
    assert median(errors(fitted)) < 0.05
    for factor in dict(fit(noisy(exact, 8)).best.curve.size_factors).values():
        assert factor == pytest.approx(1, abs=0.06)


def test_ring_and_tree_on_summit_within_the_published_bounds() -> None:
    """The ring within 15 %, the tree within 5 % at every point."""
    ring, tree = fit(curve("summit_ring")), fit(curve("summit_tree"))
    assert ring.model == "ring"
    assert ring.best.curve.parameters[1] == pytest.approx(0.9e-6, rel=0.06)
    assert max(abs(ratio(ring, point) - 1) for point in ring.points) < 0.15
    # 2 log2(hosts) rounds of 7.3 us
    assert tree.model == "double binary tree"
    assert tree.best.curve.parameters[1] == pytest.approx(7.3e-6, rel=0.05)
    assert max(abs(ratio(tree, point) - 1) for point in tree.points) < 0.05
    assert "ring" not in {rival.curve.model.name for rival in tree.rivals}


def test_nvlstree_on_h100_predicts_more_gpus_than_it_was_fitted_to() -> None:
    fitted = fit(without(curve("h100_nvlstree"), above_ranks=128))
    assert fitted.world_sizes == (32, 64, 128)
    assert median(errors(fitted, 32 * MIB, 256 * MIB)) <= 0.05
    assert median(errors(fitted, 512 * MIB)) <= 0.03


def test_one_size_says_nothing_of_much_larger_ones() -> None:
    machine = planted.machine(fit(curve("summit_tree")[:4]))
    assert planted.predict(machine, "all_reduce", (96,), 6, (8, 128))
    with pytest.raises(UnavailableError, match="was measured with 8 B only"):
        planted.predict(machine, "all_reduce", (96,), 6, (1024,))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"scatter": 0.4, "cv_error": 0.3}, "the measured times scatter"),
        ({"scatter": 0.01, "cv_error": 0.3}, "without some sizes or ranks it is another one"),
        ({"scatter": 0.0, "cv_error": None}, "too few times to test the model"),
        ({"scatter": 0.34, "cv_error": 0.28}, ""),
    ],
)
def test_a_poor_or_untested_fit_is_warned_of(changed: dict[str, float | None], words: str) -> None:
    warning = fit_warning(planted.fitted(**changed), planted.machine())
    assert words in warning
    assert ("may be wrong by a factor of 2 or more" in warning) == bool(words)


def test_a_fit_to_disturbed_times_is_poor_and_a_few_times_are_fitted_and_not_tested() -> None:
    calm = [Point(2, 2, size, 1e-4 + 1e-9 * size) for size in SIZES]
    for noise in (0.05, 0.8):
        warning = fit_warning(fit(noisy(calm, 1, noise), WITHIN), planted.machine())
        assert ("the fit is poor" in warning) == (noise > 0.5)
    few = fit_points("barrier", ACROSS, [Point(2, 1, 0, 1e-5), Point(4, 1, 0, 2e-5)])
    assert few.best.cv_error is None
    assert few.best.curve.time(4, 1, 0) == pytest.approx(2e-5)


ALL_REDUCE = "all_reduce"


@pytest.mark.parametrize(
    ("operation", "name", "ranks", "per_node", "steps", "wire"),
    [
        # Thakur, Rabenseifner, Gropp 2005, without reduction
        (ALL_REDUCE, "ring", 1024, 1, 2046, 2046 / 1024),
        (ALL_REDUCE, "Rabenseifner", 1024, 1, 20, 2046 / 1024),
        (ALL_REDUCE, "reduce + broadcast", 1024, 1, 20, 20),
        (ALL_REDUCE, "double binary tree", 1024, 1, 20, 2046 / 1024),
        # A tree over hosts has the hosts as leaves.
        (ALL_REDUCE, "double binary tree", 96, 6, 8, 190 / 96),
        (ALL_REDUCE, "double binary tree", 8, 8, 6, 14 / 8),
        (ALL_REDUCE, "recursive doubling", 6, 2, 3, 3), ("all_gather", "ring", 6, 2, 5, 5 / 6),
        ("reduce_scatter", "ring", 6, 2, 5, 5 / 6),
        ("all_gather", "recursive doubling", 6, 2, 3, 5 / 6),
        ("reduce_scatter", "recursive halving", 6, 2, 3, 5 / 6),
        ("all_gather", "pipelined tree", 6, 2, log2(3), 5 / 6),
        ("broadcast", "binomial tree", 6, 2, 3, 3),
        ("broadcast", "scatter + all_gather", 6, 2, 8, 10 / 6),
        ("broadcast", "chain", 6, 2, 5, 1), ("reduce", "double binary tree", 6, 2, log2(3), 1),
        ("gather", "binomial tree", 6, 2, 3, 5 / 6), ("scatter", "linear", 6, 2, 5, 5 / 6),
        ("all_to_all", "pairwise", 6, 2, 5, 5 / 6), ("all_to_all", "Bruck", 6, 2, 3, 3 / 2),
        ("all_to_all", "pairwise between hosts", 6, 2, 5, 4 / 6),
        ("barrier", "dissemination", 6, 2, 3, 0), ("barrier", "linear", 6, 2, 5, 0),
    ],
)  # fmt: skip
def test_the_terms_are_worked_by_hand(
    operation: str, name: str, ranks: int, per_node: int, steps: float, wire: float
) -> None:
    found = find_model(operation, name).terms(ranks, per_node, MIB)
    assert found == pytest.approx((1, steps, wire * MIB))


def test_every_operation_has_models_of_one_and_of_several_numbers_of_ranks() -> None:
    for operation in OPERATIONS:
        assert {model.spans_ranks for model in models_of(operation)} == {True, False}
        names = [model.name for model in models_of(operation)]
        assert len(names) == len(set(names))
    for model in COST_MODELS:
        for n, per_node in ((2, 2), (3, 1), (6, 4), (512, 8)):
            terms = model.terms(n, per_node, 1 << 20)
            assert len(terms) == len(PARAMETERS)
            assert all(term >= 0 for term in terms)


MACHINE = planted.machine()


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    rival = planted.candidate(model="ring", parameters=planted.RING, error_scale=1.5)
    fitted = planted.fitted(rivals=(rival,), cv_error=None, size_growth=0.25,
                            size_factors=((134217728.0, 1.25), (1e15, 0.5)))  # fmt: skip
    machine = replace(MACHINE, fitted=(fitted,), notes=("été",), facts={"torch": "2.13"})
    write_machine(machine, tmp_path / "m.json")
    found = read_machine(tmp_path / "m.json")
    assert replace(found, fitted=()) == replace(machine, fitted=())
    (again,) = found.fitted
    assert again._replace(points=()) == fitted._replace(points=())
    assert [p.time_s for p in again.points] == pytest.approx([p.time_s for p in fitted.points])
    with pytest.raises(RecordsError, match="exists"):
        write_machine(MACHINE, tmp_path / "m.json")


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: Any) -> None:
        for step in path[:-1]:
            found = found[step]
        found[path[-1]] = to

    return change


FITTED = ("fitted", 0)
BEST = (*FITTED, "candidates", 0)
CURVE = (*BEST, "curve")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_set("format", to="other"), "is no machine file|is not a machine"),
        (_set("version", to="2"), "version"),
        (_set("version", to=1), "has version 1 of the machine file; this commbench reads 2"),
        (_set("fitted", to=7), "is damaged"),
        (_set("name", to=3), "name is 3"),
        (_set(*FITTED, "scatter", to=-1), "scatter is -1"),
        (_set(*FITTED, "scatter", to=float("inf")), "scatter is inf"),
        (_set(*FITTED, "operation", to="all_everything"), "all_everything"),
        (_set(*FITTED, "kind", to="somewhere"), "somewhere"),
        (_set(*FITTED, "speed", to=1), "speed"),
        (_set(*FITTED, "points", to=[]), "without points or parameters"),
        (_set(*FITTED, "candidates", to=[]), "without points or parameters"),
        (_set(*BEST, "error_scale", to=float("nan")), "error_scale is nan"),
        (_set(*FITTED, "points", 0, "time_s", to=0), "time_s is 0"),
        (_set(*FITTED, "points", 0, "time_s", to=1e300), "time_s"),
        (_set(*FITTED, "points", 0, "world_size", to=10**400), "world_size"),
        (_set(*FITTED, "points", 0, "world_size", to=1.5), "world_size is 1.5"),
        (_set(*FITTED, "points", 0, "size_bytes", to=True), "size_bytes is True"),
        (_set(*CURVE, "size_factors", to=[[8, 1.0], [4, 1.0]]), "not in ascending order"),
        (_set(*CURVE, "size_factors", to=[[8, 0]]), "size_factors is 0"),
        (_set(*CURVE, "model", to="fastest"), "no cost model 'fastest'"),
        (_set(*CURVE, "parameters", to=[1.0]), "does not have"),
        (_set(*CURVE, "parameters", to="123"), "parameter"),
        (_set(*CURVE, "parameters", to=[-1, 0, 0]), "parameter"),
        (_set(*CURVE, "parameters", to=[1e300] * 3), "parameter"),
        (_set(*CURVE, "parameters", 0, to="x"), "parameters is"),
    ],
)
def test_a_damaged_file_is_refused_with_what_is_wrong(
    tmp_path: Path, change: Callable[[Any], None], why: str
) -> None:
    file = tmp_path / "m.json"
    write_machine(MACHINE, file)
    found = json.loads(file.read_text())
    change(found)
    file.write_text(json.dumps(found))
    with pytest.raises(RecordsError, match=why):
        read_machine(file)


def test_the_factor_between_two_sizes_is_between_theirs() -> None:
    factors = ((1024.0, 1.0), (4096.0, 4.0))
    assert [factor_at(factors, size) for size in (0, 8, 1024, 2048, 4096, 1 << 40)] == [
        1, 1, 1, pytest.approx(2), 4, 4,
    ]  # fmt: skip
    assert factor_at((), 8) == 1
