"""The file of NCCL's tuner plugin from predictions: who is fastest at which sizes, and refusals."""

from __future__ import annotations

from typing import Any

import planted
import pytest
from synthetic import header, plan

from commbench.analysis.load import as_loaded_run
from commbench.analysis.nccl_log import SELECTIONS
from commbench.errors import UnavailableError
from commbench.models.fit_machine import Source, fit_machine
from commbench.models.machine import FittedModel, Machine
from commbench.models.observations import observe
from commbench.models.predict import Request
from commbench.models.projection import project
from commbench.results.schema import Measurement, ReportedTiming, Run, RunEnd

MIB = 1 << 20


def with_channels(model: FittedModel, channels: int) -> FittedModel:
    return model._replace(points=tuple(p._replace(channels=channels) for p in model.points))


def ring_and_tree(**more: Any) -> Machine:
    """The ring takes longer to begin and then less per byte: they cross at one size."""
    tree = planted.fitted("all_reduce", "double binary tree", (1e-5, 1e-5, 2e-11),
                          variant="NCCL tree simple", **more)  # fmt: skip
    ring = planted.fitted("all_reduce", "ring", (1e-5, 1e-5, 1e-11), variant="NCCL ring simple",
                          **more)  # fmt: skip
    return planted.machine(with_channels(tree, 8), with_channels(ring, 16))


def tuner(machine: Machine, ranks: tuple[int, ...] = (64,), variant: str = "") -> list[list[str]]:
    request = Request(("all_reduce",), ranks, 8, tuple(1 << k for k in range(20, 35)), variant)
    head, *lines = project(machine, request).text("nccl-tuner").splitlines()
    assert head.startswith("# predicted by commbench")
    return [line.split(",") for line in lines]


def test_each_size_gets_the_algorithm_that_is_predicted_to_be_fastest() -> None:
    (tree, ring) = tuner(ring_and_tree())
    # 126 ring steps against 6 of the tree, 2(n-1)/n S (2e-11 - 1e-11): equal at 60.95 MB.
    crossing = 120 * 1e-5 / (2 * 63 / 64 * 1e-11)
    assert tree[:2] == ["allreduce", "0"]
    assert int(tree[2]) == pytest.approx(crossing, rel=1e-4)
    assert int(ring[1]) == int(tree[2]) + 1
    assert tree[3:] == ["tree", "simple", "8", "8", "64", "-1", "-1"]
    assert ring[2:] == [str(2**63 - 1), "ring", "simple", "16", "8", "64", "-1", "-1"]


def test_every_number_of_ranks_has_lines_of_its_own() -> None:
    lines = tuner(ring_and_tree(), (64, 512))
    assert [line[7] for line in lines] == ["64", "64", "512", "512"]
    assert int(lines[2][2]) > int(lines[0][2])  # more ranks: the tree is better for longer


def test_each_choice_far_from_its_measurements_is_named_in_a_warning() -> None:
    def warnings(ranks: int) -> list[str]:
        return project(ring_and_tree(), Request(("all_reduce",), (ranks,), 8, (MIB,))).warnings(
            "nccl-tuner"
        )

    (far,) = warnings(4096)
    models = [f"all_reduce across hosts (NCCL {name} simple)" for name in ("tree", "ring")]
    assert far.startswith(f"{', '.join(models)}: so far from the measurements the library may")
    assert warnings(64) == []


def test_a_machine_of_one_algorithm_is_refused_with_what_to_measure() -> None:
    tree, _ = ring_and_tree().fitted
    for machine in (planted.machine(), planted.machine(tree)):
        with pytest.raises(UnavailableError, match="with different algorithms of NCCL") as caught:
            tuner(machine)
        assert "NCCL_ALGO=Ring" in caught.value.hint
    without = [model._replace(points=planted.fitted().points) for model in ring_and_tree().fitted]
    with pytest.raises(UnavailableError):  # without channels the plugin would use one
        tuner(planted.machine(*without))


def test_an_operation_of_sends_and_receives_has_no_choice() -> None:
    machine = planted.machine(planted.fitted("all_to_all", "pairwise", planted.RING))
    request = Request(("all_to_all",), (64,), 8, (MIB,))
    with pytest.raises(UnavailableError) as caught:
        project(machine, request).text("nccl-tuner")
    assert "sends and receives" in caught.value.hint


def test_runs_that_force_an_algorithm_are_fitted_apart_and_keep_the_channels() -> None:
    def run(algorithm: str, seconds: float) -> Source:
        asked = plan(backend="nccl", device="cuda", world_size=8, sizes=(MIB, 4 * MIB, 16 * MIB))
        environment = {
            "variables": {"NCCL_ALGO": f"allreduce:{algorithm}"} if algorithm else {},
            SELECTIONS: {
                f"AllReduce {size}": [[(algorithm or "nvls").upper(), "SIMPLE", "24"]]
                for size in asked.sizes
            },
        }
        measurements = tuple(
            Measurement(case, "ok", reported=ReportedTiming(seconds * case.size_bytes, "mean"))
            for case in asked.cases()
        )
        found = Run(algorithm, header(asked, algorithm, environment=environment), measurements,
                    RunEnd("complete"))  # fmt: skip
        loaded = as_loaded_run(found)
        return Source(algorithm, observe(loaded, None, []), loaded.header)

    sources = [run("ring", 1e-11), run("tree", 2e-11), run("", 0.5e-11)]
    machine = fit_machine(sources, "made", [], [], lambda _: None)
    assert {each.variant for each in machine.fitted} == {"NCCL ring simple", "NCCL tree simple", ""}
    assert {p.channels for each in machine.fitted for p in each.points} == {24}
    (line,) = tuner(machine, (8,))
    assert line[3:6] == ["ring", "simple", "24"]
