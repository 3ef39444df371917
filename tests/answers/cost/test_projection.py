"""Projections: the table, the notes, and the forms that other tools read."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import planted
import pytest
from pictures import require_readable
from synthetic import header, plan

from commbench.analysis.load import as_loaded_run
from commbench.analysis.nccl_log import SELECTIONS
from commbench.answers.cost.fit_document import residual_picture
from commbench.answers.cost.machine import Machine
from commbench.answers.cost.observations import observe
from commbench.answers.cost.predict import Projection, Request, project
from commbench.answers.cost.predict_document import predicted_picture, warnings_beside
from commbench.answers.cost.selection import Source, fit_machine
from commbench.errors import CommbenchError, UnavailableError, UsageError
from commbench.results.schema import Measurement, ReportedTiming, Run, RunEnd
from commbench.views.draw_curves import find_limits
from commbench.views.pictures import Curves

MIB = 1 << 20
SIZES = tuple(1 << k for k in range(20, 31, 2))


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def ask(
    ranks: tuple[int, ...] = (512,),
    operations: tuple[str, ...] = ("all_reduce",),
    sizes: tuple[int, ...] = SIZES,
    machine: Machine | None = None,
    per_node: int | None = 8,
) -> Projection:
    return project(machine or planted.machine(), Request(operations, ranks, per_node, sizes))


def gathering() -> Machine:
    """A machine with operations whose tensors are blocks, too."""
    return planted.machine(
        planted.fitted(), planted.inside(),
        *(planted.fitted(name, "ring", planted.RING) for name in ("all_gather", "reduce_scatter")),
    )  # fmt: skip


def test_json_of_a_call_without_data_has_null_for_its_bandwidth() -> None:
    barrier = planted.fitted("barrier", "dissemination", (1e-6, 2e-6, 0.0), sizes=(0,))
    (row,) = json.loads(ask(operations=(), machine=planted.machine(barrier)).text("json"))["rows"]
    assert (row["operation"], row["busbw_GBps"]) == ("barrier", None)


def test_autoparallel_finds_each_call_by_the_size_of_its_input() -> None:
    """Its parser splits lines at blanks: group, its size, name, then a time in ms for each head
    that ends with MB; the second line is skipped."""
    projection = ask((64, 128), (), (MIB, 2 * MIB, 1 << 31), gathering())
    head, _, *lines = projection.text("autoparallel").splitlines()
    sizes = [int(word[:-2]) for word in head.split() if word.endswith("MB")]
    assert sizes == [1, 2, 2048]
    table = {
        (group, int(ranks), name): dict(zip(sizes, map(float, times), strict=True))
        for group, ranks, name, *times in map(str.split, lines)
    }
    gathers = ("all_gather_into_tensor", "all_gather_into_tensor_out")
    names = ("all_reduce", *gathers, "reduce_scatter_tensor")
    assert set(table) == {(g, n, name) for g, n in (("0", 64), ("1", 128)) for name in names}
    for operation, name, factor in (
        ("all_gather", "all_gather_into_tensor", 64),  # S is the output of 64 blocks
        ("reduce_scatter", "reduce_scatter_tensor", 1),
    ):
        (expected,) = ask((64,), (operation,), (2 * MIB * factor,), gathering()).predictions
        assert table["0", 64, name][2] == pytest.approx(1e3 * expected.time_s, rel=1e-5)


def test_a_trace_for_inductor_has_a_kernel_for_each_call_and_dtype() -> None:
    trace = json.loads(ask((64,), ("all_gather", "reduce_scatter"), (MIB,), gathering())
                       .text("inductor"))  # fmt: skip
    (group,) = trace["distributedInfo"]["pg_config"]
    assert group["ranks"] == [*range(64)]
    kernels = [event["args"] for event in trace["traceEvents"] if event["cat"] == "kernel"]
    assert [(k["Collective name"], k["dtype"], k["In msg nelems"], k["Out msg nelems"])
            for k in kernels if k["dtype"] != "Half"] == [
        ("all_gather_into_tensor", "Float", 4096, 262144),
        ("all_gather_into_tensor", "BFloat16", 8192, 524288),
        ("reduce_scatter_tensor", "Float", 262144, 4096),
        ("reduce_scatter_tensor", "BFloat16", 524288, 8192),
    ]  # fmt: skip
    assert {k["Process Group Name"] for k in kernels} == {group["pg_name"]}


@pytest.mark.full
def test_inductor_itself_finds_the_predicted_times(tmp_path: Path) -> None:
    name = "torch._inductor.fx_passes.profile_guided_estimation"
    if not find_spec(name):
        pytest.skip("this torch has no profile-guided estimation")
    from importlib import import_module

    projection = ask((8, 64), (), SIZES, planted.machine(*gathering().fitted[:2]))
    path = tmp_path / "trace.json"
    path.write_text(projection.text("inductor"))
    profile = import_module(name).ProfileData()
    profile.load(str(path))
    for each in projection.predictions:
        found = profile.lookup_collective(
            "all_reduce", tuple(range(each.world_size)), each.size_bytes // 2, "BFloat16"
        )
        assert found == (pytest.approx(1e3 * each.time_s), "profile")


@pytest.mark.parametrize("name", ["autoparallel", "inductor"])
def test_a_form_that_has_no_place_for_an_operation_or_a_size_refuses_it(name: str) -> None:
    machine = planted.machine(planted.fitted("broadcast", "double binary tree", planted.TREE))
    with pytest.raises(UnavailableError, match="reads no times of broadcast") as caught:
        ask(operations=("broadcast",), machine=machine).text(name)
    assert "all_reduce, all_gather, reduce_scatter" in caught.value.hint
    with pytest.raises(UsageError, match="has whole MiB, and 1000 bytes are not"):
        ask(sizes=(1000,)).text("autoparallel")


@pytest.mark.parametrize("ranks", [pytest.param((512,), marks=pytest.mark.full), (4, 8, 64)])
def test_a_projection_is_drawn_over_sizes_and_ranks(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    (path,) = ask(ranks, sizes=SIZES[::2]).plot(tmp_path / "predicted.svg")
    shown = path.read_text()
    assert ("against the number of ranks" in shown) == (len(ranks) > 1)
    for place, sizes, why in (
        (path, SIZES, "exists"),
        (tmp_path / "x.png", (MIB,), "there is no picture"),
        (tmp_path / "x.bmp", SIZES, "which does not say how to draw it"),
    ):
        with pytest.raises(CommbenchError, match=why):
            ask((512,), sizes=sizes).plot(place)


def test_a_picture_of_many_curves_draws_some_of_each_operation() -> None:
    ranks = tuple(range(16, 160, 8))
    picture = predicted_picture(ask(ranks, ("all_reduce", "all_gather"), SIZES[::2], gathering()))
    require_readable(picture)
    panels = [panel for panel in picture.panels if isinstance(panel, Curves)]
    assert [panel.heading.partition(",")[0] for panel in panels] == ["all_reduce", "all_gather"] * 3
    for panel, shown in zip(panels, [{"16 ranks", "64 ranks", "104 ranks", "152 ranks"}] * 4
                            + [{"1 MiB", "256 MiB"}] * 2, strict=True):  # fmt: skip
        names = {each.name for each in panel.series}
        assert {*shown, "measured"} <= names and len(names) <= 5


def test_a_picture_of_residuals_shows_every_ratio() -> None:
    model = planted.fitted(ranks=(32, 64))
    wild = [
        p._replace(time_s=p.time_s * f) for p, f in zip(model.points, (9.0, 0.01), strict=False)
    ]
    picture = residual_picture(planted.machine(model._replace(points=(*wild, *model.points[2:]))))
    require_readable(picture)
    (panel,) = picture.panels
    assert isinstance(panel, Curves)
    drawn = [value.value for each in panel.series for _, value in each.known]
    assert len(drawn) == len(model.points)
    assert min(drawn) == pytest.approx(0.01, rel=0.2)
    low, high = find_limits([panel], panel.scale)
    assert low < 0.011 and high > 9.0


def ring_and_tree() -> Machine:
    """The ring takes longer to begin and then less per byte: they cross at one size."""
    models = (
        planted.fitted(model=model, parameters=(1e-5, 1e-5, beta), variant=f"NCCL {name} simple")
        for name, model, beta in (("tree", "double binary tree", 2e-11), ("ring", "ring", 1e-11))
    )
    return planted.machine(
        *(
            model._replace(points=tuple(p._replace(channels=channels) for p in model.points))
            for model, channels in zip(models, (8, 16), strict=True)
        )
    )


def tuner(machine: Machine, ranks: int = 64) -> list[list[str]]:
    asked = ask((ranks,), sizes=tuple(1 << k for k in range(20, 35)), machine=machine)
    head, *lines = asked.text("nccl-tuner").splitlines()
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


def test_each_choice_far_from_its_measurements_is_named_in_a_warning() -> None:
    def warnings(ranks: int) -> list[str]:
        return warnings_beside(ask((ranks,), sizes=(MIB,), machine=ring_and_tree()), "nccl-tuner")

    (far,) = warnings(4096)
    models = [f"all_reduce across hosts (NCCL {name} simple)" for name in ("tree", "ring")]
    assert far.startswith(f"{', '.join(models)}: some are 8 or more times")
    assert warnings(64) == []


def test_a_machine_of_one_algorithm_is_refused_with_what_to_measure() -> None:
    tree, ring = ring_and_tree().fitted
    # without channels the plugin would use one
    without = [model._replace(points=planted.fitted().points) for model in (tree, ring)]
    for machine in (planted.machine(), planted.machine(tree), planted.machine(*without)):
        with pytest.raises(UnavailableError, match="with different algorithms of NCCL") as caught:
            tuner(machine)
        assert "NCCL_ALGO=Ring" in caught.value.hint
    machine = planted.machine(planted.fitted("all_to_all", "pairwise", planted.RING))
    with pytest.raises(UnavailableError) as caught:
        ask((64,), ("all_to_all",), (MIB,), machine).text("nccl-tuner")
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
    (line,) = tuner(machine, 8)
    assert line[3:6] == ["ring", "simple", "24"]
