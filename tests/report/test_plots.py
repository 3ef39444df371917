"""Plots: files that are made, and files that are left alone."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from pictures import bands, curves, look, panels_of, require_readable
from synthetic_rows import batches

from commbench.analysis.load import open_run
from commbench.analysis.rows import make_rows
from commbench.errors import RecordsError, UnavailableError, UsageError
from commbench.report.curves import find_curves, make_titles, why_no_picture
from commbench.report.plots import draw, run_figures, whole_figure
from commbench.results.schema import Measurement, RankInfo, Run, RunHeader
from commbench.spec.links import parse_peak
from commbench.spec.operations import OPERATION_SETS
from commbench.spec.plan import Plan
from commbench.units import format_known_GBps


def synthetic_run(
    *sizes: int, label: str = "made-up", folder: str = "run", timed: int = 99_999,
    scale: float = 1.0, failed: tuple[int, ...] = (), **wishes: Any,
) -> Run:  # fmt: skip
    """A run in which the first `timed` cases took some microseconds more for each size; the cases
    with the numbers `failed` have no time."""
    usual: dict[str, Any] = {
        "operations": ("all_reduce",), "backend": "gloo", "device": "cpu", "world_size": 2
    }  # fmt: skip
    plan = Plan(sizes=sizes, **{**usual, **wishes})
    header = RunHeader(
        plan=plan,
        label=label,
        started="2026-11-21T00:00:00+00:00",
        launcher="local",
        environment={"processor": "Example Processor"},
        ranks=(RankInfo(0, "example", 1, "cpu"), RankInfo(1, "example", 2, "cpu")),
    )
    measurements = tuple(
        Measurement(
            case=case,
            status="ok",
            batches=batches(*[[1e-6 * scale * (case.index + 1) * (10 + i) for i in range(5)]] * 2),
        )
        if case.index < timed and case.index not in failed
        else Measurement(case=case, status="failed", reason="made up")
        for case in plan.cases()
    )
    return Run(path=f"results/{folder}", header=header, measurements=measurements, end=None)


def size_of_png(path: Path) -> tuple[int, ...]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[12:16] == b"IHDR"
    assert data.endswith(b"IEND\xae\x42\x60\x82")
    return struct.unpack(">II", data[16:24])


def test_bandwidth_and_time_are_drawn_and_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    run = synthetic_run(1024, 4096, 16384)
    folder = tmp_path / "plots" / "new"
    first = draw([run], folder)
    assert first == [folder / "busbw.png", folder / "time.png"]
    assert [size_of_png(path)[0] for path in first] == [1600, 1600]
    second = [folder / "busbw-2.png", folder / "time-2.png"]
    for path in second:
        path.write_bytes(b"another's")
    before = [path.read_bytes() for path in (*first, *second)]
    assert draw([run], folder) == [folder / "busbw-3.png", folder / "time-3.png"]
    assert [path.read_bytes() for path in (*first, *second)] == before
    assert len(list(folder.iterdir())) == 6


def test_several_runs_share_their_axes_above_a_legend_that_hides_nothing(tmp_path: Path) -> None:
    runs = [synthetic_run(1024, 4096, label=label, folder=label) for label in ("ring", "tree")]
    assert draw(runs, tmp_path) == [tmp_path / "busbw.png", tmp_path / "time.png"]
    assert size_of_png(tmp_path / "time.png")[0] == 1600


def test_a_title_says_nothing_twice() -> None:
    one, other, third = (
        synthetic_run(1024, 4096, cpu_mode=mode, world_size=ranks)
        for mode, ranks in (("quiet", 2), ("plain", 2), ("plain", 4))
    )
    place = make_titles([one])[0].removesuffix(", 2 gloo ranks, cpu mode quiet")
    assert make_titles([one, one]) == make_titles([one])
    assert make_titles([one, other, third]) == [
        f"{place}, 2 gloo ranks / 4 gloo ranks, cpu mode quiet / plain"
    ]


def test_more_curves_than_colours_and_markers_are_drawn(tmp_path: Path) -> None:
    run = synthetic_run(
        64, 128,
        operations=("all_reduce", "reduce_scatter", "broadcast"),
        dtypes=("float32", "float64", "int8", "bfloat16"),
    )  # fmt: skip
    assert len(draw([run], tmp_path)) == 2


def test_a_run_of_one_rank_has_no_bus_bandwidth_and_no_picture_of_it(tmp_path: Path) -> None:
    assert draw([synthetic_run(1024, 4096, world_size=1)], tmp_path) == [tmp_path / "time.png"]


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([], "no plot: nothing was timed"),
        ([synthetic_run(1024)], "no plot: there is only one time"),
        ([synthetic_run(1024, 4096)], ""),
        ([synthetic_run(1024, 4096, timed=1)], "no plot: there is only one time"),
        ([synthetic_run(1024, 4096, timed=0)], "no plot: nothing was timed"),
        ([synthetic_run(1024, operations=("all_reduce", "broadcast"))], ""),
        ([synthetic_run(1024, operations=("barrier",))], "no plot: there is only one time"),
        ([synthetic_run(1024, folder="a"), synthetic_run(4096, folder="b")], ""),
        ([synthetic_run(1024), synthetic_run(1024, 4096)], ""),
    ],
)
def test_a_picture_needs_two_sizes_or_two_kinds(runs: list[Run], why: str) -> None:
    assert why_no_picture(runs) == why


def test_runs_of_the_same_label_are_curves_of_their_own() -> None:
    # A label not given is made of the operations, so that many runs have the same.
    for size in (1024, 4096):
        runs = [synthetic_run(1024, folder="monday"), synthetic_run(size, folder="tuesday")]
        assert not find_curves(runs).with_sizes


@pytest.mark.parametrize("runs", [1, 3])
def test_a_single_size_is_a_row_for_each_kind_of_call(runs: int) -> None:
    found = [
        synthetic_run(
            1 << 20, operations=OPERATION_SETS["all"], label=name, folder=name, scale=1 + k
        )
        for k, name in enumerate(("ring", "tree", "a-long-name-of-a-run-with-many-words-in-it"))
    ][:runs]
    (picture,) = run_figures(found)
    require_readable(picture.figure)
    assert picture.title == "Time of 10 operations at 1 MiB"
    (axes,) = panels_of(picture.figure)
    assert len(curves(axes)) == 10 * runs
    assert len([line for line in axes.get_lines() if line.get_gid() == "interval"]) == 10 * runs
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(set(names)) == len(names)


def test_a_figure_of_a_single_time_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as refused:
        draw([synthetic_run(1024)], tmp_path)
    assert refused.value.message == "no plot: there is only one time"
    assert "--sizes" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(RecordsError, match=re.escape(str(file))):
        draw([synthetic_run(1024, 4096)], file)


LADDER = tuple(1 << k for k in range(10, 27))
NCCL_LOG = Path(__file__).parents[1] / "data" / "foreign" / "nccl-tests-several.txt"


def shapes() -> dict[str, Callable[[], list[Run]]]:
    """Runs of every shape that a picture has to cope with."""
    three = ("all_reduce", "all_gather", "broadcast")
    ten = OPERATION_SETS["all"]
    long = "a-run-with-a-name-that-is-much-longer-than-any-legend-would-want-it-to-be-0123456789"
    return {
        "one operation": lambda: [synthetic_run(*LADDER)],
        "ten operations": lambda: [synthetic_run(*LADDER, operations=ten)],
        "three operations in three runs": lambda: [
            synthetic_run(*LADDER, operations=three, label=name, folder=name, scale=1 + k)
            for k, name in enumerate(("ring", "tree", long))
        ],
        "ten operations in two runs": lambda: [
            synthetic_run(*LADDER, operations=ten, label=name, folder=name, scale=1 + k)
            for k, name in enumerate(("ring", "tree"))
        ],
        "many dtypes": lambda: [
            synthetic_run(
                *LADDER[::4], operations=ten, dtypes=("float32", "float64", "int8", "bfloat16")
            )
        ],
        "twelve runs": lambda: [
            synthetic_run(*LADDER[::4], label=f"run {k}", folder=f"{k}", scale=1 + k / 4)
            for k in range(12)
        ],
        "names that no font has": lambda: [
            synthetic_run(*LADDER, label=name, folder=str(k), scale=1 + k)
            for k, name in enumerate(("été", "测试一", "测试二", "$x_2$", "_hidden", "\u202eabc"))
        ],
        "failed rows": lambda: [
            synthetic_run(*LADDER, operations=("all_reduce", "broadcast", "barrier"), failed=(3, 4))
        ],
        "sizes that almost agree": lambda: [
            synthetic_run(1000, 1024, 1048572, 1048576, 5_000_000, operations=three)
        ],
        "sizes in equal steps": lambda: [synthetic_run(*range(1 << 20, (16 << 20) + 1, 1 << 20))],
        "two sizes": lambda: [synthetic_run(1 << 20, 2 << 20)],
        "many sizes": lambda: [synthetic_run(*(1 << k for k in range(33)))],
        "another tool's log": lambda: [open_run(NCCL_LOG)],
    }


@pytest.mark.parametrize(
    ("shape", "peak"),
    [
        *((shape, "") for shape in shapes() if shape != "ten operations in two runs"),
        ("one operation", "450GB/s"), ("two sizes", "1.5GB/s"),
        ("ten operations in two runs", "450GB/s"),
        pytest.param("ten operations", "1.5GB/s", marks=pytest.mark.full),
        pytest.param("ten operations in two runs", "", marks=pytest.mark.full),
    ],
)  # fmt: skip
def test_nothing_covers_anything_else_and_no_two_curves_look_alike(shape: str, peak: str) -> None:
    runs = shapes()[shape]()
    parsed = parse_peak(peak) if peak else None
    pictures = run_figures(runs, parsed)
    assert [picture.name for picture in pictures] == ["busbw", "time"]
    for picture in pictures:
        require_readable(picture.figure)
        assert picture.description.endswith(".")
        for axes in panels_of(picture.figure):
            assert bands(axes) <= 4
            assert not bands(axes) or len(curves(axes)) <= 4


def test_one_picture_holds_bandwidth_and_time_and_its_ending_is_its_format(tmp_path: Path) -> None:
    runs = [synthetic_run(1 << 10, 1 << 20, 1 << 26)]
    beginnings = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    for ending, beginning in beginnings.items():
        path = tmp_path / f"whole{ending}"
        assert draw(runs, path) == [path]
        assert path.read_bytes().startswith(beginning)
    whole = whole_figure(runs)
    assert whole
    require_readable(whole.figure)
    assert len(panels_of(whole.figure)) == 3
    with pytest.raises(RecordsError, match="exists"):
        draw(runs, tmp_path / "whole.svg")


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no ending that says how to draw it"):
        draw(shapes()["two sizes"](), tmp_path / "plot.gif")
    assert not list(tmp_path.iterdir())


def test_a_curve_has_the_colour_of_its_operation_and_the_style_of_its_run() -> None:
    found = run_figures(shapes()["three operations in three runs"]())[1]
    lines = curves(panels_of(found.figure)[0])
    assert len(lines) == 9
    looks = {tuple(line.get_label().split(" ", 1)): look(line) for line in lines}
    for (operation, run), own in looks.items():
        for (other, another), theirs in looks.items():
            assert (own[0] == theirs[0]) == (operation == other)
            assert (own[1:] == theirs[1:]) == (run.strip() == another.strip())
    texts = [text.get_text() for legend in found.figure.legends for text in legend.get_texts()]
    assert texts[:3] == ["all_reduce", "all_gather", "broadcast"]
    assert len(texts) == 6
    assert {"ring", "tree"} < set(texts)
    assert not any("float32" in text for text in texts)
    assert "float32" in " ".join(text.get_text() for text in found.figure.texts)


def test_an_operation_has_the_same_colour_in_every_picture() -> None:
    alone = run_figures([synthetic_run(*LADDER, operations=("broadcast", "reduce"))])[1]
    among = run_figures(shapes()["ten operations"]())[1]
    colours = [
        {line.get_label().split()[0]: line.get_color() for line in curves(panels_of(f.figure)[0])}
        for f in (alone, among)
    ]
    assert len(set(colours[1].values())) == 10
    assert colours[0].items() <= colours[1].items()


def test_ticks_are_at_measured_sizes_and_times_have_units() -> None:
    for picture in run_figures(shapes()["one operation"]()):
        axes = panels_of(picture.figure)[-1]
        ticks = {*axes.xaxis.get_majorticklocs(), *axes.xaxis.get_minorticklocs()}
        assert ticks == set(LADDER)
        labels = [label.get_text() for label in axes.get_xticklabels()]
        assert {"1 KiB", "1 MiB", "64 MiB"} <= set(labels)
    for label in axes.get_yticklabels():
        assert re.fullmatch(r"\d+(\.\d+)? (us|ms|s)", label.get_text())


def test_bandwidth_has_a_linear_axis_from_zero_with_the_peak_written_at_it() -> None:
    run = shapes()["one operation"]()[0]
    row = max(make_rows(run), key=lambda row: row.busbw or 0)
    assert row.time
    # As in the table.
    shown = format_known_GBps(row.busbw, row.busbw_at(row.time.high), row.busbw_at(row.time.low))
    figure = run_figures([run])[0].figure
    linear, log = panels_of(figure)
    assert (linear.get_yscale(), log.get_yscale()) == ("linear", "log")
    assert linear.get_ylim()[0] == 0
    written = [text.get_text() for text in linear.texts if text.get_gid() == "peak-label"]
    assert written == [f"{shown} GB/s"]
    assert log.get_yticklabels()
    for label in (*linear.get_yticklabels(), *log.get_yticklabels()):
        assert re.fullmatch(r"\d+(\.\d+)?", label.get_text())


def test_every_entry_of_a_legend_says_something() -> None:
    found = run_figures([synthetic_run(*LADDER, timing="both")])[0]
    texts = [text.get_text() for legend in found.figure.legends for text in legend.get_texts()]
    assert texts == ["isolated", "pipelined"]


@pytest.mark.parametrize("speed", [0.5, 3.0, 450.0])
def test_the_peak_is_a_line_with_its_speed(speed: float) -> None:
    run = synthetic_run(*LADDER, peak=f"{speed:g}GB/s")
    for picture in (run_figures([run])[0], run_figures([run], parse_peak(f"{speed:g}GB/s"))[0]):
        drawn = []
        for axes in panels_of(picture.figure):
            drawn += [line.get_ydata()[0] for line in axes.get_lines() if line.get_gid() == "peak"]
            seen = " ".join(text.get_text() for text in axes.texts)
            assert f"{speed:g} GB/s" in seen
        assert set(drawn) == {speed}
        assert f"{speed:g} GB/s" in picture.description


def test_a_size_that_failed_is_a_gap_and_a_cross() -> None:
    time = run_figures(shapes()["failed rows"]())[1]
    axes = panels_of(time.figure)[0]
    line = next(line for line in curves(axes) if line.get_label().startswith("all_reduce"))
    gaps = [size for size, y in zip(line.get_xdata(), line.get_ydata(), strict=True) if y != y]
    assert gaps == [LADDER[3], LADDER[4]]
    crosses = [size for found in axes.get_lines() if found.get_gid() == "bad"
               for size in found.get_xdata()]  # fmt: skip
    assert crosses == gaps
    legend = [text.get_text() for each in time.figure.legends for text in each.get_texts()]
    assert legend[-1] == "failed or wrong: no time"
    barrier = next(line for line in curves(axes) if line.get_label().startswith("barrier"))
    assert len(set(barrier.get_ydata())) == 1


def test_a_description_names_the_highest_bandwidth_and_the_times_at_either_end() -> None:
    run = synthetic_run(1024, 4096, operations=("all_reduce", "broadcast"))
    busbw, time = run_figures([run])
    assert busbw.description == (
        "all_reduce reaches the highest bus bandwidth, 0.171 GB/s at 4 KiB; broadcast reaches the "
        "lowest peak, 0.085 GB/s at 4 KiB."
    )
    assert "At 1 KiB all_reduce takes 12.0 us and broadcast takes 36 us; at 4" in time.description


def test_making_a_picture_leaves_matplotlib_as_it_is() -> None:
    with matplotlib.rc_context({"font.size": 33, "axes.facecolor": "red"}):
        run_figures(shapes()["two sizes"]())
        assert matplotlib.rcParams["font.size"] == 33
        assert matplotlib.rcParams["axes.facecolor"] == "red"
    assert "matplotlib.pyplot" not in sys.modules
