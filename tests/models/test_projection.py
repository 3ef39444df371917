"""Projections: the table, the notes, and the forms that other tools read."""

from __future__ import annotations

import csv
import json
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import planted
import pytest
from pictures import require_readable, said

from commbench.errors import CommbenchError, RecordsError, UnavailableError, UsageError
from commbench.models.machine import Machine
from commbench.models.plots import predicted_picture, residual_picture
from commbench.models.predict import Request
from commbench.models.projection import Projection, project
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


@pytest.mark.parametrize("ranks", [(512,), (4, 1 << 24)])
def test_the_table_has_at_most_80_columns(ranks: tuple[int, ...]) -> None:
    machine = planted.machine(planted.fitted(rivals=(planted.candidate(),)), planted.inside())
    text = ask(ranks, sizes=(8, *SIZES, 1 << 50), machine=machine).text()
    assert max(map(len, text.splitlines())) <= 80


def test_the_notes_say_what_makes_a_prediction_uncertain() -> None:
    rival = planted.candidate(model="ring", parameters=planted.RING)
    machine = planted.machine(planted.fitted(rivals=(rival,)))
    notes = " ".join(ask((4096,), sizes=(1024, MIB), machine=machine).notes)
    assert "The data cannot tell double binary tree from: ring." in notes
    assert "4096 ranks: 32 times the most that was measured (128 ranks)." in notes
    assert "1 KiB: 1/1024 of the least that was measured (1 MiB)." in notes
    assert notes.count("Warning: so far from the measurements") == 1
    both = " ".join(ask((16, 512), machine=machine).notes)
    assert "16 ranks: 1/2 of the least that was measured (32 ranks)." in both
    assert "512 ranks: 4 times the most" in both
    other = " ".join(ask((64,), machine=machine, per_node=4).notes)
    only = "No group with 4 ranks on a host was measured, only with 8."
    assert only in other
    assert "ranks on a host was measured" not in both
    near = " ".join(ask((64,), machine=machine).notes)
    assert "times the most" not in near
    assert "Warning" not in near


def test_a_poor_or_untested_fit_is_warned_of() -> None:
    for words, changed in {
        "measured times scatter": {"scatter": 0.4, "cv_error": 0.3},
        "when some of the sizes or ranks are left out": {"scatter": 0.01, "cv_error": 0.3},
        "45 times cannot show whether the model is right": {"scatter": 0.0, "cv_error": None},
    }.items():
        first, second, *_ = ask((64,), machine=planted.machine(planted.fitted(**changed))).notes
        assert first.startswith("all_reduce across hosts: double binary tree")
        assert second.startswith("Warning: ")
        assert words in second
        assert "may be wrong by a factor of 2 or more" in second
    barely = planted.fitted(scatter=0.34, cv_error=0.28)
    assert "Warning" not in " ".join(ask((64,), machine=planted.machine(barely)).notes)


def test_ranks_that_do_not_fill_hosts_are_refused() -> None:
    with pytest.raises(UsageError, match="100 ranks do not fill hosts of 8 ranks") as caught:
        ask((64, 100), per_node=None)
    assert caught.value.hint == "ask for 96 or 104 ranks, or for another --ranks-per-node"
    assert ask((4, 100), per_node=4).predictions


def test_a_row_that_was_adjusted_is_named() -> None:
    factors = ((MIB, 5.0), (2.0 * MIB, 1.0))
    model = planted.fitted(parameters=(5e-5, 0.0, 1e-11), size_factors=factors,
                           sizes=(MIB, 2 * MIB))  # fmt: skip
    machine = planted.machine(model)
    notes = ask((64,), sizes=(MIB, 2 * MIB), machine=machine).notes
    assert (
        "With 64 ranks and 2 MiB the model alone breaks the order of sizes or ranks: its time is "
        "adjusted (1 of 2 rows)." in notes
    )


def test_csv_has_a_line_for_each_prediction() -> None:
    projection = ask((8, 64))
    lines = list(csv.DictReader(StringIO(projection.text("csv"))))
    assert list(lines[0])[:9] == [
        "operation", "world_size", "ranks_per_node", "size_bytes", "time_us", "time_low_us",
        "time_high_us", "algbw_GBps", "busbw_GBps",
    ]  # fmt: skip
    for line, found in zip(lines, projection.predictions, strict=True):
        assert int(line["size_bytes"]) == found.size_bytes
        assert float(line["time_us"]) == pytest.approx(1e6 * found.time_s, rel=1e-4)
        assert float(line["time_low_us"]) < float(line["time_us"]) < float(line["time_high_us"])
        assert found.busbw is not None
        assert float(line["busbw_GBps"]) == pytest.approx(found.busbw / 1e9, rel=1e-4)


def test_json_has_the_same_rows_and_the_notes() -> None:
    projection = ask((8, 64))
    told = json.loads(projection.text("json"))
    assert (told["schema"], told["machine"], told["notes"]) == (2, "planted", projection.notes)
    lines = list(csv.DictReader(StringIO(projection.text("csv"))))
    rows = [{name: str(value) for name, value in row.items()} for row in told["rows"]]
    assert rows == lines


def test_json_of_a_call_without_data_has_null_for_its_bandwidth() -> None:
    barrier = planted.fitted("barrier", "dissemination", (1e-6, 2e-6, 0.0), sizes=(0,))
    told = json.loads(ask(operations=(), machine=planted.machine(barrier)).text("json"))
    assert told["rows"][0]["busbw_GBps"] is None
    assert "barrier" in ask(operations=(), machine=planted.machine(barrier)).text()


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
    names = {
        "all_reduce", "all_gather_into_tensor", "all_gather_into_tensor_out",
        "reduce_scatter_tensor",
    }  # fmt: skip
    assert set(table) == {(g, n, name) for g, n in (("0", 64), ("1", 128)) for name in names}
    for operation, name, factor in (
        ("all_gather", "all_gather_into_tensor", 64),  # S is the output of 64 blocks
        ("reduce_scatter", "reduce_scatter_tensor", 1),
    ):
        (expected,) = ask((64,), (operation,), (2 * MIB * factor,), gathering()).predictions
        assert table["0", 64, name][2] == pytest.approx(1e3 * expected.time_s, rel=1e-5)


def test_a_table_of_autoparallel_has_whole_mib() -> None:
    with pytest.raises(UsageError, match="has whole MiB, and 1000 bytes are not"):
        ask(sizes=(1000,)).text("autoparallel")


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

    projection = ask((8, 64), (), SIZES, gathering()._replace(fitted=gathering().fitted[:2]))
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
def test_a_form_that_has_no_place_for_an_operation_refuses_it(name: str) -> None:
    machine = planted.machine(planted.fitted("broadcast", "double binary tree", planted.TREE))
    with pytest.raises(UnavailableError, match="reads no times of broadcast") as caught:
        ask(operations=("broadcast",), machine=machine).text(name)
    assert "all_reduce, all_gather, reduce_scatter" in caught.value.hint


@pytest.mark.parametrize("ranks", [pytest.param((512,), marks=pytest.mark.full), (4, 8, 64)])
def test_a_projection_is_drawn_over_sizes_and_ranks(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    path = ask(ranks, sizes=SIZES[::2]).plot(tmp_path / "new" / "predicted.svg")
    shown = path.read_text()
    assert ("against the number of ranks" in shown) == (len(ranks) > 1)
    with pytest.raises(RecordsError, match="exists"):
        ask(ranks).plot(path)


def test_a_picture_of_many_curves_draws_some_of_each_operation() -> None:
    ranks = tuple(range(16, 160, 8))
    picture = predicted_picture(ask(ranks, ("all_reduce", "all_gather"), SIZES[::2], gathering()))
    require_readable(picture)
    expected = {
        f"{operation}, {which}"
        for operation in ("all_reduce", "all_gather")
        for which in ("16 ranks", "64 ranks", "104 ranks", "152 ranks", "1 MiB", "256 MiB")
    }
    panels = [panel for panel in picture.panels if isinstance(panel, Curves)]
    assert {each.name for panel in panels for each in panel.series} == {*expected, "measured"}


def test_a_picture_shows_its_curves_however_wide_the_intervals_are() -> None:
    for scale, is_cut in ((1.0, False), (100.0, True)):
        projection = ask((64,), machine=planted.machine(planted.fitted(error_scale=scale)))
        figure = require_readable(predicted_picture(projection))
        time, busbw = figure.axes
        times = [each.time_s for each in projection.predictions]
        low, high = time.get_ylim()
        assert low < min(times) and max(times) < high
        assert high / low < 150 * max(times) / min(times)
        assert busbw.get_ylim()[1] < 3 * max(p.busbw or 0 for p in projection.predictions)
        assert ("goes on beyond it" in said(figure)) == is_cut


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
    low, high = find_limits([panel], panel.scale, True)
    assert low < 0.011 and high > 9.0


def test_a_picture_of_one_point_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="nothing to draw"):
        ask(sizes=(MIB,)).plot(tmp_path / "x.png")
    with pytest.raises(CommbenchError, match="no ending"):
        ask().plot(tmp_path / "x.bmp")
