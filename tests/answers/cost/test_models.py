"""The terms of the cost models are those of the literature."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import log2
from pathlib import Path
from typing import Any

import planted
import pytest

from commbench.answers.cost.cost_models import COST_MODELS, PARAMETERS, find_model, models_of
from commbench.answers.cost.machine import factor_at, read_machine, write_machine
from commbench.errors import RecordsError
from commbench.plan.operations import OPERATIONS

ALPHA, BETA = 5e-6, 1e-10


def cost(
    operation: str, name: str, parameters: tuple[float, ...], n: int, size: int, per_node: int = 1
) -> float:
    terms = find_model(operation, name).terms(n, per_node, size)
    return sum(p * t for p, t in zip(parameters, terms, strict=True))


@pytest.mark.parametrize("n", [2, 8, 1024])
@pytest.mark.parametrize("size", [8, 1 << 20, 1 << 30])
def test_all_reduce_is_what_the_textbooks_say(n: int, size: int) -> None:
    """Thakur, Rabenseifner, Gropp 2005, without reduction; P bytes over a bandwidth BW."""
    depth = log2(n)
    share = (n - 1) / n
    common = (0.0, ALPHA, BETA)
    assert cost("all_reduce", "ring", common, n, size) == pytest.approx(
        2 * (n - 1) * ALPHA + 2 * share * size * BETA
    )
    assert cost("all_reduce", "Rabenseifner", common, n, size) == pytest.approx(
        2 * depth * ALPHA + 2 * share * size * BETA
    )
    # reduce and broadcast over a tree: 2 log2 N rounds
    assert cost("all_reduce", "reduce + broadcast", common, n, size) == pytest.approx(
        2 * depth * (ALPHA + size * BETA)
    )
    # the same, pipelined: alpha log N + beta P/BW
    assert cost("all_reduce", "double binary tree", common, n, size) == pytest.approx(
        2 * depth * ALPHA + 2 * share * size * BETA
    )


@pytest.mark.parametrize(
    ("operation", "name", "steps", "wire"),
    [
        ("all_reduce", "recursive doubling", 3, 3), ("all_gather", "ring", 5, 5 / 6),
        ("reduce_scatter", "ring", 5, 5 / 6), ("all_gather", "recursive doubling", 3, 5 / 6),
        ("reduce_scatter", "recursive halving", 3, 5 / 6),
        ("all_gather", "pipelined tree", log2(3), 5 / 6), ("broadcast", "binomial tree", 3, 3),
        ("broadcast", "scatter + all_gather", 8, 10 / 6), ("broadcast", "chain", 5, 1),
        ("reduce", "double binary tree", log2(3), 1), ("gather", "binomial tree", 3, 5 / 6),
        ("scatter", "linear", 5, 5 / 6), ("all_to_all", "pairwise", 5, 5 / 6),
        ("all_to_all", "pairwise between hosts", 5, 4 / 6), ("all_to_all", "Bruck", 3, 3 / 2),
        ("barrier", "dissemination", 3, 0), ("barrier", "linear", 5, 0),
    ],
)  # fmt: skip
def test_the_terms_of_six_ranks_on_three_hosts_are_worked_by_hand(
    operation: str, name: str, steps: float, wire: float
) -> None:
    assert find_model(operation, name).terms(6, 2, 1.0) == pytest.approx((1, steps, wire))


def test_a_tree_over_hosts_has_the_hosts_as_leaves() -> None:
    parameters = (0.0, ALPHA, 0.0)
    assert cost("all_reduce", "double binary tree", parameters, 96, 8, per_node=6) == pytest.approx(
        2 * 4 * ALPHA
    )
    within = cost("all_reduce", "double binary tree", parameters, 8, 8, per_node=8)
    assert within == pytest.approx(2 * 3 * ALPHA)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_model_for_one_and_for_several_numbers_of_ranks(name: str) -> None:
    assert {model.spans_ranks for model in models_of(name)} == {True, False}


def test_names_are_unique_for_an_operation_and_terms_are_not_negative() -> None:
    for operation in OPERATIONS:
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
