"""Predictions: their intervals, what bounds a time, what they refuse, and that they never fall."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log
from random import Random
from typing import Any

import planted
import pytest
from published_curves import curve

import commbench
from commbench.answers.cost.cost_models import ACROSS, WITHIN
from commbench.answers.cost.fit import BEYOND
from commbench.answers.cost.intervals import find_figure, odd_sizes
from commbench.answers.cost.machine import Machine, Point
from commbench.answers.cost.predict import Prediction, Request, project
from commbench.answers.cost.predict_document import document
from commbench.answers.cost.selection import fit_points
from commbench.errors import UnavailableError, UsageError

MIB = 1 << 20


def one(
    machine: Machine, ranks: int = 64, size: int = 64 * MIB, per_node: int | None = 8
) -> Prediction:
    return planted.predict(machine, machine.fitted[0].operation, (ranks,), per_node, (size,))[0]


def width(found: Prediction) -> float:
    return log(found.high_s / found.low_s)


@pytest.mark.parametrize(("size", "bound"), [(1 << 20, "latency"), (1 << 30, "bandwidth")])
def test_the_prediction_of_a_planted_machine_is_the_formula(size: int, bound: str) -> None:
    wire = 2 * 511 / 512 * size
    expected = 10e-6 + 2 * 6 * 5e-6 + wire / 200e9
    found = one(planted.machine(), 512, size)
    assert found.time_s == pytest.approx(expected, rel=1e-12)
    assert found.low_s < found.time_s < found.high_s
    assert found.busbw == pytest.approx(wire / expected)
    assert (found.kind, found.model) == (ACROSS, "double binary tree")
    assert (found.bound, found.latency_share) == (bound, pytest.approx(70e-6 / expected))


def test_an_operation_without_data_has_one_prediction_and_no_bandwidth() -> None:
    machine = planted.machine(
        planted.fitted("barrier", "dissemination", (1e-6, 2e-6, 0.0), sizes=(0,))
    )
    (found,) = planted.predict(machine, "barrier", (512,), 8, (1, 2, 3))
    assert find_figure(machine.fitted[0], 512, 8, 1, -1) is None
    assert (found.size_bytes, found.busbw, found.algbw) == (0, None, None)
    assert found.time_s == pytest.approx(19e-6)
    assert (found.bound, found.latency_share) == ("latency", 1.0)


@pytest.mark.parametrize(("name", "values"), [("ranks", (128, 256, 512, 4096)),
                                              ("size", (1 << 34, 1 << 36, 1 << 38)),
                                              ("size", (1 << 20, 1 << 16, 1 << 10))])  # fmt: skip
def test_the_interval_grows_with_the_distance_from_what_was_measured(
    name: str, values: Sequence[int]
) -> None:
    factors = tuple((float(1 << k), 1.0) for k in range(20, 35))
    machine = planted.machine(planted.fitted(size_factors=factors, size_growth=0.05))
    found = [one(machine, **{name: value}) for value in values]
    widths = [width(each) for each in found]
    assert all(b > a for a, b in pairwise(widths))
    doublings = [getattr(each, f"{name}_distance") for each in found]
    assert doublings[0] == 0
    assert doublings[-1] == pytest.approx(abs(log(values[-1] / values[0], 2)))
    if name == "size":
        # To larger sizes on both sides; a smaller one surely takes no longer than the smallest.
        sides = 2 if values[-1] > values[0] else 1
        error = BEYOND * doublings[-1] ** 0.5 if sides == 2 else 0.05 * doublings[-1]
        assert widths[-1] > sides * 1.96 * error
        assert log(found[-1].time_s / found[-1].low_s) > 1.96 * 0.05 * doublings[-1] * (sides == 1)


def test_a_rival_widens_the_interval_as_far_as_its_own() -> None:
    ring = (10e-6, 3e-6, 1 / 200e9)
    rival = planted.candidate(model="ring", parameters=ring)
    alone = one(planted.machine(planted.fitted()), 4096, MIB)
    found = one(planted.machine(planted.fitted(rivals=(rival,))), 4096, MIB)
    of_ring = one(planted.machine(planted.fitted(model="ring", parameters=ring)), 4096, MIB)
    assert (found.time_s, found.low_s) == (alone.time_s, alone.low_s)
    assert found.high_s > of_ring.time_s > 2 * alone.high_s


def test_errors_of_left_out_ranks_scale_the_interval() -> None:
    sure, unsure = (one(planted.machine(planted.fitted(error_scale=scale))) for scale in (1.0, 4.0))
    assert width(unsure) == pytest.approx(4 * width(sure))


def test_the_interval_is_at_least_as_wide_as_that_of_the_nearest_measured_time() -> None:
    model = planted.fitted()
    points = [p._replace(uncertainty=0.3 if p.world_size == 64 else 0.0) for p in model.points]
    machine = planted.machine(model._replace(points=tuple(points)))
    assert width(one(machine, 64)) == pytest.approx(2 * 1.96 * 0.3, rel=1e-4)
    assert width(one(machine, 128)) < 0.2


def test_a_fit_that_nothing_tests_is_known_to_a_factor_of_2_at_best() -> None:
    found = one(planted.machine(planted.fitted(cv_error=None)))
    assert found.high_s / found.time_s == pytest.approx(2)
    assert found.time_s / found.low_s == pytest.approx(2)


def test_a_size_that_is_faster_than_a_smaller_one_takes_as_long() -> None:
    factors = ((MIB, 5.0), (2.0 * MIB, 1.0), (64.0 * MIB, 1.0))
    model = planted.fitted(parameters=(50e-6, 0.0, 1e-11), size_factors=factors,
                           sizes=(MIB, 2 * MIB, 64 * MIB))  # fmt: skip
    found = [one(planted.machine(model), size=size * MIB) for size in (1, 2, 64)]
    assert found[1].time_s == found[0].time_s < found[2].time_s


def test_more_hosts_never_take_less_time_than_one_host() -> None:
    slow_inside = planted.inside(parameters=(1e-3, 1e-6, 1e-10))
    machine = planted.machine(planted.fitted(), slow_inside)
    assert one(machine, 16).time_s >= one(machine, 8).time_s > 1e-3


@pytest.mark.parametrize(
    "seed",
    [*range(4), 30, *(pytest.param(n, marks=pytest.mark.full) for n in range(5, 120) if n != 30)],
)
def test_times_never_fall_with_size_or_ranks(seed: int) -> None:
    chance = Random(seed)
    machine, per_node = planted.random_machine(chance)
    operation = machine.fitted[0].operation
    sizes = sorted(
        {*(1 << k for k in range(3, 36, 2)), *(chance.randrange(1, 1 << 30) for _ in "ab")}
    )
    low = 2 if machine.fitted[0].kind == WITHIN else per_node + 1
    ranks = sorted({*range(low, low + 20), *(chance.randrange(low + 20, 5000) for _ in "abc"),
                    1023, 1024, 1025} - {1})  # fmt: skip
    found = planted.predict(machine, operation, ranks, per_node, sizes)
    by_call = {(p.world_size, p.size_bytes): p for p in found}
    for size in sizes:
        for a, b in pairwise(ranks):
            assert by_call[b, size].time_s >= by_call[a, size].time_s * (1 - 1e-9), (seed, a, b)
    for n in ranks:
        for a, b in pairwise(sizes):
            small, large = by_call[n, a], by_call[n, b]
            assert large.time_s >= small.time_s * (1 - 1e-9), (seed, n, a, b)
            # The ends of the interval are in order at measured sizes, and nearly so between them.
            assert large.low_s >= small.low_s * 0.96, (seed, n, a, b)
            assert large.high_s >= small.high_s * 0.96, (seed, n, a, b)
    assert all(0 < p.low_s <= p.time_s <= p.high_s for p in found)


@pytest.mark.parametrize(
    ("model", "asked", "message", "hint"),
    [
        ({"variant": "bfloat16, sum"}, ("all_gather", 64, ""),
         "planted has no model of all_gather",
         "it has all_reduce; measure all_gather, and fit again"),
        ({"variant": "bfloat16, sum"}, ("all_reduce", 8, ""),
         "all_reduce was measured across hosts only, not within a host",
         "predict what was measured: --ranks 128 --ranks-per-node 8"),
        ({"variant": "bfloat16, sum"}, ("all_reduce", 64, "float32"),
         "all_reduce across hosts has no model named 'float32'",
         "write --variant with one of 'bfloat16, sum'"),
        ({"model": "ring", "ranks": (2, 4, 8)}, ("all_reduce", 16, ""),
         "all_reduce was measured within a host only, not across hosts",
         "predict what was measured: --ranks 8 --ranks-per-node 8"),
        ({"model": "alpha-beta", "ranks": (64,)}, ("all_reduce", 128, ""),
         "all_reduce across hosts was measured with 64 ranks only: nothing shows other ranks",
         "ask for --ranks 64, or fit runs with three numbers of ranks"),
    ],
)  # fmt: skip
def test_what_supports_no_prediction_is_refused_with_the_reason(
    model: dict[str, Any], asked: tuple[str, int, str], message: str, hint: str
) -> None:
    operation, ranks, variant = asked
    machine = planted.machine(planted.fitted(**model))
    with pytest.raises(UnavailableError) as caught:
        planted.predict(machine, operation, (ranks,), 8, (MIB,), variant)
    assert (caught.value.message, caught.value.hint) == (message, hint)
    known = machine.fitted[0].world_sizes[-1]
    assert planted.predict(machine, "all_reduce", (known,), 8, (MIB,), model.get("variant", "")[:8])


def test_without_ranks_per_node_a_machine_of_one_host_has_all_ranks_there() -> None:
    (found,) = planted.predict(planted.machine(planted.inside()), "all_reduce", (16,), None, (MIB,))
    assert (found.kind, found.ranks_per_node) == (WITHIN, 16)
    most = planted.inside().world_sizes[-1]
    for ranks, is_said in ((most, False), (2 * most, True)):
        asked = Request(("all_reduce",), (ranks,), None, (MIB,))
        (said,) = document(project(planted.machine(planted.inside()), asked)).answer
        assert (f"It is for one host that has all {ranks} ranks." in said) == is_said


def test_a_prediction_does_not_depend_on_which_other_ranks_are_asked_for() -> None:
    alone, beside = (
        commbench.predict("published:h100", op="all_reduce", ranks=ranks, sizes="256M")
        for ranks in ("8", "8,16")
    )
    assert alone.predictions[0] == beside.predictions[0]


def test_of_several_models_of_a_call_one_must_be_chosen() -> None:
    machine = planted.machine(*(planted.fitted(variant=name) for name in ("float32", "bfloat16")))
    with pytest.raises(UsageError, match="has 2 models") as caught:
        one(machine)
    assert caught.value.hint == "write --variant with one of 'float32', 'bfloat16'"


def test_the_model_that_is_named_exactly_counts_before_those_that_have_more_words() -> None:
    plain = planted.fitted()
    forced = planted.fitted(variant="NCCL ring simple", parameters=(1.0, 0.0, 0.0))
    machine = planted.machine(plain, forced)
    assert one(machine).time_s < 0.1
    assert (
        planted.predict(machine, "all_reduce", (64,), 8, (MIB,), "NCCL ring simple")[0].time_s
        == 1.0
    )


@pytest.mark.parametrize(
    ("ranks", "per_node", "size"),
    [(1, 8, MIB), (0, 8, MIB), (1 << 30, 8, MIB), (64, -1, MIB), (64, 8, 1 << 60), (64, 8, -1)],
)
def test_impossible_requests_are_refused(ranks: int, per_node: int, size: int) -> None:
    with pytest.raises(UsageError):
        one(planted.machine(), ranks, size, per_node)
    with pytest.raises(UsageError, match="are too many"):
        planted.predict(planted.machine(), "all_reduce", range(2, 1002), 8, range(1, 102))


def test_models_apart_for_ranks_per_host_are_chosen_by_that_number() -> None:
    models = [
        planted.fitted(model="ring", parameters=(n * 1e-5, 1e-6, 1e-11), per_node=n,
                       variant=f"{n} ranks per host") for n in (4, 8)
    ]  # fmt: skip
    machine = planted.machine(*models)
    for n, nearest in ((4, 4), (8, 8), (2, 4), (16, 8)):
        found = one(machine, 64, MIB, per_node=n)
        assert found.time_s == pytest.approx(nearest * 1e-5 + 126e-6 + 1e-11 * 2 * 63 / 64 * MIB)


def test_ranks_with_another_algorithm_are_named_and_intervals_hold_what_was_measured() -> None:
    def point(n: int, size: int) -> Point:
        byte_s = 5e-12 if n == 8 and size > 1 << 26 else 1e-11
        return Point(n, n, size, 2e-6 * (n - 1) + byte_s * 2 * (n - 1) / n * size)

    points = [point(n, 1 << k) for n in (2, 4, 8) for k in range(10, 30)]
    model = fit_points("all_reduce", WITHIN, points)
    assert [*odd_sizes(model)] == [(8, 1 << 27, 1 << 29, True)]
    for point in points:
        found = one(planted.machine(model), point.world_size, point.size_bytes, point.world_size)
        assert found.low_s <= point.time_s <= found.high_s
        assert found.time_s == pytest.approx(point.time_s, rel=0.2)


def test_ranks_that_differ_from_the_model_are_predicted_without_a_step() -> None:
    """Their times are longer by 8 % up to a size and by 12 % from there on."""
    model = planted.inside(noise=0.0)
    points = tuple(
        p._replace(time_s=p.time_s * (1.12 if p.size_bytes > 1 << 12 else 1.08))
        if p.world_size == 8 else p
        for p in model.points
    )  # fmt: skip
    odd = planted.machine(model._replace(points=points))
    small, large = (
        p.time_s for p in planted.predict(odd, "all_reduce", (8,), 8, (1 << 10, 1 << 14))
    )
    model_small, model_large = (
        p.time_s
        for p in planted.predict(planted.machine(model), "all_reduce", (8,), 8, (1 << 10, 1 << 14))
    )
    assert (small / model_small, large / model_large) == pytest.approx((1.08, 1.12), abs=0.01)


@pytest.mark.parametrize("name", ["summit_ring", "summit_tree", "h100_nvlstree"])
def test_the_intervals_contain_published_times_of_more_ranks(name: str) -> None:
    """Fitted to a third of the numbers of ranks: the largest is up to 32 times as many."""
    points = curve(name)
    ranks = sorted({point.world_size for point in points})
    last = ranks[max(2, len(ranks) // 3)]
    model = fit_points("all_reduce", ACROSS, [p for p in points if p.world_size <= last])
    machine = planted.machine(model)
    rest = [p for p in points if p.world_size > last]
    found = [one(machine, p.world_size, p.size_bytes, p.ranks_per_node) for p in rest]
    inside = [f.low_s <= p.time_s <= f.high_s for f, p in zip(found, rest, strict=True)]
    assert len(rest) >= 5
    assert sum(inside) >= 0.9 * len(rest)
    assert max(width(each) for each in found) < log(20)
